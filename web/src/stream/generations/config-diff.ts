import type { Schemas } from '@/shared/api/client';

export type Generation = Schemas['GenerationSummary'];
export type Difference = { setting: string; live: string; own: string };

// A fingerprint differs whenever something that it covers does.
const DERIVED = new Set(['fingerprint']);

/** The settings in which a generation differs from the live one. */
export function diffConfig(live: Generation, own: Generation): Difference[] {
  const before = flatten(live.config);
  const after = flatten(own.config);
  return [...new Set([...before.keys(), ...after.keys()])]
    .filter((setting) => before.get(setting) !== after.get(setting))
    .map((setting) => ({
      setting,
      live: before.get(setting) ?? '—',
      own: after.get(setting) ?? '—',
    }));
}

function flatten(config: Generation['config']): Map<string, string> {
  const settings = new Map<string, string>();
  for (const [section, values] of Object.entries(config)) {
    for (const [name, value] of Object.entries(values as Record<string, unknown>)) {
      if (!DERIVED.has(name)) settings.set(`${section}.${name}`, String(value));
    }
  }
  return settings;
}
