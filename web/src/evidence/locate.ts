import { STOP } from './marks';

/** A rectangle on a page, in shares of its width and height from the top left. */
export type Box = readonly [x0: number, y0: number, x1: number, y1: number];
/** A run of text on a page; `advance` is how far along its width each character starts. */
export type TextItem = { text: string; box: Box; advance: (index: number) => number };
export type Located = { boxes: Box[]; isExact: boolean };

/** Letters and digits only: pages break, hyphenate, space and mark up text in their own way. */
const SIGNIFICANT = /[\p{L}\p{N}]/u;
const START = /[("'“‘«[<¿¡]*$/;
// The start of a sentence that continues on the next page must not match by chance.
const MIN_PART = 12;

type Letters = { letters: string; at: { item: number; start: number; end: number }[] };

/**
 * Find where these words stand on a page, one box for each line.
 *
 * `near` is the box of the paragraph, to choose between equal sentences. `carry` is the part of
 * the words that this page lacks, because the sentence continues on the next one.
 */
export function locateQuote(
  items: readonly TextItem[],
  words: string,
  near: Box | null,
): { boxes: Box[]; carry: string } {
  const page = toLetters(items.map((item) => item.text));
  const wanted = toLetters([words]);
  if (wanted.letters === '') return { boxes: [], carry: '' };
  const toBoxes = (start: number, length: number) => lineBoxes(items, page, start, start + length);
  const places = findAll(page.letters, wanted.letters);
  if (places.length > 0) {
    const candidates = places.map((place) => toBoxes(place, wanted.letters.length));
    return { boxes: nearest(candidates, near), carry: '' };
  }
  const altered = findAltered(page.letters, wanted.letters);
  if (altered !== null) return { boxes: toBoxes(altered.start, altered.length), carry: '' };
  const part = longestPart(page.letters, wanted.letters);
  if (part.length < MIN_PART) return { boxes: [], carry: words };
  const cut = wanted.at[part.length - 1]?.end ?? words.length;
  return {
    boxes: toBoxes(page.letters.lastIndexOf(part), part.length),
    carry: words.slice(cut).trim(),
  };
}

function toLetters(texts: readonly string[]): Letters {
  const letters: string[] = [];
  const at: Letters['at'] = [];
  texts.forEach((text, item) => {
    let start = 0;
    for (const character of text) {
      const end = start + character.length;
      // One character may become several ("ﬁ") or lose its accent, which PDFs write apart.
      for (const letter of character.normalize('NFKD').toLowerCase()) {
        if (SIGNIFICANT.test(letter)) {
          for (let unit = 0; unit < letter.length; unit += 1) at.push({ item, start, end });
          letters.push(letter);
        }
      }
      start = end;
    }
  });
  return { letters: letters.join(''), at };
}

function findAll(text: string, wanted: string): number[] {
  const places: number[] = [];
  for (let at = text.indexOf(wanted); at >= 0 && places.length < 100; ) {
    places.push(at);
    at = text.indexOf(wanted, at + wanted.length);
  }
  return places;
}

const ENDS = 20;

/** A sentence whose start and end are on the page, with letters that the parser read otherwise. */
function findAltered(text: string, wanted: string): { start: number; length: number } | null {
  if (wanted.length < 2 * ENDS) return null;
  const slack = Math.ceil(wanted.length / 10);
  for (const start of findAll(text, wanted.slice(0, ENDS))) {
    const tail = text.indexOf(wanted.slice(-ENDS), start + wanted.length - ENDS - slack);
    const length = tail + ENDS - start;
    if (tail >= 0 && length <= wanted.length + slack) return { start, length };
  }
  return null;
}

/** The longest start of `wanted` that is in `text`, by halving. */
function longestPart(text: string, wanted: string): string {
  let low = 0;
  let high = wanted.length;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (text.includes(wanted.slice(0, middle))) low = middle;
    else high = middle - 1;
  }
  return wanted.slice(0, low);
}

function lineBoxes(items: readonly TextItem[], page: Letters, start: number, end: number): Box[] {
  const lines: Box[] = [];
  for (let index = start; index < end; ) {
    const first = page.at[index];
    if (first === undefined) break;
    const isStart = index === start;
    let last = first;
    while (index < end && page.at[index]?.item === first.item) {
      last = page.at[index] ?? last;
      index += 1;
    }
    const item = items[first.item];
    if (item === undefined) break;
    const [x0, y0, x1, y1] = item.box;
    // Full stop and quotation marks belong to the sentence.
    const stop = STOP.exec(item.text.slice(last.end))?.[0].length ?? 0;
    const isEnd = index >= end;
    const opening = START.exec(item.text.slice(0, first.start))?.[0].length ?? 0;
    const from = x0 + (x1 - x0) * item.advance(isStart ? first.start - opening : 0);
    const to = x0 + (x1 - x0) * item.advance(isEnd ? last.end + stop : item.text.length);
    pushLine(lines, [from, y0, to, y1]);
  }
  return lines;
}

/** Items of one line become one box. */
function pushLine(lines: Box[], box: Box): void {
  const line = lines.at(-1);
  const height = box[3] - box[1];
  const isSameLine =
    line !== undefined &&
    Math.abs(line[1] - box[1]) < height / 2 &&
    Math.abs(line[3] - box[3]) < height / 2 &&
    box[0] > line[0] - height;
  if (!isSameLine || line === undefined) lines.push(box);
  else lines[lines.length - 1] = cover([line, box]);
}

function nearest(candidates: Box[][], near: Box | null): Box[] {
  if (near === null || candidates.length === 1) return candidates[0] ?? [];
  const distance = (boxes: Box[]) => {
    const [x0, y0, x1, y1] = cover(boxes);
    return (
      Math.abs((y0 + y1) / 2 - (near[1] + near[3]) / 2) +
      Math.abs((x0 + x1) / 2 - (near[0] + near[2]) / 2) / 4
    );
  };
  return candidates.reduce((best, boxes) => (distance(boxes) < distance(best) ? boxes : best));
}

export function cover(boxes: readonly Box[]): Box {
  return boxes.reduce((a, b) => [
    Math.min(a[0], b[0]),
    Math.min(a[1], b[1]),
    Math.max(a[2], b[2]),
    Math.max(a[3], b[3]),
  ]);
}

export function toBox(numbers: readonly number[] | null | undefined): Box | null {
  const [x0, y0, x1, y1] = numbers ?? [];
  if (x0 === undefined || y0 === undefined || x1 === undefined || y1 === undefined) return null;
  return [x0, y0, x1, y1];
}
