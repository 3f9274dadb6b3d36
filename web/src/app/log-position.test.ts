import { expect, test } from 'vitest';
import { toPosition } from './log-position';

const stage = (acknowledged: number, end: number, lag: number, oldest_seconds: number | null) => ({
  is_live: true,
  acknowledged,
  end,
  lag,
  oldest_seconds,
});

test('on Postgres the first event that a stage has to read is the position', () => {
  const items = [stage(80, 90, 2, 1.5), stage(70, 95, 3, 4), stage(60, 60, 0, null)];
  expect(toPosition(items, false)).toEqual({ reached: 70, behind: 5, oldestSeconds: 4 });
});

test('tables that are up to date are at the end of the log', () => {
  const items = [stage(90, 90, 0, null), stage(95, 95, 0, null)];
  expect(toPosition(items, false)).toEqual({ reached: 95, behind: 0, oldestSeconds: 0 });
});

test('on Kafka the offsets of the topics are summed', () => {
  const items = [stage(80, 82, 2, 1), stage(70, 70, 0, null)];
  expect(toPosition(items, true).reached).toBe(150);
});

test('a generation that is being built does not hold the position back', () => {
  const items = [stage(90, 90, 0, null), { ...stage(5, 90, 85, 9), is_live: false }];
  expect(toPosition(items, false)).toEqual({ reached: 90, behind: 0, oldestSeconds: 0 });
});
