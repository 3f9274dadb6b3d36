import { Button, Checkbox, Group, Stack, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { api, call, type Schemas } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Ago, Id } from '@/shared/ui/bits';
import { EmptyState, QueryState } from '@/shared/ui/states';
import { type Column, DataTable } from '@/shared/ui/table';
import { evaluationWords } from './evaluation-words';
import { ExamComparison } from './exam-comparison';
import { ExamView } from './exam-view';
import { MEASURES } from './stats';
import { ShareWhisker } from './whisker';

export type Exam = Schemas['ExamReport'];

/** All exams as a plot: one row each, to compare profiles and generations. */
export function ExamsTab({ onRun }: { onRun: (() => void) | undefined }) {
  const words = useWords(evaluationWords);
  const search = useSearch({ strict: false });
  const exams = useQuery({
    queryKey: ['exams'],
    queryFn: async () =>
      (await call(api.GET('/v1/exams', { params: { query: { limit: 100 } } }))).items,
  });
  if (search.exam !== undefined && search.with !== undefined) {
    return <ExamComparison a={search.exam} b={search.with} />;
  }
  if (search.exam !== undefined) return <ExamView id={search.exam} />;
  return (
    <QueryState query={exams}>
      {(items) =>
        items.length === 0 ? (
          <EmptyState
            title={words.noExams}
            action={onRun && <Button onClick={onRun}>{words.run}</Button>}
            command="anabranch exam"
          >
            <Text size="sm" c="dimmed">
              {words.examHint}
            </Text>
          </EmptyState>
        ) : (
          <ExamTable exams={items} />
        )
      }
    </QueryState>
  );
}

function ExamTable({ exams }: { exams: readonly Exam[] }) {
  const words = useWords(evaluationWords);
  const format = useFormat();
  const navigate = useNavigate();
  const [selected, setSelected] = useState<string[]>([]);
  const columns: Column<Exam>[] = [
    {
      key: 'select',
      label: words.compare,
      cell: (exam) => (
        <Group gap="xs" wrap="nowrap">
          <Checkbox
            aria-label={words.select(
              `${exam.profile} ${exam.generation} ${exam.exam_id.slice(0, 8)}`,
            )}
            checked={selected.includes(exam.exam_id)}
            onClick={(event) => event.stopPropagation()}
            onChange={(event) =>
              setSelected(
                event.currentTarget.checked
                  ? [...selected, exam.exam_id].slice(-2)
                  : selected.filter((id) => id !== exam.exam_id),
              )
            }
          />
          <Id id={exam.exam_id} />
        </Group>
      ),
    },
    {
      key: 'at',
      label: words.completed,
      cell: (exam) => (
        <span style={{ whiteSpace: 'nowrap' }}>
          <Ago time={exam.completed_at} />
        </span>
      ),
    },
    {
      key: 'profile',
      label: words.profile,
      cell: (exam) => <span className="truncate">{exam.profile}</span>,
    },
    { key: 'generation', label: words.generation, cell: (exam) => exam.generation },
    {
      key: 'questions',
      label: words.questions,
      isNumber: true,
      cell: (exam) => (
        <>
          {format.count(exam.questions)}
          {exam.failed > 0 && <div className="bad">{words.failed(format.count(exam.failed))}</div>}
        </>
      ),
    },
    ...MEASURES.map((measure) => ({
      key: measure,
      label: words.measures[measure],
      cell: (exam: Exam) => (
        <ShareWhisker share={exam.overall[measure]} label={words.measures[measure]} width={60} />
      ),
    })),
  ];
  return (
    <Stack gap="sm">
      <Group gap="sm">
        <Text size="sm" c="dimmed" style={{ flex: 1 }}>
          {words.intervals}
        </Text>
        <Button
          variant="default"
          disabled={selected.length !== 2}
          title={selected.length === 2 ? undefined : words.selectTwo}
          onClick={() =>
            navigate({ to: '/evaluation', search: { exam: selected[0], with: selected[1] } })
          }
        >
          {words.compareSelected}
        </Button>
      </Group>
      <DataTable
        label={words.tabs.exams}
        rows={exams}
        columns={columns}
        rowKey={(exam) => exam.exam_id}
        isSelected={(exam) => selected.includes(exam.exam_id)}
        onOpen={(exam) => navigate({ to: '/evaluation', search: { exam: exam.exam_id } })}
      />
    </Stack>
  );
}
