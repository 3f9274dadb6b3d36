import { NumberInput, Select, SimpleGrid, Stack, TagsInput, Text, TextInput } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { notifications } from '@mantine/notifications';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, call, type Schemas } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Confirm } from '@/shared/ui/confirm';
import { QueryState } from '@/shared/ui/states';
import { stageLabel, streamWords } from '../words';
import { EMPTY_FORM, parseOffsets, type ReplayForm, toRequest } from './request';
import { replayWords } from './words';

const STAGES = ['receive', 'transcribe', 'chunk', 'extract', 'embed', 'index', 'announce'];

const send = (form: ReplayForm, isDryRun: boolean) =>
  call(api.POST('/v1/replays', { body: toRequest(form, isDryRun) }));

/** Choose a stage and events; a dry run says how many before the button starts it. */
export function StartDialog({ stage, onClose }: { stage?: string; onClose: () => void }) {
  const words = useWords(replayWords).form;
  const format = useFormat();
  const client = useQueryClient();
  const [form, setForm] = useState<ReplayForm>({ ...EMPTY_FORM, ...(stage ? { stage } : {}) });
  const [planned] = useDebouncedValue(form, 400);
  const plan = useQuery({
    queryKey: ['replays', 'plan', planned],
    queryFn: () => send(planned, true),
    staleTime: 0,
  });
  const isCurrent = planned === form && plan.isSuccess;
  const chosen = plan.data?.events_chosen ?? 0;
  const badOffsets = form.offsets.find((text) => parseOffsets(text) === null);
  const confirm = async () => {
    await send(form, false);
    await client.invalidateQueries({ queryKey: ['replays'] });
    notifications.show({ message: words.done(format.count(chosen)) });
  };
  return (
    <Confirm
      opened
      size="lg"
      onClose={onClose}
      action={words.submit(isCurrent ? format.count(chosen) : '…')}
      onConfirm={confirm}
      disabled={
        !isCurrent || chosen === 0 || badOffsets !== undefined || plan.data.missing.length > 0
      }
    >
      <Fields form={form} badOffsets={badOffsets} onChange={setForm} />
      <QueryState query={plan} rows={2}>
        {(data) => <Plan plan={data} />}
      </QueryState>
    </Confirm>
  );
}

function Fields({
  form,
  badOffsets,
  onChange,
}: {
  form: ReplayForm;
  badOffsets: string | undefined;
  onChange: (form: ReplayForm) => void;
}) {
  const words = useWords(replayWords).form;
  const stream = useWords(streamWords);
  const generations = useQuery({
    queryKey: ['generations', 'list'],
    queryFn: () => call(api.GET('/v1/generations')),
  });
  const set = (change: Partial<ReplayForm>) => onChange({ ...form, ...change });
  return (
    <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="xs">
      <Select
        label={words.stage}
        data={STAGES.map((value) => ({ value, label: stageLabel(stream, value) }))}
        value={form.stage}
        allowDeselect={false}
        onChange={(stage) => set({ stage: stage ?? form.stage })}
      />
      <Select
        label={words.generation}
        placeholder={words.live}
        data={(generations.data?.items ?? []).map(({ name }) => name)}
        value={form.generation || null}
        clearable
        onChange={(generation) => set({ generation: generation ?? '' })}
      />
      <TextInput
        type="datetime-local"
        label={words.since}
        value={form.since}
        onChange={(event) => set({ since: event.currentTarget.value })}
      />
      <TextInput
        type="datetime-local"
        label={words.until}
        value={form.until}
        onChange={(event) => set({ until: event.currentTarget.value })}
      />
      <TextInput
        label={words.collection}
        value={form.collection}
        onChange={(event) => set({ collection: event.currentTarget.value })}
      />
      <NumberInput
        label={words.rate}
        placeholder={words.noLimit}
        min={0.1}
        value={form.perSecond ?? ''}
        onChange={(value) => set({ perSecond: typeof value === 'number' ? value : null })}
      />
      <TagsInput
        label={words.documents}
        placeholder={words.documentsHint}
        value={form.documents}
        onChange={(documents) => set({ documents })}
      />
      <TagsInput
        label={words.offsets}
        placeholder={words.offsetsHint}
        value={form.offsets}
        error={badOffsets !== undefined && words.badOffsets(badOffsets)}
        onChange={(offsets) => set({ offsets })}
      />
    </SimpleGrid>
  );
}

function Plan({ plan }: { plan: Schemas['ReplayReceipt'] }) {
  const words = useWords(replayWords).form;
  const format = useFormat();
  return (
    <Stack gap={2} className="panel" p="sm" aria-live="polite">
      <Text size="sm" fw={600}>
        {words.planChosen(format.count(plan.events_chosen ?? 0))}
      </Text>
      <Text size="sm" c="dimmed">
        {words.planReads(format.count(plan.events_read), plan.topic)} {words.planFree}
      </Text>
      {plan.missing.map(({ partition, start, end }) => (
        <Text key={`${partition} ${start}`} size="sm" className="bad">
          {words.planMissing(String(partition), `${start}–${end - 1}`)}
        </Text>
      ))}
    </Stack>
  );
}
