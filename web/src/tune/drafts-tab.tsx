import { Button, Group, NumberInput, Stack, Text, Textarea } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import type { Search } from '@/app/router';
import { api, call, type Schemas } from '@/shared/api/client';
import { useWords } from '@/shared/i18n';
import { EmptyState, ErrorState, QueryState } from '@/shared/ui/states';
import { useFeedback } from './candidates-tab';
import { evaluationWords } from './evaluation-words';

type Draft = Schemas['QuestionDraft'];

/** Questions from passages, for a person to edit and accept. Count and seed are in the address. */
export function DraftsTab() {
  const words = useWords(evaluationWords);
  const navigate = useNavigate();
  const search = useSearch({ strict: false });
  const questions = Number(search.questions ?? 10);
  const seed = Number(search.seed ?? 0);
  const drafts = useQuery({
    queryKey: ['drafts', questions, seed],
    queryFn: async () =>
      (await call(api.GET('/v1/judgements/drafts', { params: { query: { questions, seed } } })))
        .items,
    // The same seed gives the same questions; those that are judged here leave the list.
    staleTime: Number.POSITIVE_INFINITY,
  });
  const show = (next: Record<string, string>) =>
    navigate({ to: '/evaluation', search: (old: Search) => ({ ...old, ...next }), replace: true });
  return (
    <Stack gap="sm">
      <Group gap="sm" align="flex-end">
        <Text size="sm" c="dimmed" style={{ flex: '1 1 300px' }}>
          {words.draftsHint}
        </Text>
        <NumberInput
          label={words.count}
          w={90}
          min={1}
          max={1000}
          value={questions}
          onChange={(value) => typeof value === 'number' && show({ questions: String(value) })}
        />
        <NumberInput
          label={words.seed}
          w={110}
          min={0}
          value={seed}
          onChange={(value) => typeof value === 'number' && show({ seed: String(value) })}
        />
      </Group>
      <QueryState query={drafts}>
        {(items) =>
          items.length === 0 ? (
            <EmptyState title={words.noDrafts} command="anabranch ingest ./documents" />
          ) : (
            items.map((draft) => <DraftCard key={Object.keys(draft.grades).join()} draft={draft} />)
          )
        }
      </QueryState>
    </Stack>
  );
}

function DraftCard({ draft }: { draft: Draft }) {
  const words = useWords(evaluationWords);
  const client = useQueryClient();
  const [query, setQuery] = useState(draft.query);
  const isThis = (item: { query: string }) => item.query === draft.query;
  const feedback = useFeedback('drafts', isThis);
  return (
    <Stack gap="xs" p="md" className="panel" component="article" aria-label={draft.query}>
      <Textarea
        label={words.question}
        autosize
        maxLength={8000}
        value={query}
        onChange={(event) => setQuery(event.currentTarget.value)}
      />
      <Text size="xs" c="dimmed" className="foreign">
        {draft.document}
      </Text>
      <Text
        size="sm"
        className="foreign"
        style={{ whiteSpace: 'pre-wrap', maxHeight: 180, overflowY: 'auto' }}
        tabIndex={0}
        aria-label={words.passage}
        role="region"
      >
        {draft.passage}
      </Text>
      {feedback.isError && <ErrorState error={feedback.error} />}
      <Group gap="xs" justify="flex-end">
        <Button
          variant="default"
          onClick={() =>
            client.setQueriesData<Draft[]>({ queryKey: ['drafts'] }, (items) =>
              items?.filter((item) => !isThis(item)),
            )
          }
        >
          {words.skip}
        </Button>
        <Button
          loading={feedback.isPending}
          disabled={query.trim() === ''}
          onClick={() =>
            feedback.mutate({ query, grades: draft.grades } as Schemas['FeedbackRequest'], {
              onSuccess: () => notifications.show({ message: words.accepted }),
            })
          }
        >
          {words.accept}
        </Button>
      </Group>
    </Stack>
  );
}
