import type { Schemas } from '@/shared/api/client';

/**
 * The form fields that make the same file a new revision of the same document, with what it has
 * now. Null for a document without a file or from another source, and where the caller does not
 * see its readers: the new revision would be readable for all.
 */
export function reingestFields(document: Schemas['Document']): Record<string, string> | null {
  const { blob, source, readers, tags, metadata } = document;
  if (blob === null || source !== 'anabranch/api' || readers === undefined) return null;
  const texts = Object.entries({
    external_id: document.external_id,
    source_uri: document.source_uri,
    filename: document.filename,
    media_type: document.media_type,
    title: document.title,
    collection: document.collection,
    document_date: document.document_date,
    tags: tags.length > 0 ? JSON.stringify(tags) : null,
    metadata: Object.keys(metadata).length > 0 ? JSON.stringify(metadata) : null,
    readers: readers !== null ? JSON.stringify(readers) : null,
    force: 'true',
  });
  return Object.fromEntries(
    texts.filter((entry): entry is [string, string] => typeof entry[1] === 'string'),
  );
}

/** The same for another file: what the old one was called and contained does not hold for it. */
export function revisionFields(document: Schemas['Document']): Record<string, string> | null {
  const fields = reingestFields(document);
  if (fields === null) return null;
  const { filename, media_type, title, document_date, force, ...kept } = fields;
  // Without an id or address of its own, the document is named by the hash of its first bytes.
  const isUnnamed = document.external_id === null && document.source_uri === null;
  const hash = document.content_sha256;
  return isUnnamed && hash !== null ? { ...kept, external_id: hash } : kept;
}
