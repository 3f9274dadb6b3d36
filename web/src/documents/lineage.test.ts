import { expect, test } from 'vitest';
import { type Hop, type LogEntry, toNodes } from './lineage';

const event = (id: string, cause: string | null, topic = 'chunked') =>
  ({ id, cause, topic, partition: 0, offset: 1 }) as LogEntry;
const hop = (name: Hop['name'], change: Partial<Hop> = {}) =>
  ({ name, place: name, verified: true, detail: '', event: null, ...change }) as Hop;
const TRUNK = [hop('blob'), hop('received'), hop('accepted'), hop('transcribed')];
const part = (n: number, change: Partial<Hop> = {}) =>
  hop('chunked', { event: event(`part-${n}`, null) as never, ...change });

test('the way forks after the chunks into vectors and entities', () => {
  const hops = [...TRUNK, part(1), hop('embedded')];
  const graph = { state: 'done' } as never;
  const nodes = toNodes(hops, [event('e', 'part-1', 'entities')], { isVisible: true, graph });
  expect(nodes.map(({ name, column, lane }) => `${name} ${column} ${lane}`)).toEqual([
    'file 0 0',
    'received 1 0',
    'accepted 2 0',
    'transcribed 3 0',
    'chunked 4 0',
    'embedded 5 1',
    'entities 5 2',
    'visible 6 1',
    'graph 6 2',
  ]);
});

test('entities of another revision or generation do not belong to it', () => {
  const rows = { isVisible: true, graph: undefined };
  const nodes = toNodes([...TRUNK, part(1)], [event('e', 'of-old', 'entities')], rows);
  expect(nodes.map((node) => node.name)).not.toContain('entities');
});

test('a step is verified when all of its parts are', () => {
  const rows = { isVisible: false, graph: undefined };
  const chunked = (verified: boolean) =>
    toNodes([part(1), part(2, { verified })], [], rows).find((node) => node.name === 'chunked');
  expect(chunked(true)).toMatchObject({ verified: true, hops: { length: 2 } });
  expect(chunked(false)?.verified).toBe(false);
});
