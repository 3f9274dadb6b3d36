/**
 * The Markdown that the server stores, as blocks and inline tokens that know where they stand in
 * it. It becomes React elements: raw HTML has no token, so it stays text.
 */

/** Characters [start, end) of the source. */
export type Range = { start: number; end: number };
export type Inline = Range &
  (
    | { type: 'text' }
    | { type: 'code' }
    | { type: 'strong'; children: Inline[] }
    | { type: 'em'; children: Inline[] }
    | { type: 'strike'; children: Inline[] }
    | { type: 'link'; href: string; children: Inline[] }
  );
export type Cell = Range & { inlines: Inline[] };
export type Row = Range & { cells: Cell[] };
export type Block = Range &
  (
    | { type: 'heading'; level: number; inlines: Inline[] }
    | { type: 'paragraph' | 'note'; inlines: Inline[] }
    | { type: 'item'; depth: number; marker: string; inlines: Inline[] }
    | { type: 'quote'; inlines: Inline[] }
    | { type: 'code'; text: Range }
    | { type: 'table'; header: Row | null; rows: Row[] }
    | { type: 'rule' }
  );

const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const HEADING = /^(#{1,6})[ \t]+/;
const ITEM = /^([ \t]*)([-*+]|\d{1,9}[.)])[ \t]+/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const DELIMITER = /^\|?(?:[ \t]*:?-+:?[ \t]*\|)*[ \t]*:?-+:?[ \t]*\|?[ \t]*$/;

type Line = Range & { text: string };

export function parseBlocks(source: string): Block[] {
  const lines = splitLines(source);
  const blocks: Block[] = [];
  for (let index = 0; index < lines.length; ) {
    const line = lines[index] as Line;
    if (line.text.trim() === '') {
      index += 1;
      continue;
    }
    const { block, next } = readBlock(source, lines, index);
    blocks.push(block);
    index = next;
  }
  return blocks;
}

function splitLines(source: string): Line[] {
  const lines: Line[] = [];
  for (let start = 0; start <= source.length; ) {
    const found = source.indexOf('\n', start);
    const end = found < 0 ? source.length : found;
    lines.push({ start, end, text: source.slice(start, end) });
    start = end + 1;
  }
  return lines;
}

function readBlock(source: string, lines: Line[], index: number): { block: Block; next: number } {
  const line = lines[index] as Line;
  const inlines = (start: number, end: number) => parseInlines(source, start, end);
  const fence = FENCE.exec(line.text)?.[1];
  if (fence !== undefined) {
    let next = index + 1;
    while (next < lines.length && !(lines[next] as Line).text.trimStart().startsWith(fence))
      next += 1;
    const last = lines[Math.min(next, lines.length - 1)] as Line;
    const text = {
      start: Math.min(line.end + 1, last.start),
      end: Math.max(line.end, last.start - 1),
    };
    return { block: { type: 'code', start: line.start, end: last.end, text }, next: next + 1 };
  }
  if (line.text.startsWith('<!--')) {
    let last = index;
    while (!(lines[last] as Line).text.includes('-->') && last + 1 < lines.length) last += 1;
    const end = (lines[last] as Line).end;
    const inner = trim(source, {
      start: line.start + 4,
      end: source.slice(line.start, end).trimEnd().endsWith('-->')
        ? source.lastIndexOf('-->', end)
        : end,
    });
    return {
      block: { type: 'note', start: line.start, end, inlines: [{ type: 'text', ...inner }] },
      next: last + 1,
    };
  }
  if (line.text.startsWith('|')) {
    let next = index;
    while (next < lines.length && (lines[next] as Line).text.startsWith('|')) next += 1;
    return { block: readTable(source, lines.slice(index, next)), next };
  }
  if (RULE.test(line.text)) {
    return { block: { type: 'rule', start: line.start, end: line.end }, next: index + 1 };
  }
  const heading = HEADING.exec(line.text);
  if (heading !== null) {
    const start = line.start + heading[0].length;
    const level = heading[1]?.length ?? 1;
    const block = { start: line.start, end: line.end, inlines: inlines(start, line.end) };
    return { block: { type: 'heading', level, ...block }, next: index + 1 };
  }
  let next = index + 1;
  while (next < lines.length && continues((lines[next] as Line).text)) next += 1;
  const range = { start: line.start, end: (lines[next - 1] as Line).end };
  const item = ITEM.exec(line.text);
  if (item !== null) {
    const body = inlines(line.start + item[0].length, range.end);
    const depth = Math.min(6, Math.floor((item[1] ?? '').length / 2));
    return {
      block: { type: 'item', depth, marker: item[2] ?? '-', inlines: body, ...range },
      next,
    };
  }
  const quoted = /^ {0,3}> ?/.exec(line.text)?.[0].length;
  const body = inlines(range.start + (quoted ?? 0), range.end);
  return {
    block: { type: quoted === undefined ? 'paragraph' : 'quote', inlines: body, ...range },
    next,
  };
}

function continues(text: string): boolean {
  return (
    text.trim() !== '' &&
    !/^(#{1,6}[ \t]|\||<!--| {0,3}>)/.test(text) &&
    !ITEM.test(text) &&
    !FENCE.test(text)
  );
}

function readTable(source: string, lines: Line[]): Block {
  const isDelimiter = (line: Line | undefined) => line !== undefined && DELIMITER.test(line.text);
  const hasHeader = isDelimiter(lines[1]);
  const rows = lines
    .filter((line, at) => !(at === 1 && isDelimiter(line)))
    .map((line) => readRow(source, line));
  const first = lines[0] as Line;
  const last = lines.at(-1) as Line;
  return {
    type: 'table',
    start: first.start,
    end: last.end,
    header: hasHeader ? (rows[0] ?? null) : null,
    rows: hasHeader ? rows.slice(1) : rows,
  };
}

function readRow(source: string, line: Line): Row {
  const cells: Cell[] = [];
  let start = line.start + 1;
  for (let at = start; at <= line.end; at += 1) {
    if (source[at] === '\\') at += 1;
    else if (source[at] === '|' || at === line.end) {
      // What follows the last bar is no cell.
      if (at < line.end || source.slice(start, at).trim() !== '') {
        const cell = trim(source, { start, end: at });
        cells.push({ ...cell, inlines: parseInlines(source, cell.start, cell.end) });
      }
      start = at + 1;
    }
  }
  return { start: line.start, end: line.end, cells };
}

function trim(source: string, { start, end }: Range): Range {
  while (start < end && /\s/.test(source[start] as string)) start += 1;
  while (end > start && /\s/.test(source[end - 1] as string)) end -= 1;
  return { start, end };
}

const MARKS: [string, 'strong' | 'em' | 'strike'][] = [
  ['**', 'strong'],
  ['__', 'strong'],
  ['~~', 'strike'],
  ['*', 'em'],
];
const MAX_DEPTH = 8;
// A hostile text of opening marks would else be searched to its end from each of them.
const MAX_SPAN = 2000;

export function parseInlines(source: string, start: number, end: number, depth = 0): Inline[] {
  const inlines: Inline[] = [];
  let from = start;
  const flush = (to: number) => {
    if (to > from) inlines.push({ type: 'text', start: from, end: to });
  };
  for (let at = start; at < end; ) {
    const character = source[at] as string;
    if (character === '\\' && at + 1 < end && /[!-/:-@[-`{-~]/.test(source[at + 1] as string)) {
      flush(at);
      from = at + 1;
      at += 2;
      continue;
    }
    const found =
      depth < MAX_DEPTH && '`*_~['.includes(character) ? readInline(source, at, end, depth) : null;
    if (found === null) {
      at += 1;
    } else {
      flush(at);
      inlines.push(found);
      from = found.end;
      at = found.end;
    }
  }
  flush(end);
  return inlines;
}

function readInline(source: string, at: number, end: number, depth: number): Inline | null {
  const limit = Math.min(end, at + MAX_SPAN);
  const find = (wanted: string, from: number) => {
    const place = source.slice(from, limit).indexOf(wanted);
    return place < 0 ? -1 : from + place;
  };
  if (source[at] === '`') {
    const close = find('`', at + 1);
    return close < 0 ? null : { type: 'code', start: at, end: close + 1 };
  }
  if (source[at] === '[') {
    const close = find('](', at + 1);
    const stop = close < 0 ? -1 : find(')', close + 2);
    if (stop < 0) return null;
    const children = parseInlines(source, at + 1, close, depth + 1);
    return {
      type: 'link',
      start: at,
      end: stop + 1,
      href: source.slice(close + 2, stop),
      children,
    };
  }
  for (const [mark, type] of MARKS) {
    if (!source.startsWith(mark, at)) continue;
    const body = at + mark.length;
    const close = find(mark, body + 1);
    if (close < 0 || /\s/.test(source[body] ?? ' ') || /\s/.test(source[close - 1] ?? ' '))
      return null;
    const children = parseInlines(source, body, close, depth + 1);
    return { type, start: at, end: close + mark.length, children };
  }
  return null;
}

/** Offsets of the server count code points; those of JavaScript count UTF-16 units. */
export function toUnits(source: string, points: readonly number[]): number[] {
  const ordered = [...points].sort((a, b) => a - b);
  const units = new Map<number, number>();
  let point = 0;
  let unit = 0;
  for (const wanted of ordered) {
    while (point < wanted && unit < source.length) {
      unit += (source.codePointAt(unit) ?? 0) > 0xffff ? 2 : 1;
      point += 1;
    }
    units.set(wanted, unit);
  }
  return points.map((wanted) => units.get(wanted) ?? source.length);
}

const SAFE_LINK = /^(https?:\/\/|mailto:)/i;

/** The address of a link that may be followed, or null for one that is shown as text. */
export function safeHref(href: string): { href: string; host: string } | null {
  const address = href.trim().split(/\s/)[0] ?? '';
  if (!SAFE_LINK.test(address)) return null;
  try {
    const url = new URL(address);
    if (!['http:', 'https:', 'mailto:'].includes(url.protocol)) return null;
    return { href: url.href, host: url.protocol === 'mailto:' ? url.pathname : url.host };
  } catch {
    return null;
  }
}
