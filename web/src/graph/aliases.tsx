import { Button, CloseButton, Group, Stack, Text, TextInput } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, call } from '@/shared/api/client';
import { useCan } from '@/shared/api/identity';
import { useWords } from '@/shared/i18n';
import { ErrorState } from '@/shared/ui/states';
import type { EntityDetails } from './data';
import classes from './graph.module.css';
import { graphWords } from './words';

/** The names of an entity; administrators add and remove those that documents do not spell. */
export function Aliases({ entity }: { entity: EntityDetails }) {
  const words = useWords(graphWords);
  const mayEdit = useCan('admin');
  const client = useQueryClient();
  const [name, setName] = useState('');
  const amend = useMutation({
    mutationFn: (body: { add_aliases?: string[]; remove_aliases?: string[] }) =>
      call(
        api.PATCH('/v1/entities/{entity}', {
          params: { path: { entity: entity.id } },
          body: { add_aliases: [], remove_aliases: [], ...body },
        }),
      ),
    onSuccess: ({ status, ...changed }) => {
      setName('');
      client.setQueryData(['entities', entity.id], changed);
      if (status === 'accepted') notifications.show({ message: words.accepted });
    },
  });
  const found = entity.found_aliases.map((one) => one.alias);
  const removable = [...new Set([...entity.added_aliases, ...found])];
  return (
    <Stack gap={6}>
      <Text fw={600}>{words.aliases}</Text>
      {entity.aliases.length > 0 && (
        <Text size="sm" className="foreign">
          <span className="muted">{words.spelled}: </span>
          {entity.aliases.join(', ')}
        </Text>
      )}
      <ul className={classes.list}>
        {removable.map((alias) => (
          <li key={alias}>
            <span className="foreign">
              {alias}{' '}
              <span className="muted">
                {entity.added_aliases.includes(alias) ? words.added : words.stated}
              </span>
            </span>
            {mayEdit && (
              <CloseButton
                size="sm"
                aria-label={words.removeAlias(alias)}
                disabled={amend.isPending}
                onClick={() => amend.mutate({ remove_aliases: [alias] })}
              />
            )}
          </li>
        ))}
      </ul>
      {mayEdit && (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            if (name.trim()) amend.mutate({ add_aliases: [name.trim()] });
          }}
        >
          <Group gap={8} align="flex-end" wrap="nowrap">
            <TextInput
              label={words.addAlias}
              description={words.aliasHint}
              style={{ flex: 1 }}
              maxLength={200}
              value={name}
              onChange={(event) => setName(event.currentTarget.value)}
            />
            <Button
              type="submit"
              variant="default"
              loading={amend.isPending}
              disabled={!name.trim()}
            >
              {words.add}
            </Button>
          </Group>
        </form>
      )}
      {amend.isError && <ErrorState error={amend.error} />}
    </Stack>
  );
}
