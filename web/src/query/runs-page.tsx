import { Button, Group, Select, TextInput } from '@mantine/core';
import { useDebouncedCallback } from '@mantine/hooks';
import { useInfiniteQuery, useQueryClient } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useCallback, useState } from 'react';
import { useDelayedChange } from '@/shared/address';
import { api, call, type Schemas } from '@/shared/api/client';
import { type LiveMessage, useLive } from '@/shared/api/live';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { useKeys } from '@/shared/keys';
import { Ago, State, type Tone } from '@/shared/ui/bits';
import { DateRange, toPeriod } from '@/shared/ui/date-range';
import { Page } from '@/shared/ui/page';
import { EmptyState, QueryState } from '@/shared/ui/states';
import { type Column, DataTable } from '@/shared/ui/table';
import { useProfiles } from '@/tune/profiles';
import classes from './answer.module.css';
import { splitAnswer } from './answer-text';
import { queryWords } from './words';

type Summary = Schemas['RunSummary'];
const STATES = ['answered', 'refused', 'running', 'stopped'] as const;
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

/** The history of questions, the newest first. */
export function RunsPage() {
  const words = useWords(queryWords).runs;
  const labels = useWords(queryWords);
  const format = useFormat();
  const navigate = useNavigate();
  const client = useQueryClient();
  const search = useSearch({ strict: false });
  const [text, setText] = useState(search.q ?? '');
  const outcome = STATES.find((state) => state === search.state);
  const profiles = useProfiles();
  const filters = {
    ...(search.q ? { text: search.q } : {}),
    ...(outcome ? { outcome } : {}),
    ...(search.profile ? { profile: search.profile } : {}),
    ...toPeriod(search),
  };
  const setSearch = (change: Record<string, string | undefined>) =>
    navigate({ to: '/runs', search: { ...search, ...change }, replace: true });
  const setQuery = useDelayedChange((q: string) => void setSearch({ q: q || undefined }), 250);
  const runs = useInfiniteQuery({
    queryKey: ['runs', 'list', filters],
    queryFn: ({ pageParam }) =>
      call(
        api.GET('/v1/runs', {
          params: { query: { limit: 100, ...filters, ...(pageParam ? { after: pageParam } : {}) } },
        }),
      ),
    initialPageParam: '',
    getNextPageParam: (page) => page.next,
    placeholderData: (previous) => previous,
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
  const rows = (runs.data?.pages ?? []).flatMap((page) => page.items);
  const workflows = (profiles.data ?? []).filter(({ type }) => type === 'workflow');
  const columns: Column<Summary>[] = [
    {
      key: 'question',
      label: words.columns.question,
      width: '38%',
      cell: (run) => (
        <div dir="auto" className={`truncate foreign ${classes.cell}`}>
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
        <div dir="auto" className={`truncate muted foreign ${classes.cell}`}>
          {run.answer ? plainText(run.answer) : '—'}
        </div>
      ),
    },
    { key: 'profile', label: labels.profile, cell: (run) => run.profile ?? '—' },
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
      <Group gap="xs" align="flex-end">
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
          placeholder={words.anyState}
          w={180}
          data={STATES.map((value) => ({ value, label: words.states[value] }))}
          value={outcome ?? null}
          clearable
          clearButtonProps={{ 'aria-label': words.anyState }}
          onChange={(value) => setSearch({ state: value ?? undefined })}
        />
        <Select
          aria-label={labels.profile}
          placeholder={words.anyProfile}
          w={180}
          data={[
            ...new Set([
              ...workflows.map(({ name }) => name),
              ...(search.profile ? [search.profile] : []),
            ]),
          ]}
          value={search.profile ?? null}
          clearable
          clearButtonProps={{ 'aria-label': words.anyProfile }}
          onChange={(value) => setSearch({ profile: value ?? undefined })}
        />
        <DateRange days={search} onChange={setSearch} />
      </Group>
      <QueryState query={runs} rows={12}>
        {() =>
          rows.length === 0 && Object.keys(filters).length === 0 ? (
            <EmptyState
              title={words.empty}
              command={'anabranch query "…"'}
              action={
                <Button component={Link} to="/query">
                  {labels.ask}
                </Button>
              }
            />
          ) : rows.length === 0 ? (
            <EmptyState
              title={words.nothing}
              action={
                <Button
                  variant="default"
                  onClick={() => {
                    setText('');
                    void navigate({ to: '/runs', search: {}, replace: true });
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
