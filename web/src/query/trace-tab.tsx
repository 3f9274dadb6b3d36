import { Group, Stack, Table, Text, Title } from '@mantine/core';
import type { ReactNode } from 'react';
import { API_ROOT } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Id } from '@/shared/ui/bits';
import { Command, EmptyState } from '@/shared/ui/states';
import type { RecordedRun } from './run-data';
import type { TabProps } from './run-page';
import { runWords } from './run-words';
import classes from './tabs.module.css';
import { queryWords } from './words';

/** The order in which the steps run; one that is added later comes last. */
const STEP_ORDER = [
  'plan',
  'link',
  'channels',
  'chunks',
  'fuse',
  'bridge',
  'terms',
  'rerank',
  'read',
  'evidence',
  'answer',
  'judge',
];

/** Where time, tokens and money went, and which engines took part. */
export function TraceTab({ run }: TabProps) {
  const labels = useWords(runWords);
  if (run.trace === null) return <EmptyState title={labels.notRecorded} />;
  return (
    <div className={classes.two}>
      <Stack gap="lg">
        <Timings run={run} />
        <ModelCalls run={run} />
      </Stack>
      <Details run={run} />
    </div>
  );
}

function Timings({ run }: { run: RecordedRun }) {
  const words = useWords(runWords).trace;
  const steps = useWords(queryWords).steps;
  const format = useFormat();
  const timings = run.trace?.timings_ms ?? {};
  const total = timings.total ?? 0;
  const place = (name: string) => {
    const index = STEP_ORDER.indexOf(name);
    return index < 0 ? STEP_ORDER.length : index;
  };
  const rows = Object.entries(timings)
    .filter(([name]) => name !== 'total')
    .toSorted(([left], [right]) => place(left) - place(right));
  // The steps follow one another, so each bar starts where the one before it ends.
  let start = 0;
  return (
    <section>
      <Group justify="space-between" pb={8}>
        <Title order={2}>{words.timings}</Title>
        <Text size="sm">
          {words.total} {format.duration(total)}
        </Text>
      </Group>
      <Table aria-label={words.timings} verticalSpacing={4}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{words.step}</Table.Th>
            <Table.Th className="num">{words.duration}</Table.Th>
            <Table.Th w="60%">{words.share}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map(([name, ms]) => {
            const from = start;
            start += ms;
            return (
              <Table.Tr key={name}>
                <Table.Td>{steps[name] ?? name}</Table.Td>
                <Table.Td className="num">{format.duration(ms)}</Table.Td>
                <Table.Td>
                  <svg width="100%" height="12" aria-hidden="true" style={{ display: 'block' }}>
                    <rect
                      x={`${total ? (from / total) * 100 : 0}%`}
                      width={`${total ? Math.max(0.3, (ms / total) * 100) : 0}%`}
                      height="12"
                      rx="2"
                      fill="var(--accent)"
                    />
                  </svg>
                </Table.Td>
              </Table.Tr>
            );
          })}
        </Table.Tbody>
      </Table>
    </section>
  );
}

function ModelCalls({ run }: { run: RecordedRun }) {
  const words = useWords(runWords).trace;
  const format = useFormat();
  const trace = run.trace;
  const usage = trace?.usage ?? [];
  const cost = (value: number | null | undefined) =>
    value === null || value === undefined
      ? '—'
      : `${format.decimal(value, 6)} ${trace?.currency ?? ''}`.trim();
  return (
    <section>
      <Group justify="space-between" pb={8}>
        <Title order={2}>{words.models}</Title>
        <Text size="sm">
          {words.cost} {cost(trace?.cost)}
        </Text>
      </Group>
      {usage.length === 0 ? (
        <Text size="sm" c="dimmed">
          {words.noCalls}
        </Text>
      ) : (
        <Table.ScrollContainer minWidth={520}>
          <Table aria-label={words.models}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{words.task}</Table.Th>
                <Table.Th>{words.model}</Table.Th>
                <Table.Th className="num">{words.calls}</Table.Th>
                <Table.Th className="num">{words.failed}</Table.Th>
                <Table.Th className="num">{words.tokensIn}</Table.Th>
                <Table.Th className="num">{words.tokensOut}</Table.Th>
                <Table.Th className="num">{words.cost}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {usage.map((item) => (
                <Table.Tr key={`${item.task} ${item.model}`}>
                  <Table.Td>{item.task}</Table.Td>
                  <Table.Td className="foreign">
                    {item.model}{' '}
                    <span className="muted">
                      {[item.local && words.local, item.estimated && words.estimated]
                        .filter(Boolean)
                        .join(', ')}
                    </span>
                  </Table.Td>
                  <Table.Td className="num">{format.count(item.calls)}</Table.Td>
                  <Table.Td className="num">{format.count(item.failed)}</Table.Td>
                  <Table.Td className="num">{format.count(item.input_tokens)}</Table.Td>
                  <Table.Td className="num">{format.count(item.output_tokens)}</Table.Td>
                  <Table.Td className="num">{cost(item.cost)}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
      )}
      {(trace?.unpriced ?? []).length > 0 && (
        <Text size="sm" c="dimmed" className="foreign" pt={8}>
          {words.unpriced((trace?.unpriced ?? []).join(', '))}
        </Text>
      )}
      {(trace?.stopped ?? []).length > 0 && (
        <Text size="sm" className="warn foreign" pt={8}>
          {words.stopped}: {JSON.stringify(trace?.stopped)}
        </Text>
      )}
    </section>
  );
}

function Details({ run }: { run: RecordedRun }) {
  const words = useWords(runWords).trace;
  const format = useFormat();
  const { trace, request } = run;
  const filters = JSON.stringify(request?.filters, (_, value) =>
    value === null || (Array.isArray(value) && value.length === 0) ? undefined : value,
  );
  const overrides = JSON.stringify(request?.overrides ?? {});
  const rows: [string, ReactNode][] = [
    [words.run, <Id key="id" id={run.id} />],
    [words.generation, trace?.generation],
    [words.profile, trace?.profile],
    [
      words.route,
      trace && `${trace.route.mode} (${trace.route.decided_by}): ${trace.route.reason}`,
    ],
    [words.intent, trace?.plan?.intent],
    [words.language, run.answer?.language],
    [words.reranker, trace?.reranker],
    [
      words.threshold,
      typeof trace?.threshold === 'number'
        ? `${format.score(trace.max_rerank_score ?? 0)} / ${format.score(trace.threshold)}`
        : null,
    ],
    [words.calibration, trace?.calibration],
    [words.filters, filters === '{"metadata":{}}' ? null : filters],
    [words.overrides, overrides === '{}' ? null : overrides],
    [words.notes, trace?.notes?.join(' ')],
  ];
  return (
    <section>
      <Title order={2} pb={8}>
        {words.details}
      </Title>
      <dl className={`${classes.facts} foreign`} style={{ flexDirection: 'column' }}>
        {rows
          .filter(([, value]) => value)
          .map(([label, value]) => (
            <div key={label}>
              <dt>{label}</dt>
              <dd>{value}</dd>
            </div>
          ))}
      </dl>
      <Stack gap={8} pt="md" align="flex-start">
        <a href={`${API_ROOT}/v1/runs/${run.id}`} target="_blank" rel="noreferrer">
          {words.json}
        </a>
        <Command text={`curl -H "Authorization: Bearer $TOKEN" ${API_ROOT}/v1/runs/${run.id}`} />
      </Stack>
    </section>
  );
}
