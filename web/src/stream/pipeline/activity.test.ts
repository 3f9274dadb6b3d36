import { expect, test } from 'vitest';
import { ActivityCounter, perMinute, SLOT_MS, SLOTS } from './activity';

const NOW = Date.parse('2026-11-28T06:00:00Z');

test('events are counted by topic and slot, the newest last', () => {
  const counter = new ActivityCounter();
  counter.add({ topic: 'raw', at: NOW });
  counter.add({ topic: 'raw', at: NOW });
  counter.add({ topic: 'raw', at: NOW - SLOT_MS });
  counter.add({ topic: 'accepted', at: NOW });
  const { counts, last } = counter.snapshot(NOW);
  expect(counts.get('raw')?.slice(-3)).toEqual([0, 1, 2]);
  expect(counts.get('accepted')?.at(-1)).toBe(1);
  expect(last.get('raw')).toBe(NOW);
});

test('events older than the window are forgotten', () => {
  const counter = new ActivityCounter();
  counter.add({ topic: 'raw', at: NOW });
  const later = counter.snapshot(NOW + SLOTS * SLOT_MS);
  expect(later.counts.get('raw')).toEqual(Array.from({ length: SLOTS }, () => 0));
  expect(later.last.get('raw')).toBe(NOW);
});

test('the rate is that of the last minute', () => {
  expect(perMinute([100, 0, 5, 5, 5, 5])).toBe(20);
  expect(perMinute([])).toBe(0);
});
