import { useQuery } from '@tanstack/react-query';
import { ApiError, api, call, fetchRaw } from '@/shared/api/client';

export function useDocument(documentId: string) {
  return useQuery({
    queryKey: ['documents', documentId],
    queryFn: () =>
      call(api.GET('/v1/documents/{document}', { params: { path: { document: documentId } } })),
  });
}

/** What is known of one revision: its file, media type, hash and whether queries see it. */
export function useRevision(documentId: string, revision: number | null) {
  return useQuery({
    queryKey: ['documents', documentId, 'revisions', revision],
    queryFn: async () => {
      const page = await call(
        api.GET('/v1/documents/{document}/revisions', {
          params: {
            path: { document: documentId },
            query: revision === null ? { limit: 1 } : { after: revision + 1, limit: 1 },
          },
        }),
      );
      return page.items[0] ?? null;
    },
  });
}

/** The extracted Markdown, which the offsets of spans refer to; null means what queries see. */
export function useMarkdown(
  documentId: string,
  revision: number | null,
  mediaType: string | null,
  isEnabled: boolean,
) {
  return useQuery({
    enabled: isEnabled,
    queryKey: ['documents', documentId, 'markdown', revision],
    queryFn: () => fetchText(documentId, revision, mediaType),
  });
}

/**
 * The Markdown of a revision; of one whose text the log has lost, the file if it is text itself.
 * Throws ApiError with the reason.
 */
export async function fetchText(
  documentId: string,
  revision: number | null,
  mediaType: string | null,
): Promise<string> {
  try {
    return await (await fetchRaw(sourcePath(documentId, 'markdown', revision))).text();
  } catch (error) {
    if (revision === null || !isMissing(error) || !PLAIN.test(mediaType ?? '')) throw error;
    return (await fetchRaw(sourcePath(documentId, 'file', revision))).text();
  }
}

export function isMissing(error: unknown): error is ApiError {
  return error instanceof ApiError && error.problem.status === 404;
}

const PLAIN = /^text\/(plain|markdown|x-markdown|vtt)\b/;

/** All chunks in the order of the text, at most `limit`. */
export function useChunks(documentId: string, isEnabled: boolean) {
  return useQuery({
    queryKey: ['documents', documentId, 'chunks', 'evidence'],
    queryFn: () =>
      call(
        api.GET('/v1/documents/{document}/chunks', {
          params: { path: { document: documentId }, query: { limit: 500 } },
        }),
      ),
    enabled: isEnabled,
  });
}

/** The address of a revision's file or Markdown; null means what queries see. */
export function sourcePath(
  documentId: string,
  what: 'file' | 'markdown',
  revision: number | null,
): string {
  const query = revision === null ? '' : `?revision=${revision}`;
  return `/v1/documents/${encodeURIComponent(documentId)}/${what}${query}`;
}

/** Formats whose passages have a time. */
export function isRecording(mediaType: string | null | undefined): boolean {
  return /^(audio|video)\/|^text\/vtt|subrip/.test(mediaType ?? '');
}

export type ViewKind = 'pdf' | 'image' | 'sheet' | 'text';
const SHEETS = [
  'text/csv',
  'text/tab-separated-values',
  'application/vnd.ms-excel',
  'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet',
  'application/vnd.oasis.opendocument.spreadsheet',
];
// Only what every browser decodes to pixels; SVG is a document, and stays text.
const IMAGES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp', 'image/bmp', 'image/avif'];

export function viewKind(mediaType: string | null | undefined): ViewKind {
  const type = mediaType?.split(';')[0]?.trim().toLowerCase() ?? '';
  if (type === 'application/pdf') return 'pdf';
  if (IMAGES.includes(type)) return 'image';
  return SHEETS.includes(type) ? 'sheet' : 'text';
}
