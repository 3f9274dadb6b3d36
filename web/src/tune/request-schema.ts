import { useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { fetchRaw } from '@/shared/api/client';
import { type JsonSchema, readSection, type Section } from './schema';

/** The fields of a request, as the OpenAPI document describes them. */
export function useRequestSchema(name: string): Section | undefined {
  const { data } = useQuery({
    queryKey: ['openapi'],
    queryFn: async () => (await fetchRaw('/openapi.json')).json() as Promise<OpenApi>,
    staleTime: Number.POSITIVE_INFINITY,
  });
  return useMemo(() => {
    const schema = data?.components.schemas[name];
    return schema && readSection(schema);
  }, [data, name]);
}

type OpenApi = { components: { schemas: Record<string, JsonSchema> } };
