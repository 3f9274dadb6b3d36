import { useQueryClient } from '@tanstack/react-query';
import { useCallback, useEffect, useRef } from 'react';
import { type LiveMessage, useLive } from '@/shared/api/live';

const THROTTLE_MS = 1000;

/** Read the queries below `key` again, at most once a second, when an event of these types arrives. */
export function useRefresh(types: readonly string[], key: string): void {
  const client = useQueryClient();
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  const pattern = types.join(' ');
  useLive(
    useCallback(
      ({ event }: LiveMessage) => {
        // After a gap any of them may have been missed.
        const isGap = event === 'reset' || event === 'dropped';
        if (!isGap && !pattern.split(' ').some((type) => event.startsWith(type))) return;
        timer.current ??= setTimeout(() => {
          timer.current = undefined;
          client.invalidateQueries({ queryKey: [key] });
        }, THROTTLE_MS);
      },
      [client, key, pattern],
    ),
  );
}
