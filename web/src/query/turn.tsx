import { Button, Group, Skeleton, Stack, Text } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { api, call } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { State } from '@/shared/ui/bits';
import { ErrorState } from '@/shared/ui/states';
import classes from './answer.module.css';
import { AnswerView } from './answer-view';
import { CopyAs } from './copy-as';
import { type Progress, useRunProgress } from './follow';
import { mergeOverrides, type QueryRequest, useRun } from './run-data';
import { RUN_TABS } from './run-tabs';
import { runWords } from './run-words';
import { Elapsed, StepStrip } from './steps';
import { queryWords } from './words';

/** One question of a thread: its progress while it runs, then its answer. */
export function Turn({
  runId,
  onAsk,
  isInside = false,
}: {
  runId: string;
  onAsk: (request: QueryRequest) => void;
  /** Whether the question already stands above. */
  isInside?: boolean;
}) {
  const words = useWords(queryWords);
  const progress = useRunProgress(runId);
  const run = useRun(runId);
  const request = run.data?.request as unknown as QueryRequest | undefined;
  const { answer } = progress;
  return (
    <Stack gap="md" component="article" aria-label={request?.query ?? words.question}>
      <Group justify="space-between" align="flex-start" wrap="nowrap" gap="md">
        {isInside ? (
          <span />
        ) : (
          <h2 className={`${classes.question} foreign`}>{request?.query ?? ' '}</h2>
        )}
        {request && answer && <CopyAs request={request} />}
      </Group>
      {answer?.trace.plan?.question && (
        <Text size="sm" c="dimmed" className="foreign">
          {words.searchedFor(answer.trace.plan.question)}
        </Text>
      )}
      {!answer && <Running runId={runId} progress={progress} />}
      {answer && (
        <AnswerView
          answer={answer}
          onAskWithout={(change) => request && onAsk(changeRequest(request, change))}
          footer={<RunLinks runId={runId} totalMs={answer.trace.timings_ms.total} />}
        />
      )}
      {progress.stopped && request && (
        <Group>
          <Button onClick={() => onAsk(request)}>{words.askAgain}</Button>
        </Group>
      )}
    </Stack>
  );
}

/** The steps of a run that has no answer yet, its draft, and why it ended without one. */
export function Running({ runId, progress }: { runId: string; progress: Progress }) {
  const words = useWords(queryWords);
  const cancel = useMutation({
    mutationFn: () => call(api.POST('/v1/runs/{run}/cancel', { params: { path: { run: runId } } })),
  });
  const { steps, draft, stopped, error } = progress;
  const isRunning = stopped === null && error === null;
  return (
    <Stack gap="sm">
      <Group gap="sm" role="status">
        {stopped && <State tone="warn" label={words.stopped[stopped.state]} />}
        {isRunning && (
          <>
            <State tone="busy" label={words.running} />
            <Elapsed />
            <Button
              variant="default"
              size="compact-xs"
              loading={cancel.isPending}
              onClick={() => cancel.mutate()}
            >
              {words.stop}
            </Button>
          </>
        )}
      </Group>
      <StepStrip steps={steps} isRunning={isRunning} />
      {stopped && stopped.state !== 'cancelled' && (
        <Text size="sm" className="foreign">
          {stopped.detail} {stopped.remedy}
        </Text>
      )}
      {error && <ErrorState error={error} />}
      {cancel.isError && <ErrorState error={cancel.error} />}
      {isRunning && draft.text !== '' && (
        <div>
          <Text size="xs" c="dimmed">
            {words.draft}
          </Text>
          <div className={`${classes.draft} foreign`}>{draft.text}</div>
        </div>
      )}
      {isRunning && draft.text === '' && (
        <Stack gap={12} maw={720} aria-hidden="true">
          <Skeleton height={18} />
          <Skeleton height={18} width="82%" />
          <Skeleton height={18} width="40%" />
        </Stack>
      )}
    </Stack>
  );
}

/** The layers beneath an answer, each one click away. */
function RunLinks({ runId, totalMs }: { runId: string; totalMs: number | undefined }) {
  const words = useWords(queryWords);
  const tabs = useWords(runWords).tabs;
  const format = useFormat();
  return (
    <nav className={classes.meta} aria-label={words.openRun}>
      {RUN_TABS.map((tab) => (
        <Link key={tab} to="/runs/$run/$tab" params={{ run: runId, tab }}>
          {tabs[tab]}
        </Link>
      ))}
      {totalMs !== undefined && <span className="muted">{format.duration(totalMs)}</span>}
    </nav>
  );
}

export function changeRequest(request: QueryRequest, change: Partial<QueryRequest>): QueryRequest {
  return {
    ...request,
    ...change,
    overrides: mergeOverrides(request.overrides, change.overrides),
  };
}
