import { expect, test } from 'vitest';
import { toPeriod } from './date-range';

test('a period lasts until the end of its last day', () => {
  const { from, to } = toPeriod({ since: '2026-05-01', until: '2026-05-01' });
  expect(new Date(from ?? '').getHours()).toBe(0);
  expect(Date.parse(to ?? '') - Date.parse(from ?? '')).toBe(24 * 3600 * 1000);
});

test('what is no date limits nothing', () => {
  expect(toPeriod({ since: 'yesterday', until: undefined })).toEqual({});
});
