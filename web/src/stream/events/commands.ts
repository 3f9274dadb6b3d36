import type { LogFilter } from './event-log';

/** A word for a POSIX shell: inside single quotes nothing is special but the quote itself. */
export function shellQuote(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** The id of a document, if the key has the form of one: the server filters by it. */
export function documentOf(key: string): string | undefined {
  return UUID.test(key) ? key : undefined;
}

/** The command that shows the same events in a terminal. */
export function watchCommand(filter: LogFilter, from = '-1h'): string {
  const options = [
    ...filter.topics.flatMap((topic) => ['--topic', topic]),
    ...(filter.type ? ['--type', filter.type] : []),
    ...(filter.key ? ['--key', filter.key] : []),
    ...(filter.tenant ? ['--tenant', filter.tenant] : []),
    '--from',
    from,
  ];
  return ['anabranch', 'watch', ...options].map(shellQuote).join(' ');
}

/** The request that returns the same events; the API filters by topic and document. */
export function curlCommand(filter: LogFilter, root: string, since?: string): string {
  const document = documentOf(filter.key);
  const query = new URLSearchParams({
    ...(filter.topics.length ? { topics: filter.topics.join(',') } : {}),
    ...(document ? { document } : {}),
    ...(since ? { since } : {}),
    limit: '500',
  });
  const headers = filter.tenant ? ` -H ${shellQuote(`X-Anabranch-Tenant: ${filter.tenant}`)}` : '';
  return `curl -H "Authorization: Bearer $TOKEN"${headers} ${shellQuote(`${root}/v1/events?${query}`)}`;
}
