import type { Hit } from './context';
import { type Range, toUnits } from './markdown';

/** What ends a sentence, and is no letter of it. */
export const STOP = /^[.,;:!?)"'”’»…%€]*/;

/** Letters and digits with the place of each: quotes differ from the text in spaces and marks. */
function significant(text: string): { letters: string; at: number[] } {
  const at: number[] = [];
  let letters = '';
  for (let index = 0; index < text.length; index += 1) {
    const character = text[index] as string;
    if (/[\p{L}\p{N}\p{Cs}]/u.test(character)) {
      letters += character;
      at.push(index);
    }
  }
  return { letters, at };
}

/** The ranges of a hit in the Markdown, in JavaScript's offsets, in order of the text. */
export function markRanges(markdown: string, hit: Hit): Range[] {
  const spans = hit.spans.filter((span) => span.char_end > span.char_start);
  const ranges: Range[] = [];
  const units = toUnits(
    markdown,
    spans.flatMap((span) => [span.char_start, span.char_end]),
  );
  for (let index = 0; index < spans.length; index += 1) {
    ranges.push({ start: units[2 * index] ?? 0, end: units[2 * index + 1] ?? 0 });
  }
  ranges.sort((a, b) => a.start - b.start);
  const first = ranges[0];
  const last = ranges.at(-1);
  const quote = significant(hit.quote).letters;
  if (first && last) {
    const marked = significant(markdown.slice(first.start, last.end)).letters;
    if (quote === '' || marked.includes(quote.slice(0, 60)) || quote.includes(marked.slice(0, 60)))
      return ranges;
  }
  // The text is another one than the offsets were made for, such as that of a later parser.
  const text = significant(markdown);
  const place = quote === '' ? -1 : text.letters.indexOf(quote);
  if (place < 0) return [];
  const end = (text.at[place + quote.length - 1] ?? 0) + 1;
  const stop = STOP.exec(markdown.slice(end, end + 8))?.[0].length ?? 0;
  return [{ start: text.at[place] ?? 0, end: end + stop }];
}
