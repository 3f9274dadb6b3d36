import { NumberInput, Text } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, call } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Confirm } from '@/shared/ui/confirm';
import type { Generation } from './config-diff';
import { generationWords } from './words';

export type GenerationAct = {
  kind: 'promote' | 'rollback' | 'drop' | 'calibrate';
  generation: Generation;
};

type ActProps = { generation: Generation; live: Generation | undefined; onClose: () => void };

export function useDone() {
  const client = useQueryClient();
  return async (message: string) => {
    await client.invalidateQueries({ queryKey: ['generations'] });
    // Readiness and health name the live generation.
    await client.invalidateQueries({ queryKey: ['health'] });
    notifications.show({ message });
  };
}

export function RollbackDialog({ generation, live, onClose }: ActProps) {
  const words = useWords(generationWords);
  const done = useDone();
  return (
    <Confirm
      opened
      onClose={onClose}
      action={words.rollback(generation.name)}
      onConfirm={async () => {
        const result = await (live
          ? call(
              api.POST('/v1/generations/{name}/rollback', {
                params: { path: { name: live.name } },
              }),
            )
          : call(api.POST('/v1/generations/rollback')));
        await done(words.rolledBack(result.generation));
      }}
    >
      <Text size="sm">{words.rollbackHint(live?.name ?? '')}</Text>
    </Confirm>
  );
}

export function DropDialog({ generation, onClose }: ActProps) {
  const words = useWords(generationWords);
  const format = useFormat();
  const done = useDone();
  const { name, documents } = generation;
  return (
    <Confirm
      opened
      danger
      name={name}
      onClose={onClose}
      action={words.drop(name)}
      onConfirm={async () => {
        const result = await call(
          api.DELETE('/v1/generations/{name}', { params: { path: { name } } }),
        );
        await done(
          result.blocked_by
            ? words.dropPending(name, String(result.blocked_by.pid))
            : words.dropped(name),
        );
      }}
    >
      <Text size="sm">{words.dropHint(format.count(documents))}</Text>
    </Confirm>
  );
}

export function CalibrateDialog({ generation, onClose }: ActProps) {
  const words = useWords(generationWords);
  const done = useDone();
  const [questions, setQuestions] = useState(200);
  const { name } = generation;
  return (
    <Confirm
      opened
      onClose={onClose}
      action={words.calibrate(name)}
      onConfirm={async () => {
        await call(
          api.POST('/v1/calibrations', { body: { generation: name, questions } as never }),
        );
        await done(words.calibrated(name));
      }}
    >
      <Text size="sm">{words.calibrateHint}</Text>
      <NumberInput
        label={words.questions}
        min={2}
        max={1000}
        value={questions}
        onChange={(value) => setQuestions(Number(value) || 200)}
      />
    </Confirm>
  );
}
