import { Anchor } from '@mantine/core';
import { useViewportSize } from '@mantine/hooks';
import { useInfiniteQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { api, call, type Schemas } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Ago, State } from '@/shared/ui/bits';
import { EmptyState, ErrorState, LoadingState } from '@/shared/ui/states';
import { type Column, DataTable } from '@/shared/ui/table';
import { documentWords } from './document-words';
import type { StageName } from './stages';
import { stateWords } from './state-words';
import { documentKey } from './use-documents';

type StageEvent = Schemas['StageEvent'];
const PAGE_EVENTS = 200;
/** On a narrow screen a row is a card without headings, so only what explains itself. */
const NARROW = ['stage', 'state', 'started', 'duration'];
const TONES = {
  done: 'ok',
  running: 'busy',
  waiting: 'idle',
  failed: 'bad',
  skipped: 'idle',
} as const;

/** What each stage did with each revision, in every generation. */
export function EventsTab({ document }: { document: Schemas['DocumentStatus'] }) {
  const words = useWords(documentWords).events;
  const stages = useWords(stateWords).stages;
  const format = useFormat();
  const isNarrow = useViewportSize().width <= 700;
  const id = document.document_id;
  const query = useInfiniteQuery({
    queryKey: [...documentKey(id), 'events'],
    queryFn: ({ pageParam }) =>
      call(
        api.GET('/v1/documents/{document}/events', {
          params: { path: { document: id }, query: { after: pageParam, limit: PAGE_EVENTS } },
        }),
      ),
    initialPageParam: 0,
    getNextPageParam: (page) => page.next ?? undefined,
    // Of a document that ingress refused there are none, which the API answers with 404.
    enabled: document.revision > 0,
  });
  if (document.revision === 0) return <EmptyState title={words.empty} />;
  if (query.data === undefined) {
    if (query.isError) return <ErrorState error={query.error} onRetry={() => query.refetch()} />;
    return <LoadingState rows={8} />;
  }
  const rows = query.data.pages.flatMap((page) => page.items);
  if (rows.length === 0) return <EmptyState title={words.empty} />;
  const place = (row: StageEvent) => `${row.topic}[${row.partition}]@${row.offset}`;
  const columns: Column<StageEvent>[] = [
    {
      key: 'stage',
      label: words.stage,
      cell: (row) => stages[row.stage as StageName] ?? row.stage,
    },
    {
      key: 'state',
      label: words.state,
      cell: (row) => (
        <>
          <State
            tone={TONES[row.state as keyof typeof TONES] ?? 'idle'}
            label={words.states[row.state as keyof typeof words.states] ?? row.state}
          />
          {row.error && (
            <span className="foreign bad">
              {' '}
              {row.error.detail} <code>{row.error.code}</code>
            </span>
          )}
        </>
      ),
    },
    { key: 'revision', label: words.revision, isNumber: true, cell: (row) => row.revision },
    {
      key: 'generation',
      label: words.generation,
      cell: (row) => <span className="mono">{row.generation}</span>,
    },
    { key: 'part', label: words.part, isNumber: true, cell: (row) => row.part },
    { key: 'attempts', label: words.attempts, isNumber: true, cell: (row) => row.attempts },
    {
      key: 'position',
      label: words.position,
      cell: (row) => <span className="mono muted">{row.topic && place(row)}</span>,
    },
    {
      key: 'started',
      label: words.started,
      isNumber: true,
      cell: (row) => <Ago time={row.started_at} />,
    },
    {
      key: 'duration',
      label: words.duration,
      isNumber: true,
      cell: (row) => (row.duration_ms === null ? '' : format.duration(row.duration_ms)),
    },
  ];
  return (
    <>
      <p style={{ margin: '0 0 8px', fontSize: 12 }}>
        <Anchor component={Link} to="/events" search={{ key: id } as never} inherit>
          {words.log}
        </Anchor>
      </p>
      <DataTable<StageEvent>
        label={words.stage}
        rows={rows}
        rowKey={(row) =>
          `${row.generation} ${row.revision} ${row.stage} ${row.part} ${place(row)} ${row.state}`
        }
        onEnd={
          query.hasNextPage && !query.isFetching ? () => void query.fetchNextPage() : undefined
        }
        columns={columns.filter((column) => !isNarrow || NARROW.includes(column.key))}
      />
    </>
  );
}
