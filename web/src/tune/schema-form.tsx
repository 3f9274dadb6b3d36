import { Badge, Title, UnstyledButton } from '@mantine/core';
import { useId } from 'react';
import { useWords } from '@/shared/i18n';
import { formWords } from './form-words';
import {
  allFields,
  type Field,
  getAt,
  isEqual,
  type Json,
  type JsonObject,
  type Section,
} from './schema';
import { Description, FieldControl } from './schema-field';
import classes from './schema-form.module.css';

export type FormState = {
  /** What is shown, edits included. */
  values: JsonObject;
  /** The values before the edits. */
  saved: JsonObject;
  onChange: (field: Field, value: Json) => void;
  /** Which fields are shown. */
  isShown: (field: Field) => boolean;
  isFileOnly?: (field: Field) => boolean;
};

/** Sections of fields; what differs from the schema's default has a mark, what is edited a ground. */
export function SchemaForm({ section, ...form }: { section: Section } & FormState) {
  return section.sections
    .filter((inner) => allFields(inner).some(form.isShown))
    .map((inner) => <SectionForm key={inner.key} section={inner} form={form} />);
}

/** The fields of one section without a frame, as of a request. */
export function SchemaFields({ section, ...form }: { section: Section } & FormState) {
  return (
    <div className="panel">
      <Fields section={section} form={form} />
    </div>
  );
}

function SectionForm({ section, form }: { section: Section; form: FormState }) {
  const headingId = useId();
  return (
    <section className={`panel ${classes.section}`} aria-labelledby={headingId}>
      <div className={classes.head}>
        <Title order={2} id={headingId}>
          {section.title}
        </Title>
        {section.title.toLowerCase() !== section.key && (
          <code className="muted">{section.key}</code>
        )}
        <Description text={section.description} />
      </div>
      <Fields section={section} form={form} />
    </section>
  );
}

function Fields({ section, form }: { section: Section; form: FormState }) {
  return (
    <>
      {section.fields.filter(form.isShown).map((field) => (
        <FieldRow key={field.key} field={field} form={form} />
      ))}
      {section.sections
        .filter((inner) => allFields(inner).some(form.isShown))
        .map((inner) => (
          <div key={inner.key}>
            <div className={classes.head} style={{ borderTop: '1px solid var(--line)' }}>
              <Title order={3}>{inner.title}</Title>
              <code className="muted">{inner.key}</code>
            </div>
            <Fields section={inner} form={form} />
          </div>
        ))}
    </>
  );
}

function FieldRow({ field, form }: { field: Field; form: FormState }) {
  const words = useWords(formWords);
  const id = useId();
  const value = getAt(form.values, field.key) ?? null;
  const saved = getAt(form.saved, field.key) ?? null;
  const isChanged = !isEqual(value, field.default);
  const isEdited = !isEqual(value, saved);
  const marks = `${isChanged ? classes.changed : ''} ${isEdited ? classes.edited : ''}`;
  return (
    <div className={`${classes.field} ${marks}`}>
      <div>
        <div className={classes.title}>
          <span id={`${id}-label`}>{field.title}</span>
          {field.title.toLowerCase() !== field.name && <code className="muted">{field.name}</code>}
          {form.isFileOnly?.(field) && (
            <Badge variant="default" size="sm" tt="none">
              {words.fileOnly}
            </Badge>
          )}
        </div>
        <Description id={`${id}-description`} text={field.description} />
      </div>
      <div className={classes.control}>
        <FieldControl
          field={field}
          value={value}
          onChange={(next) => form.onChange(field, next)}
          labelledBy={`${id}-label`}
          describedBy={`${id}-description`}
        />
        {(isChanged || isEdited) && (
          <div className={classes.state}>
            <span title={words.changed}>{words.default(formatValue(field.default, words))}</span>
            {isChanged && (
              <Link
                label={words.reset(field.name)}
                onClick={() => form.onChange(field, field.default)}
              >
                ↺
              </Link>
            )}
            {isEdited && (
              <Link label={words.undo(field.name)} onClick={() => form.onChange(field, saved)}>
                {words.undoShort}
              </Link>
            )}
          </div>
        )}
      </div>
    </div>
  );
}

function Link({
  label,
  onClick,
  children,
}: {
  label: string;
  onClick: () => void;
  children: string;
}) {
  return (
    <UnstyledButton fz="xs" c="var(--accent)" aria-label={label} title={label} onClick={onClick}>
      {children}
    </UnstyledButton>
  );
}

export function formatValue(
  value: Json | undefined,
  words: { notSet: string; yes: string; no: string; empty: string },
): string {
  if (value === null || value === undefined) return words.notSet;
  if (typeof value === 'boolean') return value ? words.yes : words.no;
  if (value === '' || (typeof value === 'object' && Object.keys(value).length === 0)) {
    return words.empty;
  }
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}
