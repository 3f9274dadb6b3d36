import { Stack, Text, UnstyledButton } from '@mantine/core';
import type { Hit } from '@/evidence/context';
import { useEvidence } from '@/evidence/context';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import classes from './answer.module.css';
import { type Answer, type Citation, type Passage, passageHit, toHit } from './run-data';
import { queryWords } from './words';

type Where = {
  title?: string | null;
  section: string;
  pages: readonly number[];
  spans: Hit['spans'];
};

/** "2. Timetable · p. 3", or the cells and times that the first span names. */
export function useWhere() {
  const words = useWords(queryWords);
  const format = useFormat();
  return ({ title, section, pages, spans }: Where): string => {
    const [first] = spans;
    const sheet = first?.cells ? [first.sheet, first.cells].filter(Boolean).join('!') : null;
    const time = typeof first?.start_s === 'number' ? format.duration(first.start_s * 1000) : null;
    const heading = section.split(' > ').at(-1);
    return [
      // The first heading of a document is often its title.
      heading === title ? null : heading,
      pages.length > 0 ? words.page(pages.join(', ')) : null,
      sheet,
      time,
    ]
      .filter(Boolean)
      .join(' · ');
  };
}

/** A quote with its document, as hovering a citation shows it. */
export function QuoteCard({ citation }: { citation: Citation }) {
  const where = useWhere()(citation);
  return (
    <Stack gap={8}>
      <blockquote className={`${classes.quote} foreign`}>{citation.quote}</blockquote>
      <div>
        <div className={`${classes.title} foreign`}>{citation.title ?? citation.document_id}</div>
        <div className={`${classes.where} foreign`}>{where}</div>
      </div>
    </Stack>
  );
}

/** The cited quotes beside the answer, numbered as in its text. */
export function Sources({ answer }: { answer: Answer }) {
  const words = useWords(queryWords);
  const format = useFormat();
  const evidence = useEvidence();
  const where = useWhere();
  const hits = answer.citations.map(toHit);
  const facts = answer.facts ?? [];
  if (hits.length === 0 && facts.length === 0) return null;
  return (
    <section aria-label={words.sources}>
      <Text size="xs" c="dimmed" px={8} pb={4}>
        {words.sources}
      </Text>
      <ol className={classes.sources}>
        {answer.citations.map((citation, index) => (
          <li key={citation.n}>
            <UnstyledButton className={classes.source} onClick={() => evidence.open(hits, index)}>
              <span className={classes.number}>{citation.n}</span>
              <span>
                <span className={`${classes.title} foreign`}>
                  {citation.title ?? citation.document_id}
                </span>
                <div className={`${classes.where} foreign`}>{where(citation)}</div>
                <div className={`${classes.excerpt} foreign`}>{citation.quote}</div>
              </span>
            </UnstyledButton>
          </li>
        ))}
        {facts.map((fact) => (
          <li key={fact.fact_id} className={classes.source}>
            <span className={classes.number}>F{fact.n}</span>
            <span>
              <span className={`${classes.title} foreign`}>{fact.statement}</span>
              <div className={`${classes.where} foreign`}>
                {words.factBy(fact.stated_by, format.percent(fact.certainty))}
              </div>
            </span>
          </li>
        ))}
      </ol>
    </section>
  );
}

/** Passages that were found, each openable in its document. */
export function PassageList({ passages }: { passages: readonly Passage[] }) {
  const evidence = useEvidence();
  const where = useWhere();
  const hits = passages.map(passageHit);
  return (
    <ol className={classes.sources}>
      {passages.map((passage, index) => (
        <li key={passage.parent_id}>
          <UnstyledButton className={classes.source} onClick={() => evidence.open(hits, index)}>
            <span className={classes.number}>{index + 1}</span>
            <span>
              <span className={`${classes.title} foreign`}>
                {passage.title ?? passage.document_id}
              </span>
              <div className={`${classes.where} foreign`}>{where(passage)}</div>
              <div className={`${classes.excerpt} foreign`}>{passage.snippet}</div>
            </span>
          </UnstyledButton>
        </li>
      ))}
    </ol>
  );
}
