import { expect, test } from 'vitest';
import {
  allFields,
  getAt,
  type JsonSchema,
  pickDifferent,
  readSection,
  readTitle,
  setAt,
  toYaml,
} from './schema';

const schema: JsonSchema = {
  $defs: {
    Fusion: {
      properties: {
        lexical: { type: 'number', minimum: 0, maximum: 10, default: 1, title: 'Lexical' },
        rrf_k: { type: 'integer', minimum: 1, maximum: 1000, default: 60, title: 'Rrf K' },
        method: { enum: ['zscore', 'rrf'], default: 'zscore' },
        per_document: { anyOf: [{ type: 'integer', minimum: 1 }, { type: 'null' }], default: null },
        edge_types: { type: 'object', additionalProperties: { type: 'number' }, default: {} },
        prompt: { $ref: '#/$defs/Prompt', default: { role: 'analyst' } },
      },
    },
    Prompt: { properties: { role: { type: 'string', maxLength: 2000, default: null } } },
  },
  properties: {
    fusion: { $ref: '#/$defs/Fusion', default: { lexical: 0.3 } },
    wait_s: { type: 'number', exclusiveMinimum: 0, maximum: 1 },
    kinds: { type: 'array', items: { enum: ['ssn', 'email'] } },
  },
};
const fields = allFields(readSection(schema));
const field = (key: string) => fields.find((f) => f.key === key);

test('every field gets its kind, bounds and step from the schema', () => {
  expect(fields.map((f) => [f.key, f.kind])).toEqual([
    ['wait_s', 'number'],
    ['kinds', 'list'],
    ['fusion.lexical', 'number'],
    ['fusion.rrf_k', 'number'],
    ['fusion.method', 'choice'],
    ['fusion.per_document', 'number'],
    ['fusion.edge_types', 'json'],
    ['fusion.prompt.role', 'text'],
  ]);
  expect(field('fusion.rrf_k')).toMatchObject({ min: 1, max: 1000, step: 1, isInteger: true });
  expect(field('fusion.per_document')).toMatchObject({ isNullable: true, max: undefined });
  expect(field('wait_s')).toMatchObject({ min: 0.01, max: 1 });
});

test('the default of a section wins over that of its class', () => {
  expect(field('fusion.lexical')?.default).toBe(0.3);
  expect(field('fusion.rrf_k')?.default).toBe(60);
  expect(field('fusion.prompt.role')?.default).toBe('analyst');
});

test('derived titles are written as people write them', () => {
  expect(readTitle('Rrf K', 'fusion.rrf_k')).toBe('RRF k');
  expect(readTitle('Timeout S', 'lexical.timeout_s')).toBe('Timeout');
  expect(readTitle('Parent size', 'chunk.parent_tokens')).toBe('Parent size');
});

test('only what differs is picked, and the rest of a section stays', () => {
  const values = { fusion: { lexical: 0.3, rrf_k: 20, edge_types: { owns: 2 } } };
  const picked = pickDifferent(fields, values, (f) => f.default);
  expect(picked).toEqual({ fusion: { rrf_k: 20, edge_types: { owns: 2 } } });
  expect(setAt(values, 'fusion.lexical', 2)).toEqual({
    fusion: { lexical: 2, rrf_k: 20, edge_types: { owns: 2 } },
  });
  expect(getAt(values, 'fusion.missing.deep')).toBeUndefined();
});

test('YAML quotes every text, so that none becomes another type or a second key', () => {
  expect(toYaml({ answer: { prompt: { role: 'no\nfusion: {}' }, k: 3 }, empty: {} })).toBe(
    'answer:\n  prompt:\n    role: "no\\nfusion: {}"\n  k: 3\nempty: {}\n',
  );
  expect(toYaml({ 'a: b': [1, 'x'], no: 1 })).toBe('"a: b": [1,"x"]\n"no": 1\n');
});
