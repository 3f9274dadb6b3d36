import { api, call } from '@/shared/api/client';
import { documentOf } from './commands';
import { type LogEntry, MAX_ROWS } from './event-log';

const PAGE = 500;
const MINUTE_MS = 60_000;
// Ever larger windows before now, since the API reads the log forward only.
const WINDOWS_MS = [15 * MINUTE_MS, 6 * 60 * MINUTE_MS, 7 * 24 * 60 * MINUTE_MS, null];
const ENOUGH_ROWS = 200;

/** Whether a message of the stream is an event, and not about the stream itself. */
export function isEntry(data: unknown): data is LogEntry {
  return typeof data === 'object' && data !== null && 'offset' in data && 'appended_at' in data;
}

type Load = { topics: string; key: string; at: number | null; until: number };

/** Read what the address asks for: one span of time, or the newest and all of one document. */
export async function load(request: Load, signal: AbortSignal): Promise<LogEntry[]> {
  const { topics, at, until } = request;
  const filter = topics ? { topics } : {};
  if (at !== null) {
    const { entries } = await readFrom({ ...filter, since: toTime(at) }, signal, until);
    return entries;
  }
  const document = documentOf(request.key);
  // All of one document however old, since the API can select them.
  const own = document ? (await readFrom({ ...filter, document }, signal)).entries : [];
  return [...own, ...(await readRecent(filter, signal))];
}

/** Read the last events: more than a page of them, or all that the log has. */
async function readRecent(filter: { topics?: string }, signal: AbortSignal): Promise<LogEntry[]> {
  let recent: LogEntry[] = [];
  for (const window of WINDOWS_MS) {
    const since = window === null ? {} : { since: toTime(Date.now() - window) };
    const { entries, isComplete } = await readFrom({ ...filter, ...since }, signal);
    if (!isComplete) {
      // Too many to read to the end; a smaller window had the newest, or a minute has.
      if (recent.length > 0) return recent;
      return (await readFrom({ ...filter, since: toTime(Date.now() - MINUTE_MS) }, signal)).entries;
    }
    recent = entries;
    if (entries.length >= ENOUGH_ROWS) return recent;
  }
  return recent;
}

type Query = { topics?: string; document?: string; since?: string };

async function readFrom(query: Query, signal: AbortSignal, until = Number.POSITIVE_INFINITY) {
  const entries: LogEntry[] = [];
  let after: string | undefined;
  while (entries.length < MAX_ROWS) {
    const page = await call(
      api.GET('/v1/events', {
        params: { query: { ...query, limit: PAGE, ...(after ? { after } : {}) } },
        signal,
      }),
    );
    const inside = page.items.filter((entry) => Date.parse(entry.appended_at) < until);
    entries.push(...inside);
    if (page.end || inside.length < page.items.length) return { entries, isComplete: true };
    after = page.next;
  }
  return { entries, isComplete: false };
}

/** Read the events since a time, or those of its last minute if they are too many. */
export async function readSince(since: number, signal: AbortSignal): Promise<LogEntry[]> {
  const { entries, isComplete } = await readFrom({ since: toTime(since) }, signal);
  if (isComplete) return entries;
  return (await readFrom({ since: toTime(Date.now() - MINUTE_MS) }, signal)).entries;
}

const toTime = (ms: number) => new Date(ms).toISOString();
