import { expect, test } from 'vitest';
import { growthOf, parseMetrics, quantileBetween, type Scrape, sumOf } from './metrics';

const scrape = (text: string, at = 0): Scrape => ({ at, samples: parseMetrics(text) });

test('samples have labels and values; comments and broken lines are none', () => {
  expect(
    parseMetrics(
      '# HELP a Text\n# TYPE a counter\na{kind="q",text="x\\"y\\\\z\\n}"} 3.5\nb 1e+03\nc +Inf\n\n{} 1\n',
    ),
  ).toEqual([
    { name: 'a', labels: { kind: 'q', text: 'x"y\\z\n}' }, value: 3.5 },
    { name: 'b', labels: {}, value: 1000 },
    { name: 'c', labels: {}, value: Infinity },
  ]);
});

test('a counter grows from 0 when it is new and when its process restarted', () => {
  const empty = scrape('');
  const first = scrape('a{x="1"} 4\na{x="2"} 1\n');
  const restarted = scrape('a{x="1"} 2\n');
  expect(sumOf(first, 'a')).toBe(5);
  expect(sumOf(first, 'a', { x: '2' })).toBe(1);
  expect(sumOf(empty, 'a')).toBeNull();
  expect(growthOf(empty, first, 'a')).toBe(5);
  expect(growthOf(first, restarted, 'a')).toBe(2);
});

test('a quantile counts only what came between the scrapes', () => {
  const h = (low: number, middle: number, all: number) =>
    scrape(`h_bucket{le="0.1"} ${low}\nh_bucket{le="1.0"} ${middle}\nh_bucket{le="+Inf"} ${all}\n`);
  expect(quantileBetween(h(90, 90, 90), h(90, 100, 100), 'h', 0.5)).toBeCloseTo(0.55);
  expect(quantileBetween(h(0, 0, 0), h(100, 100, 100), 'h', 0.95)).toBeCloseTo(0.095);
  expect(quantileBetween(h(5, 5, 5), h(5, 5, 5), 'h', 0.95)).toBeNull();
  expect(quantileBetween(h(0, 0, 0), h(0, 0, 7), 'h', 0.95)).toBe(1);
});
