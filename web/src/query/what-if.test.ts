import { expect, test } from 'vitest';
import type { FusionProfile } from './fusion';
import recordedRuns from './recorded-runs.fixture.json';
import { type Run, readRun } from './run-data';
import { rankAgain, recordedProfile, usableSettings, type WhatIfProfile } from './what-if';

// Runs of the sample documents: z-scores, a question that names a document, reciprocal ranks.
const runs = (recordedRuns as unknown as Run[]).map(readRun);
const [zscoreRun, namedRun, rrfRun] = runs as [
  (typeof runs)[0],
  (typeof runs)[0],
  (typeof runs)[0],
];

function change(profile: WhatIfProfile, fusion: Partial<FusionProfile>): WhatIfProfile {
  return { ...profile, fusion: { ...profile.fusion, ...fusion } };
}

test.each(runs.map((run) => ({ id: run.id, run })))(
  'run $id with its own settings has its own order and scores',
  ({ run }) => {
    const { fusion, passages } = rankAgain(run, recordedProfile(run) as WhatIfProfile);
    expect(fusion.method).toBe(run.numbers.fusion?.method);
    expect(fusion.candidates.map((candidate) => candidate.id)).toEqual(
      run.candidates.map((candidate) => candidate.chunk_id),
    );
    for (const [index, candidate] of fusion.candidates.entries()) {
      expect(candidate.score).toBeCloseTo(run.candidates[index]?.fused as number, 12);
      expect(candidate.places).toEqual(run.candidates[index]?.channels);
    }
    const recorded = run.candidates
      .filter((candidate) => candidate.parent_score !== undefined)
      .toSorted((left, right) => (right.parent_score as number) - (left.parent_score as number));
    expect(passages.map((passage) => passage.id)).toEqual(
      recorded.map((candidate) => candidate.parent_id),
    );
    for (const [index, passage] of passages.entries()) {
      expect(passage.score).toBeCloseTo(recorded[index]?.parent_score as number, 12);
    }
  },
);

test('a weight of zero leaves the ranks to the other channels', () => {
  const profile = recordedProfile(zscoreRun) as WhatIfProfile;
  const { fusion } = rankAgain(
    zscoreRun,
    change(profile, { semantic: 0, graph: 0, title: 0, bigram: 0 }),
  );
  const ranks = fusion.candidates.flatMap(({ places }) => places.lexical?.rank ?? []);
  expect(ranks).toEqual(ranks.toSorted((left, right) => left - right));
  expect(ranks.length).toBeGreaterThan(2);
});

test('the settings offered are those whose inputs the run recorded', () => {
  expect(usableSettings(namedRun).fusion).toContain('named');
  expect(usableSettings(namedRun).fusion).not.toContain('unnamed_graph');
  expect(usableSettings(zscoreRun).fusion).not.toContain('named');
  expect(usableSettings(rrfRun).fusion).not.toContain('bigram');
});
