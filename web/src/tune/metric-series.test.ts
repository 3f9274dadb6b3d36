import { expect, test } from 'vitest';
import { parseMetrics, type Scrape } from '@/shared/metrics';
import { measure } from './metric-series';

const scrape = (seconds: number, text: string): Scrape => ({
  at: seconds * 1000,
  samples: parseMetrics(text),
});
const queries = (n: number) =>
  `anabranch_query_duration_seconds_count ${n}\n` +
  `anabranch_query_duration_seconds_bucket{le="1.0"} ${n}\n` +
  `anabranch_query_duration_seconds_bucket{le="+Inf"} ${n}\n`;

test('one scrape has gauges, but no rates', () => {
  const point = measure([scrape(0, `${queries(9)}anabranch_memory_bytes 2\n`)], 7, 3);
  expect(point).toMatchObject({ questions: null, p95: null, memory: 2, documents: 7, lag: 3 });
});

test('rates are of the last minute, quantiles and shares of five', () => {
  const scrapes = [
    scrape(0, queries(0)),
    scrape(200, `${queries(40)}anabranch_cache_requests_total{outcome="hit"} 3\n`),
    scrape(
      260,
      `${queries(50)}anabranch_cache_requests_total{outcome="hit"} 3\n` +
        'anabranch_cache_requests_total{outcome="miss"} 1\n' +
        'anabranch_answers_total{outcome="refused"} 2\n',
    ),
  ];
  expect(measure(scrapes, null, null)).toMatchObject({
    questions: 10,
    p95: 950,
    failures: 2,
    cache: 0.75,
    memory: null,
  });
});

test('a restart of the server gives no negative rate', () => {
  const point = measure([scrape(0, queries(100)), scrape(60, queries(3))], null, null);
  expect(point?.questions).toBe(3);
});
