import { expect, test } from 'vitest';
import { addSample, estimate, type Sample } from './eta';

const START = 1_000_000;
const steady = (seconds: number, perSecond: number): Sample[] =>
  Array.from({ length: seconds + 1 }, (_, s) => ({ at: START + s * 1000, done: s * perSecond }));

test('nothing is promised in the first 30 seconds', () => {
  expect(estimate(steady(10, 1), 100, START + 10_000)).toEqual({ kind: 'calculating' });
  expect(estimate([], 100, START)).toEqual({ kind: 'calculating' });
});

test('a steady rate gives one number, a changed one a range', () => {
  expect(estimate(steady(60, 1), 100, START + 60_000)).toEqual({
    kind: 'range',
    lowMs: 40_000,
    highMs: 40_000,
  });
  const slower = [...steady(300, 2), { at: START + 330_000, done: 615 }];
  const eta = estimate(slower, 1000, START + 330_000);
  expect(eta.kind).toBe('range');
  if (eta.kind === 'range') expect(eta.lowMs).toBeLessThan(eta.highMs);
});

test('no progress for a minute is said, whatever the rate was', () => {
  expect(estimate(steady(60, 1), 100, START + 120_000)).toEqual({
    kind: 'stalled',
    forMs: 60_000,
  });
});

test('the end is no estimate', () => {
  expect(estimate(steady(100, 1), 100, START + 500_000)).toEqual({ kind: 'done' });
});

test('samples without progress add nothing, and a restart begins anew', () => {
  const samples = steady(2, 1);
  expect(addSample(samples, { at: START + 9000, done: 2 })).toEqual(samples);
  expect(addSample(samples, { at: START + 9000, done: 0 })).toEqual([
    { at: START + 9000, done: 0 },
  ]);
});
