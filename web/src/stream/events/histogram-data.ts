import type { Format } from '@/shared/format';

/** Events of one span of time. */
export type Bucket = { start: number; count: number; failed: number };

const MINUTE_MS = 60_000;
export const MAX_BUCKETS = 120;
const HOUR = 60;
const DAY = 24 * HOUR;
// Spans that people count in; the last one suffices for ten years.
const SPAN_MINUTES = [1, 2, 5, 10, 15, 30, HOUR, 2 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 7 * DAY];
const LAST_SPAN_MS = 30 * DAY * MINUTE_MS;

/** The shortest of these spans with which the range needs no more than MAX_BUCKETS. */
export function spanFor(from: number, to: number): number {
  const fits = (minutes: number) => (to - from) / (minutes * MINUTE_MS) < MAX_BUCKETS - 1;
  const minutes = SPAN_MINUTES.find(fits);
  return minutes === undefined ? LAST_SPAN_MS : minutes * MINUTE_MS;
}

/** Count by span from the oldest point to `now`; spans without events count 0. */
export function toBuckets(
  points: readonly { at: number; count: number; failed: number }[],
  now: number,
): { span: number; buckets: Bucket[] } {
  if (points.length === 0) return { span: MINUTE_MS, buckets: [] };
  const oldest = points.reduce((least, point) => Math.min(least, point.at), now);
  const newest = points.reduce((most, point) => Math.max(most, point.at), now);
  const span = spanFor(oldest, newest);
  const first = Math.floor(oldest / span) * span;
  const length = Math.floor((newest - first) / span) + 1;
  const buckets = Array.from({ length }, (_, index) => ({
    start: first + index * span,
    count: 0,
    failed: 0,
  }));
  for (const point of points) {
    const bucket = buckets[Math.floor((point.at - first) / span)];
    if (bucket === undefined) continue;
    bucket.count += point.count;
    bucket.failed += point.failed;
  }
  return { span, buckets };
}

/** `1 min` for what the format of durations, which is for measurements, shows as 60 s. */
export function formatSpan(span: number, format: Pick<Format, 'duration'>): string {
  return span === MINUTE_MS ? '1 min' : format.duration(span);
}
