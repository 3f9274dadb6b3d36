import { Button, Group, Menu } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { useEffect, useMemo, useRef, useState } from 'react';
import { appWords } from '@/app/words';
import { useAddress } from '@/shared/address';
import { API_ROOT } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { useKeys } from '@/shared/keys';
import { CopyItem } from '@/shared/ui/copy-item';
import { Page } from '@/shared/ui/page';
import { EmptyState, ErrorState, LoadingState } from '@/shared/ui/states';
import { type Column, DataTable } from '@/shared/ui/table';
import { curlCommand, watchCommand } from './events/commands';
import { EventDrawer } from './events/event-drawer';
import {
  entryKey,
  isFailure,
  type LogEntry,
  type LogFilter,
  matchesFilter,
  summarize,
} from './events/event-log';
import classes from './events/events.module.css';
import { Filters } from './events/filters';
import { Histogram } from './events/histogram';
import { formatSpan, toBuckets } from './events/histogram-data';
import { NoticeBar } from './events/notice-bar';
import { PERIODS, type Period, useCounts } from './events/use-counts';
import { useEventLog } from './events/use-event-log';
import { eventWords } from './events/words';

export function EventsPage() {
  const words = useWords(eventWords);
  const screens = useWords(appWords).screens;
  const format = useFormat();
  const [address, change] = useAddress();
  const { topics = '', type = '', key = '', text = '', tenant = '', event } = address;
  const filter = useMemo<LogFilter>(
    () => ({ topics: topics ? topics.split(',') : [], type, key, text, tenant }),
    [topics, type, key, text, tenant],
  );
  const at = address.at ? Date.parse(address.at) || null : null;
  const spanAt = Number(address.span) || 60_000;
  const [isPaused, setPaused] = useState(false);
  const [isScrolled, setScrolled] = useState(false);
  const isHeld = isPaused || isScrolled || event !== undefined;
  const log = useEventLog(
    { topics: filter.topics, key, at, until: at === null ? Number.POSITIVE_INFINITY : at + spanAt },
    isHeld,
  );
  const textRef = useRef<HTMLInputElement>(null);
  const rows = useMemo(
    () => log.rows.filter((row) => matchesFilter(row, filter)),
    [log.rows, filter],
  );
  const period = (address.period && address.period in PERIODS ? address.period : 'hour') as Period;
  // The server counts by topic; other filters count what is loaded.
  const isCounted = !(type || key || text || tenant);
  const counted = useCounts(period, topics, isCounted);
  const loaded = useBuckets(rows, at);
  const { span, buckets } = (isCounted && counted) || loaded;
  const release = () => {
    log.release();
    setScrolled(false);
    document.querySelector(`[aria-label="${words.list}"]`)?.scrollTo({ top: 0 });
  };
  const togglePause = () => {
    if (isPaused) release();
    setPaused(!isPaused);
  };
  useKeys([
    { keys: 'p', label: words.keyHints.pause, run: togglePause },
    { keys: 'f', label: words.keyHints.filter, run: () => textRef.current?.focus() },
    { keys: 'n', label: words.keyHints.live, run: release },
  ]);
  const scrub = (moment: number | null) =>
    change(
      moment === null
        ? { at: undefined, span: undefined }
        : { at: new Date(moment).toISOString(), span: String(span) },
      { replace: true },
    );
  const select = (entry: LogEntry) =>
    change({ event: entry.id ?? entryKey(entry) }, { replace: event !== undefined });
  const since = address.at;
  return (
    <Page
      title={screens.events}
      subtitle={words.subtitle(format.count(rows.length), format.count(log.rows.length))}
      actions={
        <>
          <Menu position="bottom-end">
            <Menu.Target>
              <Button variant="default">{words.copyAs}</Button>
            </Menu.Target>
            <Menu.Dropdown>
              <CopyItem label={words.copyWatch} text={watchCommand(filter, since)} />
              <CopyItem label={words.copyCurl} text={curlCommand(filter, API_ROOT, since)} />
            </Menu.Dropdown>
          </Menu>
          <Button
            variant={isPaused ? 'filled' : 'default'}
            aria-pressed={isPaused}
            disabled={at !== null}
            onClick={togglePause}
          >
            {isPaused ? words.resume : words.pause}
          </Button>
        </>
      }
    >
      <Filters
        filter={filter}
        rows={log.rows}
        textRef={textRef}
        onChange={(changed) => change(changed, { replace: true })}
      />
      {buckets.length > 0 && (
        <Histogram
          buckets={buckets}
          span={span}
          at={at}
          onScrub={scrub}
          {...(isCounted && counted
            ? { period, onPeriod: (next: string) => change({ period: next }, { replace: true }) }
            : {})}
        />
      )}
      {log.notice && (
        <NoticeBar notice={log.notice} onReload={log.reload} onDismiss={log.dismiss} />
      )}
      <div className={classes.news} role="status">
        {at !== null ? (
          <>
            <span>{words.moment(format.exact(new Date(at)), formatSpan(spanAt, format))}</span>
            <Button variant="default" size="compact-xs" onClick={() => scrub(null)}>
              {words.live}
            </Button>
          </>
        ) : (
          <>
            <span>{isPaused ? words.paused : isHeld ? words.held : words.following}</span>
            {log.waitingCount > 0 && (
              <Button size="compact-xs" onClick={release}>
                {words.waiting(format.count(log.waitingCount))}
              </Button>
            )}
          </>
        )}
      </div>
      {log.error !== null ? (
        <ErrorState error={log.error} onRetry={log.reload} />
      ) : log.isLoading && rows.length === 0 ? (
        <LoadingState rows={12} />
      ) : rows.length === 0 ? (
        <Nothing filter={filter} isEmptyLog={log.rows.length === 0} />
      ) : (
        <div onScrollCapture={(e) => setScrolled((e.target as HTMLElement).scrollTop > 8)}>
          <EventTable rows={rows} event={event} onOpen={select} />
        </div>
      )}
      <EventDrawer
        id={event}
        rows={log.rows}
        onSelect={select}
        onFilter={(changed) => change({ ...changed, event: undefined })}
        onClose={() => change({ event: undefined })}
      />
    </Page>
  );
}

/** While the list shows a moment, the bars stay those of the list before, so the handle has a way. */
function useBuckets(rows: readonly LogEntry[], at: number | null) {
  const computed = useMemo(
    () =>
      toBuckets(
        rows.map((row) => ({
          at: Date.parse(row.appended_at),
          count: 1,
          failed: isFailure(row) ? 1 : 0,
        })),
        Date.now(),
      ),
    [rows],
  );
  const stored = useRef(computed);
  useEffect(() => {
    if (at === null) stored.current = computed;
  }, [at, computed]);
  return at === null || stored.current.buckets.length === 0 ? computed : stored.current;
}

function EventTable({
  rows,
  event,
  onOpen,
}: {
  rows: readonly LogEntry[];
  event: string | undefined;
  onOpen: (entry: LogEntry) => void;
}) {
  const words = useWords(eventWords);
  const format = useFormat();
  const columns: Column<LogEntry>[] = [
    {
      key: 'type',
      label: words.type,
      width: '220px',
      cell: (row) => (
        <span className={`mono foreign ${isFailure(row) ? 'bad' : ''}`}>
          {isFailure(row) && <span aria-hidden="true">▲ </span>}
          {row.type ?? '—'}
        </span>
      ),
    },
    {
      key: 'time',
      label: words.time,
      width: '110px',
      cell: (row) => (
        <time dateTime={row.appended_at} title={format.exact(row.appended_at)}>
          {format.clock(row.appended_at)}
        </time>
      ),
    },
    {
      key: 'topic',
      label: words.topic,
      width: '110px',
      cell: (row) => <span className={classes.topic}>{row.topic}</span>,
    },
    {
      key: 'subject',
      label: words.subject,
      width: '130px',
      cell: (row) => (
        <span className="mono foreign" style={{ whiteSpace: 'nowrap' }} title={row.key ?? ''}>
          {row.key && row.key.length > 13 ? `${row.key.slice(0, 8)}…` : row.key}
        </span>
      ),
    },
    {
      key: 'summary',
      label: words.summary,
      cell: (row) => (
        <div dir="auto" className="foreign truncate muted" title={summarize(row)}>
          {summarize(row)}
        </div>
      ),
    },
    {
      key: 'position',
      label: words.position,
      isNumber: true,
      width: '90px',
      cell: (row) => (
        <span className="mono muted">
          {row.partition}:{row.offset}
        </span>
      ),
    },
    {
      key: 'size',
      label: words.size,
      isNumber: true,
      width: '80px',
      cell: (row) => format.bytes(row.bytes),
    },
  ];
  return (
    <DataTable
      label={words.list}
      rows={rows}
      columns={columns}
      rowKey={entryKey}
      onOpen={onOpen}
      isSelected={(row) => row.id === event}
      maxHeight="max(320px, calc(100vh - 400px))"
    />
  );
}

function Nothing({ filter, isEmptyLog }: { filter: LogFilter; isEmptyLog: boolean }) {
  const words = useWords(eventWords);
  const [, change] = useAddress();
  return (
    <EmptyState
      title={isEmptyLog ? words.none : words.empty}
      action={
        isEmptyLog ? (
          <Button component={Link} to="/documents">
            {words.addDocuments}
          </Button>
        ) : (
          <Button
            variant="default"
            onClick={() =>
              change({ topics: '', type: '', key: '', text: '', tenant: '', at: '', span: '' })
            }
          >
            {words.clear}
          </Button>
        )
      }
      command={watchCommand(filter)}
    >
      <Group>{words.emptyHint}</Group>
    </EmptyState>
  );
}
