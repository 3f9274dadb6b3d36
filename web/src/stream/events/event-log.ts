import type { Schemas } from '@/shared/api/client';

export type LogEntry = Schemas['LogEntry'];

/** Rows that the page keeps, so that a tab left open for days stays as small as a new one. */
export const MAX_ROWS = 5_000;

/** A message of the stream about the stream itself. */
export type Notice =
  | { kind: 'dropped'; missed: number; isLowerBound: boolean; after: string }
  | { kind: 'reset' | 'error'; code: string; detail: string; remedy: string };

export type LogState = {
  /** The newest first. */
  rows: LogEntry[];
  /** What arrived while the reader holds the list still, the newest first. */
  waiting: LogEntry[];
  /** All that arrived meanwhile, also what `waiting` had no room for. */
  waitingCount: number;
  notice: Notice | null;
};

export type LogAction =
  | { kind: 'loaded'; entries: LogEntry[] }
  | { kind: 'arrived'; entries: LogEntry[]; isHeld: boolean }
  | { kind: 'release' }
  | { kind: 'clear' }
  | { kind: 'notice'; notice: Notice | null };

export const EMPTY_LOG: LogState = { rows: [], waiting: [], waitingCount: 0, notice: null };

/** Entries arrive in the order of the log, the oldest first. */
export function reduceLog(state: LogState, action: LogAction): LogState {
  switch (action.kind) {
    case 'loaded':
      return { ...state, rows: prepend(state.rows, action.entries) };
    case 'arrived': {
      if (!action.isHeld) return { ...state, rows: prepend(state.rows, action.entries) };
      const waiting = prepend(state.waiting, action.entries);
      const added = waiting.length - state.waiting.length;
      // A full list drops as many as it takes, so its length says nothing about the new ones.
      const isFull = waiting.length === MAX_ROWS;
      return {
        ...state,
        waiting,
        waitingCount: state.waitingCount + (isFull ? action.entries.length : added),
      };
    }
    case 'release':
      return {
        ...state,
        rows: prepend(state.rows, state.waiting.toReversed()),
        waiting: [],
        waitingCount: 0,
      };
    case 'clear':
      return EMPTY_LOG;
    case 'notice':
      return { ...state, notice: action.notice };
  }
}

/** `embedded` of `embedded.g2`: generations have topics of their own. */
export function baseTopic(topic: string): string {
  return topic.split('.')[0] ?? topic;
}

/** The position in the log, which is the same however an entry reached the page. */
export function entryKey(entry: LogEntry): string {
  return `${entry.topic}@${entry.partition}:${entry.offset}`;
}

function prepend(rows: LogEntry[], entries: LogEntry[]): LogEntry[] {
  if (entries.length === 0) return rows;
  const seen = new Set<string>();
  const merged: LogEntry[] = [];
  for (const entry of [...entries.toReversed(), ...rows]) {
    const key = entryKey(entry);
    if (seen.has(key)) continue;
    seen.add(key);
    merged.push(entry);
  }
  // A page that was loaded late overlaps with what the stream sent meanwhile.
  merged.sort((a, b) => Date.parse(b.appended_at) - Date.parse(a.appended_at));
  return merged.slice(0, MAX_ROWS);
}

/** What the reader filters by; the address keeps it. */
export type LogFilter = {
  topics: string[];
  type: string;
  key: string;
  text: string;
  tenant: string;
};

const searchable = new WeakMap<LogEntry, string>();

export function matchesFilter(entry: LogEntry, filter: LogFilter): boolean {
  if (filter.topics.length > 0 && !filter.topics.includes(baseTopic(entry.topic))) return false;
  // A type without its version matches every version, as in `anabranch watch`.
  if (filter.type && entry.type !== filter.type && !entry.type?.startsWith(`${filter.type}.`))
    return false;
  if (filter.tenant && entry.tenant !== filter.tenant) return false;
  if (filter.key && ![entry.key, entry.document_id, entry.id].includes(filter.key)) return false;
  if (!filter.text) return true;
  let text = searchable.get(entry);
  if (text === undefined) {
    text = JSON.stringify(entry).toLowerCase();
    searchable.set(entry, text);
  }
  return text.includes(filter.text.toLowerCase());
}

const FAILURES = ['document.failed', 'event.dead_lettered', 'run.stopped'];

export function isFailure(entry: LogEntry): boolean {
  return FAILURES.some((type) => entry.type?.startsWith(type));
}

/** The payload in one line: an error says its code and detail, the rest its plain fields. */
export function summarize(entry: LogEntry): string {
  const data = (entry.data ?? {}) as Record<string, unknown>;
  const error = (typeof data.error === 'object' && data.error !== null ? data.error : data) as {
    code?: unknown;
    detail?: unknown;
  };
  if (typeof error.code === 'string' && typeof error.detail === 'string')
    return `${error.code}: ${error.detail}`;
  const known = new Set(['tenant', 'document_id', 'event_id', 'source', 'audit_id', 'request_id']);
  return Object.entries(data)
    .filter(([name, value]) => !known.has(name) && ['string', 'number'].includes(typeof value))
    .map(([name, value]) => `${name} ${value}`)
    .join(' · ');
}

/** The causes of an event up to the first, itself, and all that followed from it. */
export function causalChain(entry: LogEntry, entries: readonly LogEntry[]): LogEntry[] {
  const byId = new Map<string, LogEntry>();
  const byCause = new Map<string, LogEntry[]>();
  for (const event of [entry, ...entries]) {
    if (event.id === null || byId.has(event.id)) continue;
    byId.set(event.id, event);
    if (event.cause) byCause.set(event.cause, [...(byCause.get(event.cause) ?? []), event]);
  }
  const chain = new Map<string, LogEntry>([[entryKey(entry), entry]]);
  for (let id = entry.cause; id; ) {
    const cause = byId.get(id);
    if (cause === undefined || chain.has(entryKey(cause))) break;
    chain.set(entryKey(cause), cause);
    id = cause.cause;
  }
  const queue = [entry];
  for (let event = queue.shift(); event; event = queue.shift()) {
    for (const effect of byCause.get(event.id ?? '') ?? []) {
      if (chain.has(entryKey(effect))) continue;
      chain.set(entryKey(effect), effect);
      queue.push(effect);
    }
  }
  return [...chain.values()].sort((a, b) => Date.parse(a.appended_at) - Date.parse(b.appended_at));
}
