import { expect, test } from 'vitest';
import type { Schemas } from '@/shared/api/client';
import { ActivityCounter } from './activity';
import { type Consumer, conditionOf, oldestWaiting, toneOf, toStageViews } from './stages';

const HEALTH = {
  dead_letters: { total: 2, stages: { chunk: 2 }, list: '' },
} as unknown as Schemas['Health'];
const NOW = Date.parse('2026-11-28T06:00:00Z');

function consumer(changes: Partial<Consumer>): Consumer {
  return {
    stage: 'embed',
    generation: 'g2',
    is_live: true,
    topic: 'chunked.g2',
    lag: 0,
    paused: false,
    ...changes,
  } as Consumer;
}

function views(consumers: Consumer[]) {
  const counter = new ActivityCounter();
  counter.add({ topic: 'embedded', at: NOW });
  const stages = { items: consumers } as unknown as Schemas['StageOverview'];
  const topics = [{ topic: 'chunked.g2', partitions: 1, records: 7 }];
  return toStageViews({ activity: counter.snapshot(NOW), health: HEALTH, stages, topics });
}
const embedOf = (all: ReturnType<typeof views>) => {
  const view = all.find(({ stage }) => stage === 'embed');
  if (view === undefined) throw new Error('no stage embed');
  return view;
};

test('a stage shows the consumer and the topic of the live generation', () => {
  const other = consumer({ generation: 'g3', is_live: false, topic: 'chunked.g3', lag: 90 });
  const embed = embedOf(views([other, consumer({ lag: 3 })]));
  expect(embed).toMatchObject({ reads: 'chunked.g2', records: 7, perMinute: 1 });
  expect(embed.consumer?.lag).toBe(3);
});

test('without the role for consumers the events alone tell the condition', () => {
  const counter = new ActivityCounter();
  counter.add({ topic: 'embedded', at: NOW });
  const all = toStageViews({
    activity: counter.snapshot(NOW),
    health: HEALTH,
    stages: undefined,
    topics: undefined,
  });
  expect(all.map(conditionOf)).toEqual(['idle', 'idle', 'idle', 'idle', 'working', 'idle', 'idle']);
  expect(all.find(({ stage }) => stage === 'chunk')?.deadLetters).toBe(2);
});

test('what waits long or for something else is a warning', () => {
  const short = embedOf(views([consumer({ lag: 3, oldest_seconds: 2 })]));
  const long = embedOf(views([consumer({ lag: 3, oldest_seconds: 90 })]));
  const blocked = embedOf(views([consumer({ lag: 3, oldest_seconds: 2, paused: true })]));
  expect([short, long, blocked].map(toneOf)).toEqual(['busy', 'warn', 'warn']);
  expect(conditionOf(blocked)).toBe('blocked');
  expect(oldestWaiting([short, long])).toBe(90);
});
