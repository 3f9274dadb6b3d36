import type { Schemas } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { stageLabel, streamWords } from '../words';
import classes from './generations.module.css';
import { generationWords } from './words';

const MINUTE_MS = 60_000;

/** What a build costs: model calls, what the cache saves, time, disk. */
export function BuildPrice({ plan }: { plan: Schemas['BuildPlanResponse'] }) {
  const words = useWords(generationWords).plan;
  const stream = useWords(streamWords);
  const format = useFormat();
  if (!plan.covered_by_retention)
    return (
      <p className="bad" role="alert">
        {words.notRetained}
      </p>
    );
  const calls = Object.values(plan.engine_calls).reduce((sum, count) => sum + count, 0);
  const low = format.duration(plan.minutes.low * MINUTE_MS);
  const high = format.duration(plan.minutes.high * MINUTE_MS);
  return (
    <ul className={`panel ${classes.price}`} aria-live="polite">
      <li>
        {calls === 0 ? words.free : words.calls(format.count(calls), format.count(plan.tokens))}
      </li>
      {calls > 0 && (
        <li className="muted">
          {words.byEngine}:{' '}
          {Object.entries(plan.engine_calls)
            .map(([engine, count]) => `${engine} ${format.count(count)}`)
            .join(', ')}
        </li>
      )}
      {plan.memo_hits > 0 && (
        <li>
          {words.cached(
            format.count(plan.memo_hits),
            format.percent(plan.memo_hits / (plan.memo_hits + calls)),
          )}
        </li>
      )}
      <li>{words.from(stageLabel(stream, plan.first_changed_stage), format.count(plan.events))}</li>
      <li>
        {plan.minutes.low * MINUTE_MS < 1000 ? words.about(high) : words.minutes(low, high)} ·{' '}
        {words.bytes(format.bytes(plan.bytes))}
      </li>
      {calls > 0 && <li className="muted">{words.noMoney}</li>}
    </ul>
  );
}
