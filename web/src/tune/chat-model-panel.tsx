import { Button, Group, Stack, Text, Title } from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { api, call, type Schemas } from '@/shared/api/client';
import { useWords } from '@/shared/i18n';
import { State } from '@/shared/ui/bits';
import { ErrorState, QueryState } from '@/shared/ui/states';
import { systemWords } from './system-words';

type ChatModel = Schemas['ChatModelState'];
type Choice = Schemas['ChatModelRequest'];

/** The model that writes answers, and those of this machine that could. */
export function ChatModelPanel() {
  const words = useWords(systemWords).chatModel;
  const client = useQueryClient();
  const state = useQuery({
    queryKey: ['chat-model'],
    queryFn: () => call(api.GET('/v1/chat-model')),
    refetchInterval: 30_000,
  });
  const change = useMutation({
    mutationFn: (choice: Choice | null) =>
      call(
        choice ? api.PUT('/v1/chat-model', { body: choice }) : api.DELETE('/v1/chat-model'),
      ) as Promise<ChatModel>,
    onSuccess: (found) => client.setQueryData(['chat-model'], found),
  });
  return (
    <Stack gap="sm" component="section" aria-label={words.title}>
      <Group gap="sm" align="baseline">
        <Title order={2}>{words.title}</Title>
        <Text size="xs" c="dimmed">
          {words.hint}
        </Text>
      </Group>
      {change.isError && <ErrorState error={change.error} />}
      <QueryState query={state} rows={1}>
        {(found) => (
          <Stack gap="xs" p="sm" className="panel">
            <Group gap="sm" justify="space-between">
              <span className="foreign">
                <State
                  isLong
                  tone={found.model ? 'ok' : 'idle'}
                  label={found.model ? words.writes(found.model, found.url ?? '') : words.quotes}
                />
              </span>
              {found.is_chosen && (
                <Button
                  variant="default"
                  loading={change.isPending}
                  onClick={() => change.mutate(null)}
                >
                  {words.stop}
                </Button>
              )}
            </Group>
            <Offers found={found} isBusy={change.isPending} choose={change.mutate} />
          </Stack>
        )}
      </QueryState>
    </Stack>
  );
}

function Offers(props: { found: ChatModel; isBusy: boolean; choose: (choice: Choice) => void }) {
  const words = useWords(systemWords).chatModel;
  const { found, isBusy, choose } = props;
  if (!found.can_choose) return <Text size="xs">{words.configured}</Text>;
  const offers = found.servers.flatMap(({ url, models }) =>
    models
      .filter((model) => model !== found.model || url !== found.url)
      .map((model) => ({ url, model })),
  );
  if (offers.length === 0) return found.model ? null : <Text size="xs">{words.none}</Text>;
  return (
    <Group gap="xs">
      {offers.map((offer) => (
        <Button
          key={`${offer.url} ${offer.model}`}
          variant="default"
          className="foreign"
          title={offer.url}
          disabled={isBusy}
          onClick={() => choose(offer)}
        >
          {words.use(offer.model)}
        </Button>
      ))}
    </Group>
  );
}
