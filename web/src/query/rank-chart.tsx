import { Table, Text } from '@mantine/core';
import { useState } from 'react';
import { useEvidence } from '@/evidence/context';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { usePassageInfo } from './passages';
import type { RankedPassage } from './ranking';
import type { Candidate, RecordedRun } from './run-data';
import { runWords } from './run-words';
import classes from './tabs.module.css';
import type { WhatIfResult } from './what-if';

const ROW_PX = 56;
const LINES_PX = 56;
/** The channels have their colors; additions to them differ in lightness. */
const COLORS: Record<string, string> = {
  lexical: 'var(--lexical)',
  semantic: 'var(--semantic)',
  graph: 'var(--graph)',
  rerank: 'var(--accent)',
  above_lowest: 'var(--line-strong)',
};
const OTHER = 'color-mix(in srgb, var(--text) 55%, var(--panel))';
const colorOf = (name: string) => COLORS[name] ?? OTHER;

type ChartProps = {
  run: RecordedRun;
  saved: WhatIfResult;
  whatIf: WhatIfResult;
  shown: number;
};

export function AddendLegend({ results }: { results: WhatIfResult[] }) {
  const words = useWords(runWords).fusion;
  const names = new Set(
    results.flatMap(({ passages }) =>
      passages.flatMap(({ addends }) => Object.keys(addends).filter((name) => addends[name] !== 0)),
    ),
  );
  return (
    <div className={classes.legend}>
      {[...names].map((name) => (
        <span key={name}>
          <span
            className={classes.swatch}
            style={{ background: colorOf(name) }}
            aria-hidden="true"
          />
          {words.addends[name] ?? name}
        </span>
      ))}
    </div>
  );
}

/** Both orders side by side, each passage with the sum that made its score; lines join them. */
export function RankChart({ run, saved, whatIf, shown }: ChartProps) {
  const words = useWords(runWords).fusion;
  const [lit, setLit] = useState<string | null>(null);
  const before = saved.passages.slice(0, shown);
  const after = whatIf.passages.slice(0, shown);
  const scale = scaleOf([...before, ...after]);
  const rankBefore = new Map(saved.passages.map(({ id }, index) => [id, index + 1]));
  const rankAfter = new Map(whatIf.passages.map(({ id }, index) => [id, index + 1]));
  const candidates = new Map(run.candidates.map((item) => [item.chunk_id, item]));
  const candidateOf = (passage: RankedPassage) => candidates.get(passage.best.id) as Candidate;
  const describe = usePassageInfo(run, [...before, ...after].map(candidateOf));
  const row = (passage: RankedPassage, rank: number, moved: number | null) => (
    <PassageRow
      key={passage.id}
      passage={passage}
      rank={rank}
      moved={moved}
      scale={scale}
      info={describe(candidateOf(passage))}
      isLit={lit === passage.id}
      onLight={setLit}
    />
  );
  return (
    <div className={classes.bump}>
      <section aria-label={words.saved}>
        <Text size="sm" fw={600} px={8} pb={4}>
          {words.saved} <span className="muted">· {words.method[saved.fusion.method]}</span>
        </Text>
        {before.map((passage, index) => row(passage, index + 1, null))}
      </section>
      <svg
        className={classes.bumpLines}
        width={LINES_PX}
        height={shown * ROW_PX}
        style={{ marginTop: 24 }}
        role="img"
        aria-label={words.chart}
      >
        {before.map(({ id }, index) => {
          const to = rankAfter.get(id) ?? shown + 1;
          const y1 = (index + 0.5) * ROW_PX;
          const y2 = (Math.min(to, shown + 1) - 0.5) * ROW_PX;
          const isMoved = to !== index + 1;
          return (
            <path
              key={id}
              d={`M0 ${y1} C ${LINES_PX / 2} ${y1}, ${LINES_PX / 2} ${y2}, ${LINES_PX} ${y2}`}
              fill="none"
              stroke={lit === id ? 'var(--accent)' : isMoved ? 'var(--text)' : 'var(--line-strong)'}
              strokeWidth={lit === id ? 2.5 : isMoved ? 1.5 : 1}
              strokeDasharray={to > shown ? '3 3' : undefined}
            />
          );
        })}
      </svg>
      <section aria-label={words.whatIf}>
        <Text size="sm" fw={600} px={8} pb={4}>
          {words.whatIf} <span className="muted">· {words.method[whatIf.fusion.method]}</span>
        </Text>
        {after.map((passage, index) =>
          row(passage, index + 1, (rankBefore.get(passage.id) ?? index + 1) - (index + 1)),
        )}
      </section>
    </div>
  );
}

function PassageRow({
  passage,
  rank,
  moved,
  scale,
  info,
  isLit,
  onLight,
}: {
  passage: RankedPassage;
  rank: number;
  moved: number | null;
  scale: Scale;
  info: ReturnType<ReturnType<typeof usePassageInfo>>;
  isLit: boolean;
  onLight: (id: string | null) => void;
}) {
  const words = useWords(runWords).fusion;
  const format = useFormat();
  const evidence = useEvidence();
  const { hit } = info;
  const sum = Object.entries(passage.addends)
    .filter(([, value]) => value !== 0)
    .map(([name, value]) => `${words.addends[name] ?? name} ${format.score(value)}`)
    .join(' · ');
  return (
    <button
      type="button"
      className={`${classes.hit} ${classes.bumpRow} ${isLit ? classes.bumpLit : ''}`}
      title={`${info.section}\n${sum}`}
      onMouseEnter={() => onLight(passage.id)}
      onMouseLeave={() => onLight(null)}
      onFocus={() => onLight(passage.id)}
      onBlur={() => onLight(null)}
      onClick={() => hit && evidence.open([hit])}
    >
      <span className={classes.rank}>{rank}</span>
      <span style={{ minWidth: 0 }}>
        <span dir="auto" className="truncate foreign" style={{ display: 'block' }}>
          {info.title ?? '…'} <span className="muted">{info.section.split(' > ').at(-1)}</span>
        </span>
        <AddendBar addends={passage.addends} scale={scale} />
      </span>
      <span className={classes.score}>
        {format.score(passage.score)}
        {moved !== null && moved !== 0 && (
          <span className={moved > 0 ? 'ok' : 'warn'} style={{ display: 'block' }}>
            {moved > 0 ? '▲' : '▼'}
            {Math.abs(moved)}
          </span>
        )}
      </span>
    </button>
  );
}

type Scale = { least: number; most: number };

/** The range of all sums, so that bars of both lists can be compared. */
export function scaleOf(passages: readonly RankedPassage[]): Scale {
  const sums = passages.map(({ addends }) => {
    const values = Object.values(addends);
    const add = (total: number, value: number) => total + value;
    return {
      positive: values.filter((value) => value > 0).reduce(add, 0),
      negative: values.filter((value) => value < 0).reduce(add, 0),
    };
  });
  return {
    least: Math.min(0, ...sums.map(({ negative }) => negative)),
    most: Math.max(1e-9, ...sums.map(({ positive }) => positive)),
  };
}

/** What adds to the score lies right of zero, what lowers it left. */
function AddendBar({ addends, scale }: { addends: Record<string, number>; scale: Scale }) {
  const width = scale.most - scale.least;
  const percent = (value: number) => `${(value / width) * 100}%`;
  let right = -scale.least;
  let left = -scale.least;
  return (
    <svg width="100%" height="10" aria-hidden="true" style={{ display: 'block' }}>
      {Object.entries(addends).map(([name, value]) => {
        const length = Math.abs(value);
        if (value < 0) left -= length;
        const x = value < 0 ? left : right;
        if (value >= 0) right += length;
        return (
          <rect
            key={name}
            x={percent(x)}
            width={percent(length)}
            height="10"
            fill={colorOf(name)}
            stroke="var(--panel)"
            strokeWidth="0.5"
          />
        );
      })}
      <rect x={percent(-scale.least)} width="1" height="10" fill="var(--text)" />
    </svg>
  );
}

/** The numbers of the chart. */
export function AddendTable({ run, saved, whatIf, shown }: ChartProps) {
  const labels = useWords(runWords);
  const words = labels.fusion;
  const format = useFormat();
  const passages = whatIf.passages.slice(0, shown);
  const candidates = new Map(run.candidates.map((item) => [item.chunk_id, item]));
  const describe = usePassageInfo(
    run,
    passages.map((passage) => candidates.get(passage.best.id) as Candidate),
  );
  const names = [...new Set(passages.flatMap(({ addends }) => Object.keys(addends)))];
  const rankBefore = new Map(saved.passages.map(({ id }, index) => [id, index + 1]));
  return (
    <details>
      <summary>{words.showTable}</summary>
      <Table.ScrollContainer minWidth={600}>
        <Table aria-label={words.showTable}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th className="num">{words.whatIf}</Table.Th>
              <Table.Th className="num">{words.saved}</Table.Th>
              <Table.Th>{labels.passage}</Table.Th>
              {names.map((name) => (
                <Table.Th key={name} className="num">
                  {words.addends[name] ?? name}
                </Table.Th>
              ))}
              <Table.Th className="num">{labels.score}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {passages.map((passage, index) => {
              const candidate = candidates.get(passage.best.id) as Candidate;
              return (
                <Table.Tr key={passage.id}>
                  <Table.Td className="num">{index + 1}</Table.Td>
                  <Table.Td className="num">{rankBefore.get(passage.id) ?? words.enters}</Table.Td>
                  <Table.Td className="foreign">{describe(candidate).title ?? '…'}</Table.Td>
                  {names.map((name) => (
                    <Table.Td key={name} className="num">
                      {format.score(passage.addends[name] ?? 0)}
                    </Table.Td>
                  ))}
                  <Table.Td className="num">{format.score(passage.score)}</Table.Td>
                </Table.Tr>
              );
            })}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </details>
  );
}
