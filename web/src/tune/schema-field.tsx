import {
  Code,
  MultiSelect,
  NumberInput,
  Select,
  Slider,
  Switch,
  TagsInput,
  Textarea,
  TextInput,
} from '@mantine/core';
import { useState } from 'react';
import { useWords } from '@/shared/i18n';
import { formWords } from './form-words';
import { type Field, type Json, type NumberField, unitOf } from './schema';
import classes from './schema-form.module.css';

type ControlProps<F> = {
  field: F;
  value: Json;
  onChange: (value: Json) => void;
  labelledBy: string;
  describedBy: string;
};

/** The control of a field, by the type of its schema. */
export function FieldControl({ field, ...props }: ControlProps<Field>) {
  const words = useWords(formWords);
  const { value, onChange, labelledBy, describedBy } = props;
  const aria = { 'aria-labelledby': labelledBy, 'aria-describedby': describedBy };
  switch (field.kind) {
    case 'number':
      return <NumberControl field={field} {...props} />;
    case 'boolean':
      return (
        <Switch
          {...aria}
          checked={value === true}
          label={<span aria-hidden="true">{value === true ? words.yes : words.no}</span>}
          onChange={(event) => onChange(event.currentTarget.checked)}
        />
      );
    case 'choice':
      return (
        <Select
          {...aria}
          data={field.choices}
          value={value === null ? null : String(value)}
          placeholder={words.notSet}
          allowDeselect={field.isNullable}
          clearable={field.isNullable}
          onChange={(choice) => onChange(choice)}
          w={220}
        />
      );
    case 'list': {
      const list = Array.isArray(value) ? value.map(String) : [];
      return field.choices ? (
        <MultiSelect {...aria} data={field.choices} value={list} onChange={onChange} w="100%" />
      ) : (
        <TagsInput {...aria} value={list} onChange={onChange} w="100%" />
      );
    }
    case 'text': {
      const text = {
        ...aria,
        value: value === null ? '' : String(value),
        placeholder: field.isNullable || field.default === null ? words.notSet : '',
        onChange: (event: { currentTarget: { value: string } }) =>
          onChange(event.currentTarget.value === '' ? null : event.currentTarget.value),
        w: '100%',
      };
      return field.isLong ? <Textarea {...text} autosize maxRows={12} /> : <TextInput {...text} />;
    }
    case 'json':
      return <JsonControl key={field.key} field={field} {...props} />;
  }
}

const POSITIONS = 200;
/** A seed or a number of bytes has bounds, but no range to slide over. */
const MAX_RANGE = 10_000_000;

/** A slider where the schema has both bounds, and always the exact number. */
function NumberControl({
  field,
  value,
  onChange,
  labelledBy,
  describedBy,
}: ControlProps<NumberField>) {
  const words = useWords(formWords);
  const { min, max, step, isNullable, isInteger } = field;
  const number = typeof value === 'number' ? value : null;
  const hasRange = min !== undefined && max !== undefined && max - min <= MAX_RANGE;
  const hasSlider = hasRange && number !== null;
  const unit = unitOf(field.name);
  return (
    <div className={classes.number}>
      {hasSlider && (
        <Slider
          className={classes.slider}
          size="sm"
          label={null}
          thumbLabel={words.slider(field.title)}
          thumbProps={{ 'aria-valuetext': String(number) }}
          min={0}
          max={POSITIONS}
          step={1}
          value={toPosition(number, min, max)}
          onChange={(position) => onChange(fromPosition(position, min, max, step))}
        />
      )}
      <NumberInput
        aria-labelledby={labelledBy}
        aria-describedby={describedBy}
        className={classes.exact}
        value={number ?? ''}
        placeholder={words.notSet}
        min={min}
        max={max}
        step={step}
        allowDecimal={!isInteger}
        clampBehavior="blur"
        suffix={unit === '' ? '' : ` ${unit}`}
        onChange={(entered) => {
          if (typeof entered === 'number') onChange(entered);
          else if (entered === '' && isNullable) onChange(null);
        }}
      />
    </div>
  );
}

/** Wide ranges are logarithmic: 100 of 200 000 tokens would be no distance at all. */
function isWide(min: number, max: number): boolean {
  return min >= 0 && max - min > 2000;
}

export function toPosition(value: number, min: number, max: number): number {
  const share = isWide(min, max)
    ? Math.log1p(value - min) / Math.log1p(max - min)
    : (value - min) / (max - min);
  return Math.round(Math.min(1, Math.max(0, share)) * POSITIONS);
}

export function fromPosition(position: number, min: number, max: number, step: number): number {
  const share = position / POSITIONS;
  const raw = isWide(min, max)
    ? min + Math.expm1(share * Math.log1p(max - min))
    : min + share * (max - min);
  if (position >= POSITIONS) return max;
  const stepped = min + Math.round((raw - min) / step) * step;
  const value = Math.min(max, Math.max(min, stepped));
  // Two digits of a wide range: 18 234 tokens would be false precision.
  const rounded = isWide(min, max) && value > 100 ? Number(value.toPrecision(2)) : value;
  return Number(Math.min(max, Math.max(min, rounded)).toFixed(6));
}

/** A mapping or list that no other control can show: its JSON, passed on when it is valid. */
function JsonControl({ field, value, onChange, labelledBy, describedBy }: ControlProps<Field>) {
  const words = useWords(formWords);
  const [text, setText] = useState<string | null>(null);
  const shown = text ?? JSON.stringify(value);
  const isValid = text === null || parseJson(text) !== undefined;
  return (
    <Textarea
      aria-labelledby={labelledBy}
      aria-describedby={describedBy}
      classNames={{ input: 'mono' }}
      autosize
      maxRows={8}
      w="100%"
      value={shown}
      error={isValid ? undefined : words.invalidJson}
      onBlur={() => isValid && setText(null)}
      onChange={(event) => {
        setText(event.currentTarget.value);
        const parsed = parseJson(event.currentTarget.value);
        const isSameShape = Array.isArray(parsed) === Array.isArray(field.default);
        if (parsed !== undefined && typeof parsed === 'object' && isSameShape) onChange(parsed);
      }}
    />
  );
}

function parseJson(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}

/** A description, with what stands between backticks as code. The schema is in English. */
export function Description({ id, text }: { id?: string; text: string }) {
  return (
    <span id={id} lang="en" className={classes.description}>
      {(text.charAt(0).toUpperCase() + text.slice(1)).split('`').map((part, index) =>
        index % 2 === 1 ? (
          // biome-ignore lint/suspicious/noArrayIndexKey: the parts never move.
          <Code key={index}>{part}</Code>
        ) : (
          part
        ),
      )}
    </span>
  );
}
