import { Stack, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { appWords } from '@/app/words';
import { ApiError, api, call, fetchRaw, type Schemas } from '@/shared/api/client';
import { useCan } from '@/shared/api/identity';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { State } from '@/shared/ui/bits';
import { Page } from '@/shared/ui/page';
import { ErrorState, LoadingState, QueryState } from '@/shared/ui/states';
import { perMinute } from './pipeline/activity';
import classes from './pipeline/pipeline.module.css';
import { StageCard } from './pipeline/stage-card';
import { ConsumerTable, StageTable } from './pipeline/stage-table';
import { oldestWaiting, type StageView, toStageViews } from './pipeline/stages';
import { useActivity } from './pipeline/use-activity';
import { pipelineWords } from './pipeline/words';

const REFRESH_MS = 2000;
const SLOW_REFRESH_MS = 10_000;
const CIRCUIT_TONES = { closed: 'ok', 'half-opened': 'warn', opened: 'bad' } as const;

export function PipelinePage() {
  const words = useWords(pipelineWords);
  const screens = useWords(appWords).screens;
  const format = useFormat();
  const canSeeConsumers = useCan('admin');
  const { activity, error, retry } = useActivity();
  const health = useQuery({
    queryKey: ['health'],
    queryFn: () => call(api.GET('/health')),
    refetchInterval: REFRESH_MS,
  });
  const stages = useQuery({
    queryKey: ['stages'],
    queryFn: () => call(api.GET('/v1/stages')),
    refetchInterval: REFRESH_MS,
    enabled: canSeeConsumers,
  });
  const topics = useQuery({
    queryKey: ['topics'],
    queryFn: () => call(api.GET('/v1/topics')),
    refetchInterval: SLOW_REFRESH_MS,
    enabled: canSeeConsumers,
  });
  const views =
    activity && health.data
      ? toStageViews({
          activity,
          health: health.data,
          stages: stages.data,
          topics: topics.data?.items,
        })
      : undefined;
  const accepted = perMinute(activity?.counts.get('accepted') ?? []);
  const behind = views ? oldestWaiting(views) : 0;
  return (
    <Page
      title={screens.pipeline}
      subtitle={
        health.data &&
        activity &&
        [
          words.subtitle(
            format.count(accepted),
            format.count(health.data.documents.searchable ?? 0),
          ),
          ...(behind > 0 ? [words.behind(format.duration(behind * 1000))] : []),
        ].join(' · ')
      }
    >
      {error !== null ? (
        <ErrorState error={error} onRetry={retry} />
      ) : activity === null ? (
        <LoadingState rows={5} height={64} />
      ) : (
        <QueryState query={health} rows={8}>
          {(data) => views && <Strip views={views} health={data} />}
        </QueryState>
      )}
      {stages.isError && <ErrorState error={stages.error} onRetry={() => stages.refetch()} />}
      {stages.data ? (
        <>
          <Blockers overview={stages.data} />
          <ConsumerTable overview={stages.data} />
        </>
      ) : (
        views && <StageTable views={views} />
      )}
      <Dependencies circuits={stages.data?.circuits ?? {}} />
    </Page>
  );
}

/** Transactions of the database that hold the pipeline up; only operators learn of them. */
function Blockers({ overview }: { overview: Schemas['StageOverview'] }) {
  const words = useWords(pipelineWords);
  const lines = [
    ...overview.locks.map((lock) => [words.lock, lock] as const),
    ...(overview.horizon ? [[words.horizon, overview.horizon] as const] : []),
  ];
  if (lines.length === 0) return null;
  return (
    <ul className={`panel ${classes.blockers}`} role="status">
      {lines.map(([label, details]) => (
        <li key={`${label} ${JSON.stringify(details)}`} className="foreign">
          <State tone="warn" label={label} />{' '}
          {Object.entries(details)
            .filter(([, value]) => value !== null)
            .map(([name, value]) => `${name} ${String(value)}`)
            .join(' · ')}
        </li>
      ))}
    </ul>
  );
}

function Strip({ views, health }: { views: StageView[]; health: Schemas['Health'] }) {
  const words = useWords(pipelineWords);
  return (
    <section className={classes.strip} aria-label={words.strip}>
      {views.map((view) => (
        <StageCard key={view.stage} view={view} />
      ))}
      <Visible health={health} />
    </section>
  );
}

function Visible({ health }: { health: Schemas['Health'] }) {
  const words = useWords(pipelineWords);
  const format = useFormat();
  const labels: Record<string, string> = words.documents;
  return (
    <article
      className={`panel ${classes.node}`}
      style={{ gridArea: 'visible' }}
      aria-label={words.visible}
    >
      <div className={`mono ${classes.topic}`}>{health.generation ?? '—'}</div>
      <h2 className={classes.name}>{words.visible}</h2>
      <dl className={classes.numbers}>
        {Object.entries(health.documents).map(([state, count]) => (
          <div key={state} style={{ display: 'contents' }}>
            <dt>
              {/* 24 px high, the least that a finger hits (WCAG 2.5.8). */}
              <Link
                to="/documents"
                search={{ state } as never}
                style={{ display: 'inline-block', lineHeight: '24px' }}
              >
                {labels[state] ?? state}
              </Link>
            </dt>
            <dd>{format.count(count)}</dd>
          </div>
        ))}
      </dl>
    </article>
  );
}

/** Also read while it answers 503: then it says what is unavailable. */
async function readReadiness(): Promise<Schemas['Readiness']> {
  const result = await api.GET('/readyz').catch(() => undefined);
  const body = result?.data ?? (result?.error as Schemas['Readiness'] | undefined);
  if (body && 'dependencies' in body) return body;
  // Unreachable, or refused on the way: the client says which.
  return (await (await fetchRaw('/readyz')).json()) as Schemas['Readiness'];
}

function Dependencies({ circuits }: { circuits: Schemas['StageOverview']['circuits'] }) {
  const words = useWords(pipelineWords);
  const names: Record<string, string> = words.names;
  const ready = useQuery({
    queryKey: ['readiness'],
    queryFn: readReadiness,
    refetchInterval: 15_000,
    retry: (_, error) => !(error instanceof ApiError),
  });
  return (
    <Stack gap="xs">
      <Title order={2}>{words.dependencies}</Title>
      <QueryState query={ready} rows={3}>
        {(data) => (
          <div className="panel">
            {data.status !== 'ok' && (
              <p className="bad" style={{ padding: '8px 12px', margin: 0 }} role="alert">
                {words.notReady}
              </p>
            )}
            <dl className={classes.dependencies}>
              {Object.entries(data.dependencies).map(([name, line]) => (
                <div key={name}>
                  <dt>
                    <State tone={line.ok ? 'ok' : 'bad'} label={names[name] ?? name} />
                  </dt>
                  <dd className="foreign">
                    {line.detail} {line.remedy}
                  </dd>
                </div>
              ))}
              {Object.entries(circuits).map(([server, state]) => (
                <div key={server}>
                  <dt className="foreign">
                    <State tone={CIRCUIT_TONES[state]} label={words.circuit(server)} />
                  </dt>
                  <dd>{words.circuits[state]}</dd>
                </div>
              ))}
            </dl>
          </div>
        )}
      </QueryState>
    </Stack>
  );
}
