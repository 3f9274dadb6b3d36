import {
  Button,
  Checkbox,
  CloseButton,
  Group,
  Modal,
  NumberInput,
  Select,
  Stack,
  Text,
  TextInput,
} from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { api, call } from '@/shared/api/client';
import { useWords } from '@/shared/i18n';
import { ErrorState, QueryState } from '@/shared/ui/states';
import { sharedWords } from '@/shared/words';
import { useDone } from './acts';
import type { Generation } from './config-diff';
import { BuildPrice } from './price';
import { type SettingOption, settingOptions } from './settings-options';
import { generationWords } from './words';

type Change = { key: string; value: string };
type Purpose = 'reindex' | 'rebuild';

/** Choose what to build; the price stands there before the button that spends it. */
export function BuildDialog({
  live,
  onClose,
}: {
  live: Generation | undefined;
  onClose: () => void;
}) {
  const words = useWords(generationWords);
  const shared = useWords(sharedWords);
  const done = useDone();
  const [purpose, setPurpose] = useState<Purpose>('reindex');
  const [changes, setChanges] = useState<Change[]>([{ key: '', value: '' }]);
  const [keepPrevious, setKeepPrevious] = useState(true);
  const [rate, setRate] = useState<number | null>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const schema = useQuery({
    queryKey: ['config-schema'],
    queryFn: () => call(api.GET('/v1/config/schema')),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const set = changes.filter(({ key, value }) => key && value).map((c) => `${c.key}=${c.value}`);
  const [priced] = useDebouncedValue(set.join('\n'), 400);
  const plan = useQuery({
    queryKey: ['generations', 'plan', priced],
    queryFn: () => call(api.POST('/v1/generations/plan', { body: { set: priced.split('\n') } })),
    enabled: purpose === 'reindex' && priced !== '',
    staleTime: 0,
  });
  const isPriced = priced === set.join('\n') && plan.isSuccess && plan.data.covered_by_retention;
  const start = async () => {
    setBusy(true);
    setError(null);
    try {
      const build = await call(
        api.POST('/v1/generations', {
          body:
            purpose === 'reindex'
              ? { purpose, set, keep_previous: false, events_per_second: rate }
              : { purpose, set: [], keep_previous: keepPrevious, events_per_second: rate },
        }),
      );
      await done(words.plan.started(build.generation));
      onClose();
    } catch (failure) {
      setError(failure);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Modal
      opened
      size="lg"
      onClose={onClose}
      title={words.plan.title}
      closeButtonProps={{ 'aria-label': shared.close }}
    >
      <Stack gap="sm">
        <Select
          label={words.plan.purpose}
          data={[
            { value: 'reindex', label: words.plan.reindex },
            { value: 'rebuild', label: words.plan.rebuild },
          ]}
          value={purpose}
          allowDeselect={false}
          onChange={(value) => setPurpose(value as Purpose)}
        />
        {purpose === 'reindex' ? (
          <>
            <QueryState query={schema} rows={2}>
              {(data) => (
                <Changes
                  options={settingOptions(data.settings)}
                  live={live}
                  changes={changes}
                  onChange={setChanges}
                />
              )}
            </QueryState>
            {priced === '' ? (
              <Text size="sm" c="dimmed">
                {words.plan.none}
              </Text>
            ) : (
              <QueryState query={plan} rows={4}>
                {(data) => <BuildPrice plan={data} />}
              </QueryState>
            )}
          </>
        ) : (
          <>
            <Text size="sm">{words.plan.rebuildHint}</Text>
            <Checkbox
              label={words.plan.keepPrevious}
              checked={keepPrevious}
              onChange={(event) => setKeepPrevious(event.currentTarget.checked)}
            />
          </>
        )}
        <NumberInput
          label={words.rate}
          placeholder={words.noLimit}
          min={0.001}
          value={rate ?? ''}
          onChange={(value) => setRate(typeof value === 'number' ? value : null)}
        />
        {error !== null && <ErrorState error={error} />}
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={onClose}>
            {shared.cancel}
          </Button>
          <Button loading={busy} disabled={purpose === 'reindex' && !isPriced} onClick={start}>
            {words.plan.start(purpose)}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}

function Changes({
  options,
  live,
  changes,
  onChange,
}: {
  options: SettingOption[];
  live: Generation | undefined;
  changes: Change[];
  onChange: (changes: Change[]) => void;
}) {
  const words = useWords(generationWords);
  const update = (index: number, change: Change) => onChange(changes.with(index, change));
  return (
    <Stack gap="xs">
      {changes.map((change, index) => {
        const option = options.find(({ key }) => key === change.key);
        return (
          // biome-ignore lint/suspicious/noArrayIndexKey: rows have no other identity.
          <Group key={index} gap="xs" align="flex-end" wrap="nowrap">
            <Select
              style={{ flex: 1, minWidth: 0 }}
              label={words.plan.setting}
              data={options.map(({ key }) => key)}
              searchable
              value={change.key || null}
              onChange={(key) => update(index, { key: key ?? '', value: '' })}
            />
            <ValueInput
              option={option}
              now={option && live ? liveValue(live, option.key) : ''}
              value={change.value}
              onChange={(value) => update(index, { key: change.key, value })}
            />
            <CloseButton
              aria-label={words.plan.remove(change.key)}
              disabled={changes.length === 1}
              onClick={() => onChange(changes.toSpliced(index, 1))}
            />
          </Group>
        );
      })}
      {changes.map(({ key }) => {
        const option = options.find((candidate) => candidate.key === key);
        return (
          option && (
            <Text key={key} size="xs" c="dimmed">
              <code>{key}</code> {option.description}
            </Text>
          )
        );
      })}
      <Button
        variant="default"
        style={{ alignSelf: 'flex-start' }}
        onClick={() => onChange([...changes, { key: '', value: '' }])}
      >
        {words.plan.add}
      </Button>
    </Stack>
  );
}

function ValueInput({
  option,
  now,
  value,
  onChange,
}: {
  option: SettingOption | undefined;
  now: string;
  value: string;
  onChange: (value: string) => void;
}) {
  const words = useWords(generationWords);
  const common = {
    style: { flex: 1, minWidth: 0 },
    label: words.plan.value,
    placeholder: now ? words.plan.now(now) : '',
    disabled: option === undefined,
  };
  if (option && option.choices.length > 0)
    return (
      <Select
        {...common}
        data={option.choices}
        value={value || null}
        onChange={(choice) => onChange(choice ?? '')}
      />
    );
  if (option && option.type !== 'string')
    return (
      <NumberInput
        {...common}
        {...(option.minimum === undefined ? {} : { min: option.minimum })}
        {...(option.maximum === undefined ? {} : { max: option.maximum })}
        allowDecimal={option.type === 'number'}
        value={value}
        onChange={(number) => onChange(String(number))}
      />
    );
  return (
    <TextInput
      {...common}
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
    />
  );
}

function liveValue(live: Generation, key: string): string {
  const [section = '', name = ''] = key.split('.');
  const values = (live.config as Record<string, Record<string, unknown>>)[section];
  return values?.[name] === undefined ? '' : String(values[name]);
}
