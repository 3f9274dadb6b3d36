import type { Schemas } from '@/shared/api/client';
import type { Tone } from '@/shared/ui/bits';
import { type Activity, perMinute, SLOTS } from './activity';

/** The stages between an upload and its answer, with the topics that they read and write. */
export const PIPELINE = [
  { stage: 'receive', reads: 'raw', writes: 'accepted' },
  { stage: 'transcribe', reads: 'accepted', writes: 'ocr_done' },
  { stage: 'chunk', reads: 'ocr_done', writes: 'chunked' },
  { stage: 'extract', reads: 'chunked', writes: 'entities' },
  { stage: 'embed', reads: 'chunked', writes: 'embedded' },
  { stage: 'graph', reads: 'entities', writes: null },
  { stage: 'index', reads: 'embedded', writes: 'outcomes' },
] as const;

export type StageName = (typeof PIPELINE)[number]['stage'];

export type Consumer = Schemas['StageConsumer'];

export type StageView = {
  stage: StageName;
  reads: string;
  /** Events of 15 minutes; the stage `graph` emits none, so its input counts. */
  slots: number[];
  perMinute: number;
  lastAt: number | null;
  deadLetters: number;
  /** Records of the topic that it reads; undefined for a role that may not know. */
  records: number | undefined;
  /** Its consumer group in the live generation; undefined for a role that may not know. */
  consumer: Consumer | undefined;
};

const NOTHING: number[] = Array.from({ length: SLOTS }, () => 0);
const LONG_WAIT_S = 60;

export type Overview = {
  activity: Activity;
  health: Schemas['Health'];
  stages: Schemas['StageOverview'] | undefined;
  topics: Schemas['TopicSummary'][] | undefined;
};

export function toStageViews({ activity, health, stages, topics }: Overview): StageView[] {
  return PIPELINE.map(({ stage, reads, writes }) => {
    const slots = activity.counts.get(writes ?? reads) ?? NOTHING;
    const consumer = stages?.items.find(
      (item) => item.stage === stage && (item.is_live || item.generation === null),
    );
    return {
      stage,
      reads: consumer?.topic ?? reads,
      slots,
      perMinute: perMinute(slots),
      lastAt: activity.last.get(writes ?? reads) ?? null,
      deadLetters: health.dead_letters.stages[stage] ?? 0,
      records: topics?.find(({ topic }) => topic === (consumer?.topic ?? reads))?.records,
      consumer,
    };
  });
}

export type Condition = 'blocked' | 'waiting' | 'working' | 'idle';

/** In which of four conditions a stage is: only the first two ask for a look. */
export function conditionOf(view: StageView): Condition {
  const lag = view.consumer?.lag ?? 0;
  if (view.consumer?.paused && lag > 0) return 'blocked';
  if (lag > 0) return 'waiting';
  return view.perMinute > 0 || (view.consumer?.in_flight ?? 0) > 0 ? 'working' : 'idle';
}

export function toneOf(view: StageView): Tone {
  const condition = conditionOf(view);
  if (condition === 'blocked') return 'warn';
  if (condition === 'waiting')
    return (view.consumer?.oldest_seconds ?? 0) >= LONG_WAIT_S ? 'warn' : 'busy';
  return condition === 'working' ? 'busy' : 'idle';
}

/** The oldest event that waits anywhere, which is how far the pipeline is behind. */
export function oldestWaiting(views: readonly StageView[]): number {
  return Math.max(0, ...views.map((view) => view.consumer?.oldest_seconds ?? 0));
}
