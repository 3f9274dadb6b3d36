import { Stack, Text, Title } from '@mantine/core';
import type { Schemas } from '@/shared/api/client';
import { type Format, useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import classes from './generations.module.css';
import { type Interval, IntervalPlot } from './interval-plot';
import { generationWords } from './words';
import { WorstQuestions } from './worst';

type Report = Schemas['ComparisonReport'];
type Measure = 'ndcg@10' | 'mrr@10' | 'refusals' | 'latency_ms';

const MEASURES: { key: Measure; better: 1 | -1 }[] = [
  { key: 'ndcg@10', better: 1 },
  { key: 'mrr@10', better: 1 },
  { key: 'refusals', better: -1 },
  { key: 'latency_ms', better: -1 },
];

/** A report: how much both share, differences with intervals, measures by side, worst questions. */
export function ComparisonView({ report }: { report: Report }) {
  const words = useWords(generationWords).comparison;
  const format = useFormat();
  const intervals = toIntervals(report, words.measures, format);
  const overlap = report['overlap@10'];
  const failed = Object.keys(report.failed).length;
  return (
    <Stack gap="md">
      <Text fw={600}>
        {words.summary(format.count(report.queries), format.count(report.judged_queries))}.{' '}
        {overlap !== null && words.overlap(format.percent(overlap))}{' '}
        {failed > 0 && <span className="bad">{words.failed(format.count(failed))}</span>}
      </Text>
      <div className={classes.report}>
        <Stack gap="sm">
          <Title order={3}>{words.difference}</Title>
          <IntervalPlot intervals={intervals} label={words.intervals} />
          <Title order={3}>{words.moves}</Title>
          <Moves moves={report.rank_moves} />
        </Stack>
        <Measures report={report} />
      </div>
      {report.worst.length > 0 && <WorstQuestions report={report} />}
    </Stack>
  );
}

export function toIntervals(
  report: Pick<Report, 'intervals'>,
  labels: Record<Measure, string>,
  format: Pick<Format, 'decimal' | 'duration'>,
): Interval[] {
  const sign = (value: number) => (value > 0 ? '+' : value < 0 ? '−' : '');
  const formats: Record<Measure, (value: number) => string> = {
    'ndcg@10': (value) => `${sign(value)}${format.decimal(Math.abs(value), 3)}`,
    'mrr@10': (value) => `${sign(value)}${format.decimal(Math.abs(value), 3)}`,
    refusals: (value) => `${sign(value)}${format.decimal(Math.abs(value) * 100, 1)} %`,
    latency_ms: (value) => `${sign(value)}${format.duration(Math.abs(value))}`,
  };
  return MEASURES.flatMap(({ key, better }) => {
    const interval = report.intervals[key];
    if (interval === undefined) return [];
    const { difference, low, high } = interval;
    return [{ key, label: labels[key], difference, low, high, better, format: formats[key] }];
  });
}

function Moves({ moves }: { moves: Report['rank_moves'] }) {
  const words = useWords(generationWords).comparison;
  const format = useFormat();
  const parts = [
    { key: 'same', color: 'var(--line-strong)' },
    { key: 'up', color: 'var(--ok)' },
    { key: 'down', color: 'var(--warn)' },
    { key: 'left', color: 'var(--bad)' },
  ] as const;
  return (
    <div>
      <div className={classes.moves} aria-hidden="true">
        {parts.map(({ key, color }) => (
          <span key={key} style={{ flexGrow: moves[key], background: color }} />
        ))}
      </div>
      <Text size="sm" mt={4}>
        {parts.map(({ key }) => `${format.count(moves[key])} ${words.move[key]}`).join(' · ')}
      </Text>
    </div>
  );
}

function Measures({ report }: { report: Report }) {
  const words = useWords(generationWords).comparison;
  const format = useFormat();
  const share = (value: number) => format.percent(value);
  const score = (value: number) => format.score(value);
  const sides = ['A', 'B'] as const;
  const rows = [
    {
      label: words.measures['ndcg@10'],
      of: (s: string) => report.metrics[s]?.['ndcg@10'],
      as: score,
    },
    {
      label: words.measures['mrr@10'],
      of: (s: string) => report.metrics[s]?.['mrr@10'],
      as: score,
    },
    { label: words.measures.refusals, of: (s: string) => report.refusals[s], as: share },
    {
      label: words.measures.p50,
      of: (s: string) => report.latency_ms[s]?.p50,
      as: format.duration,
    },
    {
      label: words.measures.p95,
      of: (s: string) => report.latency_ms[s]?.p95,
      as: format.duration,
    },
    {
      label: words.measures.model_calls,
      of: (s: string) => report.cost[s]?.model_calls,
      as: format.count,
    },
    { label: words.measures.tokens, of: (s: string) => report.cost[s]?.tokens, as: format.count },
    {
      label: words.measures.index_bytes,
      of: (s: string) => report.cost[s]?.index_bytes,
      as: format.bytes,
    },
    { label: words.measures.mapped_share, of: (s: string) => report.mapped_share[s], as: share },
    { label: words.measures.judged_share, of: (s: string) => report.judged_share[s], as: share },
  ];
  return (
    <table className={classes.measures}>
      <thead>
        <tr>
          <th scope="col">{words.measure}</th>
          {sides.map((side) => (
            <th key={side} scope="col">
              {report.generations[side]}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map(({ label, of, as }) => (
          <tr key={label}>
            <th scope="row">{label}</th>
            {sides.map((side) => {
              const value = of(side);
              return <td key={side}>{value === null || value === undefined ? '—' : as(value)}</td>;
            })}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
