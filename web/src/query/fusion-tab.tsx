import { Button, Group, Stack, Text, Title } from '@mantine/core';
import { useClipboard, useDisclosure } from '@mantine/hooks';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { lazy, Suspense, useMemo, useState } from 'react';
import { useDelayedChange } from '@/shared/address';
import { api, call } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { EmptyState, QueryState } from '@/shared/ui/states';
import { useProfiles } from '@/tune/profiles';
import { allFields, type JsonSchema, readSection } from '@/tune/schema';
import { AddendLegend, AddendTable, RankChart } from './rank-chart';
import { mergeOverrides, type RecordedRun } from './run-data';
import type { TabProps } from './run-page';
import { runWords } from './run-words';
import { SettingSlider } from './setting-sliders';
import classes from './tabs.module.css';
import { rankAgain, recordedProfile, usableSettings, type WhatIfProfile } from './what-if';
import {
  applyChanges,
  type Changes,
  type Fields,
  formatChanges,
  listChanges,
  NO_CHANGES,
  parseChanges,
  SECTIONS,
  toOverrides,
  toProfileContent,
  validChanges,
} from './what-if-changes';
import { queryWords } from './words';

const SHOWN = 12;
const SaveProfile = lazy(() =>
  import('@/tune/save-profile').then((m) => ({ default: m.SaveProfile })),
);

/** How the channels' scores became one order, and what other settings would have done. */
export function FusionTab({ run, onAsk }: TabProps) {
  const labels = useWords(runWords);
  const fields = useQuery({
    queryKey: ['config', 'schema', 'fields'],
    staleTime: Number.POSITIVE_INFINITY,
    queryFn: async (): Promise<Fields> => {
      const schema = await call(api.GET('/v1/config/schema'));
      const section = readSection(schema.profile as JsonSchema);
      return new Map(allFields(section).map((field) => [field.key, field]));
    },
  });
  const profile = useMemo(() => recordedProfile(run), [run]);
  if (profile === null) return <EmptyState title={labels.notRecorded} />;
  return (
    <QueryState query={fields}>
      {(known) => <WhatIf run={run} onAsk={onAsk} profile={profile} fields={known} />}
    </QueryState>
  );
}

function WhatIf({
  run,
  onAsk,
  profile,
  fields,
}: TabProps & { profile: WhatIfProfile; fields: Fields }) {
  const words = useWords(runWords).fusion;
  const format = useFormat();
  const search = useSearch({ strict: false });
  const navigate = useNavigate();
  const [changes, setChanges] = useState<Changes>(() =>
    validChanges(parseChanges(search.set), fields),
  );
  // Browsers limit how often the address may change, and a slider moves faster.
  const keep = useDelayedChange(
    (next: Changes) =>
      void navigate({
        to: '.',
        search: { ...search, set: formatChanges(next) } as never,
        replace: true,
        resetScroll: false,
      }),
    300,
  );
  const change = (next: Changes) => {
    setChanges(next);
    keep(next);
  };
  const changed = useMemo(() => applyChanges(profile, changes), [profile, changes]);
  const saved = useMemo(() => rankAgain(run, profile), [run, profile]);
  const whatIf = useMemo(() => rankAgain(run, changed), [run, changed]);
  const isChanged = listChanges(changes).length > 0;
  const moves = whatIf.passages
    .slice(0, SHOWN)
    .filter(({ id }, index) => saved.passages[index]?.id !== id).length;
  const { method, candidates } = whatIf.fusion;
  return (
    <div className={classes.whatIf}>
      <Stack gap="md">
        <Sliders run={run} profile={profile} changes={changes} fields={fields} onChange={change} />
        <Actions
          run={run}
          onAsk={onAsk}
          profile={profile}
          changes={changes}
          fields={fields}
          onReset={() => change(NO_CHANGES)}
        />
      </Stack>
      <Stack gap="sm">
        <Group justify="space-between" gap="md">
          <AddendLegend results={[saved, whatIf]} />
          <Text size="sm" role="status">
            {isChanged
              ? moves > 0
                ? words.changed(format.count(moves))
                : words.same10
              : words.same}
          </Text>
        </Group>
        {changed.fusion.method === 'zscore' && method === 'rrf' && (
          <Text size="sm" c="dimmed">
            {words.fellBack(format.count(candidates.length))}
          </Text>
        )}
        <RankChart run={run} saved={saved} whatIf={whatIf} shown={SHOWN} />
        <AddendTable run={run} saved={saved} whatIf={whatIf} shown={SHOWN} />
        <Text size="xs" c="dimmed">
          {words.duplicates}
        </Text>
      </Stack>
    </div>
  );
}

function Sliders({
  run,
  profile,
  changes,
  fields,
  onChange,
}: {
  run: RecordedRun;
  profile: WhatIfProfile;
  changes: Changes;
  fields: Fields;
  onChange: (changes: Changes) => void;
}) {
  const words = useWords(runWords).fusion;
  const usable = useMemo(() => usableSettings(run), [run]);
  const set = (section: 'fusion' | 'rerank', name: string, value: number | string) => {
    const settings: Record<string, number | string> = { ...changes[section], [name]: value };
    const recorded = (profile[section] as Record<string, unknown>)[name];
    if (recorded === value) delete settings[name];
    onChange({ ...changes, [section]: settings });
  };
  return SECTIONS.map(
    (section) =>
      usable[section].length > 0 && (
        <section key={section} className={classes.sliders}>
          <Title order={2}>{words.sections[section]}</Title>
          {usable[section].map((name) => {
            const field = fields.get(`${section}.${name}`);
            const recorded = (profile[section] as Record<string, number | string>)[name];
            if (field === undefined || recorded === undefined) return null;
            return (
              <SettingSlider
                key={name}
                field={field}
                value={changes[section][name] ?? recorded}
                recorded={recorded}
                onChange={(value) => set(section, name, value)}
              />
            );
          })}
        </section>
      ),
  );
}

function Actions({
  run,
  onAsk,
  profile,
  changes,
  fields,
  onReset,
}: TabProps & {
  profile: WhatIfProfile;
  changes: Changes;
  fields: Fields;
  onReset: () => void;
}) {
  const words = useWords(runWords).fusion;
  const copied = useWords(queryWords).copied;
  const [saving, save] = useDisclosure(false);
  const overridesCopy = useClipboard();
  const profiles = useProfiles();
  const existing = (profiles.data ?? [])
    .filter(({ type }) => type === 'fusion')
    .map(({ name }) => name);
  const { request } = run;
  const isChanged = listChanges(changes).length > 0;
  const overrides = mergeOverrides(request?.overrides, toOverrides(changes));
  return (
    <Stack gap={8}>
      {request && run.isQuery && (
        <Button disabled={!isChanged} onClick={() => onAsk({ ...request, overrides })}>
          {words.runReal}
        </Button>
      )}
      <Button variant="default" onClick={save.open}>
        {words.saveProfile}
      </Button>
      <Button
        variant="default"
        disabled={!isChanged}
        onClick={() => overridesCopy.copy(JSON.stringify({ overrides }))}
      >
        {overridesCopy.copied ? copied : words.copyOverrides}
      </Button>
      <Button variant="subtle" disabled={!isChanged} onClick={onReset}>
        {words.reset}
      </Button>
      {saving && (
        <Suspense>
          <SaveProfile
            type="fusion"
            content={toProfileContent(applyChanges(profile, changes), fields)}
            existing={existing}
            initialName=""
            onClose={save.close}
          />
        </Suspense>
      )}
    </Stack>
  );
}
