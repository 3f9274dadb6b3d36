import { expect, test } from 'vitest';
import { mergeOverrides, parseAssumption } from './run-data';

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

test('overrides are merged by section', () => {
  expect(
    mergeOverrides({ graph: { hops: 1, fuzzy: 0 } }, { graph: { hops: 2 }, fusion: { named: 0 } }),
  ).toEqual({ graph: { hops: 2, fuzzy: 0 }, fusion: { named: 0 } });
});
