import { Button, Group, Stack, Table, Text, Title } from '@mantine/core';
import { useNavigate } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import type { Schemas } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { evaluationWords } from './evaluation-words';

/** The thresholds that questions use from now on, and why a default stays. */
export function CalibrationResult({
  result,
  onClose,
}: {
  result: Schemas['CalibrationResponse'];
  onClose: () => void;
}) {
  const words = useWords(evaluationWords);
  const format = useFormat();
  const navigate = useNavigate();
  const threshold = (value: number | null) =>
    value === null ? <span className="muted">{words.defaultStays}</span> : format.percent(value);
  const rows: [string, ReactNode][] = [
    [words.generation, result.generation],
    [words.basis, `${words.bases[result.basis]} · ${format.count(result.questions)}`],
    [
      words.minConfidence,
      <>
        {threshold(result.min_confidence)}{' '}
        {result.default_reason && (
          <span className="muted">{words.defaultReasons[result.default_reason]}</span>
        )}
      </>,
    ],
    [words.trim, threshold(result.trim)],
  ];
  if (result.held_out) {
    rows.push([
      words.heldOut,
      <>
        <div>{`${format.percent(result.held_out.coverage)} ${words.heldOutCoverage}`}</div>
        <div>{`${format.decimal(result.held_out.passages, 1)} ${words.heldOutPassages}`}</div>
        <div>{`${format.percent(result.held_out.false_refusals)} ${words.heldOutRefusals}`}</div>
      </>,
    ]);
  }
  return (
    <Stack gap="sm">
      <Title order={2}>{words.result}</Title>
      <Table variant="vertical">
        <Table.Tbody>
          {rows.map(([name, value]) => (
            <Table.Tr key={name}>
              <Table.Th w={200}>
                <Text size="sm">{name}</Text>
              </Table.Th>
              <Table.Td>{value}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      <Group justify="flex-end">
        <Button
          onClick={() => {
            onClose();
            navigate({ to: '/evaluation', search: { exam: result.exam.exam_id } });
          }}
        >
          {words.showExam}
        </Button>
      </Group>
    </Stack>
  );
}
