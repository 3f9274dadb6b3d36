import { Button, Group, SegmentedControl, Stack, Text } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { api, call, type Schemas } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Ago } from '@/shared/ui/bits';
import { EmptyState, ErrorState, QueryState } from '@/shared/ui/states';
import { evaluationWords } from './evaluation-words';

type Candidate = Schemas['GoldenCandidate'];

/** Answered questions to accept as golden ones, by grades of what the answers cite. */
export function CandidatesTab() {
  const words = useWords(evaluationWords);
  const candidates = useQuery({
    queryKey: ['candidates'],
    queryFn: async () => (await call(api.GET('/v1/judgements/candidates'))).items,
  });
  return (
    <QueryState query={candidates}>
      {(items) =>
        items.length === 0 ? (
          <EmptyState
            title={words.noCandidates}
            action={
              <Button component={Link} to="/query">
                {words.question}
              </Button>
            }
            command="anabranch eval candidates"
          />
        ) : (
          <Stack gap="sm">
            <Text size="sm" c="dimmed">
              {words.candidatesHint}
            </Text>
            {items.map((candidate) => (
              <CandidateCard key={candidate.run_id} candidate={candidate} />
            ))}
          </Stack>
        )
      }
    </QueryState>
  );
}

/** Grade a question or a run; it leaves the list when the server has it. */
export function useFeedback(key: string, isSame: (item: { query: string }) => boolean) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (body: Schemas['FeedbackRequest']) => call(api.POST('/v1/feedback', { body })),
    onSuccess: () => {
      // The list is read from projections, which follow a moment later.
      client.setQueriesData<{ query: string }[]>({ queryKey: [key] }, (items) =>
        items?.filter((item) => !isSame(item)),
      );
      client.invalidateQueries({ queryKey: ['judgements'] });
    },
  });
}

function CandidateCard({ candidate }: { candidate: Candidate }) {
  const words = useWords(evaluationWords);
  const format = useFormat();
  const [grades, setGrades] = useState<Record<string, number>>({});
  const feedback = useFeedback(
    'candidates',
    (item) => (item as Candidate).run_id === candidate.run_id,
  );
  const send = (body: Partial<Schemas['FeedbackRequest']>, message: string) =>
    feedback.mutate({ run_id: candidate.run_id, ...body } as Schemas['FeedbackRequest'], {
      onSuccess: () => notifications.show({ message }),
    });
  // An answer may cite one chunk several times.
  const passages = [
    ...new Map(candidate.passages.map((passage) => [passage.chunk_id, passage])).values(),
  ];
  return (
    <Stack gap="xs" p="md" className="panel" component="article" aria-label={candidate.query}>
      <Group gap="sm" align="baseline" wrap="nowrap">
        <Text fw={600} className="foreign" style={{ flex: 1 }}>
          {candidate.query}
        </Text>
        <Text size="xs" c="dimmed" style={{ whiteSpace: 'nowrap' }}>
          <Ago time={candidate.answered_at} />
        </Text>
      </Group>
      <Text size="sm" className="foreign" lineClamp={4}>
        {candidate.answer}
      </Text>
      <Text size="xs" c="dimmed">
        {candidate.probability !== null && words.probability(format.percent(candidate.probability))}
        {candidate.useful === true && ` · ${words.useful}`} ·{' '}
        <Link to="/runs/$run" params={{ run: candidate.run_id }}>
          {words.openRun}
        </Link>
      </Text>
      {passages.map((passage) => (
        <Group key={passage.chunk_id} gap="sm" align="flex-start">
          <Text
            size="sm"
            style={{ flex: '1 1 260px', minWidth: 0 }}
            className="foreign"
            lineClamp={3}
          >
            <span className="muted">
              [{passage.n}] {passage.title}
            </span>{' '}
            {passage.quote}
          </Text>
          <GradeControl
            label={words.grade(String(passage.n))}
            value={grades[passage.chunk_id]}
            onChange={(grade) => setGrades((old) => ({ ...old, [passage.chunk_id]: grade }))}
          />
        </Group>
      ))}
      {feedback.isError && <ErrorState error={feedback.error} />}
      <Group gap="xs" justify="flex-end">
        <Button
          variant="default"
          disabled={feedback.isPending}
          onClick={() => send({ candidate_rejected: true }, words.rejected)}
        >
          {words.reject}
        </Button>
        <Button
          loading={feedback.isPending}
          disabled={Object.keys(grades).length === 0}
          onClick={() => send({ grades }, words.accepted)}
        >
          {words.accept}
        </Button>
      </Group>
    </Stack>
  );
}

export function GradeControl({
  label,
  value,
  onChange,
}: {
  label: string;
  value: number | undefined;
  onChange: (grade: number) => void;
}) {
  const words = useWords(evaluationWords);
  return (
    <SegmentedControl
      aria-label={label}
      data={([0, 1, 2, 3] as const).map((grade) => ({
        value: String(grade),
        label: words.grades[grade],
      }))}
      value={value === undefined ? '' : String(value)}
      onChange={(grade) => onChange(Number(grade))}
    />
  );
}
