import type { Role } from '@/shared/api/identity';

export type Screen = {
  path: string;
  group: 'ask' | 'library' | 'stream' | 'tune';
  role: Role;
  key: string;
};

/** The screens in the order of the rail. `key` follows `g`. */
export const SCREENS = {
  query: { path: '/query', group: 'ask', role: 'reader', key: 'q' },
  runs: { path: '/runs', group: 'ask', role: 'reader', key: 'r' },
  questions: { path: '/questions', group: 'ask', role: 'reader', key: 'u' },
  documents: { path: '/documents', group: 'library', role: 'reader', key: 'd' },
  graph: { path: '/graph', group: 'library', role: 'reader', key: 'g' },
  facts: { path: '/facts', group: 'library', role: 'reader', key: 'f' },
  events: { path: '/events', group: 'stream', role: 'reader', key: 'e' },
  pipeline: { path: '/pipeline', group: 'stream', role: 'reader', key: 'p' },
  'dead-letters': { path: '/dead-letters', group: 'stream', role: 'admin', key: 'l' },
  generations: { path: '/generations', group: 'stream', role: 'admin', key: 'n' },
  replays: { path: '/replays', group: 'stream', role: 'admin', key: 'y' },
  sources: { path: '/sources', group: 'stream', role: 'admin', key: 'o' },
  profiles: { path: '/profiles', group: 'tune', role: 'reader', key: 'i' },
  settings: { path: '/settings', group: 'tune', role: 'reader', key: 's' },
  evaluation: { path: '/evaluation', group: 'tune', role: 'admin', key: 'v' },
  keys: { path: '/keys', group: 'tune', role: 'admin', key: 'k' },
  audit: { path: '/audit', group: 'tune', role: 'admin', key: 'a' },
  system: { path: '/system', group: 'tune', role: 'reader', key: 'm' },
} as const satisfies Record<string, Screen>;

export type ScreenName = keyof typeof SCREENS;
export const SCREEN_NAMES = Object.keys(SCREENS) as ScreenName[];

/** The screen at an address, which may lie below it; undefined at an address without a screen. */
export function screenOfPath(path: string): ScreenName | undefined {
  const first = `/${path.split('/')[1] ?? ''}`;
  return SCREEN_NAMES.find((name) => SCREENS[name].path === first);
}
