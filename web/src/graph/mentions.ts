import { type QueryClient, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { type Hit, type Place, useEvidence } from '@/evidence/context';
import { api, call } from '@/shared/api/client';

type Mention = {
  document_id: string;
  chunk_id: string;
  char_start: number;
  char_end: number;
  title?: string | null;
  /** The words to be marked. */
  text: string;
};
type Chunk = { chunk_id: string; section: string | null; spans: readonly Place[] };
const MAX_PAGES = 20;

/** Open a mention in its document, with the others one key away. */
export function useOpenMentions() {
  const client = useQueryClient();
  const evidence = useEvidence();
  const [error, setError] = useState<unknown>(null);
  const open = async (mentions: readonly Mention[], index: number) => {
    setError(null);
    try {
      const hits = await Promise.all(mentions.map((mention) => toHit(client, mention)));
      evidence.open(hits, index);
    } catch (failure) {
      setError(failure);
    }
  };
  return { open, error };
}

async function toHit(client: QueryClient, mention: Mention): Promise<Hit> {
  const id = mention.document_id;
  const document = await client.fetchQuery({
    queryKey: ['documents', id],
    queryFn: () =>
      call(api.GET('/v1/documents/{document}', { params: { path: { document: id } } })),
    staleTime: 30_000,
  });
  const chunks = await client.fetchQuery({
    queryKey: ['documents', id, 'chunks', 'all'],
    queryFn: () => fetchChunks(id),
    staleTime: 30_000,
  });
  const chunk = chunks.find((one) => one.chunk_id === mention.chunk_id);
  return {
    documentId: id,
    revision: document.visible_revision ?? document.revision,
    title: document.title ?? mention.title ?? null,
    quote: mention.text,
    chunkId: mention.chunk_id,
    section: chunk?.section ?? null,
    spans: clip(chunk, mention),
  };
}

/** The mention alone, with the page, cells or time of the chunk's spans around it. */
function clip(chunk: Chunk | undefined, mention: Mention): Hit['spans'] {
  const { char_start, char_end } = mention;
  const around = (chunk?.spans ?? []).filter(
    (span) => span.char_start < char_end && span.char_end > char_start,
  );
  if (around.length === 0) return [{ char_start, char_end }];
  return around.map((span) => ({
    ...span,
    char_start: Math.max(span.char_start, char_start),
    char_end: Math.min(span.char_end, char_end),
  }));
}

async function fetchChunks(document: string): Promise<Chunk[]> {
  const chunks: Chunk[] = [];
  let after: number | undefined;
  for (let page = 0; page < MAX_PAGES; page += 1) {
    const { items, next } = await call(
      api.GET('/v1/documents/{document}/chunks', {
        params: {
          path: { document },
          query: { limit: 500, ...(after === undefined ? {} : { after }) },
        },
      }),
    );
    chunks.push(...items);
    if (next === null || next === undefined) break;
    after = next;
  }
  return chunks;
}
