import { Button, Group } from '@mantine/core';
import { useCan } from '@/shared/api/identity';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Ago, State, type Tone } from '@/shared/ui/bits';
import type { GenerationAct } from './acts';
import { BuildProgress } from './build-progress';
import { diffConfig, type Generation } from './config-diff';
import classes from './generations.module.css';
import { generationWords } from './words';

const TONES: Record<string, Tone> = { live: 'ok', shadow: 'busy', building: 'busy' };

/** One generation: its state in words, how its settings differ, its size, what can be done. */
export function GenerationCard({
  generation,
  live,
  onAct,
  onCompare,
}: {
  generation: Generation;
  live: Generation | undefined;
  onAct: (act: GenerationAct) => void;
  onCompare: (name: string) => void;
}) {
  const words = useWords(generationWords);
  const format = useFormat();
  const isOperator = useCan('operator');
  const { name, state } = generation;
  const act = (kind: GenerationAct['kind']) => () => onAct({ kind, generation });
  const isBuilding = state === 'building';
  return (
    <article className={`panel ${classes.card}`} aria-label={name}>
      <div className={classes.head}>
        <h2 className={classes.name}>{name}</h2>
        <State
          tone={TONES[state] ?? 'idle'}
          label={words.states[state as keyof typeof words.states] ?? state}
        />
        <span style={{ flex: 1 }} />
        {isOperator && (
          <Group gap="xs">
            {live && !generation.live && !isBuilding && (
              <Button variant="default" onClick={() => onCompare(name)}>
                {words.compare(name)}
              </Button>
            )}
            {state === 'shadow' && (
              <>
                <Button variant="default" onClick={act('calibrate')}>
                  {words.calibrate(name)}
                </Button>
                <Button onClick={act('promote')}>{words.promote(name)}</Button>
              </>
            )}
            {generation.previous && (
              <Button onClick={act('rollback')}>{words.rollback(name)}</Button>
            )}
            {!generation.live && (
              <Button variant="default" className="bad" onClick={act('drop')}>
                {isBuilding ? words.abort(name) : words.drop(name)}
              </Button>
            )}
          </Group>
        )}
      </div>
      <Differences generation={generation} live={live} />
      {isBuilding ? (
        <BuildProgress generation={generation} total={live?.documents ?? 0} />
      ) : (
        <dl className={classes.facts}>
          <Fact label={words.documents}>
            {live && !generation.live
              ? words.of(format.count(generation.documents), format.count(live.documents))
              : format.count(generation.documents)}
          </Fact>
          <Fact label={words.chunks}>{format.count(generation.chunks)}</Fact>
          {generation.bytes !== null && (
            <Fact label={words.size}>{format.bytes(generation.bytes)}</Fact>
          )}
          <Fact label={words.created}>
            <Ago time={generation.created_at} /> ·{' '}
            {words.purposes[generation.purpose as keyof typeof words.purposes] ??
              generation.purpose}
          </Fact>
        </dl>
      )}
    </article>
  );
}

function Fact({ label, children }: { label: string; children: React.ReactNode }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Differences({
  generation,
  live,
}: {
  generation: Generation;
  live: Generation | undefined;
}) {
  const words = useWords(generationWords);
  if (live === undefined) return null;
  if (generation.live) return <div className={`muted ${classes.diff}`}>{words.baseline}</div>;
  const differences = diffConfig(live, generation);
  if (differences.length === 0) return <div className={`muted ${classes.diff}`}>{words.same}</div>;
  return (
    <div className={classes.diff}>
      {differences.map(({ setting, live: before, own }) => (
        <span key={setting} className="foreign">
          <code>{setting}</code> <span className="muted">{before}</span> → <b>{own}</b>
        </span>
      ))}
    </div>
  );
}
