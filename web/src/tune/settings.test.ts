import { expect, test } from 'vitest';
import type { Schemas } from '@/shared/api/client';
import type { JsonSchema } from './schema';
import { readSettings, toEnvironment, toToml } from './settings';

const schema: JsonSchema = {
  $defs: {
    Chat: {
      properties: {
        api_key: { anyOf: [{ type: 'string', writeOnly: true }, { type: 'null' }], default: null },
        model: { type: 'string', default: null },
      },
    },
  },
  properties: {
    data_dir: { type: 'string', default: 'anabranch-data' },
    chat: { $ref: '#/$defs/Chat' },
    hosts: { type: 'array', items: { type: 'string' }, default: [] },
    sources: { type: 'object', default: {} },
  },
};
const row = (key: string, value: unknown): Schemas['SettingValue'] => ({
  key,
  value,
  origin: 'environment',
  environment: `ANABRANCH_${key.replaceAll('.', '__').toUpperCase()}`,
  reindex_from: null,
});
const settings = readSettings(schema, [
  row('data_dir', "/srv/o'brien; rm -rf"),
  row('chat.api_key', '**********'),
  row('chat.model', 'm'),
  row('hosts', ['a.example', 'b.example']),
  row('sources', { crm: '**********' }),
]);
const setting = (key: string) => settings.find((item) => item.key === key) as (typeof settings)[0];

test('a copied variable is safe in a shell', () => {
  expect(toEnvironment(setting('data_dir'))).toBe("ANABRANCH_DATA_DIR='/srv/o'\\''brien; rm -rf'");
  expect(toEnvironment(setting('hosts'))).toBe('ANABRANCH_HOSTS=a.example,b.example');
});

test('masked values are never exported as values', () => {
  expect(toEnvironment(setting('chat.api_key'))).toBe('ANABRANCH_CHAT__API_KEY=');
  expect(setting('sources').isSecret).toBe(true);
  expect(toToml(settings)).toBe(
    '# sources is a secret: set ANABRANCH_SOURCES\n' +
      '# chat.api_key is a secret: set ANABRANCH_CHAT__API_KEY\n' +
      'data_dir = "/srv/o\'brien; rm -rf"\nhosts = ["a.example","b.example"]\n' +
      '\n[chat]\nmodel = "m"\n',
  );
});

test('without values the settings have their defaults and variables', () => {
  const [first] = readSettings(schema, undefined);
  expect(first).toMatchObject({ origin: null, environment: 'ANABRANCH_DATA_DIR' });
});
