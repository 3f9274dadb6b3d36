/** Prometheus text, as `/metrics` answers it: samples, sums, rates and quantiles. */

export type Sample = { name: string; labels: Record<string, string>; value: number };
export type Scrape = { at: number; samples: Sample[] };
type Labels = Record<string, string>;

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

export function parseMetrics(text: string): Sample[] {
  return text.split('\n').flatMap((line) => {
    const match = line.startsWith('#') ? null : LINE.exec(line);
    if (match === null) return [];
    const [, name = '', labels = '', value = ''] = match;
    return [{ name, labels: parseLabels(labels), value: parseValue(value) }];
  });
}

function parseLabels(text: string): Labels {
  const escapes: Record<string, string> = { n: '\n' };
  return Object.fromEntries(
    [...text.matchAll(LABEL)].map(([, name = '', value = '']) => [
      name,
      value.replace(/\\(.)/g, (_, letter: string) => escapes[letter] ?? letter),
    ]),
  );
}

function parseValue(text: string): number {
  return text.endsWith('Inf') ? (text.startsWith('-') ? -Infinity : Infinity) : Number(text);
}

function select(scrape: Scrape, name: string, labels: Labels): Sample[] {
  return scrape.samples.filter(
    (sample) =>
      sample.name === name &&
      Object.entries(labels).every(([label, value]) => sample.labels[label] === value),
  );
}

/** The sum over all series of a name; null if there is none. */
export function sumOf(scrape: Scrape, name: string, labels: Labels = {}): number | null {
  const samples = select(scrape, name, labels);
  return samples.length === 0 ? null : samples.reduce((sum, { value }) => sum + value, 0);
}

/** How much a counter grew. A series that is new began at 0; a restart counts from 0. */
export function growthOf(
  before: Scrape,
  after: Scrape,
  name: string,
  labels: Labels = {},
): number | null {
  const now = sumOf(after, name, labels);
  if (now === null) return null;
  const then = sumOf(before, name, labels) ?? 0;
  return now < then ? now : now - then;
}

/** The quantile of what a histogram counted between two scrapes; null if it counted nothing. */
export function quantileBetween(
  before: Scrape,
  after: Scrape,
  name: string,
  quantile: number,
  labels: Labels = {},
): number | null {
  const bucket = `${name}_bucket`;
  const bounds = [...new Set(select(after, bucket, labels).map(({ labels: { le } }) => le ?? ''))]
    .map((le) => ({ le, bound: le === '+Inf' ? Infinity : Number(le) }))
    .sort((a, b) => a.bound - b.bound);
  const counts = bounds.map(({ le, bound }) => ({
    bound,
    count: growthOf(before, after, bucket, { ...labels, le }) ?? 0,
  }));
  const total = counts.at(-1)?.count ?? 0;
  if (total <= 0) return null;
  const rank = quantile * total;
  const index = counts.findIndex(({ count }) => count >= rank);
  const reached = counts[index];
  if (reached === undefined) return null;
  const below = counts[index - 1] ?? { bound: 0, count: 0 };
  // Nothing is known beyond the last bound.
  if (reached.bound === Infinity) return below.bound;
  const share = (rank - below.count) / (reached.count - below.count || 1);
  return below.bound + share * (reached.bound - below.bound);
}
