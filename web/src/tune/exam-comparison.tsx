import { SimpleGrid, Stack, Text, Title } from '@mantine/core';
import { useWords } from '@/shared/i18n';
import { State } from '@/shared/ui/bits';
import { QueryState } from '@/shared/ui/states';
import { DataTable } from '@/shared/ui/table';
import { evaluationWords } from './evaluation-words';
import { BackToExams, ExamFacts, useExam } from './exam-view';
import type { Exam } from './exams-tab';
import {
  compareShares,
  judgeDifference,
  LESS_IS_BETTER,
  MEASURES,
  type Measure,
  type Measures,
} from './stats';
import { DifferenceWhisker, ShareWhisker } from './whisker';

/** Two exams, both open, with the differences of their measures. */
export function ExamComparison({ a, b }: { a: string; b: string }) {
  const first = useExam(a);
  const second = useExam(b);
  return (
    <Stack gap="md">
      <BackToExams />
      <QueryState query={first}>
        {(examA) => (
          <QueryState query={second}>{(examB) => <Comparison a={examA} b={examB} />}</QueryState>
        )}
      </QueryState>
    </Stack>
  );
}

type Row = { key: string; part: string; measure: Measure; a: Measures; b: Measures };

function Comparison({ a, b }: { a: Exam; b: Exam }) {
  const words = useWords(evaluationWords);
  const rowsOf = (part: string, one: Measures, other: Measures): Row[] =>
    MEASURES.map((measure) => ({ key: `${part} ${measure}`, part, measure, a: one, b: other }));
  const byPart = (one: Record<string, Measures>, other: Record<string, Measures>) =>
    Object.entries(one).flatMap(([name, measures]) => {
      const counterpart = other[name];
      return counterpart ? rowsOf(name || words.noCollection, measures, counterpart) : [];
    });
  const tables = [
    { title: words.overall, rows: rowsOf(words.overall, a.overall, b.overall) },
    { title: words.byKind, rows: byPart(a.kinds, b.kinds) },
    { title: words.byCollection, rows: byPart(a.collections, b.collections) },
  ];
  return (
    <>
      <SimpleGrid cols={{ base: 1, md: 2 }}>
        {[a, b].map((exam, index) => (
          <Stack key={exam.exam_id} gap="xs" p="md" className="panel">
            <Title order={2}>{index === 0 ? 'A' : 'B'}</Title>
            <ExamFacts exam={exam} />
          </Stack>
        ))}
      </SimpleGrid>
      <Text size="sm" c="dimmed">
        {a.seed === b.seed ? words.sameQuestions : words.otherQuestions} {words.differenceHint}
      </Text>
      {tables
        .filter(({ rows }) => rows.length > 0)
        .map(({ title, rows }) => (
          <Stack key={title} gap="xs">
            <Title order={2}>{title}</Title>
            <DataTable
              label={title}
              rows={rows}
              rowKey={(row) => row.key}
              columns={[
                {
                  key: 'measure',
                  label: words.measure,
                  width: '240px',
                  cell: ({ part, measure }) => (
                    <>
                      {part !== words.overall && <span className="foreign muted">{part} · </span>}
                      {words.measures[measure]}
                      {LESS_IS_BETTER.has(measure) && (
                        <span className="muted"> ({words.lessIsBetter})</span>
                      )}
                    </>
                  ),
                },
                {
                  key: 'a',
                  label: 'A',
                  cell: (row) => <ShareWhisker share={row.a[row.measure]} label="A" />,
                },
                {
                  key: 'b',
                  label: 'B',
                  cell: (row) => <ShareWhisker share={row.b[row.measure]} label="B" />,
                },
                { key: 'd', label: words.difference, cell: (row) => <DifferenceCell row={row} /> },
                { key: 'v', label: words.verdict, cell: (row) => <VerdictCell row={row} /> },
              ]}
            />
          </Stack>
        ))}
    </>
  );
}

function DifferenceCell({ row }: { row: Row }) {
  const difference = compareShares(row.a[row.measure], row.b[row.measure]);
  return difference ? <DifferenceWhisker {...difference} /> : <span className="muted">—</span>;
}

const TONES = { better: 'ok', worse: 'bad', unclear: 'idle' } as const;

function VerdictCell({ row }: { row: Row }) {
  const words = useWords(evaluationWords);
  const difference = compareShares(row.a[row.measure], row.b[row.measure]);
  if (difference === null) return null;
  const verdict = judgeDifference(row.measure, difference);
  return <State tone={TONES[verdict]} label={words.verdicts[verdict]} />;
}
