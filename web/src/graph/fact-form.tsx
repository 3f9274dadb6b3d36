import { Button, Group, Modal, NumberInput, Stack, TextInput } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useMutation } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { api, call } from '@/shared/api/client';
import { useWords } from '@/shared/i18n';
import { ErrorState } from '@/shared/ui/states';
import { sharedWords } from '@/shared/words';
import { factWords } from './facts-words';

const BLANK = { subject: '', predicate: '', object: '', source: '' };
const MAX_LENGTH = 1000;

/** Propose a fact: who or what, the relation, the value. */
export function FactForm({
  opened,
  onClose,
  onProposed,
}: {
  opened: boolean;
  onClose: () => void;
  onProposed: () => void;
}) {
  const words = useWords(factWords);
  const shared = useWords(sharedWords);
  const [fields, setFields] = useState(BLANK);
  const [certainty, setCertainty] = useState<number>(1);
  const [halfLife, setHalfLife] = useState<number | null>(null);
  const propose = useMutation({
    mutationFn: () =>
      call(
        api.POST('/v1/facts', {
          body: {
            subject: fields.subject.trim(),
            predicate: fields.predicate.trim(),
            object: fields.object.trim(),
            source: fields.source.trim() || null,
            certainty,
            half_life_days: halfLife,
          },
        }),
      ),
    onSuccess: ({ duplicate }) => {
      if (duplicate) notifications.show({ message: words.duplicate });
      setFields(BLANK);
      onProposed();
      onClose();
    },
  });
  const isComplete = [fields.subject, fields.predicate, fields.object].every((text) => text.trim());
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (isComplete) propose.mutate();
  };
  const input = (name: keyof typeof BLANK, label: string, description: string) => (
    <TextInput
      label={label}
      description={description}
      required={name !== 'source'}
      maxLength={MAX_LENGTH}
      value={fields[name]}
      onChange={(event) => setFields({ ...fields, [name]: event.currentTarget.value })}
    />
  );
  return (
    <Modal
      opened={opened}
      onClose={onClose}
      title={words.propose}
      closeButtonProps={{ 'aria-label': shared.close }}
    >
      <form onSubmit={submit}>
        <Stack gap="sm">
          {input('subject', words.subject, words.subjectHint)}
          {input('predicate', words.predicate, words.predicateHint)}
          {input('object', words.object, words.objectHint)}
          {input('source', words.source, words.sourceHint)}
          <Group grow align="flex-start">
            <NumberInput
              label={words.certainty}
              description={words.certaintyHint}
              min={0.05}
              max={1}
              step={0.05}
              decimalScale={2}
              value={certainty}
              onChange={(value) => setCertainty(typeof value === 'number' ? value : 1)}
            />
            <NumberInput
              label={words.halfLife}
              description={words.halfLifeHint}
              min={1}
              max={36500}
              value={halfLife ?? ''}
              onChange={(value) => setHalfLife(typeof value === 'number' ? value : null)}
            />
          </Group>
          {propose.isError && <ErrorState error={propose.error} />}
          <Group justify="flex-end" gap="xs">
            <Button variant="default" onClick={onClose}>
              {shared.cancel}
            </Button>
            <Button type="submit" loading={propose.isPending} disabled={!isComplete}>
              {words.submit}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
