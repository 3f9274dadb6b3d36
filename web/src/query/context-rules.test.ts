// @vitest-environment node
import { expect, test } from 'vitest';
import { explainPacking } from './context-rules';
import type { Candidate, Passage, RecordedRun } from './run-data';

function makeCandidate(name: string, score: number, strength: number): Candidate {
  return {
    chunk_id: `c-${name}`,
    parent_id: name,
    document_id: `d-${name}`,
    channels: {},
    parts: {},
    fused: score,
    parent_score: score,
    rerank_score: strength + 0.5,
  };
}

function makeRun(
  read: string[],
  candidates: Candidate[],
  { k = 10, perDocument = null as number | null, duplicates = [] as string[] } = {},
): RecordedRun {
  return {
    request: { k },
    trace: { rerank_background: 0.5 },
    passages: read.map((name) => ({ parent_id: name, duplicates }) as unknown as Passage),
    candidates,
    record: {
      profile: {
        answer: { trim: 0.5, context_tokens: 4000 },
        rerank: { keep: 10 },
        fusion: { per_document: perDocument },
      },
      parents: [{ id: 'large', tokens: 3900 }],
    },
  } as unknown as RecordedRun;
}

test('each passage that was not read has the rule that dropped it', () => {
  const candidates = [
    makeCandidate('best', 9, 1),
    makeCandidate('twin', 8, 1),
    makeCandidate('weak', 7, 0.4),
    makeCandidate('large', 6, 0.8),
    makeCandidate('late', 5, 0.9),
    // A chunk whose passage another chunk represents is no passage of its own.
    { ...makeCandidate('best', 1, 1), chunk_id: 'c-other', parent_score: undefined as never },
  ];
  const packing = explainPacking(makeRun(['best'], candidates, { k: 3, duplicates: ['d-twin'] }));
  expect(packing?.dropped.map(({ passageId, rule, rank }) => [passageId, rule, rank])).toEqual([
    ['twin', 'duplicate', 2],
    ['weak', 'trim', 3],
    ['large', 'budget', 4],
    ['late', 'limit', 5],
  ]);
  expect(packing?.needed).toBe(0.5);
  expect(packing?.dropped[2]?.tokens).toBe(3900);
});

test('a document gives no more passages than the profile allows', () => {
  const same = { document_id: 'd' };
  const packing = explainPacking(
    makeRun(
      ['a'],
      [
        { ...makeCandidate('a', 9, 1), ...same },
        { ...makeCandidate('b', 8, 1), ...same },
      ],
      { perDocument: 1 },
    ),
  );
  expect(packing?.dropped.map(({ rule }) => rule)).toEqual(['per_document']);
});
