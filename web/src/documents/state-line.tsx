import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { State } from '@/shared/ui/bits';
import { describe } from './describe';
import classes from './documents.module.css';
import { type DocumentRow, toDots } from './stages';
import { stateWords } from './state-words';

const STEP = 13;
const RADIUS = 4;

/** Six dots, read by position: receive, transcribe, chunk, extract and embed, index, graph. */
export function StageStrip({ document, now }: { document: DocumentRow; now: number }) {
  const words = useWords(stateWords);
  const dots = toDots(document, now);
  const label = dots
    .map((dot) => `${dot.stages.map((s) => words.stages[s]).join(' + ')}: ${words.dots[dot.state]}`)
    .join('\n');
  return (
    <svg
      className={classes.strip}
      width={STEP * dots.length}
      height={12}
      role="img"
      aria-label={`${words.strip}: ${label.replaceAll('\n', ', ')}`}
    >
      <title>{label}</title>
      {dots.map(({ stages, state }, index) => {
        const x = index * STEP + RADIUS + 1;
        if (state === 'failed') {
          return <path key={stages[0]} className={classes.failed} d={`M${x - 5} 10.5h10l-5 -9z`} />;
        }
        if (state === 'stalled') {
          return <path key={stages[0]} className={classes.stalled} d={`M${x} 1l5 5l-5 5l-5 -5z`} />;
        }
        const r = state === 'skipped' ? 1.5 : RADIUS;
        return (
          <g key={stages[0]}>
            <circle className={classes[state]} cx={x} cy={6} r={r} />
            {state === 'running' && <path className={classes.half} d={`M${x} 2a4 4 0 0 1 0 8z`} />}
          </g>
        );
      })}
    </svg>
  );
}

/** The strip with the state in words; what to do on hover. */
export function StateLine({
  document,
  now,
  isWhole = false,
}: {
  document: DocumentRow;
  now: number;
  /** All of the sentence, on as many lines as it takes, instead of one. */
  isWhole?: boolean;
}) {
  const words = useWords(stateWords);
  const { tone, text, advice } = describe(document, words, useFormat(), now);
  return (
    <span className={classes.state}>
      <StageStrip document={document} now={now} />
      <span
        className={`${isWhole ? '' : 'truncate'} foreign`}
        style={{ minWidth: 0 }}
        title={isWhole ? undefined : [text, advice].filter(Boolean).join('\n')}
      >
        <State tone={tone} label={text} isLong={isWhole} />
      </span>
    </span>
  );
}
