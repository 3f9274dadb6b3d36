import { Button, Stack, Text } from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { appWords } from '@/app/words';
import { api, call } from '@/shared/api/client';
import { useWords } from '@/shared/i18n';
import { Page } from '@/shared/ui/page';
import { EmptyState, ErrorState } from '@/shared/ui/states';
import classes from './answer.module.css';
import { AskForm, type AskSettings, buildRequest } from './ask-form';
import {
  listHistory,
  type QueryRequest,
  type Run,
  requestOf,
  showStarted,
  useRun,
} from './run-data';
import { Turn } from './turn';
import { queryWords } from './words';

/** Ask, and read the answer. `thread` in the address lists the runs, the newest first. */
export function QueryPage() {
  const screens = useWords(appWords).screens;
  const words = useWords(queryWords);
  const navigate = useNavigate();
  const client = useQueryClient();
  const search = useSearch({ strict: false });
  const thread: string[] = (search.thread ?? '').split(',').filter(Boolean);
  const [current, ...earlier] = thread;
  const settings: AskSettings = {
    collection: search.collection ?? '',
    profile: search.profile ?? '',
    mode: search.mode ?? '',
  };
  const setSearch = (change: Record<string, string>, replace = false) =>
    navigate({ to: '/query', search: { ...search, q: undefined, ...change }, replace });
  const ask = useMutation({
    mutationFn: (body: QueryRequest) => call(api.POST('/v1/runs', { body: requestOf(body) })),
    onSuccess: ({ run_id }, request) => {
      showStarted(client, run_id, request);
      void setSearch({ thread: [run_id, ...thread].join(',') });
    },
  });
  const askNext = (question: string) => {
    const history = listHistory(thread.map((id) => client.getQueryData<Run>(['runs', id])));
    ask.mutate({ ...buildRequest(question, settings), ...(history.length > 0 && { history }) });
  };
  return (
    <Page
      title={screens.query}
      actions={
        thread.length > 0 && (
          <Button variant="default" onClick={() => setSearch({ thread: '' })}>
            {words.newThread}
          </Button>
        )
      }
    >
      <AskForm
        initial={search.q ?? ''}
        current={current}
        settings={settings}
        onSettings={(change) => setSearch(change, true)}
        onAsk={askNext}
        isPending={ask.isPending}
      />
      {ask.isError && <ErrorState error={ask.error} />}
      {current ? (
        <Turn key={current} runId={current} onAsk={ask.mutate} />
      ) : (
        <Welcome onAsk={askNext} />
      )}
      {earlier.length > 0 && (
        <Stack gap={8} component="section" aria-label={words.earlier}>
          <Text size="xs" c="dimmed">
            {words.earlier} · {words.threadHint}
          </Text>
          {earlier.map((id) => (
            <EarlierTurn key={id} runId={id} onAsk={ask.mutate} />
          ))}
        </Stack>
      )}
    </Page>
  );
}

/** A question of before: one line, opened in place. */
function EarlierTurn({ runId, onAsk }: { runId: string; onAsk: (request: QueryRequest) => void }) {
  const run = useRun(runId);
  const search = useSearch({ strict: false });
  const navigate = useNavigate();
  const isOpen = search.open === runId;
  const request = run.data?.request as { query?: string } | undefined;
  return (
    <details
      className={`panel ${classes.earlier}`}
      open={isOpen}
      onToggle={(event) => {
        const opened = event.currentTarget.open;
        if (opened !== isOpen)
          void navigate({
            to: '/query',
            search: { ...search, open: opened ? runId : undefined },
            replace: true,
          });
      }}
    >
      <summary className="foreign">{request?.query ?? runId}</summary>
      {isOpen && <Turn runId={runId} onAsk={onAsk} isInside />}
    </details>
  );
}

/** Before the first question: what to do, and what was asked recently. */
function Welcome({ onAsk }: { onAsk: (question: string) => void }) {
  const words = useWords(queryWords);
  const documents = useQuery({
    queryKey: ['documents', 'any'],
    queryFn: () => call(api.GET('/v1/documents', { params: { query: { limit: 1 } } })),
  });
  const recent = useQuery({
    queryKey: ['runs', 'recent'],
    queryFn: () => call(api.GET('/v1/runs', { params: { query: { limit: 20 } } })),
  });
  const questions = [
    ...new Set((recent.data?.items ?? []).flatMap((run) => (run.query ? [run.query] : []))),
  ].slice(0, 6);
  if (documents.data?.items.length === 0) {
    return (
      <EmptyState
        title={words.noDocuments}
        command="anabranch ingest ./folder"
        action={
          <Button component={Link} to="/documents">
            {words.addDocuments}
          </Button>
        }
      />
    );
  }
  return (
    <EmptyState
      title={words.empty}
      command={'anabranch query "…"'}
      action={
        questions.length > 0 && (
          <Stack gap={4} align="flex-start">
            <Text size="xs" c="dimmed">
              {words.recent}
            </Text>
            {questions.map((question) => (
              <button
                type="button"
                key={question}
                className={`${classes.link} foreign`}
                onClick={() => onAsk(question)}
              >
                {question}
              </button>
            ))}
          </Stack>
        )
      }
    />
  );
}
