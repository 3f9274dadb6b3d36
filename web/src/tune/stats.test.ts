import { expect, test } from 'vitest';
import { compareShares, judgeDifference, type Share } from './stats';

const wilson = (hits: number, n: number): Share => {
  const z = 1.959964;
  const p = hits / n;
  const center = (p + (z * z) / (2 * n)) / (1 + (z * z) / n);
  const half = (z / (1 + (z * z) / n)) * Math.sqrt((p * (1 - p)) / n + (z * z) / (4 * n * n));
  return { value: p, low: center - half, high: center + half, n };
};

test('the interval of a difference is that of Newcombe', () => {
  // Example (a) of table II in Newcombe 1998: 56/70 − 48/80, 0.0524 to 0.3339.
  const result = compareShares(wilson(48, 80), wilson(56, 70));
  expect(result?.difference).toBeCloseTo(0.2, 10);
  expect(result?.low).toBeCloseTo(0.0524, 4);
  expect(result?.high).toBeCloseTo(0.3339, 4);
});

test('a difference is better or worse only when its interval excludes zero', () => {
  const more = { difference: 0.2, low: 0.05, high: 0.33 };
  expect(judgeDifference('passage_first', more)).toBe('better');
  expect(judgeDifference('falsely_refused', more)).toBe('worse');
  expect(judgeDifference('passage_first', { difference: 0.2, low: -0.01, high: 0.4 })).toBe(
    'unclear',
  );
});

test('without questions there is nothing to compare', () => {
  const none = { value: null, low: null, high: null, n: 0 };
  expect(compareShares(none, wilson(1, 2))).toBeNull();
});
