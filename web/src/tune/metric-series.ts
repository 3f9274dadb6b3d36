import type { Format } from '@/shared/format';
import { growthOf, quantileBetween, type Scrape, sumOf } from '@/shared/metrics';

export const SERIES = [
  'questions',
  'p95',
  'failures',
  'events',
  'documents',
  'lag',
  'cache',
  'memory',
] as const;
export type SeriesName = (typeof SERIES)[number];
export type Point = { at: number } & Record<SeriesName, number | null>;

const MINUTE_MS = 60_000;
const LONG_MS = 5 * MINUTE_MS;
const QUERIES = 'anabranch_query_duration_seconds';

/** The values of the last scrape, by those before it. Rates are of a minute, or what there is. */
export function measure(
  scrapes: readonly Scrape[],
  documents: number | null,
  lag: number | null,
): Point | null {
  const now = scrapes.at(-1);
  if (now === undefined) return null;
  const minute = before(scrapes, now.at - MINUTE_MS);
  const long = before(scrapes, now.at - LONG_MS);
  const perMinute = (name: string, labels?: Record<string, string>) => {
    if (minute === null) return null;
    const growth = growthOf(minute, now, name, labels) ?? 0;
    return (growth / (now.at - minute.at)) * MINUTE_MS;
  };
  const grown = (name: string, labels?: Record<string, string>) =>
    long === null ? 0 : (growthOf(long, now, name, labels) ?? 0);
  const cacheOf = (outcome: string) => grown('anabranch_cache_requests_total', { outcome });
  const lookups = cacheOf('hit') + cacheOf('miss') + cacheOf('stale');
  const p95 = long && quantileBetween(long, now, QUERIES, 0.95);
  const refused = perMinute('anabranch_answers_total', { outcome: 'refused' });
  const failed = perMinute('anabranch_answers_total', { outcome: 'error' });
  const busy = perMinute('anabranch_requests_refused_busy_total');
  return {
    at: now.at,
    questions: perMinute(`${QUERIES}_count`),
    p95: p95 === null ? null : p95 * 1000,
    failures: refused === null ? null : refused + (failed ?? 0) + (busy ?? 0),
    events: perMinute('anabranch_events_total'),
    documents,
    lag,
    cache: lookups === 0 ? null : cacheOf('hit') / lookups,
    memory: sumOf(now, 'anabranch_memory_bytes'),
  };
}

/** The last scrape from before a time, else the oldest; null if there is only one. */
function before(scrapes: readonly Scrape[], time: number): Scrape | null {
  if (scrapes.length < 2) return null;
  return scrapes.findLast((scrape) => scrape.at <= time) ?? scrapes[0] ?? null;
}

export function formatValue(name: SeriesName, value: number, format: Format): string {
  switch (name) {
    case 'p95':
      return format.duration(value);
    case 'cache':
      return format.percent(value);
    case 'memory':
      return format.bytes(value);
    case 'documents':
    case 'lag':
      return format.count(value);
    default:
      return format.decimal(value, value < 10 ? 1 : 0);
  }
}
