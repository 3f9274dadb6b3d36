import { useEffect, useState } from 'react';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import classes from './answer.module.css';
import type { Step } from './follow';
import { queryWords } from './words';

const DONE = { mark: '●', tone: 'ok' };
const CURRENT = { mark: '◐', tone: 'warn' };
// The run ended within it.
const UNFINISHED = { mark: '○', tone: 'muted' };

/** Each step with its duration; the one that runs is named in words. */
export function StepStrip({ steps, isRunning }: { steps: readonly Step[]; isRunning: boolean }) {
  const words = useWords(queryWords);
  const format = useFormat();
  return (
    <ol className={classes.steps} aria-label={words.stepsLabel}>
      {steps.map((step, index) => {
        const shape = step.ms !== null ? DONE : isRunning ? CURRENT : UNFINISHED;
        return (
          // biome-ignore lint/suspicious/noArrayIndexKey: a step may run twice, in its place.
          <li key={index} className={classes.step}>
            <span aria-hidden="true" className={shape.tone}>
              {shape.mark}
            </span>{' '}
            {words.steps[step.name] ?? step.name}{' '}
            {step.ms !== null && <span className="muted">{format.duration(step.ms)}</span>}
          </li>
        );
      })}
    </ol>
  );
}

/** Time since it was first shown, while something runs. */
export function Elapsed() {
  const format = useFormat();
  const [start] = useState(() => performance.now());
  const [now, setNow] = useState(start);
  useEffect(() => {
    const timer = setInterval(() => setNow(performance.now()), 100);
    return () => clearInterval(timer);
  }, []);
  return <span className="muted">{format.decimal((now - start) / 1000, 1)} s</span>;
}
