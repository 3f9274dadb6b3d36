import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useReducer } from 'react';
import { ApiError } from '@/shared/api/client';
import { readStream, type StreamMessage } from '@/shared/api/stream';
import type { Answer } from './run-data';

export type Step = { name: string; ms: number | null };
export type Stopped = {
  state: 'failed' | 'timed_out' | 'cancelled' | 'interrupted';
  code: string;
  detail: string;
  remedy: string;
};
export type Progress = {
  steps: Step[];
  /** Unverified words of the current draft. */
  draft: { number: number; text: string };
  answer: Answer | null;
  stopped: Stopped | null;
  error: ApiError | null;
};

export const NO_PROGRESS: Progress = {
  steps: [],
  draft: { number: 0, text: '' },
  answer: null,
  stopped: null,
  error: null,
};

type Action = { restart: true } | { message: StreamMessage } | { error: ApiError };

/** What is known of a run after one more message of its stream. */
export function advance(progress: Progress, action: Action): Progress {
  if ('restart' in action) return NO_PROGRESS;
  if ('error' in action) return { ...progress, error: action.error };
  const { event, data } = action.message;
  switch (event) {
    case 'step':
      return { ...progress, error: null, steps: addStep(progress.steps, data as Step) };
    case 'delta': {
      const { draft, text } = data as { draft: number; text: string };
      // A larger number: the model has started again, and its earlier words do not count.
      const before = draft > progress.draft.number ? '' : progress.draft.text;
      return { ...progress, draft: { number: draft, text: before + text } };
    }
    case 'answer':
      return { ...progress, error: null, answer: data as Answer };
    case 'stopped':
      return { ...progress, error: null, stopped: data as Stopped };
    default:
      return progress;
  }
}

function addStep(steps: Step[], step: Step): Step[] {
  // A step may run twice, so its end belongs to the latest start.
  const started = steps.findLastIndex(({ name, ms }) => name === step.name && ms === null);
  if (step.ms === null || started < 0) return [...steps, step];
  return steps.with(started, step);
}

const RETRY_MS = 1000;

/** Follow a run from its start to its end, through losses of the connection. */
export function useRunProgress(runId: string): Progress {
  const [progress, dispatch] = useReducer(advance, NO_PROGRESS);
  const client = useQueryClient();
  useEffect(() => {
    const abort = new AbortController();
    dispatch({ restart: true });
    void follow(runId, abort.signal, dispatch).then(() => {
      if (!abort.signal.aborted) void client.invalidateQueries({ queryKey: ['runs'] });
    });
    return () => abort.abort();
  }, [runId, client]);
  return progress;
}

async function follow(
  runId: string,
  signal: AbortSignal,
  dispatch: (action: Action) => void,
): Promise<void> {
  let lastEventId: string | undefined;
  while (!signal.aborted) {
    try {
      for await (const message of readStream(`/v1/runs/${runId}/stream`, { signal, lastEventId })) {
        lastEventId = message.id ?? lastEventId;
        dispatch({ message });
        if (message.event === 'answer' || message.event === 'stopped') return;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError) {
        dispatch({ error });
        const { status } = error.problem;
        if (status !== 0 && status !== 429 && status < 500) return;
      }
      // Anything else is the connection, lost in the middle of a message.
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}
