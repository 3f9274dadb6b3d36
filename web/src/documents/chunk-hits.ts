import type { Hit, Place } from '@/evidence/context';
import type { Schemas } from '@/shared/api/client';

/** As the client types it: a box is a list of numbers there. */
export type ListedChunk = Omit<Schemas['Chunk'], 'spans'> & { spans: readonly Place[] };

/** A chunk as a place in its document. */
export function toHit(
  document: Pick<Schemas['Document'], 'document_id' | 'title' | 'visible_revision' | 'revision'>,
  chunk: ListedChunk,
): Hit {
  return {
    documentId: document.document_id,
    revision: document.visible_revision ?? document.revision,
    spans: chunk.spans,
    title: document.title,
    quote: chunk.text,
    pages: chunk.pages ?? [],
    chunkId: chunk.chunk_id,
    section: chunk.section,
  };
}

/** A mention in a chunk: its characters, with the page and the box of the paragraph around it. */
export function toMentionHit(
  document: Parameters<typeof toHit>[0],
  chunk: ListedChunk,
  mention: Schemas['DocumentMention'],
): Hit {
  const { char_start, char_end, name } = mention;
  const around = chunk.spans.filter(
    (span) => span.char_start < char_end && span.char_end > char_start,
  );
  const spans = around.map((span) => ({ ...span, char_start, char_end }));
  return { ...toHit(document, chunk), spans: spans.length > 0 ? spans : chunk.spans, quote: name };
}
