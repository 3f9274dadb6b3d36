import { NumberInput, Select } from '@mantine/core';
import { useId } from 'react';
import { useWords } from '@/shared/i18n';
import type { Field } from '@/tune/schema';
import { runWords } from './run-words';
import classes from './tabs.module.css';

/** One setting as the schema declares it: a slider with its exact value, or a choice. */
export function SettingSlider({
  field,
  value,
  recorded,
  onChange,
}: {
  field: Field;
  value: number | string;
  recorded: number | string;
  onChange: (value: number | string) => void;
}) {
  const words = useWords(runWords).fusion;
  const id = useId();
  const title = words.settingTitles[field.name] ?? field.title;
  const label = (
    <span title={field.description}>
      {title}{' '}
      {value !== recorded && <span className="muted">← {format(recorded, words.method)}</span>}
    </span>
  );
  if (field.kind === 'choice') {
    return (
      <Select
        label={label}
        data={field.choices.map((choice) => ({
          value: choice,
          label: format(choice, words.method),
        }))}
        value={String(value)}
        allowDeselect={false}
        onChange={(next) => next !== null && onChange(next)}
      />
    );
  }
  if (field.kind !== 'number') return null;
  const bounds = { min: field.min ?? 0, max: field.max ?? 1, step: field.step };
  return (
    <div className={classes.slider}>
      <label htmlFor={id}>{label}</label>
      <input
        id={id}
        type="range"
        {...bounds}
        value={Number(value)}
        title={field.description}
        onChange={(event) => onChange(Number(event.currentTarget.value))}
      />
      <NumberInput
        aria-label={title}
        {...bounds}
        clampBehavior="strict"
        allowDecimal={!field.isInteger}
        hideControls
        value={Number(value)}
        onChange={(next) => typeof next === 'number' && onChange(next)}
      />
    </div>
  );
}

function format(value: number | string, names: Record<string, string>): string {
  return typeof value === 'number' ? String(value) : (names[value] ?? value);
}
