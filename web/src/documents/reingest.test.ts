import { expect, it } from 'vitest';
import type { Schemas } from '@/shared/api/client';
import { revisionFields } from './reingest';

const document = {
  blob: { key: 'k', sha256: 'a1', size: 1 },
  source: 'anabranch/api',
  readers: ['user:ana'],
  tags: ['toll'],
  metadata: {},
  external_id: null,
  source_uri: null,
  filename: 'notice.md',
  media_type: 'text/markdown',
  title: 'Toll notice',
  collection: 'harbour',
  document_date: '2026-01-15',
  content_sha256: 'a1',
} as unknown as Schemas['Document'];

it('keeps what belongs to the document, and names it as the server does', () => {
  expect(revisionFields(document)).toEqual({
    external_id: 'a1',
    collection: 'harbour',
    tags: '["toll"]',
    readers: '["user:ana"]',
  });
  expect(revisionFields({ ...document, external_id: 'toll' })?.external_id).toBe('toll');
  const fetched = revisionFields({ ...document, source_uri: 'https://example.org/toll' });
  expect(fetched?.external_id).toBeUndefined();
  expect(fetched?.source_uri).toBe('https://example.org/toll');
});

it('offers nothing where the new revision would lose its readers', () => {
  expect(revisionFields({ ...document, readers: undefined })).toBeNull();
});
