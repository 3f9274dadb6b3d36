import type { RunNumbers } from './run-data';

export type MarkedPart = { text: string; isMatch: boolean };

/** Stems shorter than this match too many other words. */
const SHORTEST_STEM = 4;

function fold(word: string): string {
  return word.normalize('NFKD').replace(/\p{M}/gu, '').toLowerCase();
}

/**
 * A test whether a word is one of the question's: by the words that were searched, and by the
 * stems of the lexical index, whose idf the run recorded.
 */
export function matcher(
  keywords: readonly string[],
  idf: RunNumbers['idf'],
): (word: string) => boolean {
  const whole = new Set(keywords.map(fold));
  const stems = Object.values(idf ?? {})
    .flatMap((lexemes) => Object.keys(lexemes))
    .map(fold)
    .filter((stem) => stem.length >= SHORTEST_STEM);
  return (word) => {
    const folded = fold(word);
    return whole.has(folded) || stems.some((stem) => folded.startsWith(stem));
  };
}

/** Split a text into runs of matching words and what lies between them. */
export function markWords(text: string, isMatch: (word: string) => boolean): MarkedPart[] {
  const parts: MarkedPart[] = [];
  let end = 0;
  for (const { 0: word, index } of text.matchAll(/[\p{L}\p{N}]+/gu)) {
    if (!isMatch(word)) continue;
    if (index > end) parts.push({ text: text.slice(end, index), isMatch: false });
    parts.push({ text: word, isMatch: true });
    end = index + word.length;
  }
  if (end < text.length) parts.push({ text: text.slice(end), isMatch: false });
  return parts;
}

/** Up to `length` characters around the first match. */
export function excerptAround(
  text: string,
  isMatch: (word: string) => boolean,
  length = 220,
): string {
  const line = text.replaceAll(/\s+/g, ' ').trim();
  if (line.length <= length) return line;
  let first = 0;
  for (const { 0: word, index } of line.matchAll(/[\p{L}\p{N}]+/gu)) {
    if (isMatch(word)) {
      first = index;
      break;
    }
  }
  const start = Math.max(0, Math.min(first - 40, line.length - length));
  const cut = start === 0 ? 0 : line.indexOf(' ', start) + 1;
  const stop = line.lastIndexOf(' ', cut + length);
  const end = stop <= cut || cut + length >= line.length ? line.length : stop;
  return `${cut > 0 ? '… ' : ''}${line.slice(cut, end)}${end < line.length ? ' …' : ''}`;
}
