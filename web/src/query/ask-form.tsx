import { Button, Select, Textarea } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import { api, call } from '@/shared/api/client';
import { useWords } from '@/shared/i18n';
import { useKeys } from '@/shared/keys';
import { useProfiles } from '@/tune/profiles';
import classes from './answer.module.css';
import type { QueryRequest } from './run-data';
import { queryWords } from './words';

export type AskSettings = { collection: string; profile: string; mode: string };
const MODES = ['auto', 'vector', 'graph', 'hybrid'] as const;

/** The body of a question with the settings of the form. */
export function buildRequest(query: string, settings: AskSettings): QueryRequest {
  return {
    query,
    ...(settings.profile ? { profile: settings.profile } : {}),
    ...(settings.mode ? { mode: settings.mode } : {}),
    ...(settings.collection ? { filters: { collections: [settings.collection] } } : {}),
  } as QueryRequest;
}

/** The question box. `/` focuses it, enter asks, shift and enter start a line. */
export function AskForm({
  initial,
  current,
  settings,
  onSettings,
  onAsk,
  isPending,
}: {
  initial: string;
  /** The run that is shown: once it is another, the box is free for the next question. */
  current: string | undefined;
  settings: AskSettings;
  onSettings: (change: Partial<AskSettings>) => void;
  onAsk: (question: string) => void;
  isPending: boolean;
}) {
  const words = useWords(queryWords);
  const input = useRef<HTMLTextAreaElement>(null);
  const [question, setQuestion] = useState(initial);
  // biome-ignore lint/correctness/useExhaustiveDependencies: also when only the run changes.
  useEffect(() => setQuestion(initial), [initial, current]);
  const collections = useQuery({
    queryKey: ['collections'],
    queryFn: () => call(api.GET('/v1/collections')),
  });
  const profiles = useProfiles();
  useKeys([{ keys: '/', label: words.focus, run: () => input.current?.select() }]);
  const names = (collections.data?.items ?? []).flatMap(({ name }) => (name ? [name] : []));
  const workflows = (profiles.data ?? [])
    .filter(({ type }) => type === 'workflow')
    .map(({ name }) => name);
  const submit = () => {
    if (question.trim() !== '' && !isPending) onAsk(question.trim());
  };
  return (
    <form
      className={`panel ${classes.ask}`}
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      <Textarea
        ref={input}
        className={classes.askInput}
        aria-label={words.question}
        placeholder={words.placeholder}
        autosize
        minRows={1}
        maxRows={8}
        maxLength={8000}
        // Keys act on an answer that is shown.
        autoFocus={current === undefined}
        value={question}
        onChange={(event) => setQuestion(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === 'Escape') event.currentTarget.blur();
          if (event.key !== 'Enter' || event.shiftKey || event.nativeEvent.isComposing) return;
          event.preventDefault();
          submit();
        }}
      />
      <div className={classes.askRow}>
        <Select
          aria-label={words.collection}
          placeholder={words.allCollections}
          data={withCurrent(names, settings.collection)}
          value={settings.collection || null}
          onChange={(value) => onSettings({ collection: value ?? '' })}
          clearable
          searchable
          w={180}
        />
        <Select
          aria-label={words.profile}
          placeholder={words.profile}
          data={withCurrent(workflows, settings.profile)}
          value={settings.profile || null}
          onChange={(value) => onSettings({ profile: value ?? '' })}
          clearable
          w={140}
        />
        <Select
          aria-label={words.mode}
          data={MODES.map((mode) => ({ value: mode, label: words.modes[mode] }))}
          value={settings.mode || 'auto'}
          allowDeselect={false}
          onChange={(value) => onSettings({ mode: value === 'auto' ? '' : (value ?? '') })}
          w={170}
        />
        <span style={{ flex: 1 }} />
        <Button
          type="submit"
          variant="filled"
          loading={isPending}
          disabled={question.trim() === ''}
        >
          {words.ask} ⏎
        </Button>
      </div>
    </form>
  );
}

/** An address may name what the server no longer lists. */
function withCurrent(names: string[], current: string): string[] {
  return current && !names.includes(current) ? [...names, current] : names;
}
