import { expect, test } from 'vitest';
import { curlCommand, shellQuote, watchCommand } from './commands';
import {
  causalChain,
  EMPTY_LOG,
  type LogEntry,
  type LogFilter,
  MAX_ROWS,
  matchesFilter,
  reduceLog,
  summarize,
} from './event-log';
import { MAX_BUCKETS, toBuckets } from './histogram-data';
import { countsToBuckets } from './use-counts';
import { toNotice } from './use-event-log';

const START = Date.parse('2026-11-28T06:00:00Z');

function entry(offset: number, changes: Partial<LogEntry> = {}): LogEntry {
  return {
    cursor: `${offset}.0.1`,
    topic: 'raw',
    partition: 0,
    offset,
    key: null,
    type: 'document.received.v1',
    id: `event-${offset}`,
    source: 'anabranch/api',
    time: null,
    appended_at: new Date(START + offset * 1000).toISOString(),
    tenant: 'default',
    document_id: null,
    cause: null,
    how: null,
    bytes: 100,
    data: null,
    ...changes,
  };
}

const ALL: LogFilter = { topics: [], type: '', key: '', text: '', tenant: '' };
const offsets = (entries: LogEntry[]) => entries.map((row) => row.offset);

test('arriving events come to the top, each once', () => {
  const loaded = reduceLog(EMPTY_LOG, { kind: 'loaded', entries: [entry(1), entry(2)] });
  const after = reduceLog(loaded, {
    kind: 'arrived',
    entries: [entry(2), entry(3)],
    isHeld: false,
  });
  expect(offsets(after.rows)).toEqual([3, 2, 1]);
});

test('a page that is loaded late goes below what the stream sent', () => {
  const live = reduceLog(EMPTY_LOG, { kind: 'arrived', entries: [entry(9)], isHeld: false });
  const after = reduceLog(live, { kind: 'loaded', entries: [entry(7), entry(8), entry(9)] });
  expect(offsets(after.rows)).toEqual([9, 8, 7]);
});

test('a held list keeps its rows and counts what waits', () => {
  const loaded = reduceLog(EMPTY_LOG, { kind: 'loaded', entries: [entry(1)] });
  const held = reduceLog(loaded, { kind: 'arrived', entries: [entry(2), entry(3)], isHeld: true });
  expect([offsets(held.rows), held.waitingCount]).toEqual([[1], 2]);
  const again = reduceLog(held, { kind: 'arrived', entries: [entry(3)], isHeld: true });
  expect(again.waitingCount).toBe(2);
  const released = reduceLog(again, { kind: 'release' });
  expect([offsets(released.rows), released.waitingCount]).toEqual([[3, 2, 1], 0]);
});

test('neither the list nor what waits grows beyond the limit', () => {
  const many = Array.from({ length: MAX_ROWS + 10 }, (_, offset) => entry(offset));
  const full = reduceLog(EMPTY_LOG, { kind: 'loaded', entries: many });
  expect(full.rows.length).toBe(MAX_ROWS);
  expect(full.rows[0]?.offset).toBe(MAX_ROWS + 9);
  let held = reduceLog(full, { kind: 'arrived', entries: many, isHeld: true });
  held = reduceLog(held, { kind: 'arrived', entries: [entry(90_000)], isHeld: true });
  expect([held.waiting.length, held.waitingCount]).toEqual([MAX_ROWS, MAX_ROWS + 11]);
});

test('a type matches all its versions but no longer word', () => {
  const row = entry(1, { type: 'document.failed.v1' });
  expect(matchesFilter(row, { ...ALL, type: 'document.failed' })).toBe(true);
  expect(matchesFilter(row, { ...ALL, type: 'document.fail' })).toBe(false);
});

test('topics of generations match their base topic, and text the whole envelope', () => {
  const row = entry(1, { topic: 'embedded.g2', data: { title: 'Ferry Agreement' } });
  expect(matchesFilter(row, { ...ALL, topics: ['embedded'] })).toBe(true);
  expect(matchesFilter(row, { ...ALL, text: 'ferry' })).toBe(true);
  expect(matchesFilter(row, { ...ALL, text: 'train' })).toBe(false);
  expect(matchesFilter(row, { ...ALL, tenant: 'other' })).toBe(false);
});

test('an error is summarized by code and detail, other payloads by their plain fields', () => {
  const data = { tenant: 't', error: { code: 'ENCRYPTED', detail: 'Page 4 is encrypted.' } };
  expect(summarize(entry(1, { data }))).toBe('ENCRYPTED: Page 4 is encrypted.');
  expect(summarize(entry(1, { data: { chunks_count: 8, event_id: 'x' } }))).toBe('chunks_count 8');
});

test('a chain holds the causes and all effects of an event, also of a cycle', () => {
  const rows = [
    entry(1, { id: 'a' }),
    entry(2, { id: 'b', cause: 'a' }),
    entry(3, { id: 'c', cause: 'b' }),
    entry(4, { id: 'd', cause: 'b' }),
    entry(5, { id: 'other' }),
  ];
  expect(offsets(causalChain(rows[1] as LogEntry, rows))).toEqual([1, 2, 3, 4]);
  const cycle = [entry(1, { id: 'x', cause: 'y' }), entry(2, { id: 'y', cause: 'x' })];
  expect(offsets(causalChain(cycle[0] as LogEntry, cycle))).toEqual([1, 2]);
});

test('commands quote hostile filters', () => {
  expect(shellQuote(`a'; rm -rf ~ #`)).toBe(`'a'\\''; rm -rf ~ #'`);
  const filter = { ...ALL, topics: ['raw', 'outcomes'], type: '$(reboot)', key: '`id`' };
  expect(watchCommand(filter)).toBe(
    "anabranch watch --topic raw --topic outcomes --type '$(reboot)' --key '`id`' --from -1h",
  );
  const curl = curlCommand({ ...ALL, tenant: `x' -o /etc/passwd '` }, 'http://h');
  expect(curl).toContain(`-H 'X-Anabranch-Tenant: x'\\'' -o /etc/passwd '\\'''`);
});

test('buckets cover the range without gaps and stay few', () => {
  const points = [0, 1, 1, 3].map((minute) => ({
    at: START + minute * 60_000,
    count: 1,
    failed: minute === 3 ? 1 : 0,
  }));
  const { buckets } = toBuckets(points, START);
  expect(buckets.map((bucket) => bucket.count)).toEqual([1, 2, 0, 1]);
  expect(buckets[3]?.failed).toBe(1);
  const month = toBuckets([...points, { at: START - 30 * 86_400_000, count: 1, failed: 0 }], START);
  expect(month.buckets.length).toBeLessThanOrEqual(MAX_BUCKETS);
  expect(month.buckets.reduce((sum, bucket) => sum + bucket.count, 0)).toBe(5);
});

test('messages about the stream become notices, events do not', () => {
  const dropped = { missed: 7, at_least: true, after: '1.2' };
  expect(toNotice({ event: 'dropped', data: dropped, cursor: '' })).toEqual({
    kind: 'dropped',
    missed: 7,
    isLowerBound: true,
    after: '1.2',
  });
  expect(toNotice({ event: 'document.chunked.v1', data: {}, cursor: '' })).toBeNull();
});

test('bars of the server span the whole period, and dead letters are failures', () => {
  const items = [
    { start: new Date(START + 1_800_000).toISOString(), counts: { raw: 4, dead_letters: 1 } },
  ];
  const counts = { bucket_seconds: 60, items };
  const { span, buckets } = countsToBuckets({ counts, from: START, to: START + 3_600_000 });
  expect([span, buckets.length]).toEqual([60_000, 61]);
  expect(buckets[30]).toMatchObject({ count: 5, failed: 1 });
  expect(buckets.reduce((sum, bucket) => sum + bucket.count, 0)).toBe(5);
});
