import { useQuery } from '@tanstack/react-query';
import { api, call, type Schemas } from '@/shared/api/client';
import {
  allFields,
  type Field,
  getAt,
  isObject,
  type Json,
  type JsonObject,
  type JsonSchema,
  pickDifferent,
  readSection,
  type Section,
} from './schema';

export type Profile = Schemas['NamedProfile'];
export type ProfileType = Profile['type'];
export const PROFILE_TYPES: ProfileType[] = [
  'workflow',
  'retrieval',
  'graph',
  'fusion',
  'context',
  'generation',
  'judge',
  'chunking',
];

export function useProfiles() {
  return useQuery({
    queryKey: ['profiles'],
    queryFn: async () => (await call(api.GET('/v1/profiles'))).items,
  });
}

export function useConfigSchema() {
  return useQuery({
    queryKey: ['config-schema'],
    queryFn: () => call(api.GET('/v1/config/schema')),
    // It is part of the program.
    staleTime: Number.POSITIVE_INFINITY,
  });
}

/** The sections of a type of profile, without its name and the profiles that it consists of. */
export function profileSection(schema: JsonSchema): Section {
  const section = readSection(schema);
  return {
    ...section,
    fields: section.fields.filter((field) => field.key !== 'name'),
    sections: section.sections.filter((inner) => inner.key !== 'profiles'),
  };
}

/** Prompts and redaction protect people and the bill; the API refuses them in a request. */
export function isFileOnly(field: Field): boolean {
  const names = field.key.split('.');
  return names.includes('prompt') || names[0] === 'redaction';
}

/** The settings of a workflow when other profiles take the place of its own. */
export function combine(settings: JsonObject, chosen: readonly Profile[]): JsonObject {
  return chosen.reduce<JsonObject>(
    (values, profile) => merge(values, profile.settings as JsonObject),
    settings,
  );
}

function merge(base: JsonObject, override: JsonObject): JsonObject {
  return Object.fromEntries(
    [...new Set([...Object.keys(base), ...Object.keys(override)])].map((name) => {
      const [a, b] = [base[name], override[name]];
      if (b === undefined) return [name, a as Json];
      return [name, isObject(a) && isObject(b) ? merge(a, b) : b];
    }),
  );
}

/**
 * What a profile's file holds: the settings that differ from those it would have without them. For
 * a workflow these are the settings of the profiles that it names.
 */
export function fileContent(
  section: Section,
  values: JsonObject,
  names: Record<string, string>,
  catalog: readonly Profile[],
): JsonObject {
  const parts = Object.entries(names).flatMap(([type, name]) =>
    catalog.filter((profile) => profile.type === type && profile.name === name),
  );
  const inherited = combine({}, parts);
  const settings = pickDifferent(allFields(section), values, (field) => {
    const value = getAt(inherited, field.key);
    return value === undefined ? field.default : value;
  });
  const selected = Object.fromEntries(
    Object.entries(names).filter(([, name]) => name !== 'default'),
  );
  return { ...(Object.keys(selected).length > 0 ? { profiles: selected } : {}), ...settings };
}

export function filePath(type: ProfileType, name: string): string {
  return type === 'workflow' ? `profiles/${name}.yaml` : `profiles/${type}/${name}.yaml`;
}
