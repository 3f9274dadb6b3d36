import type { Schemas } from '@/shared/api/client';

export type OffsetRange = Schemas['OffsetRange'];

/** What the form holds; times are those of the reader's clock, without a zone. */
export type ReplayForm = {
  stage: string;
  generation: string;
  since: string;
  until: string;
  collection: string;
  documents: string[];
  offsets: string[];
  perSecond: number | null;
};

export const EMPTY_FORM: ReplayForm = {
  stage: 'extract',
  generation: '',
  since: '',
  until: '',
  collection: '',
  documents: [],
  offsets: [],
  perSecond: null,
};

/** `3:100-200`, `3:100-`, `3:-200` or `3` as the command line takes them; null for anything else. */
export function parseOffsets(text: string): OffsetRange | null {
  const match = /^(\d+)(?::(\d*)-(\d*))?$/.exec(text.trim());
  if (match === null) return null;
  const [, partition, start, end] = match;
  return {
    partition: Number(partition),
    start: start ? Number(start) : null,
    end: end ? Number(end) : null,
  };
}

/** Only what the reader filled in; the API takes an omitted criterion for all events. */
export function toRequest(form: ReplayForm, isDryRun: boolean): Schemas['ReplayRequest'] {
  const offsets = form.offsets.map(parseOffsets).filter((range) => range !== null);
  return {
    stage: form.stage,
    dry_run: isDryRun,
    offsets,
    ...(form.generation ? { generation: form.generation } : {}),
    ...(form.since ? { since: new Date(form.since).toISOString() } : {}),
    ...(form.until ? { until: new Date(form.until).toISOString() } : {}),
    ...(form.collection.trim() ? { collection: form.collection.trim() } : {}),
    ...(form.documents.length > 0 ? { document_ids: form.documents } : {}),
    ...(form.perSecond === null ? {} : { per_second: form.perSecond }),
  };
}
