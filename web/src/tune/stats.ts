import type { Schemas } from '@/shared/api/client';

export type Share = Schemas['ShareInterval'];
export type Measures = Schemas['ExamMeasures'];
export type Measure = keyof Measures;

export const MEASURES: Measure[] = [
  'passage_first',
  'passage_in_ten',
  'falsely_refused',
  'correctly_refused',
];
/** Of this one less is better. */
export const LESS_IS_BETTER: ReadonlySet<Measure> = new Set(['falsely_refused']);

export type Difference = { difference: number; low: number; high: number };

/**
 * The difference B − A of two shares with its 95 % interval, from their Wilson intervals (Newcombe
 * 1998, method 10). It takes the questions as independent; equal ones make it wider than needed.
 */
export function compareShares(a: Share, b: Share): Difference | null {
  if (a.value === null || a.low === null || a.high === null) return null;
  if (b.value === null || b.low === null || b.high === null) return null;
  const difference = b.value - a.value;
  return {
    difference,
    low: difference - Math.hypot(b.value - b.low, a.high - a.value),
    high: difference + Math.hypot(b.high - b.value, a.value - a.low),
  };
}

export type Verdict = 'better' | 'worse' | 'unclear';

export function judgeDifference(measure: Measure, { low, high }: Difference): Verdict {
  if (low <= 0 && high >= 0) return 'unclear';
  return low > 0 !== LESS_IS_BETTER.has(measure) ? 'better' : 'worse';
}
