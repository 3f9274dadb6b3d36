import { Button, Text } from '@mantine/core';
import { Fragment, type ReactNode, useEffect, useMemo, useRef, useState } from 'react';
import { useWords } from '@/shared/i18n';
import { clock } from './clock';
import type { Hit, Place } from './context';
import classes from './evidence.module.css';
import { type Block, type Inline, parseBlocks, type Range, safeHref, toUnits } from './markdown';
import { markRanges } from './marks';
import { evidenceWords } from './words';

// So many characters around the passage are in the page; the rest comes on request.
const WINDOW = 40_000;
const NO_MARKS: Range[] = [];

/** The stored Markdown as headings, paragraphs, lists and tables, with the passage marked. */
export function TextView({
  markdown,
  hit,
  places,
}: {
  markdown: string;
  hit: Hit | undefined;
  /** Spans of the chunks, for the times of a recording. */
  places?: readonly Place[] | undefined;
}) {
  const words = useWords(evidenceWords);
  const marks = useMemo(() => (hit ? markRanges(markdown, hit) : NO_MARKS), [markdown, hit]);
  const blocks = useMemo(() => parseBlocks(markdown), [markdown]);
  const times = useMemo(() => readTimes(markdown, places ?? []), [markdown, places]);
  const anchor = marks[0]?.start ?? 0;
  const [extra, setExtra] = useState({ before: 0, after: 0 });
  const from = anchor - WINDOW / 2 - extra.before;
  const to = Math.max(anchor, ...marks.map((mark) => mark.end)) + WINDOW / 2 + extra.after;
  const shown = blocks.filter((block) => block.end >= from && block.start <= to);
  const hasEarlier = shown[0] !== blocks[0];
  const hasLater = shown.at(-1) !== blocks.at(-1);
  const article = useRef<HTMLElement>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: scrolls when the passage changes.
  useEffect(() => {
    article.current?.querySelector('mark')?.scrollIntoView({ block: 'center' });
  }, [marks]);
  return (
    <article ref={article} className={`${classes.text} foreign`}>
      {hit && marks.length === 0 && <Text className="muted">{words.notFound}</Text>}
      {hasEarlier && (
        <Button
          variant="default"
          onClick={() => setExtra((old) => ({ ...old, before: old.before + WINDOW }))}
        >
          {words.earlier}
        </Button>
      )}
      {shown.map((block) => (
        <Fragment key={block.start}>
          {times
            .filter((time) => time.at >= block.start && time.at < block.end)
            .map((time) => (
              <time
                key={time.at}
                className={`${classes.time} muted`}
                dateTime={`PT${time.start_s}S`}
              >
                {clock(time.start_s)}
              </time>
            ))}
          <BlockView source={markdown} block={block} marks={marks} />
        </Fragment>
      ))}
      {hasLater && (
        <Button
          variant="default"
          onClick={() => setExtra((old) => ({ ...old, after: old.after + WINDOW }))}
        >
          {words.later}
        </Button>
      )}
    </article>
  );
}

function readTimes(markdown: string, places: readonly Place[]) {
  const timed = places.flatMap((place) =>
    typeof place.start_s === 'number' ? [{ at: place.char_start, start_s: place.start_s }] : [],
  );
  const units = toUnits(
    markdown,
    timed.map((time) => time.at),
  );
  return timed.map((time, index) => ({ ...time, at: units[index] ?? 0 }));
}

type Marked = { source: string; marks: readonly Range[] };

function BlockView({ block, ...marked }: Marked & { block: Block }) {
  if (block.type === 'rule') return <hr />;
  if (block.type === 'code') {
    return (
      <pre tabIndex={0}>
        <code>{markText(marked, block.text)}</code>
      </pre>
    );
  }
  if (block.type === 'table') return <TableView {...marked} table={block} />;
  const inlines = <Inlines {...marked} inlines={block.inlines} />;
  if (block.type === 'heading') {
    return (
      // The headings of the page end above the document's.
      // biome-ignore lint/a11y/useSemanticElements: the level depends on the document.
      <div role="heading" aria-level={block.level + 2} data-level={Math.min(block.level, 3)}>
        {inlines}
      </div>
    );
  }
  if (block.type === 'item') {
    return (
      <div className={classes.item} style={{ marginInlineStart: 16 * block.depth }}>
        <span>{/\d/.test(block.marker) ? block.marker : '•'}</span>
        <div>{inlines}</div>
      </div>
    );
  }
  if (block.type === 'quote') return <blockquote>{inlines}</blockquote>;
  return <p className={block.type === 'note' ? 'muted' : undefined}>{inlines}</p>;
}

function TableView({ table, ...marked }: Marked & { table: Block & { type: 'table' } }) {
  return (
    <div className={classes.scroll} tabIndex={0}>
      <table>
        {table.header && (
          <thead>
            <tr>
              {table.header.cells.map((cell, column) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: empty cells share a place.
                <th key={column} scope="col">
                  <Inlines {...marked} inlines={cell.inlines} />
                </th>
              ))}
            </tr>
          </thead>
        )}
        <tbody>
          {table.rows.map((row) => (
            <tr key={row.start}>
              {row.cells.map((cell, column) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: empty cells share a place.
                <td key={column}>
                  <Inlines {...marked} inlines={cell.inlines} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Inlines({ inlines, ...marked }: Marked & { inlines: readonly Inline[] }) {
  return inlines.map((inline) => (
    <InlineView key={`${inline.start}-${inline.end}`} {...marked} inline={inline} />
  ));
}

function InlineView({ inline, ...marked }: Marked & { inline: Inline }): ReactNode {
  if (inline.type === 'text') return markText(marked, inline);
  if (inline.type === 'code')
    return <code>{markText(marked, { start: inline.start + 1, end: inline.end - 1 })}</code>;
  const children = <Inlines {...marked} inlines={inline.children} />;
  if (inline.type === 'strong') return <strong>{children}</strong>;
  if (inline.type === 'em') return <em>{children}</em>;
  if (inline.type === 'strike') return <s>{children}</s>;
  const link = safeHref(inline.href);
  // What may not be followed is shown, address and all.
  if (link === null) return markText(marked, inline);
  return (
    <>
      <a href={link.href} target="_blank" rel="noopener noreferrer">
        {children}
      </a>
      <span className="muted"> ({link.host})</span>
    </>
  );
}

/** The characters of a range, split where marks start and end. */
function markText({ source, marks }: Marked, range: Range): ReactNode {
  const parts: ReactNode[] = [];
  let at = range.start;
  for (const mark of marks) {
    const start = Math.max(mark.start, at);
    const end = Math.min(mark.end, range.end);
    if (start >= end) continue;
    if (start > at) parts.push(source.slice(at, start));
    parts.push(<mark key={start}>{source.slice(start, end)}</mark>);
    at = end;
  }
  if (at < range.end) parts.push(source.slice(at, range.end));
  return parts;
}
