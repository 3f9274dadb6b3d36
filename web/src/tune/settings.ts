import type { Schemas } from '@/shared/api/client';
import {
  allFields,
  type Field,
  type Json,
  type JsonObject,
  type JsonSchema,
  readSection,
  setAt,
} from './schema';

/** A setting with its schema; without value and origin for who may not see them. */
export type Setting = {
  key: string;
  field: Field;
  section: string;
  environment: string;
  value: Json;
  origin: Schemas['SettingValue']['origin'] | null;
  reindexFrom: Schemas['SettingValue']['reindex_from'];
  isSecret: boolean;
};

/** The mask that the API writes in the place of a secret. */
const MASK = /^\*+$/;

export function readSettings(
  schema: JsonSchema,
  values: readonly Schemas['SettingValue'][] | undefined,
): Setting[] {
  const byKey = new Map(values?.map((value) => [value.key, value]));
  return allFields(readSection(schema)).map((field) => {
    const row = byKey.get(field.key);
    const value = (row?.value ?? null) as Json;
    return {
      key: field.key,
      field,
      section: field.key.includes('.') ? (field.key.split('.')[0] ?? '') : '',
      environment: row?.environment ?? `ANABRANCH_${field.key.replaceAll('.', '__').toUpperCase()}`,
      value,
      origin: row?.origin ?? null,
      reindexFrom: row?.reindex_from ?? null,
      isSecret: (field.kind === 'text' && field.isSecret) || isMasked(value),
    };
  });
}

function isMasked(value: Json): boolean {
  if (typeof value === 'string') return MASK.test(value);
  return typeof value === 'object' && value !== null && Object.values(value).some(isMasked);
}

/** `NAME='value'` for a shell; a secret is left for the reader to fill in. */
export function toEnvironment(setting: Setting): string {
  if (setting.isSecret) return `${setting.environment}=`;
  const value = setting.origin === null ? setting.field.default : setting.value;
  if (value === null) return `${setting.environment}=`;
  const text =
    Array.isArray(value) && value.every((item) => typeof item === 'string')
      ? value.join(',')
      : typeof value === 'object'
        ? JSON.stringify(value)
        : String(value);
  const isPlain = /^[\w./:@%+,=-]+$/.test(text);
  return `${setting.environment}=${isPlain ? text : `'${text.replaceAll("'", "'\\''")}'`}`;
}

/** What is set, as anabranch.toml; secrets are named in a comment. */
export function toToml(settings: readonly Setting[]): string {
  const set = settings.filter((setting) => setting.origin !== null && setting.origin !== 'default');
  const values = set
    .filter((setting) => !setting.isSecret && setting.value !== null)
    .reduce<JsonObject>((all, setting) => setAt(all, setting.key, setting.value), {});
  const secrets = set.filter((setting) => setting.isSecret);
  return [
    ...secrets.map((setting) => `# ${setting.key} is a secret: set ${setting.environment}\n`),
    tomlTable(values, ''),
  ].join('');
}

function tomlTable(values: JsonObject, path: string): string {
  const entries = Object.entries(values);
  const isTable = (value: Json) =>
    typeof value === 'object' && value !== null && !Array.isArray(value);
  const lines = entries
    .filter(([, value]) => !isTable(value))
    .map(([name, value]) => `${tomlKey(name)} = ${JSON.stringify(value)}\n`);
  const tables = entries
    .filter(([, value]) => isTable(value))
    .map(([name, value]) => {
      const inner = path === '' ? tomlKey(name) : `${path}.${tomlKey(name)}`;
      return `\n[${inner}]\n${tomlTable(value as JsonObject, inner)}`;
    });
  return [...lines, ...tables].join('');
}

function tomlKey(name: string): string {
  return /^[\w-]+$/.test(name) ? name : JSON.stringify(name);
}
