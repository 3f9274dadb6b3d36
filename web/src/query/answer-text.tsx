import { HoverCard, UnstyledButton } from '@mantine/core';
import { type ReactNode, useMemo } from 'react';
import { useWords } from '@/shared/i18n';
import classes from './answer.module.css';
import { queryWords } from './words';

export type MarkerPart = { kind: 'citation' | 'fact'; n: number };
export type TextPart = { kind: 'text'; text: string } | { kind: 'bold'; text: string } | MarkerPart;

/** Split an answer into text, bold values and markers: `**45** days. [1] [F1]`. */
export function splitAnswer(answer: string): TextPart[] {
  const parts: TextPart[] = [];
  let end = 0;
  // A marker belongs to the word before it, so the space between them goes.
  for (const match of answer.matchAll(/\*\*([^*\n]+)\*\*| ?\[(F?)(\d{1,4})\]/g)) {
    if (match.index > end) parts.push({ kind: 'text', text: answer.slice(end, match.index) });
    const [, bold, fact, number] = match;
    if (bold !== undefined) parts.push({ kind: 'bold', text: bold });
    else parts.push({ kind: fact ? 'fact' : 'citation', n: Number(number) });
    end = match.index + match[0].length;
  }
  if (end < answer.length) parts.push({ kind: 'text', text: answer.slice(end) });
  return parts;
}

/** The answer in reading size; each citation opens its quote. */
export function AnswerText({
  answer,
  preview,
  onOpen,
}: {
  answer: string;
  /** What hovering a marker shows; null for a number that the answer has no source for. */
  preview: (part: MarkerPart) => ReactNode;
  onOpen: (n: number) => void;
}) {
  const parts = useMemo(() => splitAnswer(answer), [answer]);
  return (
    <div className={`${classes.answer} foreign`}>
      {parts.map((part, index) => {
        const key = `${index} ${part.kind}`;
        if (part.kind === 'text') return <span key={key}>{part.text}</span>;
        if (part.kind === 'bold') return <strong key={key}>{part.text}</strong>;
        return <Marker key={key} part={part} preview={preview(part)} onOpen={onOpen} />;
      })}
    </div>
  );
}

function Marker({
  part,
  preview,
  onOpen,
}: {
  part: MarkerPart;
  preview: ReactNode;
  onOpen: (n: number) => void;
}) {
  const words = useWords(queryWords);
  const isFact = part.kind === 'fact';
  const label = `${isFact ? 'F' : ''}${part.n}`;
  if (preview === null) return <sup>{label}</sup>;
  return (
    <HoverCard width={380} openDelay={120} closeDelay={80} shadow="md" zIndex={100}>
      <HoverCard.Target>
        <UnstyledButton
          className={classes.marker}
          aria-label={isFact ? words.fact(part.n) : words.openSource(part.n)}
          onClick={() => {
            if (!isFact) onOpen(part.n);
          }}
        >
          {label}
        </UnstyledButton>
      </HoverCard.Target>
      <HoverCard.Dropdown>{preview}</HoverCard.Dropdown>
    </HoverCard>
  );
}

/** The text of an answer without its marks, where its citations are not shown. */
export function toPlainText(answer: string): string {
  return splitAnswer(answer)
    .map((part) => ('text' in part ? part.text : ''))
    .join('')
    .trim();
}
