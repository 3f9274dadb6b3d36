import { useQueries } from '@tanstack/react-query';
import type { Hit } from '@/evidence/context';
import { api, call } from '@/shared/api/client';
import type { Candidate, Passage, RecordedRun } from './run-data';

/** A candidate's place in its document and, where it is known, its text. */
export type PassageInfo = {
  title: string | null;
  section: string;
  pages: number[];
  text: string | null;
  hit: Hit | null;
};

const CHUNKS_PER_DOCUMENT = 500;

/** Titles and texts of candidates: from the run, else from the documents as they are now. */
export function usePassageInfo(
  run: RecordedRun,
  shown: readonly Candidate[],
): (candidate: Candidate) => PassageInfo {
  const known = new Map(run.passages.map((passage) => [passage.chunk_id, passage]));
  const missing = new Set(
    shown.filter(({ chunk_id }) => !known.has(chunk_id)).map(({ document_id }) => document_id),
  );
  const documents = [...missing];
  const chunks = useQueries({
    queries: documents.map((document) => ({
      queryKey: ['documents', document, 'chunks', CHUNKS_PER_DOCUMENT],
      queryFn: () =>
        call(
          api.GET('/v1/documents/{document}/chunks', {
            params: { path: { document }, query: { limit: CHUNKS_PER_DOCUMENT } },
          }),
        ),
      staleTime: 60_000,
      retry: false,
    })),
  });
  const details = useQueries({
    queries: documents.map((document) => ({
      queryKey: ['documents', document, 'detail'],
      queryFn: () => call(api.GET('/v1/documents/{document}', { params: { path: { document } } })),
      staleTime: 60_000,
      retry: false,
    })),
  });
  return (candidate) => {
    const passage = known.get(candidate.chunk_id);
    if (passage) return describePassage(passage);
    const index = documents.indexOf(candidate.document_id);
    const chunk = chunks[index]?.data?.items.find((item) => item.chunk_id === candidate.chunk_id);
    const detail = details[index]?.data;
    const recorded = run.record?.chunks.find(({ id }) => id === candidate.chunk_id);
    const parent = run.record?.parents.find(({ id }) => id === candidate.parent_id);
    const title = recorded?.title ?? detail?.title ?? detail?.filename ?? null;
    const revision = recorded?.revision ?? detail?.visible_revision ?? null;
    const spans = recorded?.spans ?? chunk?.spans ?? null;
    const section = parent?.section ?? chunk?.section ?? '';
    const pages = parent?.pages ?? chunk?.pages ?? [];
    return {
      title,
      section,
      pages,
      text: chunk?.text ?? null,
      hit:
        spans && revision !== null
          ? {
              documentId: candidate.document_id,
              revision,
              spans,
              title,
              quote: chunk?.text ?? '',
              pages,
              chunkId: candidate.chunk_id,
              section,
            }
          : null,
    };
  };
}

function describePassage(passage: Passage): PassageInfo {
  return {
    title: passage.title ?? null,
    section: passage.section,
    pages: passage.pages,
    text: passage.snippet,
    hit: {
      documentId: passage.document_id,
      revision: passage.revision,
      spans: passage.spans,
      title: passage.title ?? null,
      quote: passage.snippet,
      pages: passage.pages,
      chunkId: passage.chunk_id,
      section: passage.section,
    },
  };
}
