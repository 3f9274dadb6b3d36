import { expect, test } from 'vitest';
import { allFields, type JsonSchema, readSection } from '@/tune/schema';
import type { WhatIfProfile } from './what-if';
import {
  applyChanges,
  formatChanges,
  parseChanges,
  toOverrides,
  toProfileContent,
  validChanges,
} from './what-if-changes';

const schema: JsonSchema = {
  properties: {
    fusion: {
      properties: {
        method: { enum: ['zscore', 'rrf'], default: 'zscore' },
        lexical: { type: 'number', minimum: 0, maximum: 10, default: 1 },
        edge_types: { type: 'object', default: {} },
      },
    },
    rerank: {
      properties: { weight: { type: 'number', minimum: 0, maximum: 10, default: 2 } },
    },
    judge: { properties: { model: { type: 'string', default: 'rules' } } },
  },
};
const fields = new Map(allFields(readSection(schema)).map((field) => [field.key, field]));
const profile = {
  fusion: { method: 'zscore', lexical: 1, edge_types: {} },
  rerank: { weight: 0.5 },
} as unknown as WhatIfProfile;

test('changes survive the address', () => {
  const changes = { fusion: { method: 'rrf', lexical: 0.25 }, rerank: { weight: 0 } };
  expect(parseChanges(formatChanges(changes))).toEqual(changes);
  expect(formatChanges({ fusion: {}, rerank: {} })).toBeUndefined();
});

test('an address cannot set what the schema does not allow', () => {
  const changes = parseChanges(
    'fusion.lexical:99,fusion.method:other,fusion.unknown:1,redaction.kinds:1,rerank.weight:1,x',
  );
  expect(validChanges(changes, fields)).toEqual({ fusion: {}, rerank: { weight: 1 } });
});

test('the profile file holds what differs from the defaults', () => {
  const changes = parseChanges('fusion.method:rrf');
  expect(toProfileContent(applyChanges(profile, changes), fields)).toEqual({
    fusion: { method: 'rrf' },
    rerank: { weight: 0.5 },
  });
  expect(toOverrides(changes)).toEqual({ fusion: { method: 'rrf' } });
});
