import { Select } from '@mantine/core';
import { useWords } from '@/shared/i18n';
import { generationWords } from './words';

const DAY_MS = 86_400_000;

export function PeriodSelect({
  value,
  onChange,
}: {
  value: string;
  onChange: (value: string) => void;
}) {
  const words = useWords(generationWords);
  return (
    <Select
      label={words.period}
      data={Object.entries(words.periods).map(([period, label]) => ({ value: period, label }))}
      value={value}
      allowDeselect={false}
      onChange={(period) => onChange(period ?? '30')}
    />
  );
}

/** The start of a period of days before now, or of all time: without one nothing is compared. */
export function sinceOf(period: string, now = Date.now()): string {
  const start = period === 'all' ? 0 : now - Number(period) * DAY_MS;
  return new Date(start).toISOString();
}
