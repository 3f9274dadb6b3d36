import { useNavigate, useSearch } from '@tanstack/react-router';
import { useCallback } from 'react';

type Parameters = Record<string, string | undefined>;

/**
 * The search parameters of the address, and a function that changes some of them. Undefined and
 * empty ones leave the address. `replace` adds no step to the history, as for typing.
 */
export function useAddress(): [
  Parameters,
  (change: Parameters, options?: { replace?: boolean }) => void,
] {
  const search = useSearch({ strict: false }) as Parameters;
  const navigate = useNavigate();
  const change = useCallback(
    (changed: Parameters, { replace = false } = {}) => {
      navigate({
        to: '.',
        replace,
        search: (old: Parameters) =>
          Object.fromEntries(
            Object.entries({ ...old, ...changed }).filter(
              ([, value]) => value !== undefined && value !== '',
            ),
          ),
      });
    },
    [navigate],
  );
  return [search, change];
}
