import { Button, Group, Modal, Stack, Text } from '@mantine/core';
import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useCallback, useState } from 'react';
import { appWords } from '@/app/words';
import { api, call, type Schemas } from '@/shared/api/client';
import { useCan } from '@/shared/api/identity';
import { type LiveMessage, useLive } from '@/shared/api/live';
import { useWords } from '@/shared/i18n';
import { useKeys } from '@/shared/keys';
import { Ago, State, type Tone } from '@/shared/ui/bits';
import { Confirm } from '@/shared/ui/confirm';
import { Page } from '@/shared/ui/page';
import { EmptyState, ErrorState, LoadingState, QueryState } from '@/shared/ui/states';
import { DataTable } from '@/shared/ui/table';
import { sharedWords } from '@/shared/words';
import classes from './answer.module.css';
import { toPlainText } from './answer-text';
import { QuestionForm } from './question-form';
import { questionsWords } from './questions-words';

type Question = Schemas['StandingQuestion'];
type Change = Schemas['AnswerChange'];
const COMMAND = 'anabranch questions add "How many days of notice are required?"';
const TONES: Record<'pending' | 'delivered' | 'failed', Tone> = {
  pending: 'busy',
  delivered: 'ok',
  failed: 'bad',
};
const REFRESH_MS = 5_000;

/** Questions that are asked again when a document could change the answer. */
export function QuestionsPage() {
  const words = useWords(questionsWords);
  const screens = useWords(appWords).screens;
  const client = useQueryClient();
  const maySave = useCan('writer');
  const [isAdding, setAdding] = useState(false);
  const questions = useInfiniteQuery({
    queryKey: ['questions'],
    queryFn: ({ pageParam }) =>
      call(
        api.GET('/v1/questions', {
          params: { query: { limit: 100, ...(pageParam ? { after: pageParam } : {}) } },
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next ?? undefined,
    // A question that is about to be asked emits no event unless its answer changes.
    refetchInterval: ({ state }) =>
      state.data?.pages.some((page) => page.items.some((one) => one.is_due)) ? REFRESH_MS : false,
  });
  const refresh = useCallback(
    () => void client.invalidateQueries({ queryKey: ['questions'] }),
    [client],
  );
  useLive(
    useCallback(
      ({ event }: LiveMessage) => {
        if (event.startsWith('answer.changed') || event.startsWith('question.')) refresh();
      },
      [refresh],
    ),
  );
  useKeys(maySave ? [{ keys: 'n', label: words.add, run: () => setAdding(true) }] : []);
  const add = maySave && <Button onClick={() => setAdding(true)}>{words.add}</Button>;
  const items = questions.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <Page title={screens.questions} subtitle={words.subtitle} actions={add}>
      {questions.isError && (
        <ErrorState error={questions.error} onRetry={() => questions.refetch()} />
      )}
      {questions.isPending && <LoadingState rows={8} />}
      {questions.isSuccess && items.length === 0 && (
        <EmptyState title={words.empty} action={add} command={COMMAND} />
      )}
      {items.length > 0 && (
        <QuestionTable
          questions={items}
          onChanged={refresh}
          onEnd={questions.hasNextPage ? () => void questions.fetchNextPage() : undefined}
        />
      )}
      <QuestionForm opened={isAdding} onClose={() => setAdding(false)} onSaved={refresh} />
    </Page>
  );
}

function QuestionTable({
  questions,
  onChanged,
  onEnd,
}: {
  questions: Question[];
  onChanged: () => void;
  onEnd: (() => void) | undefined;
}) {
  const words = useWords(questionsWords);
  const mayDelete = useCan('writer');
  const [shown, setShown] = useState<Question | null>(null);
  const [removed, setRemoved] = useState<Question | null>(null);
  const remove = async (question: Question) => {
    await call(
      api.DELETE('/v1/questions/{question_id}', {
        params: { path: { question_id: question.question_id } },
      }),
    );
    onChanged();
  };
  return (
    <>
      <DataTable
        label={words.question}
        rows={questions}
        rowKey={(question) => question.question_id}
        onEnd={onEnd}
        columns={[
          {
            key: 'question',
            label: words.question,
            cell: (one) => <QuestionText question={one} />,
          },
          { key: 'state', label: words.state, cell: (one) => <QuestionState question={one} /> },
          {
            key: 'answered',
            label: words.answered,
            cell: (one) => <Ago time={one.answered_at} />,
          },
          { key: 'changed', label: words.changed, cell: (one) => <Ago time={one.changed_at} /> },
          {
            key: 'actions',
            label: words.actions,
            cell: (one) => (
              <Group gap={6} wrap="nowrap">
                {one.run_id && (
                  <Button
                    size="compact-xs"
                    variant="default"
                    component={Link}
                    to={`/runs/${one.run_id}` as never}
                  >
                    {words.openAnswer}
                  </Button>
                )}
                <Button size="compact-xs" variant="default" onClick={() => setShown(one)}>
                  {words.changes}
                </Button>
                {mayDelete && (
                  <Button size="compact-xs" variant="default" onClick={() => setRemoved(one)}>
                    {words.remove}
                  </Button>
                )}
              </Group>
            ),
          },
        ]}
      />
      <Changes question={shown} onClose={() => setShown(null)} />
      <Confirm
        danger
        opened={removed !== null}
        onClose={() => setRemoved(null)}
        action={words.removeTitle}
        onConfirm={async () => removed && remove(removed)}
      >
        {removed && <QuestionText question={removed} />}
        <Text size="sm">{words.removeHint}</Text>
      </Confirm>
    </>
  );
}

function QuestionText({ question }: { question: Question }) {
  const { request } = question;
  const notes = [...(request.filters?.collections ?? []), request.hook_url].filter(Boolean);
  return (
    <Stack gap={0} className="foreign">
      <span>{request.query}</span>
      {notes.length > 0 && (
        <Text size="xs" c="dimmed" style={{ overflowWrap: 'anywhere' }}>
          {notes.join(' · ')}
        </Text>
      )}
    </Stack>
  );
}

function QuestionState({ question }: { question: Question }) {
  const words = useWords(questionsWords);
  if (question.problem) return <State tone="bad" label={question.problem.detail} isLong />;
  return question.is_due ? (
    <State tone="busy" label={words.states.due} />
  ) : (
    <State tone="ok" label={words.states.watched} />
  );
}

function Changes({ question, onClose }: { question: Question | null; onClose: () => void }) {
  const words = useWords(questionsWords);
  const shared = useWords(sharedWords);
  const mayRedeliver = useCan('writer');
  const path = { params: { path: { question_id: question?.question_id ?? '' } } };
  const changes = useQuery({
    queryKey: ['questions', question?.question_id, 'changes'],
    queryFn: () => call(api.GET('/v1/questions/{question_id}/changes', path)),
    enabled: question !== null,
  });
  const redeliver = useMutation({
    mutationFn: () => call(api.POST('/v1/questions/{question_id}/redeliver', path)),
    onSuccess: () => changes.refetch(),
  });
  const hasFailed = changes.data?.items.some((one) => one.delivery === 'failed');
  return (
    <Modal
      opened={question !== null}
      onClose={onClose}
      size="lg"
      title={words.changes}
      closeButtonProps={{ 'aria-label': shared.close }}
    >
      <Stack gap="sm">
        {question && <QuestionText question={question} />}
        <QueryState query={changes}>
          {({ items }) =>
            items.length === 0 ? (
              <Text size="sm" c="dimmed">
                {words.noChanges}
              </Text>
            ) : (
              items.map((one, index) => (
                <ChangeLine key={one.change.change_id} change={one} isLatest={index === 0} />
              ))
            )
          }
        </QueryState>
        {redeliver.isError && <ErrorState error={redeliver.error} />}
        {hasFailed && mayRedeliver && (
          <Group justify="flex-end">
            <Button loading={redeliver.isPending} onClick={() => redeliver.mutate()}>
              {words.redeliver}
            </Button>
          </Group>
        )}
      </Stack>
    </Modal>
  );
}

/** A change; of the latest one, both answers. */
function ChangeLine({
  change: { change, delivery, delivery_error },
  isLatest,
}: {
  change: Change;
  isLatest: boolean;
}) {
  const words = useWords(questionsWords);
  const diff = useQuery({
    queryKey: ['diff', change.previous_run_id, change.run_id],
    queryFn: () =>
      call(
        api.POST('/v1/runs/{run}/diff', {
          params: { path: { run: change.previous_run_id } },
          body: { other: change.run_id },
        }),
      ),
    enabled: isLatest,
    retry: false,
  });
  return (
    <div>
      <Group gap="xs">
        <Ago time={change.changed_at} />
        <Link to={`/runs/${change.previous_run_id}` as never}>{words.compare}</Link>
        <Link to={`/runs/${change.run_id}` as never}>{words.now}</Link>
        {delivery && <State tone={TONES[delivery]} label={words.delivery[delivery]} />}
      </Group>
      <Text size="sm" c="dimmed" className="foreign">
        {words.because(
          change.changes.map((part) => words.parts[part]).join(', '),
          change.causes.map((cause) => words.causes[cause]).join(', '),
        )}{' '}
        {delivery_error}
      </Text>
      {diff.isError && <ErrorState error={diff.error} />}
      {diff.data &&
        ([diff.data.then, diff.data.now] as const).map((side) => (
          <blockquote key={side.run_id} className={`${classes.quote} foreign`}>
            {toPlainText(side.answer ?? words.refused)}
          </blockquote>
        ))}
    </div>
  );
}
