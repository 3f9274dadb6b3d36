import { Button, Checkbox, Group, NumberInput, Stack, Text, Title } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import { api, call, type Schemas } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { ErrorState, LoadingState } from '@/shared/ui/states';
import { sharedWords } from '@/shared/words';
import { ComparisonView } from './comparison-view';
import { PeriodSelect, sinceOf } from './period';
import { generationWords } from './words';

/** Ask past questions of both generations, and show in what the answers differ. */
export function Comparison({ a, b, onClose }: { a: string; b: string; onClose: () => void }) {
  const words = useWords(generationWords).comparison;
  const shared = useWords(sharedWords);
  const format = useFormat();
  const [period, setPeriod] = useState('30');
  const [queries, setQueries] = useState(50);
  const [answers, setAnswers] = useState(false);
  const comparison = useMutation({
    mutationFn: () =>
      call(
        api.POST('/v1/generations/compare', {
          body: { a, b, queries, answers, since: sinceOf(period), golden: [] },
        }),
      ),
  });
  return (
    <Stack gap="sm" component="section" aria-label={words.title(b, a)}>
      <Group justify="space-between">
        <Title order={2}>{words.title(b, a)}</Title>
        <Button variant="subtle" onClick={onClose}>
          {shared.close}
        </Button>
      </Group>
      <Text size="sm" c="dimmed">
        {words.hint}
      </Text>
      <Group gap="xs" align="flex-end">
        <PeriodSelect value={period} onChange={setPeriod} />
        <NumberInput
          label={words.max}
          min={1}
          max={1000}
          value={queries}
          onChange={(value) => setQueries(Number(value) || 50)}
        />
        <Button loading={comparison.isPending} onClick={() => comparison.mutate()}>
          {words.run(format.count(queries))}
        </Button>
        <Checkbox
          mb={6}
          label={words.answers}
          checked={answers}
          onChange={(event) => setAnswers(event.currentTarget.checked)}
        />
      </Group>
      {comparison.isPending && (
        <>
          <Text size="sm" role="status">
            {words.running}
          </Text>
          <LoadingState rows={6} />
        </>
      )}
      {comparison.isError && <ErrorState error={comparison.error} />}
      {comparison.data && <Report report={comparison.data} />}
    </Stack>
  );
}

function Report({ report }: { report: Schemas['ComparisonReport'] }) {
  const words = useWords(generationWords).comparison;
  return report.queries === 0 ? (
    <Text>{words.noQuestions}</Text>
  ) : (
    <ComparisonView report={report} />
  );
}
