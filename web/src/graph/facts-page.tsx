import { Button, Group, SegmentedControl, Stack, Text, Textarea } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useInfiniteQuery, useMutation, useQueryClient } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useCallback, useState } from 'react';
import { appWords } from '@/app/words';
import { safeHref } from '@/evidence/markdown';
import { api, call, type Schemas } from '@/shared/api/client';
import { useCan } from '@/shared/api/identity';
import { type LiveMessage, useLive } from '@/shared/api/live';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { useKeys } from '@/shared/keys';
import { Ago, State, type Tone } from '@/shared/ui/bits';
import { Confirm } from '@/shared/ui/confirm';
import { Page } from '@/shared/ui/page';
import { EmptyState, ErrorState, LoadingState } from '@/shared/ui/states';
import { DataTable } from '@/shared/ui/table';
import { FactForm } from './fact-form';
import { factWords } from './facts-words';
import classes from './graph.module.css';

type Fact = Schemas['Fact'];
type Status = Fact['status'];
const STATUSES: Status[] = ['proposed', 'approved', 'rejected', 'replaced'];
const TONES: Record<Status, Tone> = {
  proposed: 'warn',
  approved: 'ok',
  rejected: 'bad',
  replaced: 'idle',
};
const COMMAND = 'anabranch facts add "The contact for plant 3" is Ana';

/** What people state beside the documents: proposed by one, approved by another. */
export function FactsPage() {
  const words = useWords(factWords);
  const screens = useWords(appWords).screens;
  const search = useSearch({ strict: false }) as Record<string, string | undefined>;
  const navigate = useNavigate();
  const client = useQueryClient();
  const mayPropose = useCan('writer');
  const [isProposing, setProposing] = useState(false);
  const status = STATUSES.find((one) => one === search.status);
  const facts = useInfiniteQuery({
    queryKey: ['facts', status ?? null],
    queryFn: ({ pageParam }) =>
      call(
        api.GET('/v1/facts', {
          params: {
            query: {
              limit: 100,
              ...(status ? { status } : {}),
              ...(pageParam ? { after: pageParam } : {}),
            },
          },
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next ?? undefined,
  });
  const refresh = useCallback(
    () => void client.invalidateQueries({ queryKey: ['facts'] }),
    [client],
  );
  useLive(
    useCallback(
      ({ event }: LiveMessage) => {
        if (event.startsWith('fact.')) refresh();
      },
      [refresh],
    ),
  );
  useKeys(mayPropose ? [{ keys: 'n', label: words.propose, run: () => setProposing(true) }] : []);
  const propose = mayPropose && <Button onClick={() => setProposing(true)}>{words.propose}</Button>;
  const items = facts.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <Page title={screens.facts} subtitle={words.subtitle} actions={propose}>
      <Group gap="sm">
        <SegmentedControl
          aria-label={words.state}
          value={status ?? 'all'}
          onChange={(value) =>
            navigate({ to: '/facts', search: { status: value === 'all' ? undefined : value } })
          }
          data={[
            { value: 'all', label: words.all },
            ...STATUSES.map((value) => ({ value, label: words.states[value] })),
          ]}
        />
      </Group>
      {facts.isError && <ErrorState error={facts.error} onRetry={() => facts.refetch()} />}
      {facts.isPending && <LoadingState rows={8} />}
      {facts.isSuccess && items.length === 0 && (
        <EmptyState
          title={status ? words.emptyFilter : words.empty}
          action={propose}
          {...(status ? {} : { command: COMMAND })}
        />
      )}
      {items.length > 0 && (
        <FactTable
          facts={items}
          onChanged={refresh}
          onEnd={facts.hasNextPage ? () => void facts.fetchNextPage() : undefined}
        />
      )}
      <FactForm opened={isProposing} onClose={() => setProposing(false)} onProposed={refresh} />
    </Page>
  );
}

function FactTable({
  facts,
  onChanged,
  onEnd,
}: {
  facts: Fact[];
  onChanged: () => void;
  onEnd: (() => void) | undefined;
}) {
  const words = useWords(factWords);
  const format = useFormat();
  const mayDecide = useCan('admin');
  const [rejected, setRejected] = useState<Fact | null>(null);
  const [erased, setErased] = useState<Fact | null>(null);
  const [reason, setReason] = useState('');
  const done = (receipt: { status?: string }) => {
    if (receipt.status === 'accepted') notifications.show({ message: words.accepted });
    onChanged();
  };
  const approve = useMutation({
    mutationFn: (fact: Fact) =>
      call(
        api.POST('/v1/facts/{fact_id}/approve', { params: { path: { fact_id: fact.fact_id } } }),
      ),
    onSuccess: done,
  });
  const reject = async (fact: Fact) =>
    done(
      await call(
        api.POST('/v1/facts/{fact_id}/reject', {
          params: { path: { fact_id: fact.fact_id } },
          body: { reason: reason.trim() || null },
        }),
      ),
    );
  const erase = async (fact: Fact) => {
    await call(api.DELETE('/v1/facts/{fact_id}', { params: { path: { fact_id: fact.fact_id } } }));
    onChanged();
  };
  return (
    <>
      {approve.isError && <ErrorState error={approve.error} />}
      <DataTable
        label={words.fact}
        rows={facts}
        rowKey={(fact) => fact.fact_id}
        onEnd={onEnd}
        columns={[
          { key: 'fact', label: words.fact, cell: (fact) => <Statement fact={fact} /> },
          {
            key: 'state',
            label: words.state,
            cell: (fact) => <State tone={TONES[fact.status]} label={words.states[fact.status]} />,
          },
          {
            key: 'certainty',
            label: words.certainty,
            isNumber: true,
            cell: (fact) => format.percent(fact.certainty),
          },
          { key: 'source', label: words.source, cell: (fact) => <Source source={fact.source} /> },
          {
            key: 'stated',
            label: words.statedBy,
            cell: (fact) => (
              <span className="foreign">
                {fact.stated_by} · <Ago time={fact.stated_at} />
              </span>
            ),
          },
          ...(mayDecide
            ? [
                {
                  key: 'actions',
                  label: words.actions,
                  cell: (fact: Fact) => (
                    <Group gap={6} wrap="nowrap">
                      {fact.status === 'proposed' && (
                        <Button
                          size="compact-xs"
                          loading={approve.isPending && approve.variables === fact}
                          onClick={() => approve.mutate(fact)}
                        >
                          {words.approve}
                        </Button>
                      )}
                      {(fact.status === 'proposed' || fact.status === 'approved') && (
                        <Button
                          size="compact-xs"
                          variant="default"
                          onClick={() => setRejected(fact)}
                        >
                          {words.reject}
                        </Button>
                      )}
                      <Button size="compact-xs" variant="default" onClick={() => setErased(fact)}>
                        {words.erase}
                      </Button>
                    </Group>
                  ),
                },
              ]
            : []),
        ]}
      />
      <Confirm
        opened={rejected !== null}
        onClose={() => {
          setRejected(null);
          setReason('');
        }}
        action={words.rejectFact}
        onConfirm={async () => rejected && reject(rejected)}
      >
        {rejected && <Statement fact={rejected} />}
        <Textarea
          label={words.reason}
          maxLength={1000}
          value={reason}
          onChange={(event) => setReason(event.currentTarget.value)}
        />
      </Confirm>
      <Confirm
        danger
        opened={erased !== null}
        onClose={() => setErased(null)}
        action={words.eraseFact}
        onConfirm={async () => erased && erase(erased)}
      >
        {erased && <Statement fact={erased} />}
        <Text size="sm">{words.eraseHint}</Text>
      </Confirm>
    </>
  );
}

function Statement({ fact }: { fact: Fact }) {
  const words = useWords(factWords);
  const format = useFormat();
  const notes = [
    fact.decided_by ? words.decided(fact.decided_by) : null,
    fact.reason ?? null,
    fact.replaces ? words.replaces : null,
    fact.expires_at ? words.expires(format.exact(fact.expires_at)) : null,
  ].filter((note) => note !== null);
  return (
    <Stack gap={0} className={`${classes.statement} foreign`}>
      <span>
        <strong>{fact.subject}</strong> {fact.predicate} <strong>{fact.object}</strong>
      </span>
      {notes.length > 0 && (
        <Text size="xs" c="dimmed">
          {notes.join(' · ')}
        </Text>
      )}
    </Stack>
  );
}

/** A source that is an address is a link to its named host; anything else stays text. */
function Source({ source }: { source: string | null | undefined }) {
  const link = safeHref(source ?? '');
  if (link === null) return <span className="foreign">{source ?? '—'}</span>;
  return (
    <a href={link.href} target="_blank" rel="noopener noreferrer" className="foreign">
      {link.host}
    </a>
  );
}
