import type { Schemas } from '@/shared/api/client';

export type Source = Schemas['Source'];
export type Kind = 'folder' | 'urls' | 'postgres' | 'debezium';
export const KINDS: Kind[] = ['folder', 'urls', 'postgres', 'debezium'];

/** What the form holds for every kind, so that changing the kind loses nothing. */
export type SourceForm = {
  kind: Kind;
  name: string;
  collection: string;
  tags: string[];
  path: string;
  glob: string;
  include: string[];
  everyFolder: number;
  everyUrl: number;
  urls: string;
  misses: number;
  table: string;
  slot: string;
  topic: string;
  body: string[];
  id: string[];
  title: string;
  language: string;
  filename: string;
  metadata: string[];
};

/** Numbers are the defaults of the API. */
export const EMPTY_SOURCE: SourceForm = {
  kind: 'folder',
  name: '',
  collection: '',
  tags: [],
  path: '',
  glob: '*',
  include: [],
  everyFolder: 2,
  everyUrl: 3600,
  urls: '',
  misses: 3,
  table: '',
  slot: '',
  topic: '',
  body: [],
  id: [],
  title: '',
  language: '',
  filename: '',
  metadata: [],
};

const orNull = (text: string) => text.trim() || null;

export function urlsOf(form: SourceForm): string[] {
  return form.urls.split(/\s+/).filter((url) => url !== '');
}

/** Whether everything that the API requires is there. */
export function isComplete(form: SourceForm): boolean {
  if (!/^[a-z][a-z0-9_-]{0,39}$/.test(form.name)) return false;
  switch (form.kind) {
    case 'folder':
      return form.path.trim() !== '';
    case 'urls':
      return urlsOf(form).length > 0 && urlsOf(form).every((url) => /^https?:\/\//.test(url));
    case 'postgres':
      return form.table.trim() !== '' && form.body.length > 0;
    case 'debezium':
      return form.topic.trim() !== '' && form.body.length > 0;
  }
}

export function toSourceRequest(form: SourceForm): Schemas['SourceRequest'] {
  return {
    name: form.name,
    collection: orNull(form.collection),
    tags: form.tags,
    connector: toConnector(form),
  };
}

function toConnector(form: SourceForm): Schemas['SourceRequest']['connector'] {
  const mapping = {
    body: form.body,
    id: form.id,
    title: orNull(form.title),
    language: orNull(form.language),
    filename: orNull(form.filename),
    metadata: form.metadata,
    encodings: {},
  };
  switch (form.kind) {
    case 'folder':
      return {
        kind: 'folder',
        path: form.path.trim(),
        glob: form.glob.trim() || '*',
        include: form.include,
        every_s: form.everyFolder,
      };
    case 'urls':
      return {
        kind: 'urls',
        urls: urlsOf(form),
        every_s: form.everyUrl,
        withdraw_after_misses: form.misses,
      };
    case 'postgres':
      return { kind: 'postgres', table: form.table.trim(), slot: orNull(form.slot), mapping };
    case 'debezium':
      return { kind: 'debezium', topic: form.topic.trim(), mapping };
  }
}

/** What a source reads, in a few words. */
export function readsOf(connector: Source['connector']): { first: string; more: number } {
  if ('path' in connector) return { first: connector.path, more: 0 };
  if ('urls' in connector)
    return { first: connector.urls[0] ?? '', more: connector.urls.length - 1 };
  if ('table' in connector) return { first: connector.table, more: 0 };
  return { first: connector.topic, more: 0 };
}

/** What went wrong, as the worker last reported it. */
export function problemsOf(status: Source['status']): { count: number; items: [string, string][] } {
  const fields = status as Record<string, unknown>;
  const problems =
    typeof fields.problems === 'object' && fields.problems !== null
      ? Object.entries(fields.problems).map(([item, text]): [string, string] => [
          item,
          String(text),
        ])
      : [];
  const detail = typeof fields.detail === 'string' && fields.detail ? fields.detail : null;
  const items: [string, string][] = detail
    ? [[typeof fields.key === 'string' ? fields.key : '', detail], ...problems]
    : problems;
  const count = typeof fields.problem_count === 'number' ? fields.problem_count : problems.length;
  return { count: count + (detail ? 1 : 0), items };
}
