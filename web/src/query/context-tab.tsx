import { Group, Stack, Table, Text, Title, UnstyledButton } from '@mantine/core';
import { useEvidence } from '@/evidence/context';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { EmptyState } from '@/shared/ui/states';
import { type Dropped, explainPacking, type Packing } from './context-rules';
import { usePassageInfo } from './passages';
import { passageHit, type RecordedRun, toHit } from './run-data';
import type { TabProps } from './run-page';
import { runWords } from './run-words';
import { useWhere } from './sources';
import classes from './tabs.module.css';

const SHOWN_DROPPED = 20;

/** What was read, in its order and within its budget, and what was not, with the rule. */
export function ContextTab({ run }: TabProps) {
  const labels = useWords(runWords);
  const words = labels.context;
  const packing = explainPacking(run);
  if (packing === null) return <EmptyState title={labels.notRecorded} />;
  return (
    <Stack gap="lg">
      {run.answer?.refused && run.answer.code === 'NO_SUITABLE_CONTEXT' && (
        <Text size="sm" className="warn">
          {words.refused}
        </Text>
      )}
      <Budget run={run} packing={packing} />
      <ReadPassages run={run} packing={packing} />
      <GraphFacts run={run} />
      <DroppedPassages run={run} packing={packing} />
    </Stack>
  );
}

function Budget({ run, packing }: { run: RecordedRun; packing: Packing }) {
  const words = useWords(runWords).context;
  const format = useFormat();
  const graphTokens = run.trace?.graph_facts?.tokens ?? 0;
  const passages = run.passages.map((passage) => ({
    id: passage.parent_id,
    rank: passage.rank,
    tokens: packing.tokens.get(passage.parent_id) ?? 0,
  }));
  const used = passages.reduce((total, { tokens }) => total + tokens, graphTokens);
  const share = (tokens: number) => `${(tokens / Math.max(packing.budget, used)) * 100}%`;
  return (
    <section>
      <Group justify="space-between" pb={4}>
        <Title order={2}>{words.budget}</Title>
        <Text size="sm">{words.used(format.count(used), format.count(packing.budget))}</Text>
      </Group>
      <div className={classes.bar} aria-hidden="true">
        {passages.map(({ id, rank, tokens }) => (
          <span
            key={id}
            title={`${rank} · ${format.count(tokens)}`}
            style={{ width: share(tokens), background: 'var(--accent)' }}
          />
        ))}
        {graphTokens > 0 && (
          <span
            title={`${words.graphFacts} · ${format.count(graphTokens)}`}
            style={{ width: share(graphTokens), background: 'var(--graph)' }}
          />
        )}
      </div>
      <Group gap="md" pt={4} className={classes.legend}>
        <Swatch color="var(--accent)" label={useWords(runWords).passage} />
        {graphTokens > 0 && (
          <Swatch color="var(--graph)" label={`${words.graphFacts} ${format.count(graphTokens)}`} />
        )}
        <span className="muted">
          {words.free(format.count(Math.max(0, packing.budget - used)))}
        </span>
      </Group>
    </section>
  );
}

export function Swatch({ color, label }: { color: string; label: string }) {
  return (
    <span>
      <span className={classes.swatch} style={{ background: color }} aria-hidden="true" />
      {label}
    </span>
  );
}

function ReadPassages({ run, packing }: { run: RecordedRun; packing: Packing }) {
  const labels = useWords(runWords);
  const words = labels.context;
  const format = useFormat();
  const evidence = useEvidence();
  const where = useWhere();
  const hits = run.passages.map(passageHit);
  if (run.passages.length === 0) return null;
  return (
    <section>
      <Title order={2} pb={4}>
        {words.read}
      </Title>
      <Table aria-label={words.read} highlightOnHover>
        <Table.Thead>
          <Table.Tr>
            <Table.Th w={40}>#</Table.Th>
            <Table.Th>{labels.passage}</Table.Th>
            <Table.Th className="num">{words.tokens}</Table.Th>
            <Table.Th className="num">{labels.score}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {run.passages.map((passage, index) => (
            <Table.Tr key={passage.parent_id}>
              <Table.Td>{passage.rank}</Table.Td>
              <Table.Td>
                <UnstyledButton fz={14} onClick={() => evidence.open(hits, index)}>
                  <span className={`${classes.hitTitle} foreign`}>
                    {passage.title ?? passage.document_id}
                  </span>{' '}
                  <span className="muted foreign">{where(passage)}</span>
                </UnstyledButton>
              </Table.Td>
              <Table.Td className="num">
                {format.count(packing.tokens.get(passage.parent_id) ?? 0)}
              </Table.Td>
              <Table.Td className="num">{format.score(passage.score)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </section>
  );
}

function GraphFacts({ run }: { run: RecordedRun }) {
  const words = useWords(runWords).context;
  const evidence = useEvidence();
  const facts = run.answer?.graph_facts ?? [];
  if (facts.length === 0) return null;
  return (
    <section>
      <Title order={2} pb={4}>
        {words.facts}
      </Title>
      <Stack gap={4}>
        {facts.map((fact, index) => (
          <UnstyledButton
            key={`${fact.n} ${fact.subject} ${fact.object}`}
            fz={14}
            className="foreign"
            onClick={() => evidence.open(facts.map(toHit), index)}
          >
            <span className="muted">{fact.n}</span> {fact.subject}{' '}
            <span className="graph">→ {fact.predicate} →</span> {fact.object}
          </UnstyledButton>
        ))}
      </Stack>
    </section>
  );
}

function DroppedPassages({ run, packing }: { run: RecordedRun; packing: Packing }) {
  const labels = useWords(runWords);
  const words = labels.context;
  const format = useFormat();
  const evidence = useEvidence();
  const shown = packing.dropped.slice(0, SHOWN_DROPPED);
  const candidates = new Map(run.candidates.map((item) => [item.chunk_id, item]));
  const describe = usePassageInfo(
    run,
    shown.flatMap(({ chunkId }) => candidates.get(chunkId) ?? []),
  );
  const say = (dropped: Dropped) => {
    switch (dropped.rule) {
      case 'limit':
        return words.rules.limit(format.count(packing.limit));
      case 'trim':
        return words.rules.trim(format.score(dropped.strength ?? 0), format.score(packing.needed));
      case 'per_document':
        return words.rules.per_document(format.count(packing.perDocument ?? 0));
      default:
        return words.rules[dropped.rule];
    }
  };
  return (
    <section>
      <Title order={2} pb={4}>
        {words.out}
      </Title>
      {shown.length === 0 ? (
        <Text size="sm" c="dimmed">
          {words.nothingOut}
        </Text>
      ) : (
        <Table aria-label={words.out}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th w={40}>#</Table.Th>
              <Table.Th>{labels.passage}</Table.Th>
              <Table.Th className="num">{words.tokens}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {shown.map((dropped) => {
              const candidate = candidates.get(dropped.chunkId);
              const info = candidate && describe(candidate);
              return (
                <Table.Tr key={dropped.passageId}>
                  <Table.Td>{dropped.rank}</Table.Td>
                  <Table.Td>
                    <UnstyledButton
                      fz={14}
                      className="foreign"
                      disabled={!info?.hit}
                      onClick={() => info?.hit && evidence.open([info.hit])}
                    >
                      {info?.title ?? '…'}{' '}
                      <span className="muted">{info?.section.split(' > ').at(-1)}</span>
                    </UnstyledButton>
                    <Text size="xs" c="dimmed">
                      {say(dropped)}
                    </Text>
                  </Table.Td>
                  <Table.Td className="num">
                    {dropped.tokens === null ? '—' : format.count(dropped.tokens)}
                  </Table.Td>
                </Table.Tr>
              );
            })}
          </Table.Tbody>
        </Table>
      )}
      {packing.dropped.length > shown.length && (
        <Text size="sm" c="dimmed" pt={8}>
          {words.showMore(format.count(packing.dropped.length - shown.length))}
        </Text>
      )}
    </section>
  );
}
