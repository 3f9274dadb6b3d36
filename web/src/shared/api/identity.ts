import { useQuery } from '@tanstack/react-query';
import { api, call, type Schemas } from './client';

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
