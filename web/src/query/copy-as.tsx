import { Button, Menu } from '@mantine/core';
import { useClipboard } from '@mantine/hooks';
import { API_ROOT } from '@/shared/api/client';
import { useWords } from '@/shared/i18n';
import { type QueryRequest, requestOf } from './run-data';
import { queryWords } from './words';

type Request = Partial<QueryRequest> & { query: string };

/** The settings of a request that differ from the defaults of the API. */
export function listChanges(request: Request): Record<string, unknown> {
  const { filters, ...rest } = requestOf(request);
  const defaults: Record<string, unknown> = {
    k: 10,
    mode: 'auto',
    profile: 'default',
    prefer_named: true,
    infer_filters: true,
    return_context: true,
  };
  const isSet = (value: unknown) =>
    value !== null &&
    value !== undefined &&
    !(typeof value === 'object' && Object.keys(value).length === 0);
  const own = Object.entries(rest).filter(
    ([name, value]) => isSet(value) && value !== defaults[name],
  );
  const ownFilters = Object.entries(filters ?? {}).filter(([, value]) => isSet(value));
  return {
    ...Object.fromEntries(own),
    ...(ownFilters.length > 0 ? { filters: Object.fromEntries(ownFilters) } : {}),
  };
}

/** Quote for a POSIX shell. */
export function shellQuote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

export function toCurl(request: Request, root: string): string {
  return [
    `curl ${root}/v1/query`,
    '  -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json"',
    `  -d ${shellQuote(JSON.stringify(listChanges(request)))}`,
  ].join(' \\\n');
}

export function toCommand(request: Request): string {
  const changes = listChanges(request) as Request;
  const { collections = [], tags = [] } = changes.filters ?? {};
  const overrides = Object.entries(changes.overrides ?? {}).flatMap(([section, settings]) =>
    Object.entries(settings).map(
      ([name, value]) =>
        `${section}.${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`,
    ),
  );
  const option = (name: string, value: unknown) =>
    value === undefined ? [] : [`--${name}`, shellQuote(String(value))];
  return [
    'anabranch query',
    shellQuote(request.query),
    ...collections.flatMap((name) => option('collection', name)),
    ...tags.flatMap((name) => option('tag', name)),
    ...option('k', changes.k),
    ...option('mode', changes.mode),
    ...option('profile', changes.profile),
    ...option('language', changes.language),
    ...option('generation', changes.generation),
    ...overrides.flatMap((value) => option('override', value)),
    ...(changes.prefer_named === false ? ['--no-prefer-named'] : []),
    ...(changes.infer_filters === false ? ['--no-infer-filters'] : []),
  ].join(' ');
}

export function toPython(request: Request, root: string): string {
  // JSON texts are Python texts; the body is parsed, so that true and null need no translation.
  return `import json, os, urllib.request

request = urllib.request.Request(
    ${JSON.stringify(`${root}/v1/query`)},
    data=${JSON.stringify(JSON.stringify(listChanges(request)))}.encode(),
    headers={
        "Authorization": f"Bearer {os.environ['TOKEN']}",
        "Content-Type": "application/json",
    },
)
print(json.load(urllib.request.urlopen(request))["answer"])`;
}

export function CopyAs({ request }: { request: Request }) {
  const words = useWords(queryWords);
  const clipboard = useClipboard();
  return (
    <Menu position="bottom-end" shadow="md">
      <Menu.Target>
        <Button variant="default" style={{ flexShrink: 0 }}>
          {clipboard.copied ? words.copied : `${words.copyAs} ▾`}
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item onClick={() => clipboard.copy(toCurl(request, API_ROOT))}>curl</Menu.Item>
        <Menu.Item onClick={() => clipboard.copy(toCommand(request))}>CLI</Menu.Item>
        <Menu.Item onClick={() => clipboard.copy(toPython(request, API_ROOT))}>Python</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
