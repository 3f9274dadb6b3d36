import { Anchor, Group, Stack, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { api, call } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Ago, Id } from '@/shared/ui/bits';
import { QueryState } from '@/shared/ui/states';
import { DataTable } from '@/shared/ui/table';
import { evaluationWords } from './evaluation-words';
import type { Exam } from './exams-tab';
import { LESS_IS_BETTER, MEASURES, type Measures } from './stats';
import { ShareWhisker } from './whisker';

export function useExam(id: string) {
  return useQuery({
    queryKey: ['exam', id],
    queryFn: () => call(api.GET('/v1/exams/{exam_id}', { params: { path: { exam_id: id } } })),
    staleTime: Number.POSITIVE_INFINITY,
  });
}

/** One exam: its measures overall and by part, and the documents that it went worst with. */
export function ExamView({ id }: { id: string }) {
  const exam = useExam(id);
  return (
    <Stack gap="md">
      <BackToExams />
      <QueryState query={exam}>{(report) => <Report exam={report} />}</QueryState>
    </Stack>
  );
}

export function BackToExams() {
  const words = useWords(evaluationWords);
  return (
    <Anchor component={Link} to="/evaluation" size="sm">
      ← {words.back}
    </Anchor>
  );
}

/** What was asked: when, of which generation, with which profile. */
export function ExamFacts({ exam }: { exam: Exam }) {
  const words = useWords(evaluationWords);
  const format = useFormat();
  const facts: [string, ReactNode][] = [
    [words.completed, <Ago key="at" time={exam.completed_at} />],
    [
      words.profile,
      <span key="p" className="foreign">
        {exam.profile}
      </span>,
    ],
    [words.generation, exam.generation],
    [
      words.questions,
      <>
        {format.count(exam.questions)}
        {exam.failed > 0 && (
          <span className="bad"> · {words.failed(format.count(exam.failed))}</span>
        )}
      </>,
    ],
    [words.seed, <code key="s">{exam.seed}</code>],
    ['id', <Id key="id" id={exam.exam_id} />],
  ];
  return (
    <Group gap="lg" component="dl" m={0}>
      {facts.map(([name, value]) => (
        <div key={name}>
          <Text component="dt" size="xs" c="dimmed">
            {name}
          </Text>
          <Text component="dd" size="sm" m={0}>
            {value}
          </Text>
        </div>
      ))}
    </Group>
  );
}

function Report({ exam }: { exam: Exam }) {
  const words = useWords(evaluationWords);
  const format = useFormat();
  const parts: { title: string; rows: [string, Measures][] }[] = [
    { title: words.byKind, rows: Object.entries(exam.kinds) },
    {
      title: words.byCollection,
      rows: Object.entries(exam.collections).map(([name, measures]) => [
        name || words.noCollection,
        measures,
      ]),
    },
  ];
  return (
    <>
      <ExamFacts exam={exam} />
      <MeasureTable title={words.overall} rows={[[words.overall, exam.overall]]} />
      {parts
        .filter(({ rows }) => rows.length > 0)
        .map((part) => (
          <MeasureTable key={part.title} {...part} />
        ))}
      {exam.weakest_documents.length > 0 && (
        <Stack gap="xs">
          <Group gap="sm" align="baseline">
            <Title order={2}>{words.weakest}</Title>
            <Text size="xs" c="dimmed">
              {words.weakestHint}
            </Text>
          </Group>
          <DataTable
            label={words.weakest}
            rows={exam.weakest_documents}
            rowKey={(row) => row.document_id}
            columns={[
              {
                key: 'document',
                label: words.document,
                cell: (row) =>
                  row.name === null ? (
                    <span className="muted">{words.erased}</span>
                  ) : (
                    <Link
                      to="/documents/$document"
                      params={{ document: row.document_id }}
                      className="foreign"
                    >
                      {row.name}
                    </Link>
                  ),
              },
              {
                key: 'wrong',
                label: words.wrong,
                isNumber: true,
                cell: (row) => format.count(row.wrong),
              },
              {
                key: 'questions',
                label: words.questions,
                isNumber: true,
                cell: (row) => format.count(row.questions),
              },
            ]}
          />
        </Stack>
      )}
    </>
  );
}

function MeasureTable({ title, rows }: { title: string; rows: [string, Measures][] }) {
  const words = useWords(evaluationWords);
  return (
    <Stack gap="xs">
      <Title order={2}>{title}</Title>
      <DataTable
        label={title}
        rows={rows}
        rowKey={([name]) => name}
        columns={[
          {
            key: 'part',
            label: words.part,
            width: '180px',
            cell: ([name]) => <span className="foreign">{name}</span>,
          },
          ...MEASURES.map((measure) => ({
            key: measure,
            label: LESS_IS_BETTER.has(measure)
              ? `${words.measures[measure]} (${words.lessIsBetter})`
              : words.measures[measure],
            cell: ([, measures]: [string, Measures]) => (
              <ShareWhisker share={measures[measure]} label={words.measures[measure]} />
            ),
          })),
        ]}
      />
    </Stack>
  );
}
