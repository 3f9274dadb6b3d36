import { Link } from '@tanstack/react-router';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Ago, State } from '@/shared/ui/bits';
import { stageLabel, streamWords } from '../words';
import classes from './pipeline.module.css';
import { Sparkline } from './sparkline';
import { conditionOf, type StageView, toneOf } from './stages';
import { pipelineWords } from './words';

/** One stage: its topic, its state in words, then its numbers. */
export function StageCard({ view }: { view: StageView }) {
  const words = useWords(pipelineWords);
  const stream = useWords(streamWords);
  const format = useFormat();
  const name = stageLabel(stream, view.stage);
  const total = view.slots.reduce((sum, count) => sum + count, 0);
  const tone = toneOf(view);
  const { consumer } = view;
  const lag = consumer?.lag ?? 0;
  const label = {
    blocked: words.blocked(format.count(lag)),
    waiting: words.waiting(format.count(lag)),
    working: words.working,
    idle: words.idle,
  };
  return (
    <article
      className={`panel ${classes.node} ${classes.next}`}
      style={{ gridArea: view.stage }}
      data-tone={view.deadLetters > 0 ? 'bad' : tone}
      aria-label={name}
    >
      <div className={classes.topic}>
        <span className="mono truncate">{view.reads}</span>
        {view.records !== undefined && (
          <span title={words.records(format.count(view.records))}>
            {format.count(view.records)}
          </span>
        )}
      </div>
      <h2 className={classes.name}>{name}</h2>
      <div className={classes.waiting}>
        <State tone={tone} label={label[conditionOf(view)]} />
        {lag > 0 && consumer?.oldest_seconds != null && (
          <div className="muted">
            {words.oldest(format.duration(consumer.oldest_seconds * 1000))}
          </div>
        )}
        {lag > 0 && consumer?.reason && <div className="foreign">{consumer.reason}</div>}
        {view.deadLetters > 0 && (
          <div>
            <Link to="/dead-letters" search={{ stage: view.stage } as never}>
              <State tone="bad" label={words.deadLetters(format.count(view.deadLetters))} />
            </Link>
          </div>
        )}
      </div>
      <div className={classes.rate}>
        <Sparkline values={view.slots} label={words.spark(format.count(total), name)} />
        <span>{words.rate(format.count(view.perMinute))}</span>
      </div>
      <dl className={classes.numbers}>
        <dt>{words.last}</dt>
        <dd>{view.lastAt === null ? '—' : <Ago time={new Date(view.lastAt).toISOString()} />}</dd>
        {consumer?.in_flight != null && (
          <>
            <dt>{words.inFlight}</dt>
            <dd>{format.count(consumer.in_flight)}</dd>
            <dt>{words.retries}</dt>
            <dd className={consumer.retries ? 'warn' : undefined}>
              {format.count(consumer.retries ?? 0)}
            </dd>
            <dt>{words.p50}</dt>
            <dd>{consumer.p50_ms == null ? '—' : format.duration(consumer.p50_ms)}</dd>
            <dt>{words.p95}</dt>
            <dd>{consumer.p95_ms == null ? '—' : format.duration(consumer.p95_ms)}</dd>
          </>
        )}
      </dl>
    </article>
  );
}
