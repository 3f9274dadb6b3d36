import { type QueryClient, useQuery } from '@tanstack/react-query';
import type { Hit } from '@/evidence/context';
import { api, call, type Schemas } from '@/shared/api/client';
import type { Channel, Place } from './fusion';

export type Run = Schemas['Run'];
export type Answer = Schemas['QueryResponse'];
export type Found = Schemas['SearchResponse'];
export type Citation = Schemas['Citation'];
export type Passage = Schemas['SearchResult'];
export type QueryRequest = Schemas['QueryRequest'];

/** A candidate as `retrieval/run_record.py` records it: a chunk with all its scores. */
export type Candidate = {
  chunk_id: string;
  parent_id: string;
  document_id: string;
  channels: Partial<Record<Channel, Place>>;
  parts: Record<string, number>;
  fused: number;
  parent_score?: number;
  rerank_score?: number | null;
  rerank_order?: number;
};

/** The parts of `run_record` that the screens read. */
export type RunRecord = {
  profile: { name?: string } & Record<string, Record<string, unknown>>;
  question: string;
  keywords: string[];
  complete: Channel[];
  linked: string[];
  parents: { id: string; document_id: string; section: string; pages: number[]; tokens: number }[];
  chunks: {
    id: string;
    parent_id: string;
    document_id: string;
    revision: number;
    title: string | null;
    spans: Schemas['Span'][];
  }[];
  prompts?: Record<string, string>;
};

export type RunNumbers = {
  fusion?: { method?: string } & Record<string, unknown>;
  rerank?: { role?: 'added' | 'replaces'; weight?: number; offered?: number };
  idf?: Record<string, Record<string, number>>;
  refusal?: { best: number | null; threshold: number | null; reason: string; refused: boolean };
};

/** A recorded run with the types of what it recorded; null for what is not there. */
export type RecordedRun = {
  id: string;
  isQuery: boolean;
  answer: Answer | null;
  trace: Schemas['Trace'] | null;
  passages: Passage[];
  candidates: Candidate[];
  numbers: RunNumbers;
  record: RunRecord | null;
  request: QueryRequest | null;
};

export function readRun(run: Run): RecordedRun {
  const isQuery = run.kind !== 'search';
  const response = run.response as unknown as (Answer & Found) | null;
  return {
    id: run.run_id,
    isQuery,
    answer: isQuery ? response : null,
    trace: response?.trace ?? null,
    passages: (isQuery ? response?.contexts : response?.results) ?? [],
    candidates: (run.candidates ?? []) as unknown as Candidate[],
    numbers: (run.numbers ?? {}) as RunNumbers,
    record: run.run_record as unknown as RunRecord | null,
    request: run.request as unknown as QueryRequest | null,
  };
}

export function useRun(id: string) {
  return useQuery({
    queryKey: ['runs', id],
    queryFn: () => call(api.GET('/v1/runs/{run}', { params: { path: { run: id } } })),
    // An answer is recorded a moment after it was sent.
    refetchInterval: ({ state }) =>
      state.data?.state === 'running' || (state.data?.state === 'completed' && !state.data.response)
        ? 1000
        : false,
  });
}

/** Show the question of a run that was just started: its record comes a moment later. */
export function showStarted(client: QueryClient, runId: string, request: QueryRequest): void {
  const run: Run = {
    run_id: runId,
    kind: 'query',
    request: request as unknown as Run['request'],
    received_at: new Date().toISOString(),
    answered_at: null,
    state: 'running',
    generation: null,
    response: null,
    candidates: null,
    numbers: null,
    run_record: null,
  };
  client.setQueryData(['runs', runId], run);
  void client.invalidateQueries({ queryKey: ['runs', 'list'] });
}

const MAX_TURNS = 5;
/** The most that the API takes of a message. */
const MAX_MESSAGE = 8000;

/** The conversation before the next question, the oldest turn first. `runs` are newest first. */
export function listHistory(runs: (Run | undefined)[]): QueryRequest['history'] {
  return runs
    .slice(0, MAX_TURNS)
    .reverse()
    .flatMap((run) => {
      const { request, answer } = run ? readRun(run) : { request: null, answer: null };
      const text = answer?.answer ?? answer?.message;
      return [
        ...(request ? [{ role: 'user' as const, text: request.query.slice(0, MAX_MESSAGE) }] : []),
        ...(text ? [{ role: 'assistant' as const, text: text.slice(0, MAX_MESSAGE) }] : []),
      ];
    });
}

export function toHit(citation: Citation): Hit {
  return {
    documentId: citation.document_id,
    revision: citation.revision,
    spans: citation.spans,
    title: citation.title ?? null,
    quote: citation.quote,
    pages: citation.pages,
    chunkId: citation.chunk_id,
    section: citation.section,
  };
}

export function passageHit(passage: Passage): Hit {
  return {
    documentId: passage.document_id,
    revision: passage.revision,
    spans: passage.spans,
    title: passage.title ?? null,
    quote: passage.snippet,
    pages: passage.pages,
    chunkId: passage.chunk_id,
    section: passage.section,
  };
}

/** The body that asks the same again, without what a run sets by itself. */
export function requestOf(request: Partial<QueryRequest> & { query: string }): QueryRequest {
  const { stream: _, debug: __, explain: ___, ...rest } = request as QueryRequest;
  return rest as QueryRequest;
}

export type Assumption = { text: string; without: Partial<QueryRequest> | null };

/**
 * Split an assumption into what it says and the change of the request that it names:
 * "… Set prefer_named to false to …", "… Set overrides to {…} to …".
 */
export function parseAssumption(text: string): Assumption {
  const at = text.indexOf(' Set ');
  if (at < 0) return { text, without: null };
  const said = text.slice(0, at);
  const advice = text.slice(at + 5);
  const flag = /^(prefer_named|infer_filters) to false\b/.exec(advice)?.[1];
  if (flag !== undefined) return { text: said, without: { [flag]: false } };
  const from = advice.indexOf('{');
  const to = advice.lastIndexOf('}');
  if (!advice.startsWith('overrides to {') || to < from) return { text, without: null };
  try {
    return { text: said, without: { overrides: JSON.parse(advice.slice(from, to + 1)) } };
  } catch {
    // Names of entities may hold braces; the whole sentence still says what to do.
    return { text, without: null };
  }
}

type Overrides = NonNullable<QueryRequest['overrides']>;

/** Overrides of both, section by section; the later ones win. */
export function mergeOverrides(
  base: Overrides | undefined,
  changes: Overrides | undefined,
): Overrides {
  const merged: Overrides = { ...base };
  for (const [section, settings] of Object.entries(changes ?? {})) {
    merged[section] = { ...merged[section], ...settings };
  }
  return merged;
}
