import { Text } from '@mantine/core';
import { appWords } from '@/app/words';
import type { Schemas } from '@/shared/api/client';
import { type Format, useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Ago } from '@/shared/ui/bits';
import { type Column, DataTable } from '@/shared/ui/table';
import { stageLabel, streamWords } from '../words';
import type { Consumer, StageView } from './stages';
import { pipelineWords } from './words';

/** The strip as a table: what the events tell, for a role that may not see consumers. */
export function StageTable({ views }: { views: StageView[] }) {
  const words = useWords(pipelineWords);
  const screens = useWords(appWords).screens;
  const stream = useWords(streamWords);
  const format = useFormat();
  const columns: Column<StageView>[] = [
    { key: 'stage', label: stream.stage, cell: (view) => stageLabel(stream, view.stage) },
    { key: 'reads', label: words.input, cell: (v) => <span className="mono">{v.reads}</span> },
    {
      key: 'rate',
      label: words.rateLabel,
      isNumber: true,
      cell: (view) => words.rate(format.count(view.perMinute)),
    },
    {
      key: 'last',
      label: words.last,
      cell: (view) =>
        view.lastAt === null ? words.never : <Ago time={new Date(view.lastAt).toISOString()} />,
    },
    {
      key: 'dead',
      label: screens['dead-letters'],
      isNumber: true,
      cell: (view) => format.count(view.deadLetters),
    },
  ];
  return (
    <DataTable label={words.table} rows={views} columns={columns} rowKey={(view) => view.stage} />
  );
}

/** Every consumer group, also of other generations and of stages without documents. */
export function ConsumerTable({ overview }: { overview: Schemas['StageOverview'] }) {
  const words = useWords(pipelineWords);
  const stream = useWords(streamWords);
  const format = useFormat();
  const number = (key: keyof Consumer, label: string, as: (value: number) => string) => ({
    key,
    label,
    isNumber: true,
    cell: (row: Consumer) => orDash(row[key], as),
  });
  const seconds = (value: number) => format.duration(value * 1000);
  const columns: Column<Consumer>[] = [
    { key: 'stage', label: stream.stage, cell: (row) => stageLabel(stream, row.stage) },
    { key: 'topic', label: words.input, cell: (row) => <span className="mono">{row.topic}</span> },
    { key: 'generation', label: words.generation, cell: (row) => row.generation ?? '—' },
    {
      key: 'lag',
      label: words.lag,
      isNumber: true,
      cell: (row) => (row.lag === null ? words.unknown : format.count(row.lag)),
    },
    number('oldest_seconds', words.oldestColumn, seconds),
    number('in_flight', words.inFlight, format.count),
    number('retries', words.retries, format.count),
    number('p50_ms', words.p50, format.duration),
    number('p95_ms', words.p95, format.duration),
    {
      key: 'why',
      label: words.why,
      cell: (row) => <WhyItWaits row={row} />,
    },
  ];
  return (
    <div>
      <DataTable
        label={words.table}
        rows={overview.items}
        columns={columns}
        rowKey={(row) => `${row.group} ${row.stage} ${row.topic}`}
        maxHeight="none"
      />
      <Text size="xs" c="dimmed" mt={4}>
        {words.window(windowLabel(overview.window_seconds, format))}
      </Text>
    </div>
  );
}

function WhyItWaits({ row }: { row: Consumer }) {
  if (!row.reason) return <span className="muted">—</span>;
  return (
    <span className="foreign" title={row.remedy ?? ''}>
      {row.reason} <span className="muted">{row.remedy}</span>
    </span>
  );
}

function orDash(value: unknown, as: (value: number) => string): string {
  return typeof value === 'number' ? as(value) : '—';
}

function windowLabel(seconds: number, format: Format): string {
  return format.duration(seconds * 1000);
}
