import { expect, test } from 'vitest';
import { settingOptions } from './settings-options';

const SCHEMA = {
  $defs: {
    Chunk: {
      properties: {
        child_tokens: { type: 'integer', minimum: 32, maximum: 500, description: 'Target.' },
        strategy: { type: 'string', enum: ['structure', 'fixed_size'] },
      },
    },
    Embed: {
      properties: {
        api_key: { anyOf: [{ type: 'string' }, { type: 'null' }] },
        dimension: { anyOf: [{ type: 'integer', minimum: 1 }, { type: 'null' }] },
      },
    },
  },
  properties: { chunk: { $ref: '#/$defs/Chunk' }, embed: { $ref: '#/$defs/Embed' } },
};

test('settings that shape the index are offered with their bounds, secrets are not', () => {
  const options = settingOptions(SCHEMA);
  expect(options.map(({ key }) => key)).toEqual([
    'chunk.child_tokens',
    'chunk.strategy',
    'embed.dimension',
  ]);
  expect(options[0]).toMatchObject({ type: 'integer', minimum: 32, maximum: 500 });
  expect(options[1]?.choices).toEqual(['structure', 'fixed_size']);
  expect(options[2]).toMatchObject({ type: 'integer', minimum: 1 });
});
