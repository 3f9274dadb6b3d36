import { Button, Code, Group, Modal, Stack, Text, Textarea, TextInput } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { api, call, type Schemas } from '@/shared/api/client';
import { useWords } from '@/shared/i18n';
import { ErrorState } from '@/shared/ui/states';
import { sharedWords } from '@/shared/words';
import { questionsWords } from './questions-words';

const BLANK = { query: '', hook: '', collection: '' };

/** Save a question; the secret of its web hook is shown once. */
export function QuestionForm({
  opened,
  onClose,
  onSaved,
}: {
  opened: boolean;
  onClose: () => void;
  onSaved: () => void;
}) {
  const words = useWords(questionsWords);
  const shared = useWords(sharedWords);
  const [fields, setFields] = useState(BLANK);
  const save = useMutation({
    mutationFn: () =>
      call(
        api.POST('/v1/questions', {
          body: {
            query: fields.query.trim(),
            hook_url: fields.hook.trim() || null,
            // Fields that are left out have their defaults.
            filters: {
              collections: fields.collection.trim() ? [fields.collection.trim()] : [],
            } as unknown as Schemas['Filters'],
          },
        }),
      ),
    onSuccess: ({ hook_secret }) => {
      onSaved();
      if (!hook_secret) close();
    },
  });
  const close = () => {
    setFields(BLANK);
    save.reset();
    onClose();
  };
  const secret = save.data?.hook_secret;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (fields.query.trim()) save.mutate();
  };
  const change = (name: keyof typeof BLANK) => (event: { currentTarget: { value: string } }) =>
    setFields({ ...fields, [name]: event.currentTarget.value });
  return (
    <Modal
      opened={opened}
      onClose={close}
      closeOnClickOutside={!secret}
      title={secret ? words.secretTitle : words.add}
      closeButtonProps={{ 'aria-label': shared.close }}
    >
      {secret ? (
        <Stack gap="sm">
          <Text size="sm">{words.secretHint}</Text>
          <Code aria-label={words.secretTitle} style={{ overflowX: 'auto' }} p={8} tabIndex={0}>
            {secret}
          </Code>
          <Group justify="flex-end">
            <Button onClick={close}>{words.close}</Button>
          </Group>
        </Stack>
      ) : (
        <form onSubmit={submit}>
          <Stack gap="sm">
            <Textarea
              label={words.text}
              required
              autosize
              minRows={2}
              maxLength={8000}
              value={fields.query}
              onChange={change('query')}
            />
            <TextInput
              label={words.hook}
              description={words.hookHint}
              type="url"
              maxLength={2048}
              value={fields.hook}
              onChange={change('hook')}
            />
            <TextInput
              label={words.collection}
              description={words.collectionHint}
              maxLength={255}
              value={fields.collection}
              onChange={change('collection')}
            />
            {save.isError && <ErrorState error={save.error} />}
            <Group justify="flex-end" gap="xs">
              <Button variant="default" onClick={close}>
                {shared.cancel}
              </Button>
              <Button type="submit" loading={save.isPending} disabled={!fields.query.trim()}>
                {words.save}
              </Button>
            </Group>
          </Stack>
        </form>
      )}
    </Modal>
  );
}
