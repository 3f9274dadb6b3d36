import type { Format } from '@/shared/format';
import type { Tone } from '@/shared/ui/bits';
import { currentStage, type DocumentRow, isStalled, type StageName } from './stages';
import type { stateWords } from './state-words';

export type StateWords = (typeof stateWords)['en'];
export type Description = { tone: Tone; text: string; advice?: string | undefined };

/** Ages below this are how long it takes, not a wait. */
const SOON_MS = 10_000;

/** The state of a document as a sentence, and what to do about it. */
export function describe(
  document: DocumentRow,
  words: StateWords,
  format: Format,
  now: number,
): Description {
  const line = currentStage(document);
  const stage = line?.stage as StageName | undefined;
  switch (document.state) {
    case 'searchable':
      return line && line.state !== 'failed' && stage === 'graph'
        ? { tone: 'ok', text: words.graphPending }
        : { tone: 'ok', text: words.searchable };
    case 'withdrawn':
      return { tone: 'idle', text: words.withdrawn };
    case 'superseded':
      return { tone: 'idle', text: words.superseded };
    case 'failed': {
      const error = line?.error ?? document.error;
      const detail = error?.detail ?? words.noDetail;
      const text =
        line?.state === 'failed' && stage
          ? words.failedAt(words.stages[stage] ?? stage, detail)
          : words.failed(detail);
      return { tone: 'bad', text, advice: error?.remedy };
    }
  }
  if (line === undefined || stage === undefined || !(stage in words.doing)) {
    return { tone: 'busy', text: document.state === 'accepted' ? words.accepted : words.running };
  }
  const began = line.started_at ?? document.received_at;
  const ageMs = began ? Math.max(0, now - Date.parse(began)) : 0;
  const age = format.duration(ageMs);
  const waiting = document.waiting?.stage === stage ? document.waiting : undefined;
  // Without a remedy nothing is wrong: the stage works.
  const why = waiting?.paused || waiting?.remedy ? waiting : undefined;
  const explain = (text: string, advice: string): Description => ({
    tone: 'warn',
    text: why?.reason ? words.because(text, why.reason) : text,
    advice: why?.remedy || advice,
  });
  if (line.state === 'waiting') {
    const text = words.waiting[stage];
    if (ageMs < SOON_MS) return { tone: 'busy', text };
    if (!why && waiting?.pending) {
      return { tone: 'busy', text: words.behind(text, age, format.count(waiting.pending)) };
    }
    return explain(words.since(text, age), words.advice.waiting);
  }
  if (line.progress && !why && !isStalled(line, now)) {
    const { done, total, unit } = line.progress;
    const share = words[unit](format.count(done), format.count(total));
    return { tone: 'busy', text: words.because(words.doing[stage], share) };
  }
  if (isStalled(line, now) || why?.paused) {
    const attempts = format.count(line.attempts);
    const said =
      line.attempts > 1
        ? words.attempt(words.stalled[stage], age, attempts)
        : words.since(words.stalled[stage], age);
    if (line.error === null) return explain(said, words.advice.stalled);
    const { detail, remedy } = line.error;
    return { tone: 'warn', text: words.because(said, detail), advice: remedy };
  }
  const text = words.doing[stage];
  return { tone: 'busy', text: ageMs < SOON_MS ? text : words.since(text, age) };
}
