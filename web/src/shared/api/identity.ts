import { type QueryClient, useQuery } from '@tanstack/react-query';
import { ApiError, api, call, type Schemas } from './client';

export type Role = Schemas['Identity']['role'];
const RANKS: Role[] = ['reader', 'writer', 'admin', 'operator'];

export function useIdentity() {
  return useQuery({
    queryKey: ['whoami'],
    queryFn: () => call(api.GET('/v1/whoami')),
    staleTime: 60_000,
  });
}

/** Whether the caller's role includes this one. The server decides again at each request. */
export function useCan(role: Role): boolean {
  const { data } = useIdentity();
  return data !== undefined && RANKS.indexOf(data.role) >= RANKS.indexOf(role);
}

/** Ask again who calls after a 401: a session or key that ended shows the sign-in page. */
export function recheckCaller(client: QueryClient, error: unknown): void {
  // The 401 of this very question must not ask it again.
  const isKnown = client.getQueryState(['whoami'])?.status === 'success';
  if (error instanceof ApiError && error.problem.status === 401 && isKnown) {
    void client.invalidateQueries({ queryKey: ['whoami'] });
  }
}
