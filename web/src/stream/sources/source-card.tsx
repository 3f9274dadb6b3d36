import { Button, Group } from '@mantine/core';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Ago, State, type Tone } from '@/shared/ui/bits';
import classes from '../generations/generations.module.css';
import { type Kind, problemsOf, readsOf, type Source } from './request';
import { sourceWords } from './words';

const FAILED = new Set(['failed', 'error']);
const SHOWN_PROBLEMS = 5;

/** One source: its state in words, what it reads, its last problems and its actions. */
export function SourceCard({
  source,
  onReset,
  onRemove,
}: {
  source: Source;
  onReset: () => void;
  onRemove: () => void;
}) {
  const words = useWords(sourceWords);
  const format = useFormat();
  const { name, state, kind, connector } = source;
  const { first, more } = readsOf(connector);
  const problems = problemsOf(source.status);
  const tone: Tone = FAILED.has(state) ? 'bad' : problems.count > 0 ? 'warn' : 'ok';
  return (
    <article className={`panel ${classes.card}`} aria-label={name}>
      <div className={classes.head}>
        <h2 className={`foreign ${classes.name}`}>{name}</h2>
        <State tone={tone} label={words.states[state as keyof typeof words.states] ?? state} />
        {problems.count > 0 && (
          <span className="warn">{words.problems(format.count(problems.count))}</span>
        )}
        <span style={{ flex: 1 }} />
        <Group gap="xs">
          <Button variant="default" onClick={onReset}>
            {words.resetName(name)}
          </Button>
          <Button variant="default" className="bad" onClick={onRemove}>
            {words.removeName(name)}
          </Button>
        </Group>
      </div>
      <div dir="auto" className="foreign truncate" title={first}>
        {words.kinds[kind as Kind] ?? kind}:{' '}
        <code>{more > 0 ? words.urls(format.count(more), first) : first}</code>
        {'every_s' in connector && connector.every_s !== undefined && (
          <span className="muted"> · {words.every(format.duration(connector.every_s * 1000))}</span>
        )}
      </div>
      <dl className={classes.facts}>
        <div>
          <dt>{words.documents}</dt>
          <dd>{format.count(source.documents)}</dd>
        </div>
        <div>
          <dt>{words.lastChange}</dt>
          <dd>
            <Ago time={source.last_change_at} />
          </dd>
        </div>
        {source.collection && (
          <div>
            <dt>{words.form.collection}</dt>
            <dd className="foreign">{source.collection}</dd>
          </div>
        )}
        {source.pending > 0 && <div>{words.pending(format.count(source.pending))}</div>}
        {source.incomplete > 0 && <div>{words.incomplete(format.count(source.incomplete))}</div>}
      </dl>
      {problems.items.length > 0 && (
        <ul style={{ margin: 0, paddingLeft: 20 }}>
          {problems.items.slice(0, SHOWN_PROBLEMS).map(([item, text]) => (
            <li key={`${item} ${text}`} className="foreign">
              {item && <code>{item}</code>} {text}
            </li>
          ))}
        </ul>
      )}
    </article>
  );
}
