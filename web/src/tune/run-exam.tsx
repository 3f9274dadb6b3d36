import { Alert, Button, Group, Modal, Stack, Text } from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { type ReactNode, useEffect, useState } from 'react';
import { api, call, type Schemas } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { ErrorState, LoadingState } from '@/shared/ui/states';
import { sharedWords } from '@/shared/words';
import { CalibrationResult } from './calibration-result';
import { evaluationWords } from './evaluation-words';
import { useProfiles } from './profiles';
import { useRequestSchema } from './request-schema';
import { type Field, type JsonObject, type Section, setAt } from './schema';
import { SchemaFields } from './schema-form';

export function ExamModal({ onClose }: { onClose: () => void }) {
  const words = useWords(evaluationWords);
  const client = useQueryClient();
  const navigate = useNavigate();
  const exam = useMutation({
    mutationFn: (values: JsonObject) =>
      call(api.POST('/v1/exams', { body: values as Schemas['ExamRequest'] })),
    onSuccess: ({ exam_id }) => {
      client.invalidateQueries({ queryKey: ['exams'] });
      navigate({ to: '/evaluation', search: { exam: exam_id } });
      onClose();
    },
  });
  return (
    <RequestModal
      title={words.run}
      hint={words.examHint}
      schema="ExamRequest"
      action={words.runNow}
      isBusy={exam.isPending}
      error={exam.error}
      onSubmit={exam.mutate}
      onClose={onClose}
    />
  );
}

export function CalibrateModal({ onClose }: { onClose: () => void }) {
  const words = useWords(evaluationWords);
  const client = useQueryClient();
  const calibration = useMutation({
    mutationFn: (values: JsonObject) =>
      call(api.POST('/v1/calibrations', { body: values as Schemas['CalibrationRequest'] })),
    onSuccess: () => client.invalidateQueries({ queryKey: ['exams'] }),
  });
  return (
    <RequestModal
      title={words.calibrate}
      hint={words.calibrateHint}
      schema="CalibrationRequest"
      action={words.calibrateNow}
      isBusy={calibration.isPending}
      error={calibration.error}
      onSubmit={calibration.mutate}
      onClose={onClose}
    >
      {calibration.data && <CalibrationResult result={calibration.data} onClose={onClose} />}
    </RequestModal>
  );
}

/** The form of a long request; its result, when there is one, takes the place of the form. */
function RequestModal({
  title,
  hint,
  schema,
  action,
  isBusy,
  error,
  onSubmit,
  onClose,
  children,
}: {
  title: string;
  hint: string;
  schema: string;
  action: string;
  isBusy: boolean;
  error: unknown;
  onSubmit: (values: JsonObject) => void;
  onClose: () => void;
  children?: ReactNode;
}) {
  const shared = useWords(sharedWords);
  const section = useRequestFields(schema);
  const [edits, setEdits] = useState<JsonObject>({});
  if (section === undefined) return null;
  const defaults = section.fields.reduce<JsonObject>(
    (values, field) => setAt(values, field.key, field.default),
    {},
  );
  const values = { ...defaults, ...edits };
  return (
    <Modal
      opened
      onClose={onClose}
      title={title.replace('…', '')}
      size="xl"
      closeButtonProps={{ 'aria-label': shared.close }}
    >
      {children || (
        <Stack gap="sm">
          <Text size="sm">{hint}</Text>
          {isBusy ? (
            <>
              <Elapsed />
              <LoadingState rows={4} />
            </>
          ) : (
            <SchemaFields
              section={section}
              values={values}
              saved={defaults}
              isShown={() => true}
              onChange={(field, value) => setEdits((old) => setAt(old, field.key, value))}
            />
          )}
          {error !== null && error !== undefined && <ErrorState error={error} />}
          <Group justify="flex-end">
            <Button loading={isBusy} onClick={() => onSubmit(values)}>
              {action}
            </Button>
          </Group>
        </Stack>
      )}
    </Modal>
  );
}

/** The fields of the request; profile and generation are chosen from those that exist. */
function useRequestFields(schema: string): Section | undefined {
  const section = useRequestSchema(schema);
  const profiles = useProfiles();
  const generations = useQuery({
    queryKey: ['generation-names'],
    queryFn: async () =>
      (await call(api.GET('/v1/generations'))).items
        .filter(({ state }) => state !== 'dropped' && state !== 'building')
        .map(({ name }) => name),
  });
  if (section === undefined) return undefined;
  const choices: Record<string, string[]> = {
    profile: profiles.data?.filter(({ type }) => type === 'workflow').map(({ name }) => name) ?? [],
    generation: generations.data ?? [],
  };
  const fields = section.fields.map((field): Field => {
    const names = choices[field.name];
    if (names === undefined) return field;
    return { ...field, kind: 'choice', choices: names, isNullable: field.default === null };
  });
  return { ...section, fields };
}

function Elapsed() {
  const words = useWords(evaluationWords);
  const format = useFormat();
  const [seconds, setSeconds] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setSeconds((old) => old + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  return <Alert role="status">{words.running(format.duration(seconds * 1000))}</Alert>;
}
