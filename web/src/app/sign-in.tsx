import { Button, PasswordInput, Stack, Text, Title } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { ApiError, chosenTenant, hasKey, setKey } from '@/shared/api/client';
import { useWords } from '@/shared/i18n';
import { Command, ErrorState } from '@/shared/ui/states';
import { sharedWords } from '@/shared/words';
import { switchTenant } from './tenant-switch';
import { appWords } from './words';

/** Shown to a caller whom the server does not know, and while it cannot be reached. */
export function SignIn({ error }: { error: unknown }) {
  const words = useWords(sharedWords).signIn;
  const client = useQueryClient();
  const tenantWords = useWords(appWords);
  const [key, setKeyText] = useState('');
  const retry = () => client.resetQueries({ queryKey: ['whoami'] });
  const isUnknown = error instanceof ApiError && error.problem.status === 401;
  return (
    <Stack component="main" maw={520} mx="auto" mt={64} p="md" gap="md">
      <Title order={1}>{isUnknown ? words.title : 'Anabranch'}</Title>
      {(!isUnknown || hasKey()) && <ErrorState error={error} onRetry={retry} />}
      {chosenTenant() !== null && (
        // A tenant whose name is refused must not lock the page.
        <Button variant="default" onClick={() => switchTenant(client, null)}>
          {tenantWords.ownTenant}
        </Button>
      )}
      {isUnknown && (
        <>
          <form
            onSubmit={(event) => {
              event.preventDefault();
              setKey(key);
              retry();
            }}
          >
            <Stack gap="sm" align="flex-start">
              <PasswordInput
                w="100%"
                label={words.key}
                description={words.orKey}
                value={key}
                onChange={(event) => setKeyText(event.currentTarget.value)}
                autoComplete="off"
              />
              <Button type="submit" disabled={key === ''}>
                {words.submit}
              </Button>
            </Stack>
          </form>
          <Text size="sm">{words.hint}</Text>
          <Command text="anabranch open" />
        </>
      )}
    </Stack>
  );
}
