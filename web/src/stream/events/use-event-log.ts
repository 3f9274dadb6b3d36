import { useCallback, useEffect, useReducer, useRef, useState } from 'react';
import { type LiveMessage, useLive } from '@/shared/api/live';
import { baseTopic, EMPTY_LOG, type LogEntry, MAX_ROWS, type Notice, reduceLog } from './event-log';
import { isEntry, load } from './read-log';

const FLUSH_MS = 250;
const STREAM_NEWS = new Set(['open', 'idle', 'bye', 'status']);

type Request = { topics: string[]; key: string; at: number | null; until: number };

/**
 * The events that the address asks for: those before now and, while `isLive`, those that arrive.
 * While `isHeld`, new ones wait until `release`.
 */
export function useEventLog(request: Request, isHeld: boolean) {
  const [state, dispatch] = useReducer(reduceLog, EMPTY_LOG);
  const [status, setStatus] = useState<{ isLoading: boolean; error: unknown }>({
    isLoading: true,
    error: null,
  });
  const [attempt, setAttempt] = useState(0);
  const topics = request.topics.join(',');
  const { key, at, until } = request;
  // biome-ignore lint/correctness/useExhaustiveDependencies: `attempt` loads again.
  useEffect(() => {
    const abort = new AbortController();
    dispatch({ kind: 'clear' });
    setStatus({ isLoading: true, error: null });
    load({ topics, key, at, until }, abort.signal)
      .then((entries) => {
        dispatch({ kind: 'loaded', entries });
        setStatus({ isLoading: false, error: null });
      })
      .catch((error: unknown) => {
        if (!abort.signal.aborted) setStatus({ isLoading: false, error });
      });
    return () => abort.abort();
  }, [topics, key, at, until, attempt]);

  const buffer = useRef<LogEntry[]>([]);
  const held = useRef(isHeld);
  held.current = isHeld;
  const isLive = at === null;
  useEffect(() => {
    const timer = setInterval(() => {
      if (buffer.current.length === 0) return;
      const entries = buffer.current;
      buffer.current = [];
      dispatch({ kind: 'arrived', entries, isHeld: held.current });
    }, FLUSH_MS);
    return () => clearInterval(timer);
  }, []);
  useLive(
    useCallback(
      (message: LiveMessage) => {
        const notice = toNotice(message);
        if (notice) dispatch({ kind: 'notice', notice });
        else if (isLive && isEntry(message.data) && !STREAM_NEWS.has(message.event)) {
          if (!topics || topics.split(',').includes(baseTopic(message.data.topic)))
            buffer.current.push(message.data);
          if (buffer.current.length > MAX_ROWS) buffer.current.shift();
        }
      },
      [topics, isLive],
    ),
  );
  return {
    ...state,
    ...status,
    release: () => dispatch({ kind: 'release' }),
    dismiss: () => dispatch({ kind: 'notice', notice: null }),
    reload: () => setAttempt((n) => n + 1),
  };
}

export function toNotice({ event, data }: LiveMessage): Notice | null {
  if (event === 'dropped') {
    const { missed, at_least, after } = data as {
      missed: number;
      at_least: boolean;
      after: string;
    };
    return { kind: 'dropped', missed, isLowerBound: at_least, after };
  }
  if (event === 'reset' || event === 'error') {
    const { code, detail, remedy } = data as { code: string; detail: string; remedy: string };
    return { kind: event, code, detail, remedy };
  }
  return null;
}
