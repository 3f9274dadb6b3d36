/** JSON Schema as Pydantic writes it, read into fields that a form shows. */

export type Json = null | boolean | number | string | Json[] | JsonObject;
export type JsonObject = { [key: string]: Json };

export type JsonSchema = {
  $ref?: string;
  $defs?: Record<string, JsonSchema>;
  type?: string;
  title?: string;
  description?: string;
  default?: Json;
  enum?: Json[];
  const?: Json;
  format?: string;
  pattern?: string;
  writeOnly?: boolean;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  multipleOf?: number;
  'x-step'?: number;
  minLength?: number;
  maxLength?: number;
  maxItems?: number;
  items?: JsonSchema;
  anyOf?: JsonSchema[];
  properties?: Record<string, JsonSchema>;
  additionalProperties?: boolean | JsonSchema;
};

type Base = { key: string; name: string; title: string; description: string; default: Json };
export type NumberField = Base & {
  kind: 'number';
  isInteger: boolean;
  min: number | undefined;
  max: number | undefined;
  step: number;
  isNullable: boolean;
};
export type Field =
  | NumberField
  | (Base & { kind: 'boolean' })
  | (Base & { kind: 'choice'; choices: string[]; isNullable: boolean })
  | (Base & { kind: 'text'; isLong: boolean; isSecret: boolean; isNullable: boolean })
  | (Base & { kind: 'list'; choices: string[] | null })
  | (Base & { kind: 'json' });
export type Section = {
  key: string;
  name: string;
  title: string;
  description: string;
  fields: Field[];
  sections: Section[];
};

/** The sections and fields of an object's schema, in its order; keys are dotted paths. */
export function readSection(root: JsonSchema, schema: JsonSchema = root, key = ''): Section {
  const resolved = resolve(root, schema);
  const defaults = schema.default ?? null;
  const section: Section = {
    key,
    name: key.split('.').at(-1) ?? '',
    title: readTitle(schema.title, key),
    description: resolved.description ?? '',
    fields: [],
    sections: [],
  };
  for (const [name, property] of Object.entries(resolved.properties ?? {})) {
    const path = key === '' ? name : `${key}.${name}`;
    // The default of a section wins over those of the class that several sections share.
    const value = isObject(defaults) && name in defaults ? defaults[name] : property.default;
    const own = { ...property, default: value ?? null };
    const target = resolve(root, own);
    if (target.properties) section.sections.push(readSection(root, own, path));
    else section.fields.push(readField(root, own, path));
  }
  return section;
}

function readField(root: JsonSchema, schema: JsonSchema, key: string): Field {
  const options = (schema.anyOf ?? []).map((option) => resolve(root, option));
  const isNullable = options.some((option) => option.type === 'null');
  const inner = options.find((option) => option.type !== 'null') ?? resolve(root, schema);
  const base: Base = {
    key,
    name: key.split('.').at(-1) ?? key,
    title: readTitle(schema.title, key),
    description: schema.description ?? inner.description ?? '',
    default: schema.default ?? null,
  };
  const choices = inner.enum ?? (inner.const === undefined ? undefined : [inner.const]);
  if (choices) return { ...base, kind: 'choice', choices: choices.map(String), isNullable };
  if (inner.type === 'boolean') return { ...base, kind: 'boolean' };
  if (inner.type === 'integer' || inner.type === 'number') {
    const isInteger = inner.type === 'integer';
    const step = readStep(inner);
    const above = inner.exclusiveMinimum;
    const below = inner.exclusiveMaximum;
    return {
      ...base,
      kind: 'number',
      isInteger,
      min: inner.minimum ?? (above === undefined ? undefined : above + step),
      max: inner.maximum ?? (below === undefined ? undefined : below - step),
      step,
      isNullable,
    };
  }
  if (inner.type === 'array' && inner.items) {
    const items = resolve(root, inner.items);
    if (items.type === 'string' || items.enum) {
      return { ...base, kind: 'list', choices: items.enum?.map(String) ?? null };
    }
  }
  if (inner.type === 'string') {
    const isSecret = inner.writeOnly === true || inner.format === 'password';
    return { ...base, kind: 'text', isLong: (inner.maxLength ?? 0) >= 1000, isSecret, isNullable };
  }
  return { ...base, kind: 'json' };
}

/** The step of the schema, else about a hundred of a range. */
function readStep(schema: JsonSchema): number {
  const given = schema['x-step'] ?? schema.multipleOf;
  if (given !== undefined) return given;
  if (schema.type === 'integer') return 1;
  const range = (schema.maximum ?? 10) - (schema.minimum ?? schema.exclusiveMinimum ?? 0);
  if (range <= 1) return 0.01;
  if (range <= 10) return 0.05;
  return range <= 200 ? 0.5 : 1;
}

const UPPER_WORDS = /\b(api|url|ocr|rrf|jwks|dsn|tcp|bm25|idf|pii|cpf|sasl|ssl|id|hnsw|json)\b/gi;

/** A title as people write it: Pydantic derives "Rrf K" from `rrf_k`. */
export function readTitle(title: string | undefined, key: string): string {
  const name = key.split('.').at(-1) ?? key;
  const derived = name.replaceAll('_', ' ');
  const isDerived = title === undefined || title.toLowerCase() === derived.toLowerCase();
  const text = (isDerived ? derived.replace(/ s$/, '') : title).replace(UPPER_WORDS, (word) =>
    word.toUpperCase(),
  );
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** The unit that the name of a number ends with. */
export function unitOf(name: string): string {
  if (/_s$|^seconds$/.test(name)) return 's';
  if (/_ms$/.test(name)) return 'ms';
  if (/_days$/.test(name)) return 'd';
  if (/bytes$/.test(name)) return 'B';
  return '';
}

function resolve(root: JsonSchema, schema: JsonSchema): JsonSchema {
  if (schema.$ref === undefined) return schema;
  const name = schema.$ref.split('/').at(-1) ?? '';
  const target = root.$defs?.[name];
  if (target === undefined) throw new Error(`The schema has no definition ${name}.`);
  return resolve(root, target);
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function allFields(section: Section): Field[] {
  return [...section.fields, ...section.sections.flatMap(allFields)];
}

export function getAt(values: JsonObject, key: string): Json | undefined {
  let value: Json | undefined = values;
  for (const name of key.split('.')) value = isObject(value) ? value[name] : undefined;
  return value;
}

export function setAt(values: JsonObject, key: string, value: Json): JsonObject {
  const [head = '', ...rest] = key.split('.');
  if (rest.length === 0) return { ...values, [head]: value };
  const inner = values[head];
  return { ...values, [head]: setAt(isObject(inner) ? inner : {}, rest.join('.'), value) };
}

export function isEqual(a: Json | undefined, b: Json | undefined): boolean {
  if (a === b) return true;
  if (Array.isArray(a) && Array.isArray(b)) {
    return a.length === b.length && a.every((item, index) => isEqual(item, b[index]));
  }
  if (!isObject(a) || !isObject(b)) return false;
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => isEqual(a[name], b[name]));
}

/** Nest the values of the fields that differ from `base`; what is equal is left out. */
export function pickDifferent(
  fields: readonly Field[],
  values: JsonObject,
  baseOf: (field: Field) => Json | undefined,
): JsonObject {
  return fields.reduce<JsonObject>((picked, field) => {
    const value = getAt(values, field.key);
    return value === undefined || isEqual(value, baseOf(field))
      ? picked
      : setAt(picked, field.key, value);
  }, {});
}

/** Block style for sections, flow style for what they hold; JSON is valid YAML there. */
export function toYaml(values: JsonObject, indent = ''): string {
  return Object.entries(values)
    .map(([name, value]) => {
      const isFlat = !isObject(value) || Object.keys(value).length === 0;
      if (isFlat) return `${indent}${yamlKey(name)}: ${JSON.stringify(value)}\n`;
      return `${indent}${yamlKey(name)}:\n${toYaml(value, `${indent}  `)}`;
    })
    .join('');
}

function yamlKey(name: string): string {
  // YAML 1.1 reads a bare `no` as false.
  const isPlain = /^[A-Za-z_][\w-]*$/.test(name) && !YAML_WORDS.test(name);
  return isPlain ? name : JSON.stringify(name);
}

const YAML_WORDS = /^(y|n|yes|no|on|off|true|false|null)$/i;
