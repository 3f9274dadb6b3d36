import type { Place } from './context';
import { parseBlocks, type Range, type Row, toUnits } from './markdown';

export type SheetRow = Row & { number: number | null };
export type Sheet = {
  name: string;
  range: Range;
  /** The first row has the names of the columns. */
  hasHeader: boolean;
  rows: SheetRow[];
  /** Letters of the columns. */
  columns: string[];
};

type Cells = { top: number; left: number; bottom: number };

/** The sheets of a workbook, from the tables of its Markdown. */
export function readSheets(markdown: string, places: readonly Place[]): Sheet[] {
  const sheets: Sheet[] = [];
  const anchors = toAnchors(markdown, places);
  let heading = '';
  let start = 0;
  for (const block of parseBlocks(markdown)) {
    if (block.type === 'heading') {
      const first = block.inlines[0];
      heading = first ? markdown.slice(first.start, block.end) : '';
    }
    if (block.type !== 'table') {
      if (block.type !== 'note') start = block.end;
      continue;
    }
    const rows = [...(block.header ? [block.header] : []), ...block.rows];
    // The note before a table counts all of its cells.
    const near = anchors.filter(({ range }) => range.end > start && range.start < block.end);
    const numbers = numberRows(rows, near, block.start);
    const left = Math.min(...near.map(({ cells }) => cells.left), 26 ** 3);
    const width = Math.max(...rows.map((row) => row.cells.length), 0);
    sheets.push({
      name: near[0]?.sheet || heading,
      range: { start, end: block.end },
      hasHeader: block.header !== null,
      rows: rows.map((row, at) => ({ ...row, number: numbers[at] ?? null })),
      columns: Array.from({ length: width }, (_, column) =>
        columnName((near.length > 0 ? left : 0) + column),
      ),
    });
    start = block.end;
  }
  return sheets;
}

type Anchor = { range: Range; cells: Cells; sheet: string };

function toAnchors(markdown: string, places: readonly Place[]): Anchor[] {
  const withCells = places.flatMap((place) => {
    const cells = parseCells(place.cells);
    return cells === null ? [] : [{ place, cells }];
  });
  const units = toUnits(
    markdown,
    withCells.flatMap(({ place }) => [place.char_start, place.char_end]),
  );
  return withCells.map(({ place, cells }, at) => ({
    range: { start: units[2 * at] ?? 0, end: units[2 * at + 1] ?? 0 },
    cells,
    sheet: place.sheet ?? '',
  }));
}

/** `B3:E402`, rows and columns from 0. */
export function parseCells(cells: string | null | undefined): Cells | null {
  const match = /^([A-Z]{1,3})(\d{1,7})(?::[A-Z]{1,3}(\d{1,7}))?$/.exec(cells ?? '');
  if (match === null) return null;
  const left = [...(match[1] ?? '')].reduce((sum, c) => sum * 26 + c.charCodeAt(0) - 64, 0) - 1;
  return { left, top: Number(match[2]) - 1, bottom: Number(match[3] ?? match[2]) - 1 };
}

export function columnName(index: number): string {
  let name = '';
  for (let left = index + 1; left > 0; left = Math.floor((left - 1) / 26)) {
    name = String.fromCharCode(65 + ((left - 1) % 26)) + name;
  }
  return name;
}

/** Row numbers from 1; null where hidden rows were left out and none is known. */
function numberRows(rows: readonly Row[], anchors: readonly Anchor[], tableStart: number) {
  const numbers = rows.map((): number | null => null);
  for (const { range, cells } of anchors) {
    const covered = rows.flatMap((row, at) =>
      range.end <= tableStart || (row.start < range.end && row.end > range.start) ? [at] : [],
    );
    if (covered.length !== cells.bottom - cells.top + 1) continue;
    covered.forEach((row, at) => {
      numbers[row] = cells.top + at + 1;
    });
  }
  // Without any address the table starts at the top of the sheet.
  return anchors.length === 0 ? rows.map((_, at) => at + 1) : numbers;
}
