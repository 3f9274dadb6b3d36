import { Button, Group, Select, TextInput } from '@mantine/core';
import { useDebouncedCallback } from '@mantine/hooks';
import { useInfiniteQuery, useQueryClient } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useCallback, useMemo, useState } from 'react';
import { api, call, type Schemas } from '@/shared/api/client';
import { type LiveMessage, useLive } from '@/shared/api/live';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { useKeys } from '@/shared/keys';
import { Ago, State, type Tone } from '@/shared/ui/bits';
import { Page } from '@/shared/ui/page';
import { EmptyState, QueryState } from '@/shared/ui/states';
import { type Column, DataTable } from '@/shared/ui/table';
import classes from './answer.module.css';
import { splitAnswer } from './answer-text';
import { queryWords } from './words';

type Summary = Schemas['RunSummary'];
const STATES = ['all', 'answered', 'refused', 'running', 'stopped'] as const;
type Outcome = keyof typeof TONES;
const TONES = {
  answered: 'ok',
  found: 'ok',
  refused: 'idle',
  running: 'busy',
  failed: 'bad',
  timed_out: 'bad',
  cancelled: 'warn',
  interrupted: 'warn',
  unknown: 'idle',
} as const satisfies Record<string, Tone>;

export function outcomeOf(run: Summary): Outcome {
  if (run.state === 'running') return 'running';
  if (run.answered_at === null)
    return run.state === 'completed' || run.state === null ? 'unknown' : run.state;
  if (run.kind === 'search') return 'found';
  return run.refused ? 'refused' : 'answered';
}

function isInState(run: Summary, state: string): boolean {
  const outcome = outcomeOf(run);
  if (state === 'answered') return outcome === 'answered' || outcome === 'found';
  if (state === 'stopped') return TONES[outcome] === 'bad' || TONES[outcome] === 'warn';
  return state === 'all' || outcome === state;
}

/** The history of questions, the newest first. */
export function RunsPage() {
  const words = useWords(queryWords).runs;
  const labels = useWords(queryWords);
  const format = useFormat();
  const navigate = useNavigate();
  const client = useQueryClient();
  const search = useSearch({ strict: false });
  const [text, setText] = useState(search.q ?? '');
  const state = search.state ?? 'all';
  const setSearch = (change: Record<string, string | undefined>) =>
    navigate({ to: '/runs', search: { ...search, ...change }, replace: true });
  const setQuery = useDebouncedCallback((q: string) => void setSearch({ q: q || undefined }), 250);
  const runs = useInfiniteQuery({
    queryKey: ['runs', 'list'],
    queryFn: ({ pageParam }) =>
      call(
        api.GET('/v1/runs', {
          params: { query: { limit: 100, ...(pageParam ? { after: pageParam } : {}) } },
        }),
      ),
    initialPageParam: '',
    getNextPageParam: (page) => page.next,
  });
  const refresh = useDebouncedCallback(
    () => void client.invalidateQueries({ queryKey: ['runs', 'list'] }),
    { delay: 500, maxWait: 1000 } as never,
  );
  useLive(
    useCallback(
      ({ event }: LiveMessage) => {
        if (/^(query|run)\./.test(event)) refresh();
      },
      [refresh],
    ),
  );
  useKeys([
    {
      keys: 'f',
      label: words.search,
      run: () => document.querySelector<HTMLElement>('[data-run-search]')?.focus(),
    },
  ]);
  const all = useMemo(() => (runs.data?.pages ?? []).flatMap((page) => page.items), [runs.data]);
  const needle = (search.q ?? '').toLocaleLowerCase();
  const rows = all.filter(
    (run) =>
      isInState(run, state) &&
      `${run.query ?? ''} ${run.answer ?? ''}`.toLocaleLowerCase().includes(needle),
  );
  const columns: Column<Summary>[] = [
    {
      key: 'question',
      label: words.columns.question,
      width: '38%',
      cell: (run) => (
        <div className={`truncate foreign ${classes.cell}`}>
          {run.query ?? <span className="muted">{words.erased}</span>}
        </div>
      ),
    },
    {
      key: 'outcome',
      label: words.columns.outcome,
      cell: (run) => {
        const outcome = outcomeOf(run);
        return <State tone={TONES[outcome]} label={words.outcomes[outcome]} />;
      },
    },
    {
      key: 'answer',
      label: words.columns.answer,
      width: '30%',
      cell: (run) => (
        <div className={`truncate muted foreign ${classes.cell}`}>
          {run.answer ? plainText(run.answer) : '—'}
        </div>
      ),
    },
    { key: 'generation', label: words.columns.generation, cell: (run) => run.generation ?? '—' },
    {
      key: 'duration',
      label: words.columns.duration,
      isNumber: true,
      cell: (run) =>
        run.received_at && run.answered_at
          ? format.duration(Date.parse(run.answered_at) - Date.parse(run.received_at))
          : '—',
    },
    {
      key: 'time',
      label: words.columns.time,
      cell: (run) => (
        <span style={{ whiteSpace: 'nowrap' }}>
          <Ago time={run.received_at} />
        </span>
      ),
    },
  ];
  return (
    <Page title={words.title}>
      <Group gap="xs">
        <TextInput
          data-run-search
          aria-label={words.search}
          placeholder={words.search}
          w={280}
          value={text}
          onChange={(event) => {
            setText(event.currentTarget.value);
            setQuery(event.currentTarget.value);
          }}
        />
        <Select
          aria-label={words.state}
          w={180}
          data={STATES.map((value) => ({ value, label: words.states[value] }))}
          value={state}
          allowDeselect={false}
          onChange={(value) => setSearch({ state: value === 'all' ? undefined : (value ?? '') })}
        />
      </Group>
      <QueryState query={runs} rows={12}>
        {() =>
          all.length === 0 ? (
            <EmptyState
              title={words.empty}
              command={'anabranch query "…"'}
              action={
                <Button component={Link} to="/query">
                  {labels.ask}
                </Button>
              }
            />
          ) : rows.length === 0 && !runs.hasNextPage ? (
            <EmptyState
              title={words.nothing}
              action={
                <Button
                  variant="default"
                  onClick={() => {
                    setText('');
                    void setSearch({ q: undefined, state: undefined });
                  }}
                >
                  {words.clear}
                </Button>
              }
            />
          ) : (
            <DataTable
              label={words.title}
              rows={rows}
              columns={columns}
              rowKey={(run) => run.run_id}
              onOpen={(run) => navigate({ to: '/runs/$run', params: { run: run.run_id } })}
              onEnd={
                runs.hasNextPage && !runs.isFetchingNextPage
                  ? () => void runs.fetchNextPage()
                  : undefined
              }
            />
          )
        }
      </QueryState>
    </Page>
  );
}

/** An answer without its marks, for one line. */
function plainText(answer: string): string {
  return splitAnswer(answer)
    .map((part) => ('text' in part ? part.text : ''))
    .join('');
}
