import { useCallback, useEffect, useRef, useState } from 'react';
import { type LiveMessage, useLive } from '@/shared/api/live';
import { baseTopic } from '../events/event-log';
import { isEntry, readSince } from '../events/read-log';
import { type Activity, ActivityCounter, WINDOW_MS } from './activity';

const REFRESH_MS = 1000;

/** What the topics got in the last 15 minutes; `error` while the log cannot be read. */
export function useActivity(): { activity: Activity | null; error: unknown; retry: () => void } {
  const counter = useRef(new ActivityCounter());
  const [activity, setActivity] = useState<Activity | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [attempt, setAttempt] = useState(0);
  // biome-ignore lint/correctness/useExhaustiveDependencies: `attempt` reads again.
  useEffect(() => {
    const abort = new AbortController();
    const started = Date.now();
    const fresh = new ActivityCounter();
    readSince(started - WINDOW_MS, abort.signal)
      .then((entries) => {
        // Those that arrive from now on come by the stream.
        for (const entry of entries)
          fresh.add({ topic: baseTopic(entry.topic), at: Date.parse(entry.appended_at) });
        counter.current = fresh;
        setError(null);
        setActivity(fresh.snapshot(Date.now()));
      })
      .catch((failure: unknown) => {
        if (!abort.signal.aborted) setError(failure);
      });
    const timer = setInterval(
      () => setActivity((old) => old && counter.current.snapshot(Date.now())),
      REFRESH_MS,
    );
    return () => {
      abort.abort();
      clearInterval(timer);
    };
  }, [attempt]);
  useLive(
    useCallback(({ data }: LiveMessage) => {
      if (isEntry(data))
        counter.current.add({ topic: baseTopic(data.topic), at: Date.parse(data.appended_at) });
    }, []),
  );
  return { activity, error, retry: () => setAttempt((n) => n + 1) };
}
