import { useEffect, useSyncExternalStore } from 'react';
import { ApiError, callerScope, type Problem } from './client';
import { readStream } from './stream';

/**
 * One connection to `/v1/stream` for all tabs of a browser, which allows six per server.
 *
 * The tab that holds the Web Lock reads and passes messages to the others by BroadcastChannel. A
 * hidden tab gives the lock back after a minute, and a new leader resumes at the last cursor.
 */

export type LiveMessage = { event: string; data: unknown; cursor: string | undefined };
export type LiveState = { state: 'connecting' | 'live' | 'lost' | 'hidden'; problem?: Problem };
type Wire = { message: LiveMessage } | { status: LiveState } | { hello: true };

const HIDDEN_LIMIT_MS = 60_000;
const RETRY_MS = [500, 1000, 2000, 5000];

export class LiveChannel {
  private listeners = new Set<(message: LiveMessage) => void>();
  private observers = new Set<() => void>();
  private status: LiveState = { state: 'connecting' };
  private cursor: string | undefined;
  private abort: AbortController | null = null;
  private broadcast: BroadcastChannel;
  private isLeader = false;
  private hiddenTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    readonly name: string,
    private readonly read: typeof readStream = readStream,
  ) {
    this.broadcast = new BroadcastChannel(name);
    this.broadcast.onmessage = ({ data }: MessageEvent<Wire>) => {
      if ('message' in data) this.deliver(data.message);
      else if ('status' in data) this.setStatus(data.status);
      // A new tab learns the state from the leader instead of waiting for the next change.
      else if (this.isLeader) this.broadcast.postMessage({ status: this.status } satisfies Wire);
    };
  }

  start(): void {
    document.addEventListener('visibilitychange', this.onVisibility);
    this.broadcast.postMessage({ hello: true } satisfies Wire);
    if (!document.hidden) this.compete();
  }

  close(): void {
    document.removeEventListener('visibilitychange', this.onVisibility);
    clearTimeout(this.hiddenTimer);
    this.abort?.abort();
    this.broadcast.close();
  }

  subscribe(listener: (message: LiveMessage) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  observe = (observer: () => void): (() => void) => {
    this.observers.add(observer);
    return () => this.observers.delete(observer);
  };

  snapshot = (): LiveState => this.status;

  private onVisibility = () => {
    clearTimeout(this.hiddenTimer);
    if (document.hidden) {
      this.hiddenTimer = setTimeout(() => {
        this.abort?.abort();
        this.abort = null;
        if (this.status.state !== 'hidden') this.setStatus({ state: 'hidden' });
      }, HIDDEN_LIMIT_MS);
    } else {
      if (this.status.state === 'hidden') this.setStatus({ state: 'connecting' });
      this.broadcast.postMessage({ hello: true } satisfies Wire);
      if (this.abort === null) this.compete();
    }
  };

  private compete(): void {
    const abort = new AbortController();
    this.abort = abort;
    navigator.locks
      .request(this.name, { signal: abort.signal }, async () => {
        this.isLeader = true;
        await this.lead(abort.signal);
      })
      .catch((error: unknown) => {
        // Thrown while another tab holds the lock and this one is hidden.
        if (!abort.signal.aborted) throw error;
      })
      .finally(() => {
        this.isLeader = false;
      });
  }

  private async lead(signal: AbortSignal): Promise<void> {
    let failures = 0;
    while (!signal.aborted) {
      try {
        const after = this.cursor ? '' : '?after=now';
        const messages = this.read(`/v1/stream${after}`, { signal, lastEventId: this.cursor });
        for await (const { event, data, id } of messages) {
          failures = 0;
          this.publish({ state: 'live' });
          const message = { event, data, cursor: id };
          this.deliver(message);
          this.broadcast.postMessage({ message } satisfies Wire);
        }
      } catch (error) {
        if (signal.aborted) return;
        const problem = error instanceof ApiError ? { problem: error.problem } : {};
        this.publish({ state: 'lost', ...problem });
        failures += 1;
      }
      const delay = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)] ?? 1000;
      await new Promise((resolve) => setTimeout(resolve, delay));
    }
  }

  private publish(status: LiveState): void {
    const { state, problem } = this.status;
    if (status.state === state && status.problem?.status === problem?.status) return;
    this.setStatus(status);
    this.broadcast.postMessage({ status } satisfies Wire);
  }

  private setStatus(status: LiveState): void {
    this.status = status;
    for (const observer of this.observers) observer();
  }

  private deliver(message: LiveMessage): void {
    // `reset` names the cursor to resume from, since the old one belongs to another log.
    const after = (message.data as { after?: string } | null)?.after;
    this.cursor = message.cursor || (message.event === 'reset' ? after : undefined) || this.cursor;
    for (const listener of this.listeners) listener(message);
  }
}

let channel: LiveChannel | null = null;

/**
 * The channel of this tab, one per caller and tenant: a tab signed in with an API key gets no events
 * that another tab reads with more rights, and takes none from it.
 */
export function liveChannel(): LiveChannel {
  const name = `anabranch-live:${callerScope()}`;
  if (channel?.name !== name) {
    channel?.close();
    channel = new LiveChannel(name);
    channel.start();
  }
  return channel;
}

export function useLiveState(): LiveState {
  const live = liveChannel();
  return useSyncExternalStore(live.observe, live.snapshot);
}

/** Call `listener` with every message of the live channel; memoize it with useCallback. */
export function useLive(listener: (message: LiveMessage) => void): void {
  useEffect(() => liveChannel().subscribe(listener), [listener]);
}
