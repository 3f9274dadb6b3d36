import { expect, test } from 'vitest';
import { listHistory, mergeOverrides, parseAssumption, type Run } from './run-data';

test('an assumption names the change of the request that goes without it', () => {
  expect(
    parseAssumption(
      '“Mercado do Cais” names the document of that title, which is preferred. Set prefer_named to false to search all documents alike.',
    ),
  ).toEqual({
    text: '“Mercado do Cais” names the document of that title, which is preferred.',
    without: { prefer_named: false },
  });
  expect(
    parseAssumption(
      '“ORA” is taken as an alias of Ostrel (place). Set overrides to {"graph": {"aliases": false}} to search without it.',
    ).without,
  ).toEqual({ overrides: { graph: { aliases: false } } });
});

test.each([
  '“from 2024” restricts the search to documents with tag tax, which hold no answer.',
  'A name. Set overrides to {"graph": } to search without it.',
  'A name. Set the table for {"a": 1} guests.',
])('an assumption without a change that can be read stays whole: %s', (text) => {
  expect(parseAssumption(text)).toEqual({ text, without: null });
});

test('the history has the last questions and answers, the oldest first', () => {
  const makeRun = (query: string, response: object | null) =>
    ({ run_id: query, kind: 'query', request: { query }, response }) as unknown as Run;
  const runs = [
    makeRun('running', null),
    makeRun('refused', { answer: null, message: 'Nothing.' }),
    undefined,
    makeRun('answered', { answer: 'Yes. [1]', message: null }),
  ];
  expect(listHistory(runs)).toEqual([
    { role: 'user', text: 'answered' },
    { role: 'assistant', text: 'Yes. [1]' },
    { role: 'user', text: 'refused' },
    { role: 'assistant', text: 'Nothing.' },
    { role: 'user', text: 'running' },
  ]);
  expect(listHistory(Array.from({ length: 9 }, (_, i) => makeRun(`q${i}`, null)))).toHaveLength(5);
});

test('overrides are merged by section', () => {
  expect(
    mergeOverrides({ graph: { hops: 1, fuzzy: 0 } }, { graph: { hops: 2 }, fusion: { named: 0 } }),
  ).toEqual({ graph: { hops: 2, fuzzy: 0 }, fusion: { named: 0 } });
});
