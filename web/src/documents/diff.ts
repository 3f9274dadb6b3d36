export type DiffLine = { kind: 'same' | 'added' | 'removed'; text: string };

/** Above it, comparing would hold up the page: the table has one cell per pair of lines. */
const MAX_CELLS = 4_000_000;

/** The lines of two texts, by their longest common subsequence; null if they are too long. */
export function diffLines(before: string, after: string): DiffLine[] | null {
  const [old, fresh] = [before.split('\n'), after.split('\n')];
  let start = 0;
  while (start < old.length && start < fresh.length && old[start] === fresh[start]) start += 1;
  let end = 0;
  while (
    end < Math.min(old.length, fresh.length) - start &&
    old.at(-1 - end) === fresh.at(-1 - end)
  ) {
    end += 1;
  }
  const one = old.slice(start, old.length - end);
  const other = fresh.slice(start, fresh.length - end);
  if (one.length * other.length > MAX_CELLS) return null;
  return [
    ...old.slice(0, start).map(same),
    ...diffMiddle(one, other),
    ...old.slice(old.length - end).map(same),
  ];
}

const same = (text: string): DiffLine => ({ kind: 'same', text });

function diffMiddle(one: string[], other: string[]): DiffLine[] {
  const width = other.length + 1;
  const common = new Uint32Array((one.length + 1) * width);
  for (let i = one.length - 1; i >= 0; i -= 1) {
    for (let j = other.length - 1; j >= 0; j -= 1) {
      common[i * width + j] =
        one[i] === other[j]
          ? (common[(i + 1) * width + j + 1] ?? 0) + 1
          : Math.max(common[(i + 1) * width + j] ?? 0, common[i * width + j + 1] ?? 0);
    }
  }
  const lines: DiffLine[] = [];
  let [i, j] = [0, 0];
  while (i < one.length || j < other.length) {
    if (i < one.length && j < other.length && one[i] === other[j]) {
      lines.push(same(one[i] as string));
      i += 1;
      j += 1;
    } else if (
      j >= other.length ||
      (i < one.length && (common[(i + 1) * width + j] ?? 0) >= (common[i * width + j + 1] ?? 0))
    ) {
      lines.push({ kind: 'removed', text: one[i] as string });
      i += 1;
    } else {
      lines.push({ kind: 'added', text: other[j] as string });
      j += 1;
    }
  }
  return lines;
}
