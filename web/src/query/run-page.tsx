import { Button, Stack, Tabs, Text } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { Link, useNavigate, useParams } from '@tanstack/react-router';
import { type ComponentType, type LazyExoticComponent, lazy, Suspense } from 'react';
import { appWords } from '@/app/words';
import { api, call } from '@/shared/api/client';
import { useWords } from '@/shared/i18n';
import { useKeys } from '@/shared/keys';
import { Ago, Id } from '@/shared/ui/bits';
import { Page } from '@/shared/ui/page';
import { EmptyState, ErrorState, LoadingState, QueryState } from '@/shared/ui/states';
import { useActiveTabInView } from '@/shared/ui/tabs-in-view';
import { AnswerView } from './answer-view';
import { CopyAs } from './copy-as';
import { useRunProgress } from './follow';
import { RestsOn } from './rests-on';
import {
  type QueryRequest,
  type RecordedRun,
  type Run,
  readRun,
  requestOf,
  showStarted,
  useRun,
} from './run-data';
import { RUN_TABS, type RunTab } from './run-tabs';
import { runWords } from './run-words';
import { PassageList } from './sources';
import { changeRequest, Running } from './turn';
import { queryWords } from './words';

export type TabProps = { run: RecordedRun; onAsk: (request: QueryRequest) => void };
type LazyTab = LazyExoticComponent<ComponentType<TabProps>>;
const TABS: Record<Exclude<RunTab, 'answer'>, LazyTab> = {
  retrieval: lazy(() => import('./retrieval-tab').then((m) => ({ default: m.RetrievalTab }))),
  fusion: lazy(() => import('./fusion-tab').then((m) => ({ default: m.FusionTab }))),
  context: lazy(() => import('./context-tab').then((m) => ({ default: m.ContextTab }))),
  judge: lazy(() => import('./judge-tab').then((m) => ({ default: m.JudgeTab }))),
  trace: lazy(() => import('./trace-tab').then((m) => ({ default: m.TraceTab }))),
};

/** A recorded run: its answer, and the layers beneath it. Keys 1 to 6 switch between them. */
export function RunPage() {
  const words = useWords(queryWords);
  const labels = useWords(runWords);
  const screens = useWords(appWords).screens;
  const navigate = useNavigate();
  const client = useQueryClient();
  const params = useParams({ strict: false });
  const id = params.run ?? '';
  const tab = RUN_TABS.find((name) => name === params.tab) ?? 'answer';
  const query = useRun(id);
  const show = (to: RunTab) => navigate({ to: '/runs/$run/$tab', params: { run: id, tab: to } });
  useKeys(
    RUN_TABS.map((name, index) => ({
      keys: String(index + 1),
      label: labels.openTab(labels.tabs[name]),
      run: () => show(name),
    })),
  );
  const ask = useMutation({
    mutationFn: (body: QueryRequest) => call(api.POST('/v1/runs', { body: requestOf(body) })),
    onSuccess: async ({ run_id }, asked) => {
      showStarted(client, run_id, asked);
      await navigate({ to: '/runs/$run/$tab', params: { run: run_id, tab } });
    },
  });
  const list = useActiveTabInView(tab);
  const request = query.data?.request as unknown as QueryRequest | undefined;
  return (
    <Page
      title={request?.query ?? screens.runs}
      subtitle={query.data && <RunSubtitle run={query.data} />}
      actions={
        request && (
          <>
            <CopyAs request={request} />
            <Button component={Link} to="/query" search={{ q: request.query } as never}>
              {words.askAgain}
            </Button>
          </>
        )
      }
    >
      <Tabs value={tab} onChange={(value) => value && show(value as RunTab)} keepMounted={false}>
        <Tabs.List
          ref={list}
          aria-label={labels.tabsLabel}
          style={{ flexWrap: 'nowrap', overflowX: 'auto' }}
        >
          {RUN_TABS.map((name) => (
            <Tabs.Tab key={name} value={name}>
              {labels.tabs[name]}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        <Tabs.Panel value={tab} pt="md">
          {ask.isError && <ErrorState error={ask.error} />}
          <QueryState query={query}>
            {(run) => <RunTabContent run={run} tab={tab} onAsk={ask.mutate} />}
          </QueryState>
        </Tabs.Panel>
      </Tabs>
    </Page>
  );
}

function RunSubtitle({ run }: { run: Run }) {
  return (
    <span>
      <Ago time={run.received_at} /> {run.generation && `· ${run.generation} `}·{' '}
      <Id id={run.run_id} />
    </span>
  );
}

function RunTabContent({ run, tab, onAsk }: { run: Run; tab: RunTab } & Pick<TabProps, 'onAsk'>) {
  const labels = useWords(runWords);
  const recorded = readRun(run);
  if (run.response === null) {
    return run.state === 'running' || run.state === 'completed' || run.answered_at === null ? (
      <FollowedRun runId={run.run_id} />
    ) : (
      <EmptyState title={labels.notRecorded}>
        <Text size="sm">{labels.notRecordedHint}</Text>
      </EmptyState>
    );
  }
  if (tab === 'answer') return <AnswerTab run={recorded} onAsk={onAsk} />;
  const Tab = TABS[tab];
  return (
    <Suspense fallback={<LoadingState />}>
      <Tab run={recorded} onAsk={onAsk} />
    </Suspense>
  );
}

function AnswerTab({ run, onAsk }: TabProps) {
  const labels = useWords(runWords);
  if (run.answer) {
    return (
      <AnswerView
        answer={run.answer}
        onAskWithout={(change) => run.request && onAsk(changeRequest(run.request, change))}
        footer={
          run.answer.refused ? undefined : <RestsOn key={run.answer.run_id} answer={run.answer} />
        }
      />
    );
  }
  return (
    <Stack gap="sm" maw={720}>
      <Text size="sm" c="dimmed">
        {labels.noAnswerTab}
      </Text>
      <PassageList passages={run.passages} />
    </Stack>
  );
}

/** A run without a record yet: followed by its stream, and read again when it has ended. */
function FollowedRun({ runId }: { runId: string }) {
  const progress = useRunProgress(runId);
  if (progress.answer) return <AnswerView answer={progress.answer} onAskWithout={() => {}} />;
  return <Running runId={runId} progress={progress} />;
}
