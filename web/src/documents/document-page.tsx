import { Anchor, Tabs } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { Link, useNavigate, useParams } from '@tanstack/react-router';
import { lazy, Suspense, useCallback, useRef } from 'react';
import { useAddress } from '@/shared/address';
import { ApiError, type Schemas } from '@/shared/api/client';
import { type LiveMessage, useLive } from '@/shared/api/live';
import { useWords } from '@/shared/i18n';
import { useKeys } from '@/shared/keys';
import { Id } from '@/shared/ui/bits';
import { Page } from '@/shared/ui/page';
import { EmptyState, LoadingState, QueryState } from '@/shared/ui/states';
import { useActiveTabInView } from '@/shared/ui/tabs-in-view';
import { ChunksTab } from './chunks-tab';
import { DocumentActions } from './document-actions';
import { documentWords } from './document-words';
import { EntitiesTab } from './entities-tab';
import { EventsTab } from './events-tab';
import { LineageTab } from './lineage-tab';
import { OverviewTab } from './overview-tab';
import { Receipt } from './receipt';
import { RevisionsTab } from './revisions-tab';
import { nameOf } from './stages';
import { StateLine } from './state-line';
import { documentKey, useDocument } from './use-documents';
import { useNow } from './use-now';

const EvidencePages = lazy(() =>
  import('@/evidence/pages').then((m) => ({ default: m.EvidencePages })),
);
const TABS = ['overview', 'pages', 'chunks', 'entities', 'revisions', 'lineage', 'events'] as const;
type Tab = (typeof TABS)[number];
/** A document emits six events in a second; its tabs are read again once. */
const REFRESH_MS = 300;

export function DocumentPage() {
  const words = useWords(documentWords);
  const { document: id, tab: asked } = useParams({ strict: false }) as {
    document: string;
    tab?: string;
  };
  const tab: Tab = TABS.find((one) => one === asked) ?? 'overview';
  const [{ receipt }] = useAddress();
  const navigate = useNavigate();
  const query = useDocument(id);
  useRefresh(id);
  const go = (to: Tab) =>
    navigate({ to: '/documents/$document/$tab', params: { document: id, tab: to } });
  const step = (by: number) => {
    const next = TABS[TABS.indexOf(tab) + by];
    if (next) void go(next);
  };
  useKeys([
    { keys: '[', label: words.tabKeys.previous, run: () => step(-1) },
    { keys: ']', label: words.tabKeys.next, run: () => step(1) },
  ]);
  const now = useNow();
  const list = useActiveTabInView(query.data && tab);
  const isGone = query.error instanceof ApiError && query.error.problem.status === 404;
  if (receipt !== undefined || isGone) {
    return (
      <Page title={receipt ? words.receipt.title : words.unknown} subtitle={<Back />}>
        {receipt ? (
          <Receipt id={receipt} />
        ) : (
          <EmptyState title={words.unknown}>
            <p style={{ margin: 0 }}>
              {query.error instanceof ApiError && query.error.problem.remedy}
            </p>
          </EmptyState>
        )}
      </Page>
    );
  }
  const document = query.data;
  return (
    <Page
      title={document ? (document.title ?? nameOf(document)) : ' '}
      subtitle={
        <span style={{ display: 'flex', flexWrap: 'wrap', gap: '4px 16px' }}>
          <Back />
          {document && <StateLine document={document} now={now} isWhole />}
          <Id id={id} />
        </span>
      }
      actions={document && <DocumentActions document={document} />}
    >
      <QueryState query={query} rows={12}>
        {(shown) => (
          <Tabs value={tab} onChange={(to) => to && go(to as Tab)} keepMounted={false}>
            <Tabs.List ref={list} style={{ flexWrap: 'nowrap', overflowX: 'auto' }}>
              {TABS.map((one) => (
                <Tabs.Tab key={one} value={one}>
                  {words.tabs[one]}
                </Tabs.Tab>
              ))}
            </Tabs.List>
            <Tabs.Panel value={tab} pt="md">
              <TabContent tab={tab} document={shown} now={now} />
            </Tabs.Panel>
          </Tabs>
        )}
      </QueryState>
    </Page>
  );
}

function Back() {
  const words = useWords(documentWords);
  return (
    <Anchor component={Link} to="/documents" inherit>
      {words.back}
    </Anchor>
  );
}

function TabContent({
  tab,
  document,
  now,
}: {
  tab: Tab;
  document: Schemas['DocumentStatus'];
  now: number;
}) {
  const words = useWords(documentWords);
  switch (tab) {
    case 'pages':
      // Pages need the Markdown too, which the transcription makes.
      if (document.blob === null || document.characters === null) {
        return (
          <EmptyState
            title={document.state === 'withdrawn' ? words.deleted : words.notTranscribed}
          />
        );
      }
      return (
        <Suspense fallback={<LoadingState rows={12} height={48} />}>
          <EvidencePages
            documentId={document.document_id}
            revision={null}
            mediaType={document.media_type}
            title={document.title}
          />
        </Suspense>
      );
    case 'chunks':
      return <ChunksTab document={document} />;
    case 'entities':
      return <EntitiesTab document={document} />;
    case 'revisions':
      return <RevisionsTab document={document} />;
    case 'lineage':
      return <LineageTab document={document} />;
    case 'events':
      return <EventsTab document={document} />;
    default:
      return <OverviewTab document={document} now={now} />;
  }
}

/** Read the document and its tabs again when one of its events arrives. */
function useRefresh(id: string): void {
  const client = useQueryClient();
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  useLive(
    useCallback(
      (message: LiveMessage) => {
        const isMine = (message.data as { document_id?: string } | null)?.document_id === id;
        if (!isMine || timer.current !== null) return;
        void client.invalidateQueries({ queryKey: documentKey(id), exact: true });
        timer.current = setTimeout(() => {
          timer.current = null;
          void client.invalidateQueries({ queryKey: documentKey(id) });
        }, REFRESH_MS);
      },
      [client, id],
    ),
  );
}
