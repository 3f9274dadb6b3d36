import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { formatFor } from '@/shared/format';
import { toIntervals } from './comparison-view';
import { BOUNDS, GATE } from './gate';
import { toneOf } from './interval-plot';

const openapi = JSON.parse(readFileSync('../docs/reference/openapi.json', 'utf8'));
const format = formatFor('en');
const LABELS = { 'ndcg@10': 'n', 'mrr@10': 'm', refusals: 'r', latency_ms: 'l' };

test('the bounds start at the defaults of the API', () => {
  const { properties } = openapi.components.schemas.PromotionGate;
  for (const bound of BOUNDS)
    expect([bound, GATE[bound]]).toEqual([bound, properties[bound].default]);
});

test('differences carry their sign and unit, and missing measures no row', () => {
  const intervals = {
    refusals: { difference: 0.0625, low: 0, high: 0.1875, queries: 16 },
    latency_ms: { difference: -47.8, low: -143.8, high: 41.9, queries: 16 },
  };
  const rows = toIntervals({ intervals }, LABELS, format);
  expect(rows.map((row) => [row.key, row.format(row.difference)])).toEqual([
    ['refusals', '+6.3 %'],
    ['latency_ms', '\u221248 ms'],
  ]);
});

test('an interval that holds zero shows no difference, others count by what is better', () => {
  const row = { key: 'k', label: '', difference: 0, format: String };
  expect(toneOf({ ...row, low: -1, high: 1, better: 1 })).toBe('muted');
  expect(toneOf({ ...row, low: 0, high: 1, better: 1 })).toBe('muted');
  expect(toneOf({ ...row, low: 0.1, high: 1, better: 1 })).toBe('ok');
  expect(toneOf({ ...row, low: 0.1, high: 1, better: -1 })).toBe('bad');
  expect(toneOf({ ...row, low: -1, high: -0.1, better: -1 })).toBe('ok');
});
