import { expect, test } from 'vitest';
import type { Schemas } from '@/shared/api/client';
import { outcomeOf } from './runs-page';

type Summary = Schemas['RunSummary'];
const answered: Summary = {
  run_id: '1',
  kind: 'query',
  received_at: '2026-01-01T00:00:00Z',
  answered_at: '2026-01-01T00:00:01Z',
  state: 'completed',
  generation: 'g1',
  query: 'How many days?',
  profile: 'default',
  refused: false,
  answer: '45',
};

test.each<[Partial<Summary>, string]>([
  [{}, 'answered'],
  [{ refused: true, answer: null }, 'refused'],
  [{ kind: 'search', refused: null }, 'found'],
  [{ state: 'running', answered_at: null }, 'running'],
  [{ state: 'cancelled', answered_at: null }, 'cancelled'],
  // Neither started as a run nor answered: the process may have ended.
  [{ state: null, answered_at: null }, 'unknown'],
  [{ state: 'completed', answered_at: null }, 'unknown'],
])('%o is %s', (change, outcome) => {
  expect(outcomeOf({ ...answered, ...change })).toBe(outcome);
});
