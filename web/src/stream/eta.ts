/** How much was done when; both grow. */
export type Sample = { at: number; done: number };

export type Eta =
  | { kind: 'calculating' }
  | { kind: 'stalled'; forMs: number }
  | { kind: 'range'; lowMs: number; highMs: number }
  | { kind: 'done' };

const SHORT_MS = 30_000;
const LONG_MS = 300_000;
const STALLED_MS = 60_000;

/** The samples that an estimate needs; only those that show progress, and the first. */
export function addSample(samples: readonly Sample[], sample: Sample): Sample[] {
  const last = samples.at(-1);
  // A restarted build starts from zero.
  if (last && sample.done < last.done) return [sample];
  if (last && sample.done === last.done) return [...samples];
  return [...samples, sample].filter(({ at }) => at > sample.at - 2 * LONG_MS);
}

/**
 * The range between the rate of the last 30 seconds and that of the last 5 minutes. Nothing is
 * promised in the first 30 seconds, nor when nothing was done for a minute.
 */
export function estimate(samples: readonly Sample[], total: number, now: number): Eta {
  const first = samples[0];
  const last = samples.at(-1);
  if (first === undefined || last === undefined) return { kind: 'calculating' };
  if (last.done >= total) return { kind: 'done' };
  if (now - last.at >= STALLED_MS) return { kind: 'stalled', forMs: now - last.at };
  if (now - first.at < SHORT_MS) return { kind: 'calculating' };
  const rates = [SHORT_MS, LONG_MS]
    .map((window) => {
      // The last sample before the window, or the first of all.
      const start = samples.findLast(({ at }) => at <= now - window) ?? first;
      return (last.done - start.done) / (now - start.at);
    })
    .filter((rate) => rate > 0);
  if (rates.length === 0) return { kind: 'calculating' };
  const left = total - last.done;
  return { kind: 'range', lowMs: left / Math.max(...rates), highMs: left / Math.min(...rates) };
}
