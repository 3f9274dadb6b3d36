import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { api, call, type Schemas } from '@/shared/api/client';
import { useCan } from '@/shared/api/identity';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { State } from '@/shared/ui/bits';
import { appWords } from './words';

type Consumer = Pick<
  Schemas['StageConsumer'],
  'is_live' | 'lag' | 'acknowledged' | 'end' | 'oldest_seconds'
>;

/** Up to where in the log the tables of the live generation are, and how much waits. */
export function LogPosition() {
  const words = useWords(appWords);
  const format = useFormat();
  const mayRead = useCan('admin');
  const position = useQuery({
    queryKey: ['log-position'],
    queryFn: async () => {
      const [stages, health] = await Promise.all([
        call(api.GET('/v1/stages')),
        call(api.GET('/health')),
      ]);
      return toPosition(stages.items, health.log === 'kafka');
    },
    enabled: mayRead,
    retry: false,
    refetchInterval: 10_000,
  });
  // A caller limited to readers is refused; the chip is for those who operate the log.
  if (!position.data) return null;
  const { reached, behind, oldestSeconds } = position.data;
  const label =
    behind === 0
      ? words.atPosition(format.count(reached))
      : words.behindPosition(
          format.count(reached),
          format.count(behind),
          format.duration(oldestSeconds * 1000),
        );
  return (
    <Link to="/pipeline" title={words.positionHint} style={{ color: 'inherit' }}>
      <State tone={behind === 0 ? 'ok' : 'busy'} label={label} />
    </Link>
  );
}

/**
 * On Postgres, all topics count with one number: the first event that any stage has to read bounds
 * what the tables hold. On Kafka each topic has its own numbers, which are summed.
 */
export function toPosition(items: readonly Consumer[], isKafka: boolean) {
  const live = items.filter((consumer) => consumer.is_live);
  const late = live.filter((consumer) => (consumer.lag ?? 0) > 0);
  const sum = (values: (number | null)[]) => values.reduce<number>((a, b) => a + (b ?? 0), 0);
  const reached = isKafka
    ? sum(live.map((consumer) => consumer.acknowledged))
    : late.length > 0
      ? Math.min(...late.map((consumer) => consumer.acknowledged ?? 0))
      : Math.max(0, ...live.map((consumer) => consumer.end ?? 0));
  return {
    reached,
    behind: sum(late.map((consumer) => consumer.lag)),
    oldestSeconds: Math.max(0, ...late.map((consumer) => consumer.oldest_seconds ?? 0)),
  };
}
