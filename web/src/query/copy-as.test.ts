import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { listChanges, shellQuote, toCommand, toCurl, toPython } from './copy-as';
import type { QueryRequest } from './run-data';

const recorded = {
  query: 'How many days?',
  k: 10,
  mode: 'graph',
  profile: 'balanced',
  stream: true,
  debug: false,
  explain: false,
  language: null,
  prefer_named: false,
  infer_filters: true,
  return_context: true,
  profiles: {},
  overrides: { fusion: { method: 'rrf', lexical: 2 } },
  filters: { collections: ['contracts'], tags: [], metadata: {}, date_from: null },
} as unknown as QueryRequest;

test('only what differs from the defaults is copied', () => {
  expect(listChanges(recorded)).toEqual({
    query: 'How many days?',
    mode: 'graph',
    profile: 'balanced',
    prefer_named: false,
    overrides: { fusion: { method: 'rrf', lexical: 2 } },
    filters: { collections: ['contracts'] },
  });
});

test('the command has an option for each change', () => {
  expect(toCommand(recorded)).toBe(
    "anabranch query 'How many days?' --collection 'contracts' --mode 'graph' " +
      "--profile 'balanced' --override 'fusion.method=rrf' --override 'fusion.lexical=2' " +
      '--no-prefer-named',
  );
});

test('a question cannot break out of its quotes in a shell', () => {
  const hostile = `'; touch /tmp/owned; echo "$(id)\` \\ \n'`;
  expect(
    execFileSync('sh', ['-c', `printf %s ${shellQuote(hostile)}`], { encoding: 'utf-8' }),
  ).toBe(hostile);
  const command = toCommand({ query: hostile }).replace('anabranch query', 'printf %s');
  expect(execFileSync('sh', ['-c', command], { encoding: 'utf-8' })).toBe(hostile);
  const body = toCurl({ query: hostile }, 'http://localhost').split("-d '")[1] as string;
  expect(body).not.toMatch(/[^'\\]'[^\\']/);
});

test('a question stays one string in Python', () => {
  const data = /data=(".*")\.encode/.exec(
    toPython({ query: '""" + \' \n \\' }, 'http://localhost'),
  );
  expect(JSON.parse(JSON.parse(data?.[1] as string))).toEqual({ query: '""" + \' \n \\' });
});
