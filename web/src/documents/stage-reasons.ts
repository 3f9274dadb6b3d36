import { useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { api, call, type Schemas } from '@/shared/api/client';
import { useCan } from '@/shared/api/identity';

export type StageReason = Pick<Schemas['StageConsumer'], 'paused' | 'reason' | 'remedy'>;
export type StageReasons = ReadonlyMap<string, StageReason>;

const EVERY_MS = 5000;
const NONE: StageReasons = new Map();

/** Why the stages of the live generation wait, as far as the caller may know. */
export function useStageReasons(isEnabled: boolean): StageReasons {
  const canSee = useCan('admin');
  const { data } = useQuery({
    queryKey: ['stages'],
    queryFn: () => call(api.GET('/v1/stages')),
    enabled: canSee && isEnabled,
    refetchInterval: EVERY_MS,
    retry: false,
  });
  return useMemo(() => (data ? toReasons(data.items) : NONE), [data]);
}

/** Without a remedy nothing is wrong: the stage works. */
export function toReasons(consumers: readonly Schemas['StageConsumer'][]): StageReasons {
  return new Map(
    consumers
      .filter((consumer) => consumer.is_live && (consumer.paused || consumer.remedy))
      .map((consumer) => [consumer.stage, consumer]),
  );
}
