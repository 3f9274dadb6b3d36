import { Stack, Text, Title } from '@mantine/core';
import type { ReactNode } from 'react';
import { useEvidence } from '@/evidence/context';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import classes from './answer.module.css';
import { AnswerText, type MarkerPart } from './answer-text';
import { Assumptions, ConfidenceLine } from './confidence';
import { FeedbackRow } from './feedback';
import { type Answer, type QueryRequest, toHit } from './run-data';
import { PassageList, QuoteCard, Sources } from './sources';
import { queryWords } from './words';

/** An answer as the page: text, conflicts, confidence, assumptions, feedback, and its sources. */
export function AnswerView({
  answer,
  onAskWithout,
  footer,
}: {
  answer: Answer;
  onAskWithout: (change: Partial<QueryRequest>) => void;
  footer?: ReactNode;
}) {
  const words = useWords(queryWords);
  const format = useFormat();
  const evidence = useEvidence();
  const hits = answer.citations.map(toHit);
  const open = (n: number) => {
    const index = answer.citations.findIndex((citation) => citation.n === n);
    if (index >= 0) evidence.open(hits, index);
  };
  const preview = (part: MarkerPart) => {
    if (part.kind === 'citation') {
      const citation = answer.citations.find(({ n }) => n === part.n);
      return citation ? <QuoteCard citation={citation} /> : null;
    }
    const fact = answer.facts?.find(({ n }) => n === part.n);
    return fact ? (
      <Stack gap={4}>
        <div className="foreign">{fact.statement}</div>
        <div className={`${classes.where} foreign`}>
          {words.factBy(fact.stated_by, format.percent(fact.certainty))}
        </div>
      </Stack>
    ) : null;
  };
  return (
    <div className={classes.layout}>
      <div className={classes.main}>
        {answer.refused ? (
          <Refusal answer={answer} />
        ) : (
          <AnswerText answer={answer.answer ?? ''} preview={preview} onOpen={open} />
        )}
        <Conflicts answer={answer} onOpen={open} />
        <Paths answer={answer} onOpen={open} />
        {!answer.refused && <ConfidenceLine answer={answer} />}
        <Assumptions answer={answer} onAskWithout={onAskWithout} />
        {(answer.redacted ?? 0) > 0 && (
          <Text size="sm" c="dimmed">
            {words.masked(format.count(answer.redacted ?? 0))}
          </Text>
        )}
        <FeedbackRow key={answer.run_id} answer={answer} />
        {footer}
      </div>
      {answer.refused ? <SpeakOf answer={answer} /> : <Sources answer={answer} />}
    </div>
  );
}

function Refusal({ answer }: { answer: Answer }) {
  const words = useWords(queryWords);
  const format = useFormat();
  const { max_rerank_score: best, threshold } = answer.trace;
  return (
    <Stack gap={8}>
      <Title order={2} fz={24} lh="32px">
        {words.refused}
      </Title>
      <div className={`${classes.answer} foreign`}>{answer.message}</div>
      <Text size="sm" c="dimmed">
        {answer.code && words.refusedCodes[answer.code]}{' '}
        {typeof best === 'number' &&
          typeof threshold === 'number' &&
          best < threshold &&
          words.bestScore(format.score(best), format.score(threshold))}
      </Text>
    </Stack>
  );
}

function SpeakOf({ answer }: { answer: Answer }) {
  const words = useWords(queryWords);
  // The best passage of each document.
  const passages = (answer.contexts ?? []).filter(
    (passage, index, all) =>
      all.findIndex((other) => other.document_id === passage.document_id) === index,
  );
  if (passages.length === 0) return null;
  return (
    <section aria-label={words.speakOf}>
      <Text size="xs" c="dimmed" px={8} pb={4}>
        {words.speakOf}
      </Text>
      <PassageList passages={passages.slice(0, 5)} />
    </section>
  );
}

/** The values between which the documents disagree, side by side. */
function Conflicts({ answer, onOpen }: { answer: Answer; onOpen: (n: number) => void }) {
  const words = useWords(queryWords);
  const where = (n: number) => answer.citations.find((citation) => citation.n === n);
  return (answer.conflicts ?? []).map((conflict) => (
    <section key={conflict.values.map(({ value }) => value).join()} aria-label={words.conflict}>
      <Text size="sm" fw={600} className="warn" pb={8}>
        <span aria-hidden="true">◆</span> {words.conflict}
      </Text>
      <div className={classes.conflict}>
        {conflict.values.map(({ value, citations }) => (
          <div key={value} className={`panel ${classes.conflictValue}`}>
            <div className={`${classes.value} foreign`}>{value}</div>
            {citations.map((n) => (
              <button
                type="button"
                key={n}
                className={`${classes.link} foreign`}
                onClick={() => onOpen(n)}
              >
                {n} · {where(n)?.title ?? where(n)?.document_id}
              </button>
            ))}
          </div>
        ))}
      </div>
    </section>
  ));
}

/** The relations, or the names, over which the answer was found. */
function Paths({ answer, onOpen }: { answer: Answer; onOpen: (n: number) => void }) {
  const words = useWords(queryWords);
  const evidence = useEvidence();
  const relations = answer.relation_path ?? [];
  const hops = answer.path ?? [];
  return (
    <>
      {relations.length > 0 && (
        <section aria-label={words.relationPath}>
          <Text size="xs" c="dimmed">
            {words.relationPath}
          </Text>
          {relations.map((hop) => (
            <Text
              key={`${hop.subject} ${hop.predicate} ${hop.object}`}
              size="sm"
              className="foreign"
            >
              {hop.subject} <span className="graph">{hop.inverse ? '←' : '→'}</span> {hop.predicate}{' '}
              <span className="graph">{hop.inverse ? '←' : '→'}</span> {hop.object}{' '}
              {hop.citations.map((n) => (
                <button type="button" key={n} className={classes.marker} onClick={() => onOpen(n)}>
                  {n}
                </button>
              ))}
            </Text>
          ))}
        </section>
      )}
      {hops.length > 0 && (
        <section aria-label={words.path}>
          <Text size="xs" c="dimmed">
            {words.path}
          </Text>
          {hops.map((hop) => (
            <Text key={`${hop.chunk_id} ${hop.name}`} size="sm" className="foreign">
              <button
                type="button"
                className={classes.link}
                onClick={() =>
                  evidence.open([
                    {
                      documentId: hop.document_id,
                      // A hop has no revision of its own: that of a citation of its document.
                      revision: revisionOf(answer, hop.document_id),
                      spans: hop.spans,
                      title: hop.title ?? null,
                      quote: hop.quote,
                      chunkId: hop.chunk_id,
                    },
                  ])
                }
              >
                {hop.title ?? hop.document_id}
              </button>{' '}
              → “{hop.name}” → {hop.target.title ?? hop.target.document_id}
            </Text>
          ))}
        </section>
      )}
    </>
  );
}

function revisionOf(answer: Answer, documentId: string): number {
  const known = [...answer.citations, ...(answer.contexts ?? [])];
  return known.find(({ document_id }) => document_id === documentId)?.revision ?? 1;
}
