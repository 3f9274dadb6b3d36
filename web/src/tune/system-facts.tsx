import { Group, Stack, Text, Title } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import type { Schemas } from '@/shared/api/client';
import { useIdentity } from '@/shared/api/identity';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { pipelineWords } from '@/stream/pipeline/words';
import { systemWords } from './system-words';

/** What runs: versions, backends, disk, streams; and what it holds. */
export function SystemFacts({
  health,
  system,
}: {
  health: Schemas['Health'];
  system: Schemas['System'] | undefined;
}) {
  const words = useWords(systemWords);
  const format = useFormat();
  const states = useWords(pipelineWords).documents;
  const documents = Object.entries(health.documents)
    .map(([state, n]) => `${format.count(n)} ${states[state as keyof typeof states] ?? state}`)
    .join(' · ');
  // Who may not read every document gets no counts of all of them.
  const isLimited = Boolean(useIdentity().data?.readers);
  const facts: [string, ReactNode][] = [
    [words.version, health.version],
    [words.generation, health.generation ?? words.noGeneration],
  ];
  if (!isLimited) {
    facts.push(
      [words.documents, documents || format.count(0)],
      [
        words.deadLetters,
        health.dead_letters.total === 0 ? (
          format.count(0)
        ) : (
          <Link key="dead" to="/dead-letters">
            {format.count(health.dead_letters.total)}
          </Link>
        ),
      ],
    );
  }
  if (system === undefined) facts.push([words.log, health.log]);
  else {
    const { disk, postgres, open_streams: streams } = system;
    const { postgres: name } = words;
    facts.push(
      [words.uptime, format.duration(system.uptime_seconds * 1000)],
      ...Object.entries(system.backends).map(([part, kind]): [string, string] => [
        words.backends[part as keyof typeof words.backends] ?? part,
        kind,
      ]),
      [name, `${postgres.version}${postgres.pgvector ? ` · pgvector ${postgres.pgvector}` : ''}`],
      [words.python, system.python],
      [words.platform, system.platform],
      [
        words.disk,
        `${words.diskFree(format.bytes(disk.free_bytes), format.bytes(disk.total_bytes))}; ${words.diskReserve(format.bytes(disk.reserve_bytes))}`,
      ],
      [
        words.streams,
        words.openStreams(format.count(streams.events), format.count(streams.answers)),
      ],
    );
    if (system.tenants) facts.push([words.tenants, system.tenants.join(', ')]);
  }
  return (
    <Stack gap="sm">
      <Title order={2}>{words.facts}</Title>
      <Group gap="lg" component="dl" m={0} p="sm" className="panel" align="flex-start">
        {facts.map(([label, value]) => (
          <div key={label}>
            <Text component="dt" size="xs" c="dimmed">
              {label}
            </Text>
            <Text component="dd" size="sm" m={0} className="foreign">
              {value}
            </Text>
          </div>
        ))}
      </Group>
    </Stack>
  );
}
