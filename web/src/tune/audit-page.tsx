import { Button, Group, Select, Stack, Text, TextInput } from '@mantine/core';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import type { Search } from '@/app/router';
import { appWords } from '@/app/words';
import { api, call, type Schemas } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Ago, Id, State } from '@/shared/ui/bits';
import { Page } from '@/shared/ui/page';
import { EmptyState, ErrorState, LoadingState } from '@/shared/ui/states';
import { type Column, DataTable } from '@/shared/ui/table';
import { sharedWords } from '@/shared/words';
import { auditWords } from './audit-words';
import { usePages } from './pages';

type AuditEvent = Schemas['AuditEvent'];

export function AuditPage() {
  const screens = useWords(appWords).screens;
  const words = useWords(auditWords);
  const shared = useWords(sharedWords);
  const format = useFormat();
  const navigate = useNavigate();
  const search = useSearch({ strict: false });
  const trail = usePages(['audit'], (after) =>
    call(api.GET('/v1/audit', { params: { query: { limit: 100, ...(after ? { after } : {}) } } })),
  );
  const all = trail.data?.pages.flatMap((page) => page.items) ?? [];
  const shown = all.filter((event) => matches(event, search));
  const show = (next: Search) =>
    navigate({ to: '/audit', search: (old: Search) => ({ ...old, ...next }), replace: true });
  const actions = [...new Set(all.map((event) => event.action))].sort();
  return (
    <Page title={screens.audit} subtitle={words.subtitle}>
      {trail.isError && <ErrorState error={trail.error} onRetry={() => trail.refetch()} />}
      {trail.isPending && <LoadingState rows={12} />}
      {trail.data && all.length === 0 && (
        <EmptyState
          title={words.none}
          action={
            <Button component={Link} to="/keys" variant="default">
              {screens.keys}
            </Button>
          }
          command="anabranch audit"
        >
          <Text size="sm" c="dimmed">
            {words.noneHint}
          </Text>
        </EmptyState>
      )}
      {all.length > 0 && (
        <Stack gap="sm">
          <Group gap="sm">
            <TextInput
              aria-label={words.filter}
              placeholder={words.filter}
              defaultValue={search.q ?? ''}
              onChange={(event) => show({ q: event.currentTarget.value || undefined })}
              style={{ flex: '1 1 220px', maxWidth: 320 }}
            />
            <Select
              aria-label={words.action}
              placeholder={words.anyAction}
              data={actions}
              value={search.action ?? null}
              clearable
              searchable
              clearButtonProps={{ 'aria-label': words.anyAction }}
              onChange={(value) => show({ action: value ?? undefined })}
            />
            <Select
              aria-label={words.outcome}
              placeholder={words.anyOutcome}
              data={Object.entries(words.outcomes).map(([value, label]) => ({ value, label }))}
              value={search.outcome ?? null}
              clearable
              clearButtonProps={{ 'aria-label': words.anyOutcome }}
              onChange={(value) => show({ outcome: value ?? undefined })}
            />
            <Text size="xs" c="dimmed" role="status">
              {words.shown(format.count(shown.length), format.count(all.length))}
            </Text>
          </Group>
          {shown.length === 0 ? (
            <EmptyState
              title={words.nothingShown}
              action={
                <Button
                  variant="default"
                  onClick={() => show({ q: undefined, action: undefined, outcome: undefined })}
                >
                  {words.showAll}
                </Button>
              }
            />
          ) : (
            <Trail events={shown} />
          )}
          {trail.hasNextPage && (
            <Button
              variant="default"
              style={{ alignSelf: 'center' }}
              loading={trail.isFetchingNextPage}
              onClick={() => trail.fetchNextPage()}
            >
              {shared.loadMore}
            </Button>
          )}
        </Stack>
      )}
    </Page>
  );
}

export function outcomeOf(event: AuditEvent): 'done' | 'refused' | 'failed' {
  return event.outcome === 'done' || event.outcome === 'refused' ? event.outcome : 'failed';
}

export function matches(event: AuditEvent, { q, action, outcome }: Search): boolean {
  const text = [
    event.actor,
    event.role,
    event.action,
    event.subject,
    event.request_id,
    event.tenant,
  ];
  return (
    (action === undefined || event.action === action) &&
    (outcome === undefined || outcomeOf(event) === outcome) &&
    (q === undefined || text.join(' ').toLowerCase().includes(q.toLowerCase()))
  );
}

const TONES = { done: 'ok', refused: 'warn', failed: 'bad' } as const;

function Trail({ events }: { events: AuditEvent[] }) {
  const words = useWords(auditWords);
  const hasTenants = new Set(events.map((event) => event.tenant)).size > 1;
  const tenant: Column<AuditEvent> = {
    key: 'tenant',
    label: words.tenant,
    cell: (event) => <span className="foreign">{event.tenant}</span>,
  };
  const columns: Column<AuditEvent>[] = [
    {
      key: 'what',
      label: words.what,
      cell: (event) => <code>{event.action}</code>,
    },
    {
      key: 'target',
      label: words.target,
      cell: (event) => <span className="foreign">{event.subject ?? '—'}</span>,
    },
    {
      key: 'who',
      label: words.who,
      cell: (event) => (
        <>
          <span className="foreign">{event.actor}</span> <span className="muted">{event.role}</span>
        </>
      ),
    },
    ...(hasTenants ? [tenant] : []),
    {
      key: 'outcome',
      label: words.outcome,
      cell: (event) => (
        <>
          <State tone={TONES[outcomeOf(event)]} label={words.outcomes[outcomeOf(event)]} />
          {outcomeOf(event) === 'failed' && <code className="muted"> {event.outcome}</code>}
        </>
      ),
    },
    { key: 'when', label: words.when, cell: (event) => <Ago time={event.occurred_at} /> },
    {
      key: 'request',
      label: words.request,
      cell: (event) => (event.request_id ? <Id id={event.request_id} /> : '—'),
    },
  ];
  return (
    <DataTable
      label={words.subtitle}
      rows={events}
      columns={columns}
      rowKey={(event) => event.audit_id}
    />
  );
}
