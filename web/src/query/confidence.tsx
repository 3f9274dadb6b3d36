import { ActionIcon, Collapse, Tooltip, UnstyledButton } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { State } from '@/shared/ui/bits';
import classes from './answer.module.css';
import { type Answer, parseAssumption, type QueryRequest } from './run-data';
import { queryWords } from './words';

const TONES = { high: 'ok', medium: 'warn', low: 'bad' } as const;

/** How far the answer can be trusted, in words, with its reasons one click below. */
export function ConfidenceLine({ answer }: { answer: Answer }) {
  const words = useWords(queryWords);
  const format = useFormat();
  const [opened, { toggle }] = useDisclosure(false);
  const { level, probability, reasons } = answer.confidence;
  const sources = new Set(answer.citations.map((citation) => citation.document_id)).size;
  return (
    <div>
      <div className={classes.meta}>
        <State tone={TONES[level]} label={words.confidence[level]} />
        {typeof probability === 'number' && <span>{format.percent(probability)}</span>}
        <span>{words.nSources(format.count(sources), sources)}</span>
        {answer.trace.cached && <span className="muted">{words.cached}</span>}
        {reasons.length > 0 && (
          <UnstyledButton c="var(--accent)" fz={14} aria-expanded={opened} onClick={toggle}>
            {words.whyConfidence} {opened ? '▴' : '▾'}
          </UnstyledButton>
        )}
      </div>
      <Collapse expanded={opened}>
        <ul className={`${classes.reasons} muted foreign`}>
          {[...reasons, ...(answer.limitations ?? [])].map((reason) => (
            <li key={reason}>{reason}</li>
          ))}
        </ul>
      </Collapse>
    </div>
  );
}

/** What the answer takes for granted; removing one asks again without it. */
export function Assumptions({
  answer,
  onAskWithout,
}: {
  answer: Answer;
  onAskWithout: (change: Partial<QueryRequest>) => void;
}) {
  const words = useWords(queryWords);
  const assumptions = (answer.assumptions ?? []).map(parseAssumption);
  if (assumptions.length === 0) return null;
  return (
    <div className={classes.meta}>
      <span className="muted">{words.assumed}</span>
      {assumptions.map(({ text, without }) => (
        <span key={text} className={`${classes.chip} foreign`}>
          <span>{text}</span>
          {without && (
            <Tooltip label={words.removeAssumption}>
              <ActionIcon
                size={18}
                radius="xl"
                variant="subtle"
                color="gray"
                aria-label={`${words.removeAssumption}: ${text}`}
                onClick={() => onAskWithout(without)}
              >
                ×
              </ActionIcon>
            </Tooltip>
          )}
        </span>
      ))}
    </div>
  );
}
