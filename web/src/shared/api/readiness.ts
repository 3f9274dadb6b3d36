import { useQuery } from '@tanstack/react-query';
import { ApiError, api, call } from './client';

/** Whether the server answers and is ready; asked more often until it does. */
export function useReadiness() {
  return useQuery({
    queryKey: ['readyz'],
    queryFn: () => call(api.GET('/readyz')),
    refetchInterval: (query) => (query.state.status === 'error' ? 3000 : 15_000),
    retry: false,
  });
}

/** Whether the server cannot be reached at all. */
export function useIsUnreachable(): boolean {
  const { error } = useReadiness();
  return error instanceof ApiError && error.problem.code === 'UNREACHABLE';
}
