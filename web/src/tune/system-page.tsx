import { Group, SimpleGrid, Stack, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { appWords } from '@/app/words';
import { api, call, type Schemas } from '@/shared/api/client';
import { useCan } from '@/shared/api/identity';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { State } from '@/shared/ui/bits';
import { Page } from '@/shared/ui/page';
import { Command, ErrorState, QueryState } from '@/shared/ui/states';
import { ChatModelPanel } from './chat-model-panel';
import { DoctorPanel } from './doctor-panel';
import { MetricsPanel } from './metrics-panel';
import { SystemFacts } from './system-facts';
import { systemWords } from './system-words';

const INTERVAL_MS = 10_000;

export function SystemPage() {
  const screens = useWords(appWords).screens;
  const words = useWords(systemWords);
  const isAdmin = useCan('admin');
  const isOperator = useCan('operator');
  const system = useQuery({
    queryKey: ['system'],
    queryFn: () => call(api.GET('/v1/system')),
    refetchInterval: INTERVAL_MS,
    enabled: isAdmin,
  });
  const readiness = useQuery({
    queryKey: ['readiness'],
    queryFn: readReadiness,
    refetchInterval: INTERVAL_MS,
  });
  const health = useQuery({
    queryKey: ['health'],
    queryFn: () => call(api.GET('/health')),
    refetchInterval: INTERVAL_MS,
  });
  return (
    <Page title={screens.system} subtitle={words.subtitle}>
      <QueryState query={readiness} rows={5}>
        {(data) => <Readiness readiness={data} />}
      </QueryState>
      <QueryState query={health} rows={3}>
        {(data) => <SystemFacts health={data} system={system.data} />}
      </QueryState>
      {system.isError && <ErrorState error={system.error} onRetry={() => system.refetch()} />}
      {isOperator && <ChatModelPanel />}
      {isAdmin && <MetricsPanel />}
      {isOperator && <DoctorPanel />}
      <Support />
    </Page>
  );
}

/** Readiness also of a server that is not ready: its 503 has the same body. */
function readReadiness(): Promise<Schemas['Readiness']> {
  return call(
    api.GET('/readyz').then(({ data, error, response }) => {
      const body: unknown = error;
      return isReadiness(body)
        ? { data: body, response: Response.json(null) }
        : { data, error, response };
    }),
  ) as Promise<Schemas['Readiness']>;
}

function isReadiness(body: unknown): body is Schemas['Readiness'] {
  return typeof body === 'object' && body !== null && 'dependencies' in body;
}

function Readiness({ readiness }: { readiness: Schemas['Readiness'] }) {
  const words = useWords(systemWords);
  const format = useFormat();
  const checks = Object.entries(readiness.dependencies);
  const failing = checks.filter(([, { ok }]) => !ok);
  return (
    <Stack gap="sm">
      <Group gap="sm" align="baseline">
        <Title order={2}>{words.checks}</Title>
        <State
          tone={failing.length === 0 ? 'ok' : 'bad'}
          label={failing.length === 0 ? words.ready : words.notReady(format.count(failing.length))}
        />
      </Group>
      <SimpleGrid cols={{ base: 1, sm: 2, lg: 5 }} spacing="sm">
        {checks.map(([name, { ok, detail, remedy }]) => (
          <Stack key={name} gap={2} p="sm" className="panel">
            <State
              tone={ok ? 'ok' : 'bad'}
              label={words.names[name as keyof typeof words.names] ?? name}
            />
            <Text size="sm" className="foreign">
              {detail === 'answers' ? words.answers : detail}
            </Text>
            {!ok && remedy && (
              <Text size="xs" c="dimmed" className="foreign">
                {remedy}
              </Text>
            )}
          </Stack>
        ))}
      </SimpleGrid>
    </Stack>
  );
}

function Support() {
  const words = useWords(systemWords);
  return (
    <Stack gap="sm">
      <Group gap="sm" align="baseline">
        <Title order={2}>{words.support}</Title>
        <Text size="xs" c="dimmed">
          {words.supportHint}
        </Text>
      </Group>
      <Command text="anabranch doctor --json > doctor.json" />
      <Command text="anabranch config show --origin --json > settings.json" />
    </Stack>
  );
}
