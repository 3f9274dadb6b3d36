import { TextInput } from '@mantine/core';
import { useWords } from '../i18n';
import { sharedWords } from '../words';

type Days = { since?: string | undefined; until?: string | undefined };

/** Two days of the reader's calendar, as search parameters `since` and `until`. */
export function DateRange({ days, onChange }: { days: Days; onChange: (change: Days) => void }) {
  const words = useWords(sharedWords);
  return (['since', 'until'] as const).map((name) => (
    <TextInput
      key={name}
      type="date"
      label={words[name]}
      value={days[name] ?? ''}
      onChange={(event) => onChange({ [name]: event.currentTarget.value || undefined })}
    />
  ));
}

/** The days as times for the API: from the start of the first until the end of the last. */
export function toPeriod({ since, until }: Days): { from?: string; to?: string } {
  const from = startOfDay(since, 0);
  const to = startOfDay(until, 1);
  return { ...(from ? { from } : {}), ...(to ? { to } : {}) };
}

function startOfDay(date: string | undefined, later: number): string | undefined {
  const day = new Date(`${date}T00:00`);
  // An address may hold anything.
  if (Number.isNaN(day.getTime())) return undefined;
  day.setDate(day.getDate() + later);
  return day.toISOString();
}
