import type { Schemas } from '@/shared/api/client';

export type StageLine = Schemas['StageStatus'];
export type DocumentRow = Schemas['Document'] & { stages?: StageLine[] };

/** The six places of a strip, in the order of the pipeline. Two stages read the chunks at once. */
export const STRIP = [
  ['receive'],
  ['transcribe'],
  ['chunk'],
  ['extract', 'embed'],
  ['index'],
  ['graph'],
] as const;

export type StageName = (typeof STRIP)[number][number];
export type DotState = 'done' | 'running' | 'stalled' | 'waiting' | 'failed' | 'skipped';
export type Dot = { stages: readonly StageName[]; state: DotState };

/** A stage that takes longer than this at its first attempt waits for something. */
const STALLED_MS = 60_000;

export function isStalled(line: StageLine, now: number): boolean {
  if (line.state !== 'running') return false;
  const age = line.started_at ? now - Date.parse(line.started_at) : 0;
  return line.attempts > 1 || line.error !== null || (age > STALLED_MS && !line.progress);
}

/** The dots of a document: from its stages, or from its state while those are not known. */
export function toDots(document: DocumentRow, now: number): Dot[] {
  const lines = new Map(document.stages?.map((line) => [line.stage, line]));
  return STRIP.map((stages) => {
    const states = stages.map((stage) => {
      const line = lines.get(stage);
      if (line === undefined) return withoutLine(document);
      const isHeld =
        line.state === 'running' && document.waiting?.paused && document.waiting.stage === stage;
      return isHeld || isStalled(line, now) ? 'stalled' : (line.state as DotState);
    });
    const worst = (['failed', 'stalled', 'running', 'waiting', 'skipped'] as const).find((state) =>
      states.includes(state),
    );
    // One of two that waits beside one that is done is on its way.
    const isHalf = worst === 'waiting' && states.includes('done');
    return { stages, state: isHalf ? 'running' : (worst ?? 'done') };
  });
}

function withoutLine({ state, stages }: DocumentRow): DotState {
  // Of a document that failed at ingress, the status lists that stage alone.
  if (stages !== undefined && stages.length > 0) return state === 'failed' ? 'skipped' : 'waiting';
  return state === 'searchable' || state === 'withdrawn' ? 'done' : 'waiting';
}

/** The stage that decides what to say: the failed one, else the first that is not done. */
export function currentStage(document: DocumentRow): StageLine | undefined {
  const stages = STRIP.flat().flatMap(
    (name) => document.stages?.find((line) => line.stage === name) ?? [],
  );
  return (
    stages.find((line) => line.state === 'failed') ??
    stages.find((line) => line.state === 'running') ??
    stages.find((line) => line.state === 'waiting')
  );
}

/** Whether stages may still change without another event of a reader. */
export function isUnfinished(document: DocumentRow): boolean {
  return (
    document.state === 'running' ||
    document.state === 'accepted' ||
    (document.stages ?? []).some((line) => line.state === 'running' || line.state === 'waiting')
  );
}

/** File name, else what else names it. */
export function nameOf(
  document: Pick<DocumentRow, 'filename' | 'title' | 'external_id' | 'source_uri' | 'document_id'>,
): string {
  return (
    document.filename ??
    document.title ??
    document.external_id ??
    document.source_uri ??
    document.document_id
  );
}
