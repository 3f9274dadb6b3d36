import { expect, test } from 'vitest';
import { formatFor } from '@/shared/format';
import { describe as describeDocument } from './describe';
import type { DocumentRow, StageLine } from './stages';
import { stateWords } from './state-words';

const NOW = Date.parse('2026-01-10T12:00:00Z');
const secondsAgo = (seconds: number) => new Date(NOW - seconds * 1000).toISOString();
const line = (change: Partial<StageLine>) => ({ attempts: 1, error: null, ...change }) as StageLine;
const say = (document: object) =>
  describeDocument(document as DocumentRow, stateWords.en, formatFor('en'), NOW);

test('a stage that works is said without its age until it takes long', () => {
  const embed = { stage: 'embed', state: 'running' };
  const at = (seconds: number) => [line({ ...embed, started_at: secondsAgo(seconds) })];
  expect(say({ state: 'running', stages: at(2) }).text).toBe('Embedding');
  expect(say({ state: 'running', stages: at(20) }).text).toBe('Embedding (20 s)');
  expect(say({ state: 'running', stages: at(180) })).toMatchObject({
    tone: 'warn',
    text: 'Waiting for the embedding server (3 min)',
  });
});

test('a wait says its attempts and why', () => {
  const error = { code: 'ENGINE_UNAVAILABLE', detail: 'It refuses.', remedy: 'Start it.' };
  const stage = { stage: 'embed', state: 'running', attempts: 4, started_at: secondsAgo(180) };
  expect(say({ state: 'running', stages: [line({ ...stage, error })] })).toEqual({
    tone: 'warn',
    text: 'Waiting for the embedding server (3 min, attempt 4): It refuses.',
    advice: 'Start it.',
  });
});

test('a failure names its stage and the remedy', () => {
  const error = { code: 'X', detail: 'The file is encrypted.', remedy: 'Remove the password.' };
  const failed = line({ stage: 'transcribe', state: 'failed', error });
  expect(say({ state: 'failed', error, stages: [failed] })).toEqual({
    tone: 'bad',
    text: 'Failed at transcribe: The file is encrypted.',
    advice: 'Remove the password.',
  });
  expect(say({ state: 'failed', error }).text).toBe('Failed: The file is encrypted.');
});

test('a searchable document says that its entities follow', () => {
  const graph = line({ stage: 'graph', state: 'running' });
  expect(say({ state: 'searchable', stages: [graph] }).text).toBe('Searchable, entities pending');
  expect(say({ state: 'searchable' })).toEqual({ tone: 'ok', text: 'Searchable' });
});

test('a stage that is paused says why at once, and one that works says nothing', () => {
  const waiting = { stage: 'embed', paused: true, reason: 'stalled: refused', remedy: 'Start it.' };
  const embed = line({ stage: 'embed', state: 'running', started_at: secondsAgo(5) });
  expect(say({ state: 'running', stages: [embed], waiting })).toEqual({
    tone: 'warn',
    text: 'Waiting for the embedding server (5 s): stalled: refused',
    advice: 'Start it.',
  });
  const works = { ...waiting, paused: false, reason: 'it is being processed', remedy: null };
  expect(say({ state: 'running', stages: [embed], waiting: works }).text).toBe('Embedding');
});

test('a document behind others says how many, and a long one how much is done', () => {
  const stage = { stage: 'embed', started_at: secondsAgo(180) };
  const waiting = { stage: 'embed', paused: false, pending: 340, reason: null, remedy: null };
  expect(
    say({ state: 'running', stages: [line({ ...stage, state: 'waiting' })], waiting }),
  ).toEqual({
    tone: 'busy',
    text: 'Waiting to be embedded (3 min, 340 in the queue)',
  });
  const progress = { done: 32, total: 400, unit: 'pages' } as const;
  const long = line({ ...stage, stage: 'transcribe', state: 'running', progress });
  expect(say({ state: 'running', stages: [long] })).toEqual({
    tone: 'busy',
    text: 'Transcribing: 32 of 400 pages',
  });
});
