// @vitest-environment node
import { expect, test } from 'vitest';
import { excerptAround, markWords, matcher } from './matched-words';

const isMatch = matcher(['notice', 'ação'], { english: { chang: 1, é: 0.1 } });

test('words match by themselves, without accents, and by the stems of the index', () => {
  const parts = markWords('Notice: Acao changed, é unnoticed.', isMatch);
  expect(parts.filter((part) => part.isMatch).map((part) => part.text)).toEqual([
    'Notice',
    'Acao',
    'changed',
  ]);
  expect(parts.map((part) => part.text).join('')).toBe('Notice: Acao changed, é unnoticed.');
});

test('an excerpt shows the first match and whole words', () => {
  const text = `${'far away words '.repeat(40)}then the notice of change ${'and more '.repeat(40)}`;
  const excerpt = excerptAround(text, isMatch, 120);
  expect(excerpt).toContain('the notice of change');
  expect(excerpt).toMatch(/^… \w+ .* \w+ …$/);
  expect(excerpt.length).toBeLessThan(130);
  expect(excerptAround('short  text', isMatch)).toBe('short text');
});
