import { CHANNELS, type Fusion, type FusionInput, type FusionProfile, fuse, TERMS } from './fusion';
import {
  expandToPassages,
  type RankedPassage,
  type RerankInput,
  type RerankProfile,
  rerank,
} from './ranking';
import type { Candidate, RecordedRun } from './run-data';

/** The settings of a recorded run whose effect its numbers can show. */
export type WhatIfProfile = { fusion: FusionProfile; rerank: RerankProfile };
export type WhatIfResult = { fusion: Fusion; passages: RankedPassage[] };

export function recordedProfile(run: RecordedRun): WhatIfProfile | null {
  if (run.record === null || run.candidates.length === 0) return null;
  const { fusion, rerank: reranking } = run.record.profile;
  return {
    fusion: fusion as unknown as FusionProfile,
    rerank: reranking as unknown as RerankProfile,
  };
}

/** The input of fusion from the numbers of a run, as a rerun restores it. */
export function restoreInput(run: RecordedRun): FusionInput {
  const { candidates } = run;
  const parts = (name: string) =>
    new Map(
      candidates.flatMap((candidate) => {
        const value = candidate.parts[name];
        return value === undefined ? [] : [[candidate.chunk_id, value] as const];
      }),
    );
  const hits = CHANNELS.map((channel) => [
    channel,
    new Map(
      candidates.flatMap((candidate) => {
        const place = candidate.channels[channel];
        return place ? [[candidate.chunk_id, place.score] as const] : [];
      }),
    ),
  ]);
  const lexical = run.numbers.fusion?.lexical as { coverage?: number } | undefined;
  return {
    hits: Object.fromEntries(hits),
    complete: new Set(run.record?.complete),
    pairScores: parts('word_pairs'),
    coverage: lexical?.coverage ?? 1,
    backgrounds: parts('semantic_background'),
    named: parts('named'),
    bridged: parts('bridged'),
    titles: parts('title'),
    weightFactors: run.trace?.plan?.weights ?? {},
    terms: Object.fromEntries(TERMS.map((name) => [name, parts(name)])),
  };
}

function restoreReranking(run: RecordedRun, namesDocument: boolean): RerankInput {
  const byPassage = (value: (candidate: Candidate) => number | null | undefined) =>
    new Map(
      run.candidates.flatMap((candidate) => {
        const score = value(candidate);
        return score === undefined || score === null ? [] : [[candidate.parent_id, score] as const];
      }),
    );
  return {
    role: run.numbers.rerank?.role ?? null,
    scores: byPassage((candidate) => candidate.rerank_score),
    order: byPassage((candidate) => candidate.rerank_order),
    namesDocument,
  };
}

/** Rank the recorded candidates with other settings. Near-duplicates are not folded again. */
export function rankAgain(run: RecordedRun, profile: WhatIfProfile): WhatIfResult {
  const input = restoreInput(run);
  const parents = new Map(run.candidates.map(({ chunk_id, parent_id }) => [chunk_id, parent_id]));
  const fusion = fuse(input, profile.fusion);
  const expanded = expandToPassages(
    fusion.candidates,
    (id) => parents.get(id) as string,
    profile.rerank.expand,
  );
  const passages = rerank(expanded, restoreReranking(run, input.named.size > 0), profile.rerank);
  return { fusion, passages };
}

/** Settings that change nothing without numbers that this run did not record. */
export function usableSettings(run: RecordedRun): Record<'fusion' | 'rerank', string[]> {
  const input = restoreInput(run);
  const isNamed = input.named.size > 0;
  const has = (channel: (typeof CHANNELS)[number]) => (input.hits[channel]?.size ?? 0) > 0;
  const offered: [string, boolean][] = [
    ['method', true],
    ...CHANNELS.map((channel): [string, boolean] => [channel, has(channel)]),
    ['rrf_k', true],
    ['bigram', input.pairScores.size > 0],
    ['full_coverage', has('lexical')],
    ['background', !isNamed && input.backgrounds.size > 0],
    ['unnamed_semantic', !isNamed && has('semantic')],
    ['unnamed_graph', !isNamed && has('graph')],
    ['named', isNamed],
    ['bridged', input.bridged.size > 0],
    ['title', input.titles.size > 0],
    ...TERMS.filter((name) => name !== 'edge_type').map((name): [string, boolean] => [
      name,
      (input.terms[name]?.size ?? 0) > 0,
    ]),
  ];
  return {
    fusion: offered.filter(([, isUsable]) => isUsable).map(([name]) => name),
    rerank:
      run.numbers.rerank?.role === 'added' ? ['weight', ...(isNamed ? ['named_factor'] : [])] : [],
  };
}
