import { Button, Group, NumberInput, Stack, Text } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { api, call } from '@/shared/api/client';
import { useCan } from '@/shared/api/identity';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { ErrorState, QueryState } from '@/shared/ui/states';
import { addSample, estimate, type Sample } from '../eta';
import { streamWords } from '../words';
import type { Generation } from './config-diff';
import classes from './generations.module.css';
import { generationWords } from './words';

const REFRESH_MS = 2000;

/** How far a build is: documents done of those that the live generation has, phase and pace. */
export function BuildProgress({ generation, total }: { generation: Generation; total: number }) {
  const words = useWords(generationWords);
  const stream = useWords(streamWords);
  const format = useFormat();
  const isOperator = useCan('operator');
  const { name } = generation;
  const build = useQuery({
    queryKey: ['generations', name, 'build'],
    queryFn: () => call(api.GET('/v1/generations/{name}/build', { params: { path: { name } } })),
    refetchInterval: REFRESH_MS,
    enabled: isOperator,
  });
  const done = generation.documents;
  const [samples, setSamples] = useState<readonly Sample[]>([]);
  useEffect(() => setSamples((old) => addSample(old, { at: Date.now(), done })), [done]);
  // Drawn again by each refetch, also by those that bring nothing new.
  const eta = estimate(samples, total, Math.max(Date.now(), build.dataUpdatedAt));
  const share = total > 0 ? Math.min(1, done / total) : 0;
  const etaLabel = {
    calculating: () => stream.etaUnknown,
    done: () => '',
    stalled: () => (eta.kind === 'stalled' ? words.stalled(format.duration(eta.forMs)) : ''),
    range: () =>
      eta.kind === 'range'
        ? stream.etaRange(format.duration(eta.lowMs), format.duration(eta.highMs))
        : '',
  }[eta.kind]();
  return (
    <Stack gap={6}>
      <Group justify="space-between" gap="xs">
        <span>
          {format.percent(share)} · {words.of(format.count(done), format.count(total))}
        </span>
        <span className={eta.kind === 'stalled' ? 'warn' : 'muted'}>{etaLabel}</span>
      </Group>
      <div
        className={classes.bar}
        role="progressbar"
        aria-label={words.progress}
        aria-valuenow={Math.round(share * 100)}
        aria-valuemin={0}
        aria-valuemax={100}
      >
        <span style={{ width: `${share * 100}%` }} />
      </div>
      {isOperator && (
        <QueryState query={build} rows={1}>
          {(data) => (
            <>
              <Group gap="lg">
                <Text size="sm">
                  {data.paused
                    ? words.paused
                    : (words.phases[data.phase as keyof typeof words.phases] ?? data.phase)}
                </Text>
                <Text size="sm" c="dimmed">
                  {words.engineCalls}:{' '}
                  {Object.entries(data.engine_calls ?? {})
                    .map(([engine, calls]) => `${engine} ${format.count(calls)}`)
                    .join(', ') || '0'}
                </Text>
              </Group>
              {data.error && (
                <Text size="sm" className="bad foreign" role="alert">
                  {words.failed}: {data.error.detail} {data.error.remedy}
                </Text>
              )}
              <Pace
                name={name}
                isPaused={data.paused ?? false}
                rate={data.events_per_second ?? null}
              />
            </>
          )}
        </QueryState>
      )}
    </Stack>
  );
}

function Pace({ name, isPaused, rate }: { name: string; isPaused: boolean; rate: number | null }) {
  const words = useWords(generationWords);
  const client = useQueryClient();
  const [typed, setTyped] = useState<number | null>(rate);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => setTyped(rate), [rate]);
  const change = async (body: { paused: boolean; events_per_second?: number | null }) => {
    setError(null);
    try {
      await call(api.PATCH('/v1/generations/{name}/build', { params: { path: { name } }, body }));
      await client.invalidateQueries({ queryKey: ['generations'] });
    } catch (failure) {
      setError(failure);
    }
  };
  return (
    <>
      <Group gap="xs" align="flex-end">
        <Button variant="default" onClick={() => change({ paused: !isPaused })}>
          {isPaused ? words.resume(name) : words.pause(name)}
        </Button>
        <NumberInput
          aria-label={words.rate}
          placeholder={`${words.rate}: ${words.noLimit}`}
          w={210}
          min={0.001}
          value={typed ?? ''}
          onChange={(value) => setTyped(typeof value === 'number' ? value : null)}
        />
        <Button
          variant="default"
          disabled={typed === rate}
          onClick={() => change({ paused: isPaused, events_per_second: typed })}
        >
          {words.setRate}
        </Button>
      </Group>
      {error !== null && <ErrorState error={error} />}
    </>
  );
}
