import { Group, Stack, Text, UnstyledButton } from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { ApiError, api, call, type Schemas } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { State } from '@/shared/ui/bits';
import { ErrorState, LoadingState } from '@/shared/ui/states';
import classes from './answer.module.css';
import { toPlainText } from './answer-text';
import { restsOnWords } from './rests-on-words';
import type { Answer } from './run-data';

const TONES = {
  one_document: 'warn',
  confirmed: 'ok',
  contested: 'warn',
  unknown: 'idle',
} as const;

/** What an answer rests on, document by document, and what has changed it since. */
export function RestsOn({ answer }: { answer: Answer }) {
  const words = useWords(restsOnWords);
  const [opened, setOpened] = useState(false);
  const path = { params: { path: { run: answer.run_id } } };
  const found = useQuery({
    queryKey: ['counterfactual', answer.run_id],
    queryFn: () => call(api.GET('/v1/runs/{run}/counterfactual', path)),
    enabled: opened,
    staleTime: Number.POSITIVE_INFINITY,
    retry: false,
  });
  const bisect = useMutation({
    mutationFn: () => call(api.POST('/v1/runs/{run}/bisect', { ...path, body: { other: null } })),
  });
  return (
    <Stack gap={8}>
      <Group gap="md">
        <UnstyledButton
          c="var(--accent)"
          fz={14}
          aria-expanded={opened}
          onClick={() => setOpened(!opened)}
        >
          {words.show} {opened ? '▴' : '▾'}
        </UnstyledButton>
        <UnstyledButton
          c="var(--accent)"
          fz={14}
          disabled={bisect.isPending}
          onClick={() => bisect.mutate()}
        >
          {words.since}
        </UnstyledButton>
      </Group>
      {opened && found.isPending && <LoadingState rows={2} />}
      {opened && found.isError && <ErrorState error={found.error} />}
      {opened && found.data && <Documents found={found.data} />}
      {bisect.isPending && <LoadingState rows={2} />}
      {bisect.isError &&
        (bisect.error instanceof ApiError && bisect.error.problem.code === 'SAME_ANSWER' ? (
          <State tone="ok" label={words.nothing} isLong />
        ) : (
          <ErrorState error={bisect.error} />
        ))}
      {bisect.data && <FlippedBy found={bisect.data} />}
    </Stack>
  );
}

function Documents({ found }: { found: Schemas['CounterfactualAnswer'] }) {
  const words = useWords(restsOnWords);
  const format = useFormat();
  const verdict =
    found.verdict === 'confirmed'
      ? words.confirmedBy(format.count(found.confirming.length))
      : words.verdicts[found.verdict];
  return (
    <section aria-label={words.show}>
      <State tone={TONES[found.verdict]} label={verdict} isLong />
      {!found.is_quoted && (
        <Text size="xs" c="dimmed">
          {words.byQuotes}
        </Text>
      )}
      <ul className={classes.reasons}>
        {found.documents.map((document) => (
          <li key={document.document_id}>
            <span className="muted">{words.without}</span>{' '}
            {document.citations.map((n) => (
              <span key={n} className={classes.marker}>
                {n}
              </span>
            ))}{' '}
            <span className="foreign">
              {document.title ?? document.external_id ?? document.document_id}
            </span>
            <div className="muted foreign">
              {document.outcome === 'other_value'
                ? words.otherwise(
                    document.said_by ?? '—',
                    String(document.said_in_revision ?? '—'),
                    document.value ?? '—',
                  )
                : words.outcomes[document.outcome]}
            </div>
            {document.outcome === 'other_words' && document.answer && (
              <blockquote className={`${classes.quote} foreign`}>
                {toPlainText(document.answer)}
              </blockquote>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

function FlippedBy({ found }: { found: Schemas['Bisection'] }) {
  const words = useWords(restsOnWords);
  const format = useFormat();
  const { document } = found;
  return (
    <section aria-label={words.since}>
      <State tone="warn" label={found.reason.detail} isLong />
      {(['before', 'after'] as const).map((side) => (
        <div key={side}>
          <Text size="xs" c="dimmed">
            {words[side]}
          </Text>
          <blockquote className={`${classes.quote} foreign`}>
            {found[side] ? toPlainText(found[side]) : words.refused}
          </blockquote>
        </div>
      ))}
      <Text size="xs" c="dimmed">
        {document?.topic &&
          `${words.position(document.topic, String(document.partition), String(document.offset))} · `}
        {words.counted(format.count(found.changes), format.count(found.reruns))}
      </Text>
    </section>
  );
}
