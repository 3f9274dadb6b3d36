import { Checkbox, Text } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, call } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Confirm } from '@/shared/ui/confirm';
import type { Source } from './request';
import { sourceWords } from './words';

type Props = { source: Source; onClose: () => void };

/** Stop reading; with `withdraw` its documents disappear too, so that asks for the name. */
export function RemoveDialog({ source, onClose }: Props) {
  const words = useWords(sourceWords);
  const format = useFormat();
  const client = useQueryClient();
  const [withdraw, setWithdraw] = useState(false);
  const { name } = source;
  const documents = format.count(source.documents);
  return (
    <Confirm
      opened
      danger
      {...(withdraw ? { name } : {})}
      onClose={onClose}
      action={words.removeName(name)}
      onConfirm={async () => {
        await call(
          api.DELETE('/v1/sources/{name}', { params: { path: { name }, query: { withdraw } } }),
        );
        await client.invalidateQueries({ queryKey: ['sources'] });
        notifications.show({ message: words.removed(name) });
      }}
    >
      <Text size="sm">{words.removeHint(documents)}</Text>
      {source.documents > 0 && (
        <Checkbox
          label={words.withdraw(documents)}
          checked={withdraw}
          onChange={(event) => setWithdraw(event.currentTarget.checked)}
        />
      )}
    </Confirm>
  );
}

export function ResetDialog({ source, onClose }: Props) {
  const words = useWords(sourceWords);
  const client = useQueryClient();
  const { name } = source;
  return (
    <Confirm
      opened
      onClose={onClose}
      action={words.resetName(name)}
      onConfirm={async () => {
        await call(api.POST('/v1/sources/reset', { params: { query: { name } } }));
        await client.invalidateQueries({ queryKey: ['sources'] });
        notifications.show({ message: words.reset(name) });
      }}
    >
      <Text size="sm">{words.resetHint}</Text>
    </Confirm>
  );
}
