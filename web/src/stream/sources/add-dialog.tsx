import {
  NumberInput,
  Select,
  SimpleGrid,
  TagsInput,
  Text,
  Textarea,
  TextInput,
} from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, call } from '@/shared/api/client';
import { useWords } from '@/shared/i18n';
import { Confirm } from '@/shared/ui/confirm';
import {
  EMPTY_SOURCE,
  isComplete,
  KINDS,
  type Kind,
  type SourceForm,
  toSourceRequest,
} from './request';
import { sourceWords } from './words';

type FieldsProps = { form: SourceForm; set: (change: Partial<SourceForm>) => void };

/** Add a source: what it reads and where its documents go. */
export function AddDialog({ onClose }: { onClose: () => void }) {
  const words = useWords(sourceWords);
  const client = useQueryClient();
  const [form, setForm] = useState(EMPTY_SOURCE);
  const set = (change: Partial<SourceForm>) => setForm((old) => ({ ...old, ...change }));
  const confirm = async () => {
    await call(api.POST('/v1/sources', { body: toSourceRequest(form) }));
    await client.invalidateQueries({ queryKey: ['sources'] });
    notifications.show({ message: words.added(form.name) });
  };
  const text = textField(form, set);
  const list = listField(form, set);
  return (
    <Confirm
      opened
      size="lg"
      onClose={onClose}
      action={form.name ? words.form.submit(form.name) : words.add}
      onConfirm={confirm}
      disabled={!isComplete(form)}
    >
      <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="xs">
        <Select
          label={words.kind}
          data={KINDS.map((value) => ({ value, label: words.kinds[value] }))}
          value={form.kind}
          allowDeselect={false}
          onChange={(kind) => set({ kind: (kind ?? form.kind) as Kind })}
        />
        <TextInput
          {...text('name', words.form.name)}
          placeholder={words.form.nameHint}
          maxLength={40}
          required
          data-autofocus
        />
      </SimpleGrid>
      <KindFields form={form} set={set} />
      <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="xs">
        <TextInput {...text('collection', words.form.collection)} />
        <TagsInput {...list('tags', words.form.tags)} />
      </SimpleGrid>
    </Confirm>
  );
}

function textField(form: SourceForm, set: FieldsProps['set']) {
  return (
    name: Extract<
      keyof SourceForm,
      | 'name'
      | 'collection'
      | 'path'
      | 'glob'
      | 'table'
      | 'slot'
      | 'topic'
      | 'title'
      | 'language'
      | 'filename'
    >,
    label: string,
  ) => ({
    label,
    value: form[name],
    onChange: (event: { currentTarget: { value: string } }) =>
      set({ [name]: event.currentTarget.value }),
  });
}

function listField(form: SourceForm, set: FieldsProps['set']) {
  return (name: 'tags' | 'include' | 'body' | 'id' | 'metadata', label: string) => ({
    label,
    value: form[name],
    onChange: (value: string[]) => set({ [name]: value }),
  });
}

function KindFields({ form, set }: FieldsProps) {
  const words = useWords(sourceWords).form;
  const text = textField(form, set);
  const list = listField(form, set);
  switch (form.kind) {
    case 'folder':
      return (
        <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="xs">
          <TextInput {...text('path', words.path)} placeholder={words.pathHint} required />
          <TextInput {...text('glob', words.glob)} />
          <TagsInput {...list('include', words.include)} placeholder={words.includeHint} />
          <NumberInput
            label={words.every}
            min={0.05}
            max={86400}
            value={form.everyFolder}
            onChange={(value) => set({ everyFolder: Number(value) || EMPTY_SOURCE.everyFolder })}
          />
        </SimpleGrid>
      );
    case 'urls':
      return (
        <>
          <Textarea
            label={words.urls}
            autosize
            minRows={3}
            maxRows={10}
            required
            value={form.urls}
            onChange={(event) => set({ urls: event.currentTarget.value })}
          />
          <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="xs">
            <NumberInput
              label={words.everyUrl}
              min={0.05}
              value={form.everyUrl}
              onChange={(value) => set({ everyUrl: Number(value) || EMPTY_SOURCE.everyUrl })}
            />
            <NumberInput
              label={words.misses}
              min={1}
              max={100}
              value={form.misses}
              onChange={(value) => set({ misses: Number(value) || EMPTY_SOURCE.misses })}
            />
          </SimpleGrid>
        </>
      );
    default:
      return <RowFields form={form} set={set} />;
  }
}

/** Where rows come from and how their columns become a document. */
function RowFields({ form, set }: FieldsProps) {
  const words = useWords(sourceWords).form;
  const text = textField(form, set);
  const list = listField(form, set);
  return (
    <>
      {form.kind === 'postgres' && (
        <Text size="sm" c="dimmed">
          {words.dsn(form.name.toUpperCase() || '…')}
        </Text>
      )}
      <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="xs">
        {form.kind === 'postgres' ? (
          <>
            <TextInput {...text('table', words.table)} placeholder={words.tableHint} required />
            <TextInput {...text('slot', words.slot)} placeholder={words.slotHint} />
          </>
        ) : (
          <TextInput {...text('topic', words.topic)} required />
        )}
        <TagsInput {...list('body', words.body)} required />
        <TagsInput {...list('id', words.id)} placeholder={words.idHint} />
        <TextInput {...text('title', words.title)} />
        <TextInput {...text('language', words.language)} />
        <TextInput {...text('filename', words.filename)} />
        <TagsInput {...list('metadata', words.metadata)} />
      </SimpleGrid>
    </>
  );
}
