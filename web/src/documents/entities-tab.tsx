import { Anchor, Button, UnstyledButton } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useInfiniteQuery, useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useEvidence } from '@/evidence/context';
import { ApiError, api, call, type Schemas } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { EmptyState, ErrorState, LoadingState } from '@/shared/ui/states';
import { DataTable } from '@/shared/ui/table';
import { sharedWords } from '@/shared/words';
import { type ListedChunk, toMentionHit } from './chunk-hits';
import { documentWords } from './document-words';
import { documentKey } from './use-documents';

type Entity = Schemas['DocumentEntity'];
const PAGE_ENTITIES = 200;
const MAX_CHUNKS = 500;

/** What the document mentions: a row opens its mentions in the text, the link its graph. */
export function EntitiesTab({ document }: { document: Schemas['DocumentStatus'] }) {
  const all = useWords(documentWords);
  const words = all.entities;
  const shared = useWords(sharedWords);
  const format = useFormat();
  const open = useOpenMentions(document);
  const id = document.document_id;
  const query = useInfiniteQuery({
    queryKey: [...documentKey(id), 'entities'],
    queryFn: ({ pageParam }) =>
      call(
        api.GET('/v1/documents/{document}/entities', {
          params: {
            path: { document: id },
            query: { limit: PAGE_ENTITIES, ...(pageParam ? { after: pageParam } : {}) },
          },
        }),
      ),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
  });
  if (query.data === undefined) {
    if (query.isError) return <ErrorState error={query.error} onRetry={() => query.refetch()} />;
    return <LoadingState rows={8} />;
  }
  const rows = query.data.pages.flatMap((page) => page.items);
  if (rows.length === 0) {
    if (document.state === 'withdrawn') return <EmptyState title={all.deleted} />;
    if (document.visible_revision === null) return <EmptyState title={all.notYet} />;
    const isPending = document.warnings?.some((warning) => warning.code === 'GRAPH_PENDING');
    return <EmptyState title={isPending ? words.pending : words.empty} />;
  }
  return (
    <>
      <DataTable<Entity>
        label={words.name}
        rows={rows}
        rowKey={(row) => row.id}
        onOpen={open}
        columns={[
          {
            key: 'name',
            label: words.name,
            cell: (row) => (
              <UnstyledButton fz="sm" className="foreign" tabIndex={-1} title={words.open}>
                {row.name}
              </UnstyledButton>
            ),
          },
          {
            key: 'type',
            label: words.type,
            cell: (row) => <span className="mono muted">{row.type}</span>,
          },
          {
            key: 'mentions',
            label: words.mentions,
            isNumber: true,
            width: '100px',
            cell: (row) => format.count(row.mentions),
          },
          {
            key: 'graph',
            label: words.graph,
            width: '100px',
            cell: (row) => (
              <Anchor
                component={Link}
                to="/graph"
                search={{ seed: row.id } as never}
                inherit
                onClick={(event) => event.stopPropagation()}
              >
                {words.graph}
              </Anchor>
            ),
          },
        ]}
      />
      {query.hasNextPage && (
        <Button
          mt="sm"
          variant="default"
          loading={query.isFetchingNextPage}
          onClick={() => void query.fetchNextPage()}
        >
          {shared.loadMore}
        </Button>
      )}
    </>
  );
}

/** Boxes and pages stand with the chunks, which are read up to the last that is asked for. */
function useOpenMentions(document: Schemas['DocumentStatus']): (entity: Entity) => void {
  const evidence = useEvidence();
  const client = useQueryClient();
  const id = document.document_id;
  const fetchChunks = async (wanted: Set<string>): Promise<Map<string, ListedChunk>> => {
    const found = new Map<string, ListedChunk>();
    for (let after: number | null = -1; after !== null && found.size < wanted.size; ) {
      const from: number = after;
      const page = await client.fetchQuery({
        queryKey: [...documentKey(id), 'chunks-after', from],
        queryFn: () =>
          call(
            api.GET('/v1/documents/{document}/chunks', {
              params: { path: { document: id }, query: { after: from, limit: MAX_CHUNKS } },
            }),
          ),
        staleTime: 60_000,
      });
      for (const chunk of page.items)
        if (wanted.has(chunk.chunk_id)) found.set(chunk.chunk_id, chunk);
      after = page.next;
    }
    return found;
  };
  return (entity) => {
    void fetchChunks(new Set(entity.occurrences.map((mention) => mention.chunk_id)))
      .then((chunks) =>
        evidence.open(
          entity.occurrences.flatMap((mention) => {
            const chunk = chunks.get(mention.chunk_id);
            return chunk ? toMentionHit(document, chunk, mention) : [];
          }),
        ),
      )
      .catch((error: unknown) => {
        if (!(error instanceof ApiError)) throw error;
        notifications.show({ color: 'red', message: error.problem.detail });
      });
  };
}
