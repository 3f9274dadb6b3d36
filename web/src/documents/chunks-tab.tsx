import { Button, UnstyledButton } from '@mantine/core';
import { useInfiniteQuery } from '@tanstack/react-query';
import { useEvidence } from '@/evidence/context';
import { api, call, type Schemas } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { EmptyState, ErrorState, LoadingState } from '@/shared/ui/states';
import { sharedWords } from '@/shared/words';
import { toHit } from './chunk-hits';
import { documentWords } from './document-words';
import classes from './documents.module.css';
import { documentKey } from './use-documents';

const PAGE_CHUNKS = 100;

/** The chunks that queries find, in the order of the text; a click opens the place. */
export function ChunksTab({ document }: { document: Schemas['DocumentStatus'] }) {
  const words = useWords(documentWords);
  const shared = useWords(sharedWords);
  const format = useFormat();
  const evidence = useEvidence();
  const id = document.document_id;
  const query = useInfiniteQuery({
    queryKey: [...documentKey(id), 'chunks'],
    queryFn: ({ pageParam }) =>
      call(
        api.GET('/v1/documents/{document}/chunks', {
          params: { path: { document: id }, query: { after: pageParam, limit: PAGE_CHUNKS } },
        }),
      ),
    initialPageParam: -1,
    getNextPageParam: (page) => page.next ?? undefined,
  });
  if (query.data === undefined) {
    if (query.isError) return <ErrorState error={query.error} onRetry={() => query.refetch()} />;
    return <LoadingState rows={8} height={96} />;
  }
  const chunks = query.data.pages.flatMap((page) => page.items);
  if (chunks.length === 0) {
    if (document.state === 'withdrawn') return <EmptyState title={words.deleted} />;
    return (
      <EmptyState title={document.state === 'searchable' ? words.chunks.none : words.notYet} />
    );
  }
  const tokens = chunks.reduce((sum, chunk) => sum + chunk.tokens, 0);
  const open = (index: number) =>
    evidence.open(
      chunks.map((chunk) => toHit(document, chunk)),
      index,
    );
  return (
    <>
      <p className="muted" style={{ margin: '0 0 8px', fontSize: 12 }}>
        {words.chunks.count(format.count(chunks.length), format.count(tokens))}
      </p>
      <ol className={`panel ${classes.chunks}`}>
        {chunks.map((chunk, index) => (
          <li key={chunk.chunk_id}>
            <UnstyledButton onClick={() => open(index)} title={words.chunks.open}>
              <span className={classes.chunkHead}>
                <span className="num muted">{format.count(chunk.ordinal + 1)}</span>
                <span dir="auto" className="foreign truncate">
                  {chunk.section ?? words.chunks.noSection}
                </span>
                <span className="muted">
                  {[
                    chunk.pages?.length ? words.chunks.pages(chunk.pages.join(', ')) : '',
                    words.chunks.tokens(format.count(chunk.tokens)),
                    chunk.kind,
                  ]
                    .filter(Boolean)
                    .join(' · ')}
                </span>
              </span>
              <span className={`foreign ${classes.chunkText}`}>
                {chunk.text.replace(/\n{2,}/g, '\n')}
              </span>
            </UnstyledButton>
          </li>
        ))}
      </ol>
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
