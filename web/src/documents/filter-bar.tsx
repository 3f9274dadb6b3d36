import { Autocomplete, Button, Select, TextInput } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { type RefObject, useEffect, useMemo, useState } from 'react';
import { useDelayedChange } from '@/shared/address';
import { api, call } from '@/shared/api/client';
import { useWords } from '@/shared/i18n';
import classes from './documents.module.css';
import type { DocumentRow } from './stages';
import type { DocumentFilters } from './use-documents';
import { documentsWords } from './words';

type Address = Record<string, string | undefined>;
const STATES = ['searchable', 'running', 'failed', 'withdrawn'] as const;
const TYPING_MS = 250;

/** The filters in the address, under their names in the API. */
export function filtersFrom(address: Address): DocumentFilters {
  const { text, collection, tag, date_from, date_to } = address;
  const state = STATES.find((one) => one === address.state);
  return {
    ...(text ? { text } : {}),
    ...(state ? { state } : {}),
    ...(collection ? { collection } : {}),
    ...(tag ? { tag } : {}),
    ...(date_from && isDay(date_from) ? { date_from } : {}),
    ...(date_to && isDay(date_to) ? { date_to } : {}),
  };
}

function isDay(text: string): boolean {
  return /^\d{4}-\d{2}-\d{2}$/.test(text) && !Number.isNaN(Date.parse(text));
}

export function useCollectionNames(): string[] {
  const { data } = useQuery({
    queryKey: ['collections'],
    queryFn: () => call(api.GET('/v1/collections')),
  });
  return useMemo(() => data?.items.flatMap((one) => one.name ?? []) ?? [], [data]);
}

export function FilterBar({
  inputRef,
  address,
  onChange,
  rows,
}: {
  inputRef: RefObject<HTMLInputElement | null>;
  address: Address;
  onChange: (change: Address, options?: { replace?: boolean }) => void;
  rows: readonly DocumentRow[];
}) {
  const words = useWords(documentsWords);
  const collections = useCollectionNames();
  const tags = useMemo(
    () => [...new Set(rows.slice(0, 1000).flatMap((row) => row.tags))].sort(),
    [rows],
  );
  const filters = filtersFrom(address);
  const isFiltered = Object.keys(filters).length > 0;
  return (
    <search className={classes.filters} aria-label={words.filters.label}>
      <Typed
        value={address.text ?? ''}
        onChange={(text) => onChange({ text }, { replace: true })}
        render={(value, set) => (
          <TextInput
            ref={inputRef}
            label={words.filters.text}
            value={value}
            onChange={(event) => set(event.currentTarget.value)}
          />
        )}
      />
      <Select
        label={words.filters.state}
        placeholder={words.filters.any}
        clearable
        data={STATES.map((value) => ({ value, label: words.states[value] }))}
        value={filters.state ?? null}
        onChange={(state) => onChange({ state: state ?? undefined })}
      />
      <Select
        label={words.filters.collection}
        placeholder={words.filters.any}
        clearable
        searchable
        data={[...new Set([...collections, ...(filters.collection ? [filters.collection] : [])])]}
        value={filters.collection ?? null}
        onChange={(collection) => onChange({ collection: collection ?? undefined })}
      />
      <Typed
        value={address.tag ?? ''}
        onChange={(tag) => onChange({ tag }, { replace: true })}
        render={(value, set) => (
          <Autocomplete
            label={words.filters.tag}
            placeholder={words.filters.any}
            data={tags}
            value={value}
            onChange={set}
          />
        )}
      />
      <TextInput
        type="date"
        label={words.filters.from}
        value={address.date_from ?? ''}
        onChange={(event) => onChange({ date_from: event.currentTarget.value }, { replace: true })}
      />
      <TextInput
        type="date"
        label={words.filters.to}
        value={address.date_to ?? ''}
        onChange={(event) => onChange({ date_to: event.currentTarget.value }, { replace: true })}
      />
      <Button
        variant="subtle"
        style={{ visibility: isFiltered ? 'visible' : 'hidden' }}
        onClick={() =>
          onChange(Object.fromEntries(Object.keys(filters).map((name) => [name, undefined])))
        }
      >
        {words.filters.clear}
      </Button>
    </search>
  );
}

/** A text that is typed: the address follows when the typing pauses. */
function Typed({
  value,
  onChange,
  render,
}: {
  value: string;
  onChange: (value: string) => void;
  render: (value: string, set: (value: string) => void) => React.ReactNode;
}) {
  const [typed, setTyped] = useState(value);
  const publish = useDelayedChange(onChange, TYPING_MS);
  useEffect(() => setTyped(value), [value]);
  return render(typed, (next) => {
    setTyped(next);
    publish(next.trim());
  });
}
