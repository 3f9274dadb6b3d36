/** How many events each topic got in the last 15 minutes, as the page saw them. */
export type Activity = { counts: Map<string, number[]>; last: Map<string, number> };

export const SLOT_MS = 15_000;
export const SLOTS = 60;
export const WINDOW_MS = SLOT_MS * SLOTS;

type Point = { topic: string; at: number };

/** Keeps no events: a counter per topic and slot, whatever the load is. */
export class ActivityCounter {
  private slots = new Map<string, Map<number, number>>();
  private last = new Map<string, number>();

  add({ topic, at }: Point): void {
    const slots = this.slots.get(topic) ?? new Map<number, number>();
    this.slots.set(topic, slots);
    const slot = Math.floor(at / SLOT_MS);
    slots.set(slot, (slots.get(slot) ?? 0) + 1);
    this.last.set(topic, Math.max(this.last.get(topic) ?? 0, at));
  }

  /** The slots up to now, the oldest first; those before them are dropped. */
  snapshot(now: number): Activity {
    const end = Math.floor(now / SLOT_MS);
    const counts = new Map<string, number[]>();
    for (const [topic, slots] of this.slots) {
      for (const slot of slots.keys()) if (slot <= end - SLOTS) slots.delete(slot);
      counts.set(
        topic,
        Array.from({ length: SLOTS }, (_, index) => slots.get(end - SLOTS + 1 + index) ?? 0),
      );
    }
    return { counts, last: new Map(this.last) };
  }
}

/** Events of the last minute: whole slots and the one that is not full yet. */
export function perMinute(counts: readonly number[]): number {
  return counts.slice(-60_000 / SLOT_MS).reduce((sum, count) => sum + count, 0);
}
