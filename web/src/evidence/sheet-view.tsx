import { SegmentedControl } from '@mantine/core';
import { useVirtualizer } from '@tanstack/react-virtual';
import { type ReactNode, useEffect, useMemo, useRef, useState } from 'react';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import type { Hit, Place } from './context';
import classes from './evidence.module.css';
import type { Range } from './markdown';
import { markRanges } from './marks';
import { readSheets, type Sheet } from './sheet';
import { Inlines } from './text-view';
import { evidenceWords } from './words';

const ROW_PX = 28;
// Wider sheets are read as text.
const MAX_COLUMNS = 60;
const NO_MARKS: Range[] = [];
const overlaps = (a: Range, b: Range) => a.start < b.end && b.start < a.end;

/** The cells of a sheet with their addresses, the row of the quote marked. */
export function SheetView({
  markdown,
  places,
  hit,
  tools,
}: {
  markdown: string;
  places: readonly Place[] | undefined;
  hit: Hit | undefined;
  tools?: ReactNode;
}) {
  const words = useWords(evidenceWords);
  const marks = useMemo(() => (hit ? markRanges(markdown, hit) : NO_MARKS), [markdown, hit]);
  const sheets = useMemo(
    () => readSheets(markdown, [...(places ?? []), ...(hit?.spans ?? [])]),
    [markdown, places, hit],
  );
  const hitSheet = sheets.findIndex((sheet) => marks.some((mark) => overlaps(mark, sheet.range)));
  const [chosen, setChosen] = useState<{ hit: Hit | undefined; sheet: number } | null>(null);
  const current = chosen !== null && chosen.hit === hit ? chosen.sheet : Math.max(0, hitSheet);
  const sheet = sheets[current];
  return (
    <>
      <div className={classes.tools}>
        {tools}
        {sheets.length > 1 && (
          <SegmentedControl
            aria-label={words.sheet}
            value={String(current)}
            onChange={(value) => setChosen({ hit, sheet: Number(value) })}
            data={sheets.map(({ name }, at) => ({
              value: String(at),
              label: <span className="foreign">{name || at + 1}</span>,
            }))}
          />
        )}
      </div>
      {hit && marks.length === 0 && <div className={classes.notice}>{words.notFound}</div>}
      {sheet && <Grid key={current} markdown={markdown} sheet={sheet} marks={marks} />}
    </>
  );
}

function Grid({ markdown, sheet, marks }: { markdown: string; sheet: Sheet; marks: Range[] }) {
  const words = useWords(evidenceWords);
  const format = useFormat();
  const wrap = useRef<HTMLDivElement>(null);
  const columns = sheet.columns.slice(0, MAX_COLUMNS);
  const header = sheet.hasHeader ? sheet.rows[0] : undefined;
  const rows = header ? sheet.rows.slice(1) : sheet.rows;
  const marked = rows.findIndex((row) => marks.some((mark) => overlaps(mark, row)));
  const virtualizer = useVirtualizer({
    count: rows.length,
    getScrollElement: () => wrap.current,
    estimateSize: () => ROW_PX,
    overscan: 20,
  });
  useEffect(() => {
    if (marked >= 0) virtualizer.scrollToIndex(marked, { align: 'center' });
  }, [marked, virtualizer]);
  const items = virtualizer.getVirtualItems();
  const above = items[0]?.start ?? 0;
  const below = virtualizer.getTotalSize() - (items.at(-1)?.end ?? 0);
  return (
    <>
      {sheet.columns.length > MAX_COLUMNS && (
        <div className={classes.notice}>{words.truncatedSheet(format.count(MAX_COLUMNS))}</div>
      )}
      <section
        ref={wrap}
        className={classes.grid}
        tabIndex={0}
        aria-label={`${words.sheet} ${sheet.name}`}
      >
        <table aria-rowcount={sheet.rows.length + 1}>
          <thead>
            <tr>
              <td />
              {columns.map((name) => (
                <th key={name} scope="col">
                  {name}
                </th>
              ))}
            </tr>
            {header && (
              <tr className={classes.names}>
                <th scope="row">{header.number ?? '·'}</th>
                {header.cells.slice(0, MAX_COLUMNS).map((cell, column) => (
                  <td key={columns[column]} className="foreign">
                    <Inlines source={markdown} marks={NO_MARKS} inlines={cell.inlines} />
                  </td>
                ))}
              </tr>
            )}
          </thead>
          <tbody>
            {above > 0 && <tr style={{ height: above }} />}
            {items.map(({ index }) => {
              const row = rows[index] as (typeof rows)[number];
              const isMarked = marks.some((mark) => overlaps(mark, row));
              return (
                <tr
                  key={row.start}
                  aria-rowindex={index + (header ? 3 : 2)}
                  data-marked={isMarked || undefined}
                >
                  <th scope="row">{row.number ?? '·'}</th>
                  {row.cells.slice(0, MAX_COLUMNS).map((cell, column) => {
                    const text = (
                      <Inlines source={markdown} marks={NO_MARKS} inlines={cell.inlines} />
                    );
                    const isCell = isMarked && marks.some((mark) => overlaps(mark, cell));
                    return (
                      <td
                        key={columns[column]}
                        className="foreign"
                        title={markdown.slice(cell.start, cell.end)}
                      >
                        {isCell ? <mark>{text}</mark> : text}
                      </td>
                    );
                  })}
                </tr>
              );
            })}
            {below > 0 && <tr style={{ height: below }} />}
          </tbody>
        </table>
      </section>
    </>
  );
}
