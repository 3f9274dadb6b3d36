import type { Schemas } from '@/shared/api/client';

export type DeadLetter = Schemas['DeadLetter'];
export type Cause = Schemas['DeadLetterCause'];

/** Which dead letters an act is about, as the API takes it. */
export type Selection = { event_ids: string[] } | { stage: string; code: string } | { all: true };

/** What people know the event by. */
export function nameOf(letter: DeadLetter): string {
  return (
    letter.title ?? letter.filename ?? letter.external_id ?? letter.source_uri ?? letter.event_id
  );
}
