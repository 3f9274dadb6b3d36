import { useDebouncedCallback } from '@mantine/hooks';
import { useNavigate, useRouter, useSearch } from '@tanstack/react-router';
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

/**
 * Calls `change` with the last arguments, once none came for `ms` milliseconds, for changes of the
 * address. A change that is due while the user navigates to another screen is dropped,
 * because it would take them back.
 */
export function useDelayedChange<Arguments extends unknown[]>(
  change: (...values: Arguments) => void,
  ms: number,
): (...values: Arguments) => void {
  const router = useRouter();
  const delayed = useDebouncedCallback((screen: string, ...values: Arguments) => {
    if (router.latestLocation.pathname === screen) change(...values);
  }, ms);
  return useCallback(
    (...values: Arguments) => delayed(router.latestLocation.pathname, ...values),
    [delayed, router],
  );
}
