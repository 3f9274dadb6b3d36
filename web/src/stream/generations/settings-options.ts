/** A setting that a reindex can change, as the JSON Schema of the settings describes it. */
export type SettingOption = {
  key: string;
  description: string;
  type: 'integer' | 'number' | 'string';
  choices: string[];
  minimum: number | undefined;
  maximum: number | undefined;
};

type Schema = {
  $ref?: string;
  $defs?: Record<string, Schema>;
  properties?: Record<string, Schema>;
  anyOf?: Schema[];
  type?: string;
  enum?: unknown[];
  description?: string;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
};

const WHOLE_SECTIONS = ['chunk', 'hnsw', 'lexical'];
// Others are addresses, keys and speeds, which the API does not let a build change.
const SINGLE_SETTINGS = [
  'extract.engine',
  'extract.model',
  'embed.dimension',
  'embed.state_dimension',
  'embed.model',
  'ocr.model',
];

export function settingOptions(settings: unknown): SettingOption[] {
  const root = settings as Schema;
  const resolve = (schema: Schema | undefined): Schema | undefined =>
    schema?.$ref ? root.$defs?.[schema.$ref.split('/').at(-1) ?? ''] : schema;
  return Object.entries(root.properties ?? {}).flatMap(([section, value]) =>
    Object.entries(resolve(value)?.properties ?? {})
      .map(([name, property]) => ({ key: `${section}.${name}`, property }))
      .filter(({ key }) => WHOLE_SECTIONS.includes(section) || SINGLE_SETTINGS.includes(key))
      .map(({ key, property }) => toOption(key, property)),
  );
}

function toOption(key: string, property: Schema): SettingOption {
  const schema = property.anyOf?.find((option) => option.type !== 'null') ?? property;
  const type = schema.type === 'integer' || schema.type === 'number' ? schema.type : 'string';
  return {
    key,
    description: property.description ?? '',
    type,
    choices: (schema.enum ?? []).map(String),
    minimum: schema.minimum ?? schema.exclusiveMinimum,
    maximum: schema.maximum,
  };
}
