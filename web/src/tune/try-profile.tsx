import { Button, Group, Stack, Text, TextInput } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import type { Search } from '@/app/router';
import { api, call, type Schemas } from '@/shared/api/client';
import { useWords } from '@/shared/i18n';
import { ErrorState } from '@/shared/ui/states';
import { profileWords } from './profile-words';
import type { JsonObject } from './schema';

/** Ask a question with the edits as overrides, and open its run. */
export function TryProfile({
  request,
  overrides,
  hasFileOnlyEdits,
}: {
  request: Pick<Schemas['QueryRequest'], 'profiles'> & { profile?: string };
  overrides: JsonObject;
  hasFileOnlyEdits: boolean;
}) {
  const words = useWords(profileWords);
  const navigate = useNavigate();
  const search = useSearch({ strict: false });
  const [question, setQuestion] = useState(search.q ?? '');
  const ask = useMutation({
    mutationFn: async () => {
      // In the address, so that the way back from the run finds it.
      await navigate({
        to: '/profiles',
        search: (old: Search) => ({ ...old, q: question }),
        replace: true,
      });
      const body = { query: question, ...request, overrides } as Schemas['QueryRequest'];
      return call(api.POST('/v1/runs', { body }));
    },
    onSuccess: ({ run_id }) => navigate({ to: '/runs/$run', params: { run: run_id } }),
  });
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        ask.mutate();
      }}
    >
      <Stack gap="sm" p="md" className="panel">
        <Group gap="sm" align="flex-end">
          <TextInput
            label={words.try}
            placeholder={words.placeholder}
            value={question}
            maxLength={8000}
            onChange={(event) => setQuestion(event.currentTarget.value)}
            style={{ flex: '1 1 260px' }}
          />
          <Button type="submit" disabled={question.trim() === ''} loading={ask.isPending}>
            {words.ask}
          </Button>
        </Group>
        {hasFileOnlyEdits && (
          <Text size="xs" className="warn">
            {words.fileOnlyHint}
          </Text>
        )}
        {ask.isError && <ErrorState error={ask.error} />}
      </Stack>
    </form>
  );
}
