import { Button, Group, Select, Stack, Text, TextInput } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useMemo } from 'react';
import type { Search } from '@/app/router';
import { appWords } from '@/app/words';
import { api, call } from '@/shared/api/client';
import { useCan } from '@/shared/api/identity';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Page } from '@/shared/ui/page';
import { EmptyState, ErrorState, QueryState } from '@/shared/ui/states';
import { download } from './download';
import { useConfigSchema } from './profiles';
import classes from './profiles.module.css';
import { type JsonSchema, readTitle } from './schema';
import { readSettings, type Setting, toToml } from './settings';
import { SettingSection } from './settings-section';
import { settingsWords } from './settings-words';

export function SettingsPage() {
  const screens = useWords(appWords).screens;
  const words = useWords(settingsWords);
  const isOperator = useCan('operator');
  const schemas = useConfigSchema();
  const values = useQuery({
    queryKey: ['settings'],
    queryFn: async () => (await call(api.GET('/v1/config'))).items,
    enabled: isOperator,
  });
  const settings = useMemo(
    () => schemas.data && readSettings(schemas.data.settings as JsonSchema, values.data),
    [schemas.data, values.data],
  );
  return (
    <Page
      title={screens.settings}
      subtitle={words.subtitle}
      actions={isOperator && settings && <Actions settings={settings} />}
    >
      {!isOperator && (
        <Text size="sm" c="dimmed">
          {words.schemaOnly}
        </Text>
      )}
      {values.isError && <ErrorState error={values.error} onRetry={() => values.refetch()} />}
      <QueryState query={schemas} rows={12}>
        {() => settings && (!isOperator || !values.isPending) && <Settings settings={settings} />}
      </QueryState>
    </Page>
  );
}

function Actions({ settings }: { settings: Setting[] }) {
  const words = useWords(settingsWords);
  const client = useQueryClient();
  const reload = useMutation({
    mutationFn: () => call(api.POST('/v1/reload-config')),
    onSuccess: ({ changed }) => {
      client.invalidateQueries({ queryKey: ['profiles'] });
      notifications.show({
        message: changed.length > 0 ? words.reloaded(changed.join(', ')) : words.reloadedNone,
      });
    },
  });
  return (
    <>
      {reload.isError && <ErrorState error={reload.error} />}
      <Button
        variant="default"
        onClick={() => download('anabranch.toml', toToml(settings), 'application/toml')}
      >
        {words.exportToml}
      </Button>
      <Button variant="default" loading={reload.isPending} onClick={() => reload.mutate()}>
        {words.reload}
      </Button>
    </>
  );
}

function Settings({ settings }: { settings: Setting[] }) {
  const words = useWords(settingsWords);
  const format = useFormat();
  const navigate = useNavigate();
  const search = useSearch({ strict: false });
  const show = (next: Record<string, string | undefined>) =>
    navigate({ to: '/settings', search: (old: Search) => ({ ...old, ...next }), replace: true });
  const filter = (search.filter ?? '').toLowerCase();
  const origin = search.origin ?? 'all';
  const effect = search.effect ?? 'all';
  const matching = settings.filter(
    (setting) =>
      `${setting.key} ${setting.environment} ${setting.field.title} ${setting.field.description}`
        .toLowerCase()
        .includes(filter) &&
      (origin === 'all' ||
        setting.origin === origin ||
        (origin === 'set' && setting.origin !== null && setting.origin !== 'default')) &&
      (effect === 'all' || (effect === 'reindex') === (setting.reindexFrom !== null)),
  );
  const sections = [...new Set(settings.map((setting) => setting.section))];
  const isSection = (section: string) => search.section === undefined || search.section === section;
  const shown = matching.filter((setting) => isSection(setting.section || 'general'));
  const titleOf = (section: string) =>
    section === '' ? words.general : readTitle(undefined, section);
  const options = (labels: Record<string, string>) =>
    Object.entries(labels).map(([value, label]) => ({ value, label }));
  const nSet = settings.filter(({ origin }) => origin !== null && origin !== 'default').length;
  return (
    <div className={classes.split}>
      <nav className={classes.list} aria-label={words.sections}>
        <Link
          to="/settings"
          search={(old: Search) => ({ ...old, section: undefined })}
          className={classes.link}
          aria-current={search.section === undefined ? 'true' : undefined}
        >
          {words.all}
        </Link>
        {sections.map((section) => (
          <Link
            key={section}
            to="/settings"
            search={(old: Search) => ({ ...old, section: section || 'general' })}
            className={classes.link}
            aria-current={search.section === (section || 'general') ? 'true' : undefined}
          >
            {titleOf(section)}
          </Link>
        ))}
      </nav>
      <Stack gap="md" style={{ minWidth: 0 }}>
        <Group gap="sm" align="flex-end">
          <TextInput
            aria-label={words.filter}
            placeholder={words.filter}
            defaultValue={search.filter ?? ''}
            onChange={(event) => show({ filter: event.currentTarget.value || undefined })}
            style={{ flex: '1 1 200px', maxWidth: 320 }}
          />
          <Select
            className={classes.pickers}
            aria-label={words.section}
            data={[
              { value: 'all', label: words.all },
              ...sections.map((name) => ({ value: name || 'general', label: titleOf(name) })),
            ]}
            value={search.section ?? 'all'}
            allowDeselect={false}
            onChange={(value) =>
              show({ section: value === 'all' ? undefined : (value ?? undefined) })
            }
          />
          <Select
            aria-label={words.origin}
            data={options(words.origins)}
            value={origin}
            allowDeselect={false}
            w={170}
            onChange={(value) =>
              show({ origin: value === 'all' ? undefined : (value ?? undefined) })
            }
          />
          <Select
            aria-label={words.effect}
            data={options(words.effects)}
            value={effect}
            allowDeselect={false}
            w={170}
            onChange={(value) =>
              show({ effect: value === 'all' ? undefined : (value ?? undefined) })
            }
          />
          <Text size="xs" c="dimmed" role="status">
            {words.count(format.count(shown.length), format.count(settings.length))}
            {nSet > 0 && ` · ${words.differ(format.count(nSet))}`}
          </Text>
        </Group>
        {shown.length === 0 && (
          <EmptyState
            title={words.nothingShown}
            action={
              <Button variant="default" onClick={() => navigate({ to: '/settings', search: {} })}>
                {words.showAll}
              </Button>
            }
            command="anabranch config show --origin"
          />
        )}
        {sections.map((section) => {
          const rows = shown.filter((setting) => setting.section === section);
          if (rows.length === 0) return null;
          return (
            <SettingSection key={section} title={titleOf(section)} name={section} rows={rows} />
          );
        })}
      </Stack>
    </div>
  );
}
