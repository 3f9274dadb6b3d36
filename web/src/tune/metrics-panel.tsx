import { Group, SimpleGrid, Stack, Switch, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { lazy, Suspense, useMemo } from 'react';
import type { Search } from '@/app/router';
import { api, call, fetchRaw } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { parseMetrics, type Scrape } from '@/shared/metrics';
import { QueryState } from '@/shared/ui/states';
import { DataTable } from '@/shared/ui/table';
import { formatValue, measure, type Point, SERIES, type SeriesName } from './metric-series';
import { systemWords } from './system-words';

// uPlot is loaded with the first chart.
const TimeSeries = lazy(() => import('./time-series').then((m) => ({ default: m.TimeSeries })));

const INTERVAL_MS = 5000;
const KEPT_SCRAPES = 61 + 4;
const KEPT_POINTS = 360;

type History = { scrapes: Scrape[]; points: Point[] };

/** Metrics since this page was opened; they stop while it is hidden. */
export function MetricsPanel() {
  const words = useWords(systemWords);
  const history = useQuery<History>({
    queryKey: ['metrics-history'],
    queryFn: async ({ client, queryKey }) => {
      const old = client.getQueryData<History>(queryKey) ?? { scrapes: [], points: [] };
      const [text, health, stages] = await Promise.all([
        fetchRaw('/metrics').then((response) => response.text()),
        call(api.GET('/health')),
        call(api.GET('/v1/stages')),
      ]);
      const scrape = { at: Date.now(), samples: parseMetrics(text) };
      const scrapes = [...old.scrapes, scrape].slice(-KEPT_SCRAPES);
      // Groups of the live generation; those of others are rebuilt without haste.
      const live = stages.items.filter(({ is_live }) => is_live);
      const lag = live.reduce((sum, group) => sum + (group.lag ?? 0), 0);
      const point = measure(scrapes, health.documents.searchable ?? 0, lag);
      return { scrapes, points: [...old.points, ...(point ? [point] : [])].slice(-KEPT_POINTS) };
    },
    refetchInterval: INTERVAL_MS,
    structuralSharing: false,
  });
  return (
    <QueryState query={history} rows={8}>
      {({ points }) => <Charts points={points} hint={words.metricsWait} />}
    </QueryState>
  );
}

function Charts({ points, hint }: { points: Point[]; hint: string }) {
  const words = useWords(systemWords);
  const format = useFormat();
  const navigate = useNavigate();
  const search = useSearch({ strict: false });
  const isTable = search.metrics === 'table';
  const first = points[0];
  const last = points.at(-1);
  const times = useMemo(() => points.map(({ at }) => at), [points]);
  const since = first && last ? format.duration(last.at - first.at) : '';
  return (
    <Stack gap="sm">
      <Group gap="sm" align="baseline">
        <Title order={2}>{words.metrics}</Title>
        <Text size="xs" c="dimmed" style={{ flex: 1 }}>
          {points.length < 2 ? hint : words.metricsHint(since)}
        </Text>
        <Switch
          label={words.asTable}
          checked={isTable}
          onChange={(event) => {
            const metrics = event.currentTarget.checked ? 'table' : undefined;
            navigate({
              to: '/system',
              search: (old: Search) => ({ ...old, metrics }),
              replace: true,
              resetScroll: false,
            });
          }}
        />
      </Group>
      {isTable ? (
        <MetricTable points={points} />
      ) : (
        <SimpleGrid cols={{ base: 1, sm: 2, lg: 4 }} spacing="sm">
          {SERIES.map((name) => (
            <Chart key={name} name={name} points={points} times={times} />
          ))}
        </SimpleGrid>
      )}
    </Stack>
  );
}

function Chart({ name, points, times }: { name: SeriesName; points: Point[]; times: number[] }) {
  const words = useWords(systemWords);
  const format = useFormat();
  const values = useMemo(() => points.map((point) => point[name]), [points, name]);
  const now = values.at(-1) ?? null;
  return (
    <Stack gap={2} p="sm" className="panel" component="section" aria-label={words.series[name]}>
      <Text size="xs" c="dimmed">
        {words.series[name]}
      </Text>
      <Text size="lg" fw={600}>
        {now === null ? (
          <Text span size="sm" c="dimmed">
            {words.noValue}
          </Text>
        ) : (
          formatValue(name, now, format)
        )}
      </Text>
      <Suspense fallback={<div style={{ height: 96 }} />}>
        <TimeSeries
          times={times}
          values={values}
          formatTick={(value) => formatValue(name, value, format)}
        />
      </Suspense>
    </Stack>
  );
}

function MetricTable({ points }: { points: Point[] }) {
  const words = useWords(systemWords);
  const format = useFormat();
  const rows = useMemo(() => points.toReversed(), [points]);
  return (
    <DataTable
      label={words.metrics}
      rows={rows}
      rowKey={({ at }) => String(at)}
      maxHeight="420px"
      columns={[
        { key: 'at', label: words.time, cell: ({ at }) => format.clock(new Date(at)) },
        ...SERIES.map((name) => ({
          key: name,
          label: words.series[name],
          isNumber: true,
          cell: (point: Point) => {
            const value = point[name];
            return value === null ? '—' : formatValue(name, value, format);
          },
        })),
      ]}
    />
  );
}
