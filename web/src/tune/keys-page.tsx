import { Button, Group, Select, Stack, Switch, Text } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { appWords } from '@/app/words';
import { api, call, type Schemas } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { useKeys } from '@/shared/keys';
import { Ago, Id, State } from '@/shared/ui/bits';
import { Confirm } from '@/shared/ui/confirm';
import { Page } from '@/shared/ui/page';
import { EmptyState, ErrorState, LoadingState } from '@/shared/ui/states';
import { type Column, DataTable } from '@/shared/ui/table';
import { sharedWords } from '@/shared/words';
import { CreateKey, IssuedKey } from './create-key';
import { keysWords } from './keys-words';
import { usePages } from './pages';

export type ApiKey = Schemas['ApiKey'];
type Act = { kind: 'create' } | { kind: 'rotate' | 'revoke'; key: ApiKey };

export function KeysPage() {
  const screens = useWords(appWords).screens;
  const words = useWords(keysWords);
  const shared = useWords(sharedWords);
  const navigate = useNavigate();
  const search = useSearch({ strict: false });
  const client = useQueryClient();
  const [act, setAct] = useState<Act | null>(null);
  // Only here, and only until the dialog is closed.
  const [issued, setIssued] = useState<Schemas['IssuedApiKey'] | null>(null);
  const keys = usePages(['keys'], (after) =>
    call(api.GET('/v1/keys', { params: { query: { limit: 100, ...(after ? { after } : {}) } } })),
  );
  const isAll = search.all === '1';
  const all = keys.data?.pages.flatMap((page) => page.items) ?? [];
  const shown = isAll ? all : all.filter((key) => stateOf(key) === 'active');
  const refresh = () => client.invalidateQueries({ queryKey: ['keys'] });
  const create = () => setAct({ kind: 'create' });
  const showAll = (value: boolean) =>
    navigate({ to: '/keys', search: value ? { all: '1' } : {}, replace: true });
  useKeys([{ keys: 'n', label: words.create, run: create }]);
  return (
    <Page
      title={screens.keys}
      subtitle={words.subtitle}
      actions={<Button onClick={create}>{words.create}</Button>}
    >
      {keys.isError && <ErrorState error={keys.error} onRetry={() => keys.refetch()} />}
      {keys.isPending && <LoadingState />}
      {keys.data && all.length === 0 && (
        <EmptyState
          title={words.none}
          action={<Button onClick={create}>{words.create}</Button>}
          command="anabranch keys create --name ci --role writer"
        >
          <Text size="sm" c="dimmed">
            {words.noneHint}
          </Text>
        </EmptyState>
      )}
      {all.length > 0 && (
        <Stack gap="sm">
          <Switch
            label={words.showInactive}
            checked={isAll}
            onChange={(event) => showAll(event.currentTarget.checked)}
          />
          {shown.length === 0 ? (
            <EmptyState
              title={words.noneActive}
              action={
                <Button variant="default" onClick={() => showAll(true)}>
                  {words.showAll}
                </Button>
              }
            />
          ) : (
            <KeyTable keys={shown} onAct={setAct} />
          )}
          {keys.hasNextPage && (
            <Button
              variant="default"
              loading={keys.isFetchingNextPage}
              onClick={() => keys.fetchNextPage()}
            >
              {shared.loadMore}
            </Button>
          )}
        </Stack>
      )}
      {act?.kind === 'create' && (
        <CreateKey
          onClose={() => setAct(null)}
          onIssued={(key) => {
            setAct(null);
            setIssued(key);
            refresh();
          }}
        />
      )}
      {act?.kind === 'rotate' && (
        <Rotate
          apiKey={act.key}
          onClose={() => setAct(null)}
          onIssued={(key) => {
            setIssued(key);
            refresh();
          }}
        />
      )}
      {act?.kind === 'revoke' && (
        <Confirm
          opened
          danger
          action={words.revokeNow(act.key.name)}
          name={act.key.name}
          onClose={() => setAct(null)}
          onConfirm={async () => {
            await call(
              api.DELETE('/v1/keys/{key_id}', { params: { path: { key_id: act.key.id } } }),
            );
            refresh();
          }}
        >
          <Text size="sm">{words.revokeHint}</Text>
        </Confirm>
      )}
      {issued && <IssuedKey issued={issued} onClose={() => setIssued(null)} />}
    </Page>
  );
}

export function stateOf(key: ApiKey, now = Date.now()): 'active' | 'expired' | 'revoked' {
  if (key.revoked_at !== null) return 'revoked';
  return key.expires_at !== null && Date.parse(key.expires_at) <= now ? 'expired' : 'active';
}

const TONES = { active: 'ok', expired: 'warn', revoked: 'idle' } as const;

function KeyTable({ keys, onAct }: { keys: ApiKey[]; onAct: (act: Act) => void }) {
  const words = useWords(keysWords);
  const format = useFormat();
  const columns: Column<ApiKey>[] = [
    {
      key: 'name',
      label: words.name,
      cell: (key) => (
        <Group gap="xs" wrap="nowrap">
          <span className="foreign">{key.name}</span>
          <Id id={key.id} />
        </Group>
      ),
    },
    { key: 'role', label: words.role, cell: (key) => key.role },
    {
      key: 'reads',
      label: words.reads,
      cell: (key) =>
        key.readers === null ? (
          <span className="muted">{words.everything}</span>
        ) : (
          <span className="foreign">{key.readers.join(', ')}</span>
        ),
    },
    {
      key: 'created',
      label: words.created,
      cell: (key) => (
        <>
          <Ago time={key.created_at} />{' '}
          <span className="muted foreign">{words.by(key.created_by)}</span>
        </>
      ),
    },
    {
      key: 'expires',
      label: words.expires,
      cell: (key) =>
        key.expires_at === null ? (
          <span className="muted">{words.never}</span>
        ) : (
          <time dateTime={key.expires_at}>{format.exact(key.expires_at)}</time>
        ),
    },
    {
      key: 'state',
      label: words.state,
      cell: (key) => (
        <>
          <State tone={TONES[stateOf(key)]} label={words[stateOf(key)]} />
          {key.previous_until !== null && Date.parse(key.previous_until) > Date.now() && (
            <div className="warn">
              {words.oldSecret} {format.exact(key.previous_until)}
            </div>
          )}
        </>
      ),
    },
    {
      key: 'actions',
      label: words.actions,
      cell: (key) =>
        stateOf(key) === 'active' && (
          <Group gap="xs" wrap="nowrap">
            <Button
              variant="default"
              size="compact-xs"
              onClick={() => onAct({ kind: 'rotate', key })}
            >
              {words.rotate}
            </Button>
            <Button
              variant="default"
              size="compact-xs"
              onClick={() => onAct({ kind: 'revoke', key })}
            >
              {words.revoke}
            </Button>
          </Group>
        ),
    },
  ];
  return (
    <DataTable label={words.subtitle} rows={keys} columns={columns} rowKey={(key) => key.id} />
  );
}

function Rotate({
  apiKey,
  onClose,
  onIssued,
}: {
  apiKey: ApiKey;
  onClose: () => void;
  onIssued: (key: Schemas['IssuedApiKey']) => void;
}) {
  const words = useWords(keysWords);
  const [grace, setGrace] = useState('0');
  return (
    <Confirm
      opened
      action={words.rotateNow(apiKey.name)}
      onClose={onClose}
      onConfirm={async () =>
        onIssued(
          await call(
            api.POST('/v1/keys/{key_id}/rotate', {
              params: { path: { key_id: apiKey.id } },
              body: { grace_s: Number(grace) },
            }),
          ),
        )
      }
    >
      <Text size="sm">{words.rotateHint}</Text>
      <Select
        label={words.grace}
        data={Object.entries(words.graces).map(([value, label]) => ({ value, label }))}
        value={grace}
        allowDeselect={false}
        onChange={(value) => value && setGrace(value)}
      />
    </Confirm>
  );
}
