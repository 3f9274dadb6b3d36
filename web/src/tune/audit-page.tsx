import { Autocomplete, Button, Group, Select, Stack, Text, TextInput } from '@mantine/core';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import type { Search } from '@/app/router';
import { appWords } from '@/app/words';
import { useDelayedChange } from '@/shared/address';
import { api, call, type Schemas } from '@/shared/api/client';
import { useWords } from '@/shared/i18n';
import { Ago, Id, State } from '@/shared/ui/bits';
import { DateRange, toPeriod } from '@/shared/ui/date-range';
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
  const navigate = useNavigate();
  const search = useSearch({ strict: false });
  const [text, setText] = useState(search.q ?? '');
  const outcome = OUTCOMES.find((one) => one === search.outcome);
  const filters = {
    ...(search.q ? { text: search.q } : {}),
    ...(search.actor ? { actor: search.actor } : {}),
    ...(search.action ? { action: search.action } : {}),
    ...(outcome ? { outcome } : {}),
    ...toPeriod(search),
  };
  const trail = usePages(['audit', filters], (after) =>
    call(
      api.GET('/v1/audit', {
        params: { query: { limit: 100, ...filters, ...(after ? { after } : {}) } },
      }),
    ),
  );
  const shown = trail.data?.pages.flatMap((page) => page.items) ?? [];
  const show = (next: Search) =>
    navigate({ to: '/audit', search: (old: Search) => ({ ...old, ...next }), replace: true });
  const showText = useDelayedChange((q: string) => void show({ q: q || undefined }), 250);
  const isFiltered = Object.keys(filters).length > 0;
  // Those of the first page suggest; others may be typed in.
  const suggest = (field: 'actor' | 'action') =>
    [...new Set(shown.map((one) => one[field]))].sort();
  return (
    <Page title={screens.audit} subtitle={words.subtitle}>
      <Group gap="sm" align="flex-end">
        <TextInput
          aria-label={words.filter}
          placeholder={words.filter}
          value={text}
          onChange={(event) => {
            setText(event.currentTarget.value);
            showText(event.currentTarget.value);
          }}
          style={{ flex: '1 1 220px', maxWidth: 320 }}
        />
        {(['actor', 'action'] as const).map((field) => (
          <Chosen
            key={`${field} ${search[field]}`}
            label={field === 'actor' ? words.anyActor : words.anyAction}
            value={search[field] ?? ''}
            data={suggest(field)}
            onChange={(value) => show({ [field]: value })}
          />
        ))}
        <Select
          aria-label={words.outcome}
          placeholder={words.anyOutcome}
          data={OUTCOMES.map((value) => ({ value, label: words.outcomes[value] }))}
          value={outcome ?? null}
          clearable
          clearButtonProps={{ 'aria-label': words.anyOutcome }}
          onChange={(value) => show({ outcome: value ?? undefined })}
        />
        <DateRange days={search} onChange={show} />
      </Group>
      {trail.isError && <ErrorState error={trail.error} onRetry={() => trail.refetch()} />}
      {trail.isPending && <LoadingState rows={12} />}
      {trail.data && shown.length === 0 && !isFiltered && (
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
      {trail.data && shown.length === 0 && isFiltered && (
        <EmptyState
          title={words.nothingShown}
          action={
            <Button
              variant="default"
              onClick={() => {
                setText('');
                void navigate({ to: '/audit', search: {}, replace: true });
              }}
            >
              {words.showAll}
            </Button>
          }
        />
      )}
      {shown.length > 0 && (
        <Stack gap="sm">
          <Trail events={shown} />
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

/** A whole value, chosen from those that are shown or typed in and confirmed with Enter. */
function Chosen({
  label,
  value,
  data,
  onChange,
}: {
  label: string;
  value: string;
  data: string[];
  onChange: (value: string | undefined) => void;
}) {
  const [typed, setTyped] = useState(value);
  const commit = (next: string) => next !== value && onChange(next.trim() || undefined);
  return (
    <Autocomplete
      aria-label={label}
      placeholder={label}
      data={data}
      value={typed}
      onChange={(next) => {
        setTyped(next);
        if (next === '') commit(next);
      }}
      onOptionSubmit={commit}
      onBlur={() => commit(typed)}
      onKeyDown={(event) => event.key === 'Enter' && commit(typed)}
    />
  );
}

const OUTCOMES = ['done', 'refused', 'failed'] as const;

export function outcomeOf(event: AuditEvent): (typeof OUTCOMES)[number] {
  return event.outcome === 'done' || event.outcome === 'refused' ? event.outcome : 'failed';
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
