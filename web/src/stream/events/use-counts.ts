import { useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { api, call, type Schemas } from '@/shared/api/client';
import { toBuckets } from './histogram-data';

const HOUR_MS = 3_600_000;
const REFRESH_MS = 10_000;

/** How far back the bars reach, and in which intervals the server counts. */
export const PERIODS = {
  hour: { ms: HOUR_MS, bucket: 'minute' },
  day: { ms: 24 * HOUR_MS, bucket: 'minute' },
  week: { ms: 7 * 24 * HOUR_MS, bucket: 'hour' },
  month: { ms: 30 * 24 * HOUR_MS, bucket: 'hour' },
} as const;
export type Period = keyof typeof PERIODS;

/**
 * The bars that the server counts, also of events that the page has not loaded. Undefined where it
 * counts none: on a Kafka log, or for a caller limited to readers.
 */
export function useCounts(period: Period, topics: string, isEnabled: boolean) {
  const query = useQuery({
    queryKey: ['events', 'counts', period, topics],
    queryFn: async () => {
      const { ms, bucket } = PERIODS[period];
      const to = Date.now();
      const from = to - ms;
      const counts = await call(
        api.GET('/v1/events/counts', {
          params: {
            query: {
              bucket,
              from: new Date(from).toISOString(),
              to: new Date(to).toISOString(),
              ...(topics ? { topics } : {}),
            },
          },
        }),
      );
      return { counts, from, to };
    },
    enabled: isEnabled,
    refetchInterval: REFRESH_MS,
    retry: false,
    // The bars stay while those of another period arrive.
    placeholderData: (previous) => previous,
  });
  return useMemo(() => query.data && countsToBuckets(query.data), [query.data]);
}

type Counted = { counts: Schemas['EventCounts']; from: number; to: number };

export function countsToBuckets({ counts, from, to }: Counted) {
  const points = counts.items.map(({ start, counts: byTopic }) => ({
    at: Date.parse(start),
    count: Object.values(byTopic).reduce((sum, count) => sum + count, 0),
    failed: byTopic.dead_letters ?? 0,
  }));
  // The bars span the period, not only the part of it with events.
  return toBuckets([{ at: from, count: 0, failed: 0 }, ...points], to);
}
