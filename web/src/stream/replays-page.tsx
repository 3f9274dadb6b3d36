import { Button, Group } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { appWords } from '@/app/words';
import { useAddress } from '@/shared/address';
import { api, call, type Schemas } from '@/shared/api/client';
import { type Format, useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Ago, State, type Tone } from '@/shared/ui/bits';
import { Confirm } from '@/shared/ui/confirm';
import { Page } from '@/shared/ui/page';
import { EmptyState, ErrorState, QueryState } from '@/shared/ui/states';
import { type Column, DataTable } from '@/shared/ui/table';
import { StartDialog } from './replays/start-dialog';
import { replayWords } from './replays/words';
import classes from './stream.module.css';
import { stageLabel, streamWords } from './words';

type Replay = Schemas['Replay'];
type Action = 'pause' | 'resume' | 'cancel';

const TONES: Record<string, Tone> = {
  running: 'busy',
  paused: 'warn',
  done: 'ok',
  failed: 'bad',
  cancelled: 'idle',
};
const REFRESH_MS = 1500;

export function ReplaysPage() {
  const words = useWords(replayWords);
  const screens = useWords(appWords).screens;
  const format = useFormat();
  const [{ start, stage }, change] = useAddress();
  const client = useQueryClient();
  const [cancelled, setCancelled] = useState<Replay | null>(null);
  const [error, setError] = useState<unknown>(null);
  const replays = useQuery({
    queryKey: ['replays', 'list'],
    queryFn: () => call(api.GET('/v1/replays', { params: { query: { limit: 100 } } })),
    // Progress of a replay is no event.
    refetchInterval: ({ state }) =>
      state.data?.items.some((item) => item.state === 'running') ? REFRESH_MS : false,
  });
  const act = async (replay: Replay, action: Action) => {
    await call(
      api.POST('/v1/replays/{replay}/{action}', {
        params: { path: { replay: replay.replay_id, action } },
      }),
    );
    await client.invalidateQueries({ queryKey: ['replays'] });
  };
  const actAtOnce = (replay: Replay, action: Action) => {
    setError(null);
    act(replay, action).catch(setError);
  };
  const running = replays.data?.items.filter((item) => item.state === 'running').length ?? 0;
  return (
    <Page
      title={screens.replays}
      subtitle={running > 0 && words.subtitle(format.count(running))}
      actions={<Button onClick={() => change({ start: '1' })}>{words.start}</Button>}
    >
      {error !== null && <ErrorState error={error} />}
      <QueryState query={replays} rows={5}>
        {(page) =>
          page.items.length === 0 ? (
            <EmptyState
              title={words.empty}
              action={<Button onClick={() => change({ start: '1' })}>{words.start}</Button>}
              command="anabranch replay start --stage extract --dry-run"
            >
              <p>{words.emptyHint}</p>
            </EmptyState>
          ) : (
            <Replays items={page.items} onAct={actAtOnce} onCancel={setCancelled} />
          )
        }
      </QueryState>
      {start && (
        <StartDialog
          {...(stage ? { stage } : {})}
          onClose={() => change({ start: undefined, stage: undefined })}
        />
      )}
      {cancelled && (
        <CancelDialog replay={cancelled} onAct={act} onClose={() => setCancelled(null)} />
      )}
    </Page>
  );
}

function CancelDialog({
  replay,
  onAct,
  onClose,
}: {
  replay: Replay;
  onAct: (replay: Replay, action: Action) => Promise<void>;
  onClose: () => void;
}) {
  const words = useWords(replayWords);
  const stream = useWords(streamWords);
  const format = useFormat();
  return (
    <Confirm
      opened
      danger
      onClose={onClose}
      action={words.cancelName(stageLabel(stream, replay.stage))}
      onConfirm={() => onAct(replay, 'cancel')}
    >
      {words.cancelHint(format.count(replay.remaining))}
    </Confirm>
  );
}

function Replays({
  items,
  onAct,
  onCancel,
}: {
  items: Replay[];
  onAct: (replay: Replay, action: Action) => void;
  onCancel: (replay: Replay) => void;
}) {
  const words = useWords(replayWords);
  const stream = useWords(streamWords);
  const format = useFormat();
  const columns: Column<Replay>[] = [
    {
      key: 'what',
      label: words.what,
      cell: (replay) => (
        <div className="truncate">
          <b>{stageLabel(stream, replay.stage)}</b>{' '}
          <span className="muted foreign">
            {[
              words.kinds[replay.kind as keyof typeof words.kinds] ?? replay.kind,
              replay.generation,
              describeSelection(replay.selection, words, format),
            ]
              .filter(Boolean)
              .join(' · ')}
          </span>
        </div>
      ),
    },
    {
      key: 'state',
      label: stream.state,
      width: '130px',
      cell: (replay) => (
        <span title={replay.error ?? ''} className="foreign">
          <State
            tone={TONES[replay.state] ?? 'idle'}
            label={words.states[replay.state as keyof typeof words.states] ?? replay.state}
          />
        </span>
      ),
    },
    {
      key: 'progress',
      label: words.progress,
      width: '190px',
      cell: (r) => <Progress replay={r} />,
    },
    {
      key: 'rate',
      label: words.rate,
      isNumber: true,
      width: '80px',
      cell: (replay) =>
        replay.rate === null || replay.state !== 'running'
          ? '—'
          : words.perSecond(format.decimal(replay.rate, 1)),
    },
    { key: 'left', label: words.left, width: '180px', cell: (r) => <TimeLeft replay={r} /> },
    {
      key: 'results',
      label: words.results,
      width: '170px',
      cell: (replay) => (
        <>
          {words.replayed(format.count(replay.replayed))}
          {replay.superseded > 0 && `, ${words.superseded(format.count(replay.superseded))}`}
          {replay.dead_lettered > 0 && (
            <span className="bad">, {words.deadLettered(format.count(replay.dead_lettered))}</span>
          )}
        </>
      ),
    },
    {
      key: 'started',
      label: words.started,
      width: '120px',
      cell: (replay) => (
        <span style={{ whiteSpace: 'nowrap' }}>
          <Ago time={replay.created_at} />
        </span>
      ),
    },
    {
      key: 'actions',
      label: stream.actions,
      width: '180px',
      cell: (replay) => <Actions replay={replay} onAct={onAct} onCancel={onCancel} />,
    },
  ];
  return (
    <DataTable
      label={words.list}
      rows={items}
      columns={columns}
      rowKey={(replay) => replay.replay_id}
    />
  );
}

function Progress({ replay }: { replay: Replay }) {
  const words = useWords(replayWords);
  const format = useFormat();
  const share = replay.total > 0 ? Math.min(1, replay.read / replay.total) : 1;
  return (
    <Group gap={8} wrap="nowrap">
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
      <span style={{ whiteSpace: 'nowrap' }}>
        {words.of(format.count(replay.read), format.count(replay.total))}
      </span>
    </Group>
  );
}

function TimeLeft({ replay }: { replay: Replay }) {
  const stream = useWords(streamWords);
  const format = useFormat();
  if (replay.state !== 'running') return <span className="muted">—</span>;
  if (replay.eta_s === null) return <span className="muted">{stream.etaUnknown}</span>;
  const { low, high } = replay.eta_s;
  return stream.etaRange(
    format.duration(Math.round(low) * 1000),
    format.duration(Math.round(high) * 1000),
  );
}

function Actions({
  replay,
  onAct,
  onCancel,
}: {
  replay: Replay;
  onAct: (replay: Replay, action: Action) => void;
  onCancel: (replay: Replay) => void;
}) {
  const words = useWords(replayWords);
  const stream = useWords(streamWords);
  const stage = stageLabel(stream, replay.stage);
  if (replay.state !== 'running' && replay.state !== 'paused') return null;
  const isPaused = replay.state === 'paused';
  return (
    <Group gap={4} wrap="nowrap">
      <Button
        variant="default"
        size="compact-xs"
        aria-label={isPaused ? words.resumeName(stage) : words.pauseName(stage)}
        onClick={() => onAct(replay, isPaused ? 'resume' : 'pause')}
      >
        {isPaused ? words.resume : words.pause}
      </Button>
      <Button
        variant="default"
        size="compact-xs"
        aria-label={words.cancelName(stage)}
        onClick={() => onCancel(replay)}
      >
        {words.cancel}
      </Button>
    </Group>
  );
}

type SelectionWords = { everything: string; selection: Record<string, (text: string) => string> };

/** The criteria of a replay in words. */
export function describeSelection(
  selection: Record<string, unknown>,
  words: SelectionWords,
  format: Format,
): string {
  const by = words.selection;
  const parts = Object.entries(selection).flatMap(([name, value]) => {
    if (value === null || value === false || (Array.isArray(value) && value.length === 0))
      return [];
    if (name === 'since' || name === 'until') return [by[name]?.(format.exact(String(value)))];
    if (name === 'collection' || name === 'code') return [by[name]?.(String(value))];
    const count = Array.isArray(value) ? format.count(value.length) : '';
    if (name === 'document_ids') return [by.documents?.(count)];
    if (name === 'event_ids') return [by.events?.(count)];
    if (name === 'offsets') return [by.offsets?.(count)];
    return [];
  });
  return parts.join(', ') || words.everything;
}
