import { expect, test } from 'vitest';
import { type ListedChunk, toMentionHit } from './chunk-hits';

const document = { document_id: 'd', title: null, visible_revision: 2, revision: 3 };
const box = [0, 0, 1, 1];
const span = (char_start: number, char_end: number, page: number) => ({
  char_start,
  char_end,
  page,
  box,
});
const chunk = {
  chunk_id: 'c',
  text: 'The heron waits. The weir is closed.',
  spans: [span(100, 116, 1), span(117, 136, 2)],
  pages: [1, 2],
} as unknown as ListedChunk;
const mention = (char_start: number, char_end: number) => ({
  chunk_id: 'c',
  name: 'weir',
  char_start,
  char_end,
});

test('a mention has its own characters and the page of its paragraph', () => {
  expect(toMentionHit(document, chunk, mention(121, 125))).toMatchObject({
    revision: 2,
    quote: 'weir',
    spans: [{ char_start: 121, char_end: 125, page: 2, box }],
  });
});

test('a mention outside of the spans falls back to the chunk', () => {
  expect(toMentionHit(document, chunk, mention(900, 904)).spans).toEqual(chunk.spans);
});
