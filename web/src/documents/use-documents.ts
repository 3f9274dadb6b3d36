import { CancelledError, useInfiniteQuery, useQuery, useQueryClient } from '@tanstack/react-query';
import { useCallback, useEffect, useMemo, useRef } from 'react';
import { ApiError, api, call, type Schemas } from '@/shared/api/client';
import { type LiveMessage, useLive } from '@/shared/api/live';
import { type DocumentPages, mergeHead, patchRow } from './pages';
import { isUnfinished } from './stages';

export type DocumentFilters = {
  text?: string;
  state?: 'running' | 'searchable' | 'failed' | 'withdrawn';
  collection?: string;
  tag?: string;
  date_from?: string;
  date_to?: string;
};

const PAGE_ROWS = 100;
const HEAD_MS = 1000;
const PARALLEL = 3;

export const documentKey = (id: string) => ['document', id] as const;

export function fetchDocument(id: string) {
  return call(api.GET('/v1/documents/{document}', { params: { path: { document: id } } }));
}

/**
 * The documents that match, a page more at each `fetchNextPage`, kept current by events: one that
 * is listed is read again by itself, any other by the first page.
 */
export function useDocuments(filters: DocumentFilters) {
  const client = useQueryClient();
  const key = useMemo(() => ['documents', filters], [filters]);
  const fetchPage = useCallback(
    (after?: string) =>
      call(
        api.GET('/v1/documents', {
          params: { query: { ...filters, limit: PAGE_ROWS, ...(after ? { after } : {}) } },
        }),
      ),
    [filters],
  );
  const query = useInfiniteQuery({
    queryKey: key,
    queryFn: ({ pageParam }) => fetchPage(pageParam),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    // Never all pages again: `mergeHead` says why.
    staleTime: Number.POSITIVE_INFINITY,
    refetchOnReconnect: false,
    refetchInterval: (state) =>
      state.state.data === undefined && state.state.error !== null ? 3000 : false,
  });

  const refreshHead = useCallback(async () => {
    if (client.getQueryData(key) === undefined) return;
    const head = await fetchPage().catch(ignoreOutage);
    if (head) client.setQueryData<DocumentPages>(key, (old) => mergeHead(old, head));
    // The counts above the list.
    void client.invalidateQueries({ queryKey: ['health'] });
  }, [client, key, fetchPage]);

  const refreshRow = useCallback(
    async (id: string) => {
      // One that began before the event may not know it.
      await client.cancelQueries({ queryKey: documentKey(id), exact: true });
      const fresh = await client
        .fetchQuery({
          queryKey: documentKey(id),
          queryFn: () => fetchDocument(id),
          staleTime: 0,
          retry: false,
        })
        .catch((error: unknown) =>
          error instanceof ApiError && error.problem.status === 404 ? null : ignoreOutage(error),
        );
      if (fresh === undefined) return;
      client.setQueryData<DocumentPages>(key, (old) =>
        patchRow(old, id, (row) =>
          fresh !== null && matches(fresh, filters) ? { ...row, ...fresh } : null,
        ),
      );
    },
    [client, key, filters],
  );

  // Once more after the first page: an event that arrived while it was on its way is not in it.
  const { isSuccess } = query;
  useEffect(() => {
    if (isSuccess) void refreshHead();
  }, [isSuccess, refreshHead]);

  const scheduleHead = useThrottled(refreshHead, HEAD_MS);
  const scheduleRow = usePool(refreshRow, PARALLEL);
  useLive(
    useCallback(
      (message: LiveMessage) => {
        if (message.event === 'dropped' || message.event === 'reset') {
          void client.resetQueries({ queryKey: key });
          return;
        }
        const envelope = message.data as { topic?: string; document_id?: string | null };
        // No table has what is only in `raw`, and asking would delay the next time.
        if (envelope.topic === undefined || envelope.topic === 'raw') return;
        const id = envelope.document_id;
        const pages = client.getQueryData<DocumentPages>(key)?.pages;
        const isListed = pages?.some((page) => page.items.some((row) => row.document_id === id));
        if (id && isListed) scheduleRow(id);
        // What is new, moves up or failed at ingress.
        if (!isListed || envelope.topic === 'accepted' || envelope.topic === 'dead_letters') {
          scheduleHead();
        }
      },
      [client, key, scheduleHead, scheduleRow],
    ),
  );
  const rows = useMemo(() => query.data?.pages.flatMap((page) => page.items) ?? [], [query.data]);
  return { query, rows, refreshRow: scheduleRow };
}

/** One document with its stages; fetched again while they run. */
export function useDocument(id: string, isEnabled = true) {
  return useQuery({
    queryKey: documentKey(id),
    queryFn: () => fetchDocument(id),
    enabled: isEnabled,
    refetchInterval: (query) =>
      query.state.error ? 3000 : query.state.data && isUnfinished(query.state.data) ? 3000 : false,
  });
}

function matches(document: Schemas['DocumentStatus'], filters: DocumentFilters): boolean {
  if (filters.state === undefined) return document.state !== 'withdrawn';
  return (document.state === 'accepted' ? 'running' : document.state) === filters.state;
}

/** A server that is away: the header says so, and the next event asks again. */
function ignoreOutage(error: unknown): undefined {
  if (!(error instanceof ApiError) && !(error instanceof CancelledError)) throw error;
  return undefined;
}

/** Call at once, then at most once in `ms`, the last time after the last call. */
function useThrottled(run: () => Promise<void>, ms: number): () => void {
  const state = useRef({ isBusy: false, isWanted: false });
  const latest = useRef(run);
  useEffect(() => {
    latest.current = run;
  });
  return useCallback(() => {
    const start = () => {
      state.current = { isBusy: true, isWanted: false };
      void latest.current().finally(() =>
        setTimeout(() => {
          state.current.isBusy = false;
          if (state.current.isWanted) start();
        }, ms),
      );
    };
    if (state.current.isBusy) state.current.isWanted = true;
    else start();
  }, [ms]);
}

/** Run for each id, a few at a time; one that is asked for while it waits runs once. */
function usePool(run: (id: string) => Promise<void>, parallel: number): (id: string) => void {
  const state = useRef({ waiting: new Set<string>(), running: new Set<string>() });
  const latest = useRef(run);
  useEffect(() => {
    latest.current = run;
  });
  return useCallback(
    (id: string) => {
      const pump = () => {
        const { waiting, running } = state.current;
        // One that runs may have read what was there before; it runs again when it ends.
        const next = [...waiting].find((one) => !running.has(one));
        if (next === undefined || running.size >= parallel) return;
        waiting.delete(next);
        running.add(next);
        void latest.current(next).finally(() => {
          running.delete(next);
          pump();
        });
      };
      state.current.waiting.add(id);
      pump();
    },
    [parallel],
  );
}
