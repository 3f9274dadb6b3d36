import { Badge, CopyButton, Title, Tooltip, UnstyledButton } from '@mantine/core';
import { useId } from 'react';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { sharedWords } from '@/shared/words';
import { formWords } from './form-words';
import { unitOf } from './schema';
import { Description } from './schema-field';
import { formatValue } from './schema-form';
import formClasses from './schema-form.module.css';
import { type Setting, toEnvironment } from './settings';
import classes from './settings-section.module.css';
import { settingsWords } from './settings-words';

/** The settings of a section: what each does, its value, where that comes from, when it changes. */
export function SettingSection({
  title,
  name,
  rows,
}: {
  title: string;
  name: string;
  rows: Setting[];
}) {
  const id = useId();
  return (
    <section className="panel" aria-labelledby={id}>
      <div className={formClasses.head}>
        <Title order={2} id={id}>
          {title}
        </Title>
        {title.toLowerCase() !== name && name && <code className="muted">{name}</code>}
      </div>
      {rows.map((setting) => (
        <SettingRow key={setting.key} setting={setting} />
      ))}
    </section>
  );
}

function SettingRow({ setting }: { setting: Setting }) {
  const words = useWords(settingsWords);
  const form = useWords(formWords);
  const format = useFormat();
  const { field, origin, reindexFrom } = setting;
  const isSet = origin !== null && origin !== 'default';
  const value = origin === null ? field.default : setting.value;
  const unit = unitOf(field.name);
  const isHidden = setting.isSecret && value !== null && Object.keys(value).length > 0;
  const text = isHidden ? words.secretSet : formatValue(value, form);
  const isNothing = isHidden || value === null || text === form.empty;
  const isBytes = unit === 'B' && typeof value === 'number' && value >= 1000;
  return (
    <div className={`${classes.row} ${isSet ? classes.set : ''}`}>
      <div>
        <div className={formClasses.title}>
          {field.title}
          {field.title.toLowerCase() !== field.name && <code className="muted">{field.name}</code>}
        </div>
        <Description text={field.description} />
      </div>
      <div className={classes.value}>
        <span className={`${isNothing ? 'muted' : 'mono'} foreign`}>
          {text}
          {unit !== '' && unit !== 'B' && typeof value === 'number' && ` ${unit}`}
        </span>
        {isBytes && <span className={classes.note}>{format.bytes(value)}</span>}
        {isSet && (
          <span className={`${classes.note} foreign`}>
            {words.default(formatValue(field.default, form))}
          </span>
        )}
      </div>
      <div className={classes.origin}>
        {origin !== null && (
          <span className={isSet ? undefined : 'muted'}>{words.origins[origin]}</span>
        )}
        {reindexFrom ? (
          <Badge variant="default" size="sm" tt="none" className="warn">
            {words.reindexFrom(words.stages[reindexFrom])}
          </Badge>
        ) : (
          <span className="muted">{words.restart}</span>
        )}
      </div>
      <CopyEnvironment setting={setting} />
    </div>
  );
}

function CopyEnvironment({ setting }: { setting: Setting }) {
  const words = useWords(settingsWords);
  const shared = useWords(sharedWords);
  return (
    <CopyButton value={toEnvironment(setting)}>
      {({ copied, copy }) => (
        <Tooltip label={copied ? shared.copied : toEnvironment(setting)}>
          <UnstyledButton
            className={classes.copy}
            aria-label={words.copyEnv(setting.environment)}
            onClick={copy}
          >
            {copied ? shared.copied : shared.copy}
          </UnstyledButton>
        </Tooltip>
      )}
    </CopyButton>
  );
}
