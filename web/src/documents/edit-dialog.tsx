import {
  Autocomplete,
  Button,
  Group,
  Modal,
  Stack,
  TagsInput,
  Text,
  TextInput,
} from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useEffect, useState } from 'react';
import { api, call, type Schemas } from '@/shared/api/client';
import { useWords } from '@/shared/i18n';
import { ErrorState } from '@/shared/ui/states';
import { sharedWords } from '@/shared/words';
import { documentWords } from './document-words';
import { useCollectionNames } from './filter-bar';

/** Title, collection and tags; only what was changed is sent. */
export function EditDialog({
  document,
  opened,
  onClose,
}: {
  document: Schemas['DocumentStatus'];
  opened: boolean;
  onClose: () => void;
}) {
  const words = useWords(documentWords);
  const shared = useWords(sharedWords);
  const collections = useCollectionNames();
  const [title, setTitle] = useState('');
  const [collection, setCollection] = useState('');
  const [tags, setTags] = useState<string[]>([]);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: an event must not undo what was typed.
  useEffect(() => {
    if (!opened) return;
    setTitle(document.title ?? '');
    setCollection(document.collection ?? '');
    setTags(document.tags);
    setError(null);
  }, [opened]);
  const body = {
    ...(title !== (document.title ?? '') ? { title } : {}),
    ...(collection !== (document.collection ?? '') ? { collection } : {}),
    ...(tags.join('\n') !== document.tags.join('\n') ? { tags } : {}),
  };
  const save = async () => {
    setBusy(true);
    try {
      await call(
        api.PATCH('/v1/documents/{document}', {
          params: { path: { document: document.document_id } },
          body,
        }),
      );
      notifications.show({ message: words.edit.saved });
      onClose();
    } catch (failure) {
      setError(failure);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Modal
      opened={opened}
      onClose={onClose}
      title={words.edit.title}
      closeButtonProps={{ 'aria-label': shared.close }}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        <Stack gap="sm">
          <TextInput
            label={words.fields.title}
            value={title}
            onChange={(event) => setTitle(event.currentTarget.value)}
            data-autofocus
          />
          <Autocomplete
            size="xs"
            label={words.fields.collection}
            data={collections}
            value={collection}
            onChange={setCollection}
          />
          <TagsInput label={words.fields.tags} value={tags} onChange={setTags} />
          <Text size="xs" c="dimmed">
            {words.edit.hint}
          </Text>
          {error !== null && <ErrorState error={error} />}
          <Group justify="flex-end" gap="xs">
            <Button variant="default" onClick={onClose}>
              {shared.cancel}
            </Button>
            <Button type="submit" loading={isBusy} disabled={Object.keys(body).length === 0}>
              {words.edit.save}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
