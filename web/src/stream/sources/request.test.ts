import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { EMPTY_SOURCE, isComplete, problemsOf, readsOf, toSourceRequest } from './request';

const openapi = JSON.parse(readFileSync('../docs/reference/openapi.json', 'utf8'));
const defaultOf = (schema: string, property: string) =>
  openapi.components.schemas[schema].properties[property].default;

test('the form starts at the defaults of the API', () => {
  expect(EMPTY_SOURCE.everyFolder).toBe(defaultOf('FolderSource', 'every_s'));
  expect(EMPTY_SOURCE.glob).toBe(defaultOf('FolderSource', 'glob'));
  expect(EMPTY_SOURCE.everyUrl).toBe(defaultOf('UrlsSource', 'every_s'));
  expect(EMPTY_SOURCE.misses).toBe(defaultOf('UrlsSource', 'withdraw_after_misses'));
});

test('a request holds only the fields of its kind', () => {
  const form = { ...EMPTY_SOURCE, name: 'crm', path: '/data', table: 't', body: ['text'] };
  expect(Object.keys(toSourceRequest(form).connector)).toEqual([
    'kind',
    'path',
    'glob',
    'include',
    'every_s',
  ]);
  const table = toSourceRequest({ ...form, kind: 'postgres' });
  expect(table.connector).toMatchObject({ table: 't', slot: null, mapping: { title: null } });
});

test('a form is complete when the API has all it requires', () => {
  const form = { ...EMPTY_SOURCE, name: 'news', kind: 'urls' as const };
  expect(isComplete({ ...form, urls: 'https://a.example\nhttp://b.example' })).toBe(true);
  expect(isComplete({ ...form, urls: 'https://a.example\njavascript:alert(1)' })).toBe(false);
  expect(isComplete({ ...form, urls: '' })).toBe(false);
  expect(isComplete({ ...EMPTY_SOURCE, name: 'A B', path: '/data' })).toBe(false);
});

test('the first URL stands for all', () => {
  const connector = { kind: 'urls', urls: ['https://a', 'https://b'], every_s: 1 } as never;
  expect(readsOf(connector)).toEqual({ first: 'https://a', more: 1 });
});

test('problems are read from what each kind of worker reports', () => {
  const urls = { state: 'watching', problems: { 'https://a': 'GONE: 404' }, problem_count: 7 };
  expect(problemsOf(urls)).toEqual({ count: 7, items: [['https://a', 'GONE: 404']] });
  const table = { state: 'streaming', key: '42', detail: 'Too large.' };
  expect(problemsOf(table)).toEqual({ count: 1, items: [['42', 'Too large.']] });
  expect(problemsOf({ state: 'watching' })).toEqual({ count: 0, items: [] });
});
