import type { InfiniteData } from '@tanstack/react-query';
import type { Schemas } from '@/shared/api/client';
import type { DocumentRow } from './stages';

export type DocumentPageData = Schemas['Page_Document_'];
export type DocumentPages = InfiniteData<DocumentPageData, string | undefined>;

/**
 * Put a fresh first page in place of the rows that it covers; those below stay as they are.
 *
 * A refetch of an infinite query reads every page again, which at 100,000 rows is a thousand
 * requests per event. New and changed documents come first, so the first page has them all.
 */
export function mergeHead(old: DocumentPages | undefined, head: DocumentPageData): DocumentPages {
  const alone = { pages: [head], pageParams: [undefined] };
  const last = head.items.at(-1);
  if (old === undefined || last === undefined || head.next === null) return alone;
  const fresh = new Set(head.items.map((row) => row.document_id));
  const rows = old.pages.flatMap((page) => page.items);
  // Without a common row, there may be others between the two.
  if (!rows.some((row) => fresh.has(row.document_id))) return alone;
  const rest = old.pages
    .map((page) => ({
      ...page,
      items: page.items.filter((row) => !fresh.has(row.document_id) && isBelow(row, last)),
    }))
    .filter((page) => page.items.length > 0);
  if (rest.length === 0) return alone;
  return {
    pages: [head, ...rest],
    pageParams: [undefined, ...rest.map((_, index) => `after-${index}`)],
  };
}

/** Change or remove one row, in whichever page it is. */
export function patchRow(
  old: DocumentPages | undefined,
  id: string,
  change: (row: DocumentRow) => DocumentRow | null,
): DocumentPages | undefined {
  const at = old?.pages.findIndex((page) => page.items.some((row) => row.document_id === id)) ?? -1;
  if (old === undefined || at < 0) return old;
  const pages = old.pages.map((page, index) =>
    index !== at
      ? page
      : {
          ...page,
          items: page.items.flatMap((row) =>
            row.document_id === id ? (change(row) ?? []) : [row],
          ),
        },
  );
  return { ...old, pages };
}

/** Whether a row comes after another in the list: the most recently received first. */
function isBelow(row: DocumentRow, other: DocumentRow): boolean {
  const [mine, its] = [row.received_at ?? '', other.received_at ?? ''];
  return mine < its || (mine === its && row.document_id < other.document_id);
}
