import { Autocomplete, Button, Group, Select, Stack, Text } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { notifications } from '@mantine/notifications';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, call, type Schemas } from '@/shared/api/client';
import { useCan } from '@/shared/api/identity';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Confirm } from '@/shared/ui/confirm';
import { type Entity, type EntityDetails, useEntities } from './data';
import classes from './graph.module.css';
import { TypeDot } from './type-dot';
import { graphWords } from './words';

type Part = EntityDetails['parts'][number];
// The types of the local extractor that name things; others may be typed in.
const TYPES = ['PERSON', 'ORG', 'LOC', 'MISC'];

/** Administrators correct what the extractor took for another type, for two entities or for one. */
export function Corrections({
  entity,
  types,
  onSelect,
}: {
  entity: EntityDetails;
  types: readonly string[];
  onSelect: (id: string) => void;
}) {
  const words = useWords(graphWords);
  const format = useFormat();
  const mayEdit = useCan('admin');
  const client = useQueryClient();
  const [dialog, setDialog] = useState<'type' | 'merge' | Part | null>(null);
  const close = () => setDialog(null);
  const parts = entity.parts.filter((part) => part.id !== entity.id);
  const show = async ({ status, id }: Schemas['AmendedEntity'], selected = id) => {
    if (status === 'accepted') notifications.show({ message: words.accepted });
    // First, because a part that is fetched again is answered with its whole.
    if (selected !== entity.id) onSelect(selected);
    await Promise.all([
      client.invalidateQueries({ queryKey: ['entities'] }),
      client.invalidateQueries({ queryKey: ['subgraph'] }),
    ]);
  };
  return (
    <Stack gap={6}>
      {parts.length > 0 && (
        <>
          <Text fw={600}>{words.parts}</Text>
          <ul className={classes.list}>
            {parts.map((part) => (
              <li key={part.id}>
                <span className="foreign">
                  <TypeDot type={part.type} /> {[part.name, ...part.aliases].join(', ')}{' '}
                  <span className="muted">
                    {part.type} · {format.count(part.mentions)}
                  </span>
                </span>
                {mayEdit && (
                  <Button
                    variant="subtle"
                    size="compact-xs"
                    aria-label={words.splitPart(part.name)}
                    onClick={() => setDialog(part)}
                  >
                    {words.split}
                  </Button>
                )}
              </li>
            ))}
          </ul>
        </>
      )}
      {mayEdit && (
        <Group gap={8}>
          <Button variant="default" size="compact-sm" onClick={() => setDialog('type')}>
            {words.changeType}
          </Button>
          <Button variant="default" size="compact-sm" onClick={() => setDialog('merge')}>
            {words.merge}
          </Button>
        </Group>
      )}
      {dialog === 'type' && (
        <TypeDialog entity={entity} types={types} onClose={close} onChanged={show} />
      )}
      {dialog === 'merge' && <MergeDialog entity={entity} onClose={close} onChanged={show} />}
      <Confirm
        opened={dialog !== null && typeof dialog === 'object'}
        onClose={close}
        action={words.splitPart(typeof dialog === 'object' && dialog ? dialog.name : '')}
        onConfirm={async () => {
          if (dialog === null || typeof dialog === 'string') return;
          await show(
            await call(
              api.POST('/v1/entities/{entity}/split', {
                params: { path: { entity: entity.id } },
                body: { part: dialog.id },
              }),
            ),
            entity.id,
          );
        }}
      >
        <Text size="sm">{words.splitHint(entity.name)}</Text>
      </Confirm>
    </Stack>
  );
}

type DialogProps = {
  entity: EntityDetails;
  onClose: () => void;
  onChanged: (changed: Schemas['AmendedEntity']) => Promise<void>;
};

function TypeDialog({
  entity,
  types,
  onClose,
  onChanged,
}: DialogProps & { types: readonly string[] }) {
  const words = useWords(graphWords);
  const stated = entity.parts.find((part) => part.id === entity.id)?.type;
  const [type, setType] = useState(entity.type);
  const typed = type.trim();
  return (
    <Confirm
      opened
      onClose={onClose}
      action={words.changeTypeOf(entity.name)}
      disabled={typed === '' || typed === entity.type}
      onConfirm={async () =>
        onChanged(
          await call(
            api.PATCH('/v1/entities/{entity}', {
              params: { path: { entity: entity.id } },
              body: { add_aliases: [], remove_aliases: [], type: typed },
            }),
          ),
        )
      }
    >
      <Autocomplete
        label={words.type}
        description={
          stated !== undefined && stated !== entity.type ? words.statedType(stated) : undefined
        }
        data={[...new Set([...TYPES, ...types, ...(stated ? [stated] : [])])].sort()}
        maxLength={64}
        value={type}
        onChange={setType}
        data-autofocus
      />
    </Confirm>
  );
}

function MergeDialog({ entity, onClose, onChanged }: DialogProps) {
  const words = useWords(graphWords);
  const [text, setText] = useState('');
  const [into, setInto] = useState<Entity | null>(null);
  const [debounced] = useDebouncedValue(text.trim(), 150);
  const found = useEntities(debounced, 25);
  // The chosen one stays, although its label finds nothing.
  const items = [...(into ? [into] : []), ...(found.data?.items ?? [])].filter(
    (item, place, all) =>
      item.id !== entity.id && all.findIndex((other) => other.id === item.id) === place,
  );
  return (
    <Confirm
      opened
      onClose={onClose}
      action={words.mergeOf(entity.name)}
      disabled={into === null}
      onConfirm={async () => {
        if (into === null) return;
        await onChanged(
          await call(
            api.POST('/v1/entities/{entity}/merge', {
              params: { path: { entity: entity.id } },
              body: { into: into.id },
            }),
          ),
        );
      }}
    >
      <Text size="sm">{words.mergeHint}</Text>
      <Select
        label={words.mergeInto}
        placeholder={words.searchHint}
        searchable
        // The server has searched already, in aliases too.
        filter={({ options }) => options}
        nothingFoundMessage={words.nothing}
        data={items.map((item) => ({ value: item.id, label: `${item.name} (${item.type})` }))}
        value={into?.id ?? null}
        onChange={(id) => setInto(items.find((item) => item.id === id) ?? null)}
        onSearchChange={setText}
        data-autofocus
      />
    </Confirm>
  );
}
