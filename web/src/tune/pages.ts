import { useInfiniteQuery } from '@tanstack/react-query';

type PageOf<T> = { items: T[]; next: string | null };

/** A list of the API, page after page. */
export function usePages<T>(
  queryKey: readonly unknown[],
  load: (after: string | undefined) => Promise<PageOf<T>>,
) {
  return useInfiniteQuery({
    queryKey,
    queryFn: ({ pageParam }) => load(pageParam),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
  });
}
