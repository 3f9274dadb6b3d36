import { expect, test } from 'vitest';
import { formatFor } from './format';

const english = formatFor('en');

test('numbers have thin separators', () => {
  expect(english.count(1234567)).toBe('1\u2009234\u2009567');
});

test('durations and sizes pick their unit', () => {
  expect([3.21, 140, 1400, 240_000, 7_200_000].map(english.duration)).toEqual([
    '3.2 ms',
    '140 ms',
    '1.4 s',
    '4 min',
    '2 h',
  ]);
  expect([999, 12_345, 5_000_000].map(english.bytes)).toEqual(['999 B', '12.3 KB', '5 MB']);
});

test('times are relative within a day and dates before it', () => {
  const now = Date.parse('2026-01-10T12:00:00Z');
  expect(english.ago('2026-01-10T11:58:00Z', now)).toBe('2 min. ago');
  expect(english.ago('2026-01-01T00:00:00Z', now)).toContain('2026');
});

test('scores have the decimal mark of the language', () => {
  expect([0.914, -0.2, 22.99].map(english.score)).toEqual(['.91', '-.20', '22.99']);
  expect([0.914, -0.2, 22.99].map(formatFor('pt-BR').score)).toEqual(['0,91', '-0,20', '22,99']);
});
