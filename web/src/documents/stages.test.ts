import { expect, test } from 'vitest';
import { currentStage, type DocumentRow, isUnfinished, type StageLine, toDots } from './stages';

const NOW = Date.parse('2026-01-10T12:00:00Z');

function line(stage: string, state: string, change: Partial<StageLine> = {}): StageLine {
  const position = { topic: null, partition: null, offset: null };
  return {
    stage,
    state,
    attempts: 1,
    ...position,
    started_at: '2026-01-10T11:59:58Z',
    duration_ms: null,
    error: null,
    ...change,
  };
}

const row = (state: string, stages?: StageLine[]) =>
  ({ document_id: 'd', state, ...(stages ? { stages } : {}) }) as DocumentRow;
const states = (document: DocumentRow) => toDots(document, NOW).map((dot) => dot.state);

test('a searchable document without stages has all dots', () => {
  expect(states(row('searchable'))).toEqual(Array(6).fill('done'));
});

test('the two readers of chunks share a dot', () => {
  const chunks = [line('receive', 'done'), line('transcribe', 'done'), line('chunk', 'done')];
  const document = row('running', [
    ...chunks,
    line('extract', 'done'),
    line('embed', 'waiting'),
    line('graph', 'waiting'),
    line('index', 'waiting'),
  ]);
  expect(states(document)).toEqual(['done', 'done', 'done', 'running', 'waiting', 'waiting']);
  expect(currentStage(document)?.stage).toBe('embed');
});

test('a further attempt or a long one is a stall', () => {
  const stages = [line('receive', 'done'), line('transcribe', 'running', { attempts: 3 })];
  expect(states(row('running', stages))[1]).toBe('stalled');
  const paused = row('running', [line('chunk', 'running'), line('embed', 'waiting')]);
  expect(
    toDots({ ...paused, waiting: { stage: 'chunk', paused: true } } as never, NOW)[2]?.state,
  ).toBe('stalled');
  const long = line('transcribe', 'running', { started_at: '2026-01-10T11:57:00Z' });
  expect(states(row('running', [long]))[1]).toBe('stalled');
});

test('after a failure at ingress the other stages do not follow', () => {
  expect(states(row('failed', [line('receive', 'failed')]))).toEqual([
    'failed',
    ...Array(5).fill('skipped'),
  ]);
});

test('a searchable document whose graph is pending is unfinished', () => {
  expect(isUnfinished(row('searchable', [line('graph', 'running')]))).toBe(true);
  expect(isUnfinished(row('searchable', [line('graph', 'done')]))).toBe(false);
});
