import { Button, Group, Stack, Text } from '@mantine/core';
import { useState } from 'react';
import { useEvidence } from '@/evidence/context';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { State } from '@/shared/ui/bits';
import { EmptyState } from '@/shared/ui/states';
import { CHANNELS, type Channel } from './fusion';
import { excerptAround, markWords, matcher } from './matched-words';
import { type PassageInfo, usePassageInfo } from './passages';
import type { Candidate, RecordedRun } from './run-data';
import type { TabProps } from './run-page';
import { runWords } from './run-words';
import { useWhere } from './sources';
import classes from './tabs.module.css';

const FIRST_ROWS = 10;

/** What each channel found, side by side; hovering lights the same passage in all of them. */
export function RetrievalTab({ run }: TabProps) {
  const words = useWords(runWords);
  const [lit, setLit] = useState<string | null>(null);
  const [all, setAll] = useState<Partial<Record<Channel, boolean>>>({});
  const columns = CHANNELS.map((channel) => {
    const found = rankChannel(run.candidates, channel);
    return { channel, found, shown: all[channel] ? found : found.slice(0, FIRST_ROWS) };
  });
  const describe = usePassageInfo(
    run,
    columns.flatMap(({ shown }) => shown),
  );
  const isMatch = matcher(run.record?.keywords ?? [], run.numbers.idf);
  if (run.trace === null) return <EmptyState title={words.notRecorded} />;
  return (
    <Stack gap="md">
      <PlanLine run={run} />
      <div className={classes.columns}>
        {columns.map(({ channel, found, shown }) => (
          <section key={channel} aria-label={words.channels[channel]}>
            <ChannelHead run={run} channel={channel} />
            <ol className={classes.hits}>
              {shown.map((candidate) => (
                <HitRow
                  key={candidate.chunk_id}
                  candidate={candidate}
                  channel={channel}
                  info={describe(candidate)}
                  paths={channel === 'graph' ? listPaths(run, candidate) : []}
                  isMatch={isMatch}
                  isLit={lit === candidate.chunk_id}
                  onLight={setLit}
                />
              ))}
            </ol>
            {shown.length < found.length && (
              <ShowAll count={found.length} onClick={() => setAll({ ...all, [channel]: true })} />
            )}
          </section>
        ))}
      </div>
    </Stack>
  );
}

function ShowAll({ count, onClick }: { count: number; onClick: () => void }) {
  const words = useWords(runWords).retrieval;
  const format = useFormat();
  return (
    <Button variant="default" size="compact-xs" mt={8} onClick={onClick}>
      {words.showAll(format.count(count))}
    </Button>
  );
}

function PlanLine({ run }: { run: RecordedRun }) {
  const words = useWords(runWords).retrieval;
  const { trace, record } = run;
  // A name may be linked to entities of several types.
  const linked = [...new Set(record?.linked)];
  return (
    <div>
      <dl className={`${classes.facts} foreign`}>
        <Fact label={words.route} value={`${trace?.route.mode} · ${trace?.route.reason}`} />
        <Fact label={words.keywords} value={record?.keywords.join(' · ')} />
        {linked.length > 0 && <Fact label={words.linked} value={linked.join(' · ')} />}
      </dl>
      <Text size="sm" c="dimmed" pt={8}>
        {words.hint}
      </Text>
    </div>
  );
}

function Fact({ label, value }: { label: string; value: string | undefined }) {
  if (!value) return null;
  return (
    <div>
      <dt>{label}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function ChannelHead({ run, channel }: { run: RecordedRun; channel: Channel }) {
  const labels = useWords(runWords);
  const words = labels.retrieval;
  const format = useFormat();
  const trace = run.trace?.channels[channel];
  const failure = run.trace?.channels_failed[channel];
  return (
    <div className={classes.channelHead} style={{ borderColor: `var(--${channel})` }}>
      <Group justify="space-between" gap={8}>
        <span className={channel} style={{ fontWeight: 600 }}>
          {labels.channels[channel]}
        </span>
        {trace && <span className="muted">{format.duration(trace.ms)}</span>}
      </Group>
      {trace && (
        <Text size="xs" c="dimmed">
          {words.returned(format.count(trace.returned), format.count(trace.k))}
          {typeof trace.best === 'number' && ` · ${words.best(format.score(trace.best))}`}
          {trace.served_by && ` · ${words.servedBy[trace.served_by]}`}
        </Text>
      )}
      {failure && (
        <div>
          <State tone="bad" label={words.failed} />{' '}
          <span className="foreign">
            {failure} {words.others}
          </span>
        </div>
      )}
      {!trace && !failure && <Text size="xs">{words.notSearched}</Text>}
      {trace?.returned === 0 && !failure && <Text size="xs">{words.found}</Text>}
    </div>
  );
}

function HitRow({
  candidate,
  channel,
  info,
  paths,
  isMatch,
  isLit,
  onLight,
}: {
  candidate: Candidate;
  channel: Channel;
  info: PassageInfo;
  paths: string[];
  isMatch: (word: string) => boolean;
  isLit: boolean;
  onLight: (id: string | null) => void;
}) {
  const labels = useWords(runWords);
  const words = labels.retrieval;
  const format = useFormat();
  const evidence = useEvidence();
  const where = useWhere();
  const place = candidate.channels[channel];
  const others = CHANNELS.filter((name) => name !== channel && candidate.channels[name]);
  const light = () => onLight(candidate.chunk_id);
  return (
    <li>
      <button
        type="button"
        className={`${classes.hit} ${isLit ? classes.hitLit : ''}`}
        onMouseEnter={light}
        onMouseLeave={() => onLight(null)}
        onFocus={light}
        onBlur={() => onLight(null)}
        onClick={() => info.hit && evidence.open([info.hit])}
        data-lit={isLit || undefined}
        // Not `disabled`: hovering a passage that cannot be opened lights it too.
        aria-disabled={info.hit === null}
      >
        <span className={classes.hitHead}>
          <span className={classes.rank}>{place?.rank}</span>
          <span className={`${classes.hitTitle} foreign`}>{info.title ?? '…'}</span>
          <span className="muted">{place && format.score(place.score)}</span>
        </span>
        <span className={`${classes.small} foreign`}>
          {where({ ...info, spans: info.hit?.spans ?? [] })}
        </span>
        {paths.map((path) => (
          <span key={path} className={`${classes.small} graph foreign`}>
            {path}
          </span>
        ))}
        {info.text === null ? (
          <span className={classes.small}>{info.title ? words.noText : '…'}</span>
        ) : (
          <MarkedText text={excerptAround(info.text, isMatch)} isMatch={isMatch} />
        )}
        <span className={classes.small}>
          {others.length > 0
            ? words.elsewhere(
                others
                  .map((name) => `${labels.channels[name]} ${candidate.channels[name]?.rank}`)
                  .join(', '),
              )
            : words.only}
        </span>
      </button>
    </li>
  );
}

function MarkedText({ text, isMatch }: { text: string; isMatch: (word: string) => boolean }) {
  return (
    <span className={`${classes.snippet} foreign`}>
      {markWords(text, isMatch).map((part, index) => {
        const key = `${index} ${part.text}`;
        return part.isMatch ? (
          <mark key={key}>{part.text}</mark>
        ) : (
          <span key={key}>{part.text}</span>
        );
      })}
    </span>
  );
}

function rankChannel(candidates: readonly Candidate[], channel: Channel): Candidate[] {
  const rank = (candidate: Candidate) => candidate.channels[channel]?.rank ?? 0;
  return candidates
    .filter((candidate) => candidate.channels[channel])
    .toSorted((left, right) => rank(left) - rank(right));
}

/** What the graph states in a passage: "Merrin Ferries → party_to → Ferry Service Agreement". */
function listPaths(run: RecordedRun, candidate: Candidate): string[] {
  const facts = (run.answer?.graph_facts ?? []).filter(
    (fact) => fact.chunk_id === candidate.chunk_id,
  );
  return [
    ...new Set(facts.map((fact) => `${fact.subject} → ${fact.predicate} → ${fact.object}`)),
  ].slice(0, 3);
}
