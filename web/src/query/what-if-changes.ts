import { type Field, type JsonObject, pickDifferent } from '@/tune/schema';
import type { WhatIfProfile } from './what-if';

type Value = number | string;
type Section = 'fusion' | 'rerank';
export const SECTIONS: Section[] = ['fusion', 'rerank'];
/** Changed settings by section and name. */
export type Changes = Record<Section, Record<string, Value>>;
export const NO_CHANGES: Changes = { fusion: {}, rerank: {} };
/** Settings of the profile by dotted key, as the schema declares them. */
export type Fields = ReadonlyMap<string, Field>;

/** `fusion.lexical:2,rerank.weight:0` in the address. */
export function parseChanges(text: string | undefined): Changes {
  const changes: Changes = { fusion: {}, rerank: {} };
  for (const entry of (text ?? '').split(',')) {
    const [path = '', value = ''] = entry.split(':');
    const [section, name] = path.split('.');
    if ((section !== 'fusion' && section !== 'rerank') || !name || value === '') continue;
    changes[section][name] = Number.isNaN(Number(value)) ? value : Number(value);
  }
  return changes;
}

export function formatChanges(changes: Changes): string | undefined {
  const entries = listChanges(changes).map(([path, value]) => `${path}:${value}`);
  return entries.length > 0 ? entries.join(',') : undefined;
}

export function listChanges(changes: Changes): [string, Value][] {
  return SECTIONS.flatMap((section) =>
    Object.entries(changes[section]).map(([name, value]): [string, Value] => [
      `${section}.${name}`,
      value,
    ]),
  );
}

/** The changes without unknown settings and values out of bounds: an address may hold any. */
export function validChanges(changes: Changes, fields: Fields): Changes {
  const valid: Changes = { fusion: {}, rerank: {} };
  for (const section of SECTIONS) {
    for (const [name, value] of Object.entries(changes[section])) {
      const field = fields.get(`${section}.${name}`);
      if (field !== undefined && isAllowed(field, value)) valid[section][name] = value;
    }
  }
  return valid;
}

function isAllowed(field: Field, value: Value): boolean {
  if (field.kind === 'choice') return field.choices.includes(String(value));
  if (field.kind !== 'number' || typeof value !== 'number') return false;
  return value >= (field.min ?? 0) && value <= (field.max ?? 1);
}

export function applyChanges(profile: WhatIfProfile, changes: Changes): WhatIfProfile {
  return {
    fusion: { ...profile.fusion, ...changes.fusion },
    rerank: { ...profile.rerank, ...changes.rerank },
  };
}

/** The overrides of a request that sets only what was changed. */
export function toOverrides(changes: Changes): Record<string, Record<string, Value>> {
  return Object.fromEntries(
    Object.entries(changes).filter(([, settings]) => Object.keys(settings).length > 0),
  );
}

/** The file of a fusion profile: all its settings that are not the defaults. */
export function toProfileContent(profile: WhatIfProfile, fields: Fields): JsonObject {
  const own = [...fields.values()].filter(({ key }) =>
    SECTIONS.some((section) => key.startsWith(`${section}.`)),
  );
  return pickDifferent(own, profile as unknown as JsonObject, (field) => field.default);
}
