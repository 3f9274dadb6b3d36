import { Autocomplete, Button, MultiSelect, TextInput } from '@mantine/core';
import { type RefObject, useEffect, useState } from 'react';
import { useDelayedChange } from '@/shared/address';
import { useCan } from '@/shared/api/identity';
import { useWords } from '@/shared/i18n';
import type { LogEntry, LogFilter } from './event-log';
import classes from './events.module.css';
import { eventWords } from './words';

const TOPICS = [
  'raw',
  'accepted',
  'ocr_done',
  'chunked',
  'entities',
  'embedded',
  'outcomes',
  'queries',
  'feedback',
  'answers',
  'dead_letters',
];
const TYPING_MS = 250;

export type FilterChange = Partial<Record<'topics' | 'type' | 'key' | 'text' | 'tenant', string>>;

/** The filters of the list, each a parameter of the address. */
export function Filters({
  filter,
  rows,
  textRef,
  onChange,
}: {
  filter: LogFilter;
  rows: readonly LogEntry[];
  textRef: RefObject<HTMLInputElement | null>;
  onChange: (change: FilterChange) => void;
}) {
  const words = useWords(eventWords);
  // The topic of decisions crosses tenants.
  const canSeeControl = useCan('operator');
  const types = distinct(rows.map((row) => row.type));
  const tenants = distinct(rows.map((row) => row.tenant));
  const isFiltered = Object.values(filter).some((value) => value.length > 0);
  return (
    <search className={classes.filters}>
      <MultiSelect
        size="xs"
        label={words.topics}
        placeholder={filter.topics.length === 0 ? words.allTopics : ''}
        data={canSeeControl ? [...TOPICS, 'control'] : TOPICS}
        value={filter.topics}
        onChange={(topics) => onChange({ topics: topics.join(',') })}
        clearable
      />
      <Typed
        label={words.type}
        value={filter.type}
        data={types}
        placeholder={words.typeHint}
        onChange={(type) => onChange({ type })}
      />
      <Typed label={words.key} value={filter.key} data={[]} onChange={(key) => onChange({ key })} />
      <Text inputRef={textRef} value={filter.text} onChange={(text) => onChange({ text })} />
      {(tenants.length > 1 || filter.tenant) && (
        <Typed
          label={words.tenant}
          value={filter.tenant}
          data={tenants}
          onChange={(tenant) => onChange({ tenant })}
        />
      )}
      <Button
        variant="default"
        disabled={!isFiltered}
        onClick={() => onChange({ topics: '', type: '', key: '', text: '', tenant: '' })}
      >
        {words.clear}
      </Button>
    </search>
  );
}

/** Text that reaches the address shortly after the last key. */
function useTyped(value: string, onChange: (value: string) => void) {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  const report = useDelayedChange(onChange, TYPING_MS);
  return {
    value: typed,
    set: (next: string) => {
      setTyped(next);
      report(next.trim());
    },
  };
}

function Typed({
  label,
  value,
  data,
  placeholder,
  onChange,
}: {
  label: string;
  value: string;
  data: string[];
  placeholder?: string;
  onChange: (value: string) => void;
}) {
  const typed = useTyped(value, onChange);
  return (
    <Autocomplete
      size="xs"
      label={label}
      placeholder={placeholder}
      data={data}
      limit={40}
      value={typed.value}
      onChange={typed.set}
    />
  );
}

function Text({
  value,
  inputRef,
  onChange,
}: {
  value: string;
  inputRef: RefObject<HTMLInputElement | null>;
  onChange: (value: string) => void;
}) {
  const words = useWords(eventWords);
  const typed = useTyped(value, onChange);
  return (
    <TextInput
      ref={inputRef}
      type="search"
      label={words.text}
      placeholder={words.textHint}
      value={typed.value}
      onChange={(event) => typed.set(event.currentTarget.value)}
    />
  );
}

function distinct(values: (string | null)[]): string[] {
  return [...new Set(values.filter((value) => value !== null))].sort();
}
