import { expect, test } from 'vitest';
import { diffLines } from './diff';

const marks = { same: ' ', added: '+', removed: '-' } as const;
const show = (before: string, after: string) =>
  diffLines(before, after)?.map((line) => marks[line.kind] + line.text);

test('a changed line is removed and added between lines that stay', () => {
  expect(show('a\nb\nc', 'a\nx\nc')).toEqual([' a', '-b', '+x', ' c']);
});

test('insertions and deletions keep the longest common lines', () => {
  expect(show('a\nb\nc\nd', 'b\nc\ne\nd')).toEqual(['-a', ' b', ' c', '+e', ' d']);
  expect(show('a\na', 'a\na\na')).toEqual([' a', ' a', '+a']);
});

test('texts that are too long are not compared', () => {
  const lines = (letter: string) => Array.from({ length: 3000 }, (_, n) => letter + n).join('\n');
  expect(diffLines(lines('a'), lines('b'))).toBeNull();
});
