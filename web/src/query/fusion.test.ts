// @vitest-environment node
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { type FusionInput, type FusionProfile, fuse } from './fusion';
import { expandToPassages, type RerankProfile, rerank } from './ranking';

type Scores = Record<string, number>;
type Case = {
  parents: number[];
  hits: Record<string, Scores>;
  complete: string[];
  pair_scores: Scores;
  coverage: number;
  backgrounds: Scores;
  named: Scores;
  bridged: Scores;
  titles: Scores;
  weight_factors: Scores;
  terms: Record<string, Scores>;
  fusion: Partial<FusionProfile>;
  rerank: RerankProfile;
  role: 'added' | 'replaces' | null;
  rerank_scores: Scores;
  has_order: boolean;
  expected: { method: string; chunks: [number, number][]; passages: [number, number][] };
};

// Written by tests/support/fusion_vectors.py with the fusion of the server.
const cases: Case[] = JSON.parse(
  readFileSync(`${import.meta.dirname}/../../../tests/golden/fusion_vectors.json`, 'utf-8'),
);

// Ids sort like UUIDs of these numbers.
const toId = (chunk: number | string) => String(chunk).padStart(4, '0');
const toMap = (scores: Scores) =>
  new Map(Object.entries(scores).map(([chunk, score]) => [toId(chunk), score]));
const mapAll = (all: Record<string, Scores>) =>
  Object.fromEntries(Object.entries(all).map(([name, scores]) => [name, toMap(scores)]));

function toInput(vector: Case): FusionInput {
  return {
    hits: mapAll(vector.hits),
    complete: new Set(vector.complete),
    pairScores: toMap(vector.pair_scores),
    coverage: vector.coverage,
    backgrounds: toMap(vector.backgrounds),
    named: toMap(vector.named),
    bridged: toMap(vector.bridged),
    titles: toMap(vector.titles),
    weightFactors: vector.weight_factors,
    terms: mapAll(vector.terms),
  };
}

function expectRows(actual: { id: string; score: number }[], expected: [number, number][]) {
  expect(actual.map((row) => row.id)).toEqual(expected.map(([chunk]) => toId(chunk)));
  for (const [index, row] of actual.entries()) {
    const score = (expected[index] as [number, number])[1];
    expect(Math.abs(row.score - score)).toBeLessThanOrEqual(1e-12 * Math.max(1, Math.abs(score)));
  }
}

test.each(cases.map((vector, number) => ({ number, vector })))(
  'case $number: order and scores are those of the server',
  ({ vector }) => {
    const fusion = fuse(toInput(vector), vector.fusion as FusionProfile);
    expect(fusion.method).toBe(vector.expected.method);
    expectRows(fusion.candidates, vector.expected.chunks);
    const passages = expandToPassages(
      fusion.candidates,
      (id) => toId(vector.parents[Number(id)] as number),
      vector.rerank.expand,
    );
    const scores = toMap(vector.rerank_scores);
    const order = vector.has_order
      ? new Map([...scores].map(([id, score]) => [id, (score * 7) % 2]))
      : new Map<string, number>();
    const namesDocument = Object.keys(vector.named).length > 0;
    const ranked = rerank(
      passages,
      { role: vector.role, scores, order, namesDocument },
      vector.rerank,
    );
    expectRows(ranked, vector.expected.passages);
    // The addends shown on the page make up the score.
    for (const passage of ranked) {
      const sum = Object.values(passage.addends).reduce((total, value) => total + value, 0);
      expect(sum).toBeCloseTo(passage.score, 9);
    }
  },
);
