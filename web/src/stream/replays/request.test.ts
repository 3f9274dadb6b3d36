import { expect, test } from 'vitest';
import { EMPTY_FORM, parseOffsets, toRequest } from './request';

test('offset ranges are read as the command line writes them', () => {
  expect(parseOffsets('3:100-200')).toEqual({ partition: 3, start: 100, end: 200 });
  expect(parseOffsets('3:100-')).toEqual({ partition: 3, start: 100, end: null });
  expect(parseOffsets('0:-200')).toEqual({ partition: 0, start: null, end: 200 });
  expect(parseOffsets('2')).toEqual({ partition: 2, start: null, end: null });
  for (const bad of ['', 'a', '3:1', '3:1-2-3', '-1:2-3']) expect(parseOffsets(bad)).toBeNull();
});

test('criteria that are not filled in are omitted', () => {
  expect(toRequest(EMPTY_FORM, true)).toEqual({ stage: 'extract', dry_run: true, offsets: [] });
});

test('times are sent with their zone', () => {
  const request = toRequest({ ...EMPTY_FORM, since: '2026-11-28T06:00', perSecond: 5 }, false);
  expect(request.since).toBe(new Date('2026-11-28T06:00').toISOString());
  expect(request.per_second).toBe(5);
});
