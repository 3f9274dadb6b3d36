import { Button, Checkbox, Group, Stack, Text, Title } from '@mantine/core';
import { useInfiniteQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { api, call } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Ago } from '@/shared/ui/bits';
import { ErrorState, LoadingState } from '@/shared/ui/states';
import { type Column, DataTable } from '@/shared/ui/table';
import { stageLabel, streamWords } from '../words';
import type { Act } from './act-dialog';
import { LetterDrawer } from './letter-drawer';
import { type Cause, type DeadLetter, nameOf } from './selection';
import { deadLetterWords } from './words';

const PAGE = 200;

/** The dead letters of one cause, to open, redrive or discard. */
export function Letters({
  cause,
  letter,
  onOpen,
  onAct,
}: {
  cause: Pick<Cause, 'stage' | 'code'> & Partial<Cause>;
  letter: string | undefined;
  onOpen: (id: string | undefined) => void;
  onAct: (act: Act) => void;
}) {
  const words = useWords(deadLetterWords);
  const stream = useWords(streamWords);
  const format = useFormat();
  const { stage, code } = cause;
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const pages = useInfiniteQuery({
    queryKey: ['dead-letters', 'of-cause', stage, code],
    queryFn: ({ pageParam }) =>
      call(
        api.GET('/v1/dead-letters', {
          params: {
            query: { stage, code, limit: PAGE, ...(pageParam ? { after: pageParam } : {}) },
          },
        }),
      ),
    initialPageParam: '',
    getNextPageParam: (page) => page.next ?? undefined,
  });
  const rows = (pages.data?.pages ?? []).flatMap((page) => page.items);
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = pages;
  const selected = rows.filter((row) => chosen.has(row.event_id)).map((row) => row.event_id);
  const selection = selected.length > 0 ? { event_ids: selected } : { stage, code };
  const count = format.count(selected.length > 0 ? selected.length : (cause.events ?? rows.length));
  const toggle = (id: string) =>
    setChosen((old) => {
      const next = new Set(old);
      if (!next.delete(id)) next.add(id);
      return next;
    });
  if (pages.isError) return <ErrorState error={pages.error} onRetry={() => pages.refetch()} />;
  if (pages.isPending) return <LoadingState rows={4} />;
  const columns: Column<DeadLetter>[] = [
    {
      key: 'event',
      label: words.event,
      cell: (row) => (
        <Group gap="xs" wrap="nowrap">
          <Checkbox
            aria-label={words.select(nameOf(row))}
            checked={chosen.has(row.event_id)}
            onChange={() => toggle(row.event_id)}
            onClick={(event) => event.stopPropagation()}
          />
          <span dir="auto" className="foreign truncate" title={nameOf(row)}>
            {nameOf(row)}
          </span>
        </Group>
      ),
    },
    {
      key: 'detail',
      label: stream.reason,
      cell: (row) => (
        <div dir="auto" className="foreign truncate" title={row.detail}>
          {row.detail}
        </div>
      ),
    },
    {
      key: 'attempts',
      label: words.attempts,
      isNumber: true,
      width: '90px',
      cell: (row) => format.count(row.attempts),
    },
    {
      key: 'since',
      label: words.since,
      width: '120px',
      cell: (row) => <Ago time={row.dead_lettered_at} />,
    },
  ];
  return (
    <Stack gap="xs">
      <Group justify="space-between" align="flex-end">
        <div style={{ flex: '1 1 300px', minWidth: 0 }}>
          <Title order={2} className="foreign">
            {words.inStage(code, stageLabel(stream, stage))}
          </Title>
          {rows[0] && (
            <Text size="sm" className="foreign" c="dimmed">
              {rows[0].remedy}
            </Text>
          )}
        </div>
        <Group gap="xs">
          <Button
            disabled={rows.length === 0}
            onClick={() => onAct({ kind: 'redrive', selection })}
          >
            {words.redrive(count)}
          </Button>
          <Button
            variant="default"
            disabled={rows.length === 0}
            onClick={() => onAct({ kind: 'discard', selection })}
          >
            {words.discard(count)}
          </Button>
        </Group>
      </Group>
      {rows.length > 0 && (
        <Checkbox
          label={words.selectAll}
          checked={selected.length === rows.length}
          indeterminate={selected.length > 0 && selected.length < rows.length}
          onChange={(event) =>
            setChosen(
              event.currentTarget.checked ? new Set(rows.map((row) => row.event_id)) : new Set(),
            )
          }
        />
      )}
      {rows.length === 0 ? (
        <Text c="dimmed">{words.noMore}</Text>
      ) : (
        <DataTable
          label={words.letters}
          rows={rows}
          columns={columns}
          rowKey={(row) => row.event_id}
          onOpen={(row) => onOpen(row.event_id)}
          isSelected={(row) => row.event_id === letter || chosen.has(row.event_id)}
          onEnd={hasNextPage && !isFetchingNextPage ? () => void fetchNextPage() : undefined}
        />
      )}
      <LetterDrawer
        letter={rows.find((row) => row.event_id === letter)}
        onAct={onAct}
        onClose={() => onOpen(undefined)}
      />
    </Stack>
  );
}
