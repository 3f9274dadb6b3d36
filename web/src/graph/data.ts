import { useQueries, useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { api, call, type Schemas } from '@/shared/api/client';
import { EMPTY, mergeSubgraphs, type Subgraph } from './model';

export type Entity = Schemas['Entity'];
export type EntityDetails = Schemas['EntityDetails'];

export const MAX_NODES = 200;
// What one request takes.
const MAX_SEEDS = 50;
const PATH_HOPS = 3;

export function useEntities(text: string, limit = 12) {
  return useQuery({
    queryKey: ['entities', { text, limit }],
    queryFn: () =>
      call(api.GET('/v1/entities', { params: { query: { limit, ...(text ? { text } : {}) } } })),
    placeholderData: (previous) => previous,
  });
}

export function useEntity(id: string) {
  return useQuery({
    queryKey: ['entities', id],
    queryFn: () => call(api.GET('/v1/entities/{entity}', { params: { path: { entity: id } } })),
  });
}

async function fetchSubgraph(seed: string[], hops: number, limit: number): Promise<Subgraph> {
  return call(api.GET('/v1/graph/subgraph', { params: { query: { seed, hops, limit } } }));
}

/** The neighborhood of each seed, and of the ends of a path as far as the server looks. */
export function useSubgraph(seeds: readonly string[], ends: readonly [string, string] | null) {
  const around = useQuery({
    queryKey: ['subgraph', seeds],
    queryFn: () => fetchSubgraph(seeds.slice(0, MAX_SEEDS), 1, MAX_NODES),
    enabled: seeds.length > 0,
    // The old drawing stays while an expansion is fetched.
    placeholderData: (previous) => previous,
  });
  const wide = useQueries({
    queries: (ends ?? []).map((end) => ({
      queryKey: ['subgraph', end, PATH_HOPS],
      queryFn: () => fetchSubgraph([end], PATH_HOPS, 500),
    })),
  });
  const found = wide.flatMap((query) => (query.data ? [query.data] : []));
  const isSearching = wide.some((query) => query.isPending);
  const key = wide.map((query) => query.dataUpdatedAt).join(' ');
  // biome-ignore lint/correctness/useExhaustiveDependencies: `found` is new at each call.
  const reach = useMemo(
    () => (found.length > 0 ? mergeSubgraphs([around.data ?? EMPTY, ...found]) : null),
    [around.data, key],
  );
  return { around, reach, isSearching };
}

/** The entities that a run linked to its question, and those of the relations that it read. */
export function useRunSeeds(run: string | undefined) {
  return useQuery({
    queryKey: ['runs', run, 'entities'],
    queryFn: async () => {
      const { run_record } = await call(
        api.GET('/v1/runs/{run}', { params: { path: { run: run ?? '' } } }),
      );
      const record = (run_record ?? {}) as {
        linked?: string[];
        graph_evidence?: { subject_id?: string | null; object_id?: string | null }[];
      };
      const ids = (record.graph_evidence ?? []).flatMap((fact) => [
        fact.subject_id,
        fact.object_id,
      ]);
      const linked = await Promise.all(
        [...new Set(record.linked ?? [])].slice(0, 8).map(async (text) => {
          const query = { text, limit: 1 };
          const page = await call(api.GET('/v1/entities', { params: { query } }));
          return page.items[0]?.id;
        }),
      );
      const known = [...linked, ...ids].filter((id): id is string => typeof id === 'string');
      return [...new Set(known)].slice(0, 20);
    },
    enabled: run !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
  });
}
