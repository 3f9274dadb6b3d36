import { expect, test } from 'vitest';
import { type DocumentPageData, type DocumentPages, mergeHead, patchRow } from './pages';
import type { DocumentRow } from './stages';

/** Rows by number: higher ones were received later. */
const row = (n: number) =>
  ({
    document_id: `d${n}`,
    received_at: `2026-01-01T00:00:00.${n}Z`,
    state: 'running',
  }) as DocumentRow;
const page = (numbers: number[], next: string | null = 'more'): DocumentPageData => ({
  items: numbers.map(row),
  next,
});
const pages = (...lists: DocumentPageData[]): DocumentPages => ({
  pages: lists,
  pageParams: lists.map(() => undefined),
});
const ids = (data: DocumentPages | undefined) =>
  data?.pages.flatMap((one) => one.items.map((item) => item.document_id));

test('new rows come first and rows below stay', () => {
  const merged = mergeHead(pages(page([505, 504]), page([503, 502], 'last')), page([506, 505]));
  expect(ids(merged)).toEqual(['d506', 'd505', 'd503', 'd502'].toSpliced(2, 0, 'd504'));
  expect(merged.pages.at(-1)?.next).toBe('last');
  expect(merged.pageParams).toHaveLength(merged.pages.length);
});

test('a row that the first page no longer has is gone', () => {
  expect(ids(mergeHead(pages(page([505, 504, 503])), page([505, 503])))).toEqual(['d505', 'd503']);
});

test('a revised document moves up and appears once', () => {
  const revised = { ...row(502), received_at: '2026-01-01T00:00:00.509Z' };
  const head = { items: [revised, row(505)], next: 'more' };
  expect(ids(mergeHead(pages(page([505, 504]), page([503, 502])), head))).toEqual([
    'd502',
    'd505',
    'd504',
    'd503',
  ]);
});

test('a first page without a common row replaces all, since rows between may lack', () => {
  expect(ids(mergeHead(pages(page([505, 504])), page([599, 598])))).toEqual(['d599', 'd598']);
});

test('one row is changed or removed in its page', () => {
  const data = pages(page([505, 504]), page([503, 502]));
  const changed = patchRow(data, 'd503', (one) => ({ ...one, state: 'searchable' }));
  expect(changed?.pages[1]?.items[0]?.state).toBe('searchable');
  expect(changed?.pages[0]).toBe(data.pages[0]);
  expect(ids(patchRow(data, 'd504', () => null))).toEqual(['d505', 'd503', 'd502']);
  expect(patchRow(data, 'unknown', () => null)).toBe(data);
});
