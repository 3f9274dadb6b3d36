import { Button, Group, Select, Stack, Switch, Text, TextInput, Title } from '@mantine/core';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useEffect, useMemo, useState } from 'react';
import type { Search } from '@/app/router';
import { useDelayedChange } from '@/shared/address';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Id } from '@/shared/ui/bits';
import { EmptyState } from '@/shared/ui/states';
import { profileWords } from './profile-words';
import { combine, fileContent, isFileOnly, type Profile, type ProfileType } from './profiles';
import classes from './profiles.module.css';
import { SaveProfile } from './save-profile';
import {
  allFields,
  type Field,
  getAt,
  isEqual,
  isObject,
  type JsonObject,
  pickDifferent,
  type Section,
  setAt,
} from './schema';
import { SchemaForm } from './schema-form';
import { TryProfile } from './try-profile';

const URL_DELAY_MS = 400;

/** The form of one profile. Edits are in the address, so that they can be shared. */
export function ProfileEditor({
  profile,
  section,
  catalog,
}: {
  profile: Profile;
  section: Section;
  catalog: readonly Profile[];
}) {
  const words = useWords(profileWords);
  const format = useFormat();
  const navigate = useNavigate();
  const search = useSearch({ strict: false });
  const [edits, setEdits] = useState<JsonObject>(() => parseEdits(search.edits));
  const [chosen, setChosen] = useState<Record<string, string>>({});
  const [saving, setSaving] = useState(false);
  const filter = (search.filter ?? '').toLowerCase();
  const onlyChanged = search.changed === '1';

  const fields = useMemo(() => allFields(section), [section]);
  const saved = useMemo(() => {
    const parts = Object.entries(chosen).flatMap(([type, name]) =>
      catalog.filter((item) => item.type === type && item.name === name),
    );
    return combine(profile.settings as JsonObject, parts);
  }, [profile, chosen, catalog]);
  const values = useMemo(() => {
    const edited = fields.filter((field) => getAt(edits, field.key) !== undefined);
    return edited.reduce(
      (all, field) => setAt(all, field.key, getAt(edits, field.key) ?? null),
      saved,
    );
  }, [fields, edits, saved]);
  const changes = pickDifferent(fields, values, (field) => getAt(saved, field.key));
  const edited = fields.filter((field) => getAt(changes, field.key) !== undefined);
  const differing = fields.filter((field) => !isEqual(getAt(values, field.key), field.default));

  const text = edited.length === 0 ? undefined : JSON.stringify(changes);
  const keepEdits = useDelayedChange(
    (edits: string | undefined) =>
      void navigate({
        to: '/profiles',
        search: (old: Search) => ({ ...old, edits }),
        replace: true,
        resetScroll: false,
      }),
    URL_DELAY_MS,
  );
  useEffect(() => keepEdits(text), [text, keepEdits]);
  const show = (next: Record<string, string | undefined>) =>
    navigate({ to: '/profiles', search: (old: Search) => ({ ...old, ...next }), replace: true });
  const isShown = (field: Field) =>
    (!onlyChanged || differing.includes(field) || edited.includes(field)) &&
    `${field.key} ${field.title} ${field.description}`.toLowerCase().includes(filter);
  const names = { ...profile.profiles, ...chosen };
  return (
    <Stack gap="md" style={{ minWidth: 0 }}>
      <div className={classes.bar}>
        <Group gap="sm" align="baseline">
          <Title order={2} className="foreign">
            {words.types[profile.type]} · {profile.name}
          </Title>
          <Id id={profile.sha256} />
          <Text size="xs" c="dimmed" style={{ flex: 1 }}>
            {words.differ(format.count(differing.length), format.count(fields.length))}
          </Text>
          {edited.length + Object.keys(chosen).length > 0 && (
            <>
              <Text size="sm" fw={600}>
                {words.edits(edited.length + Object.keys(chosen).length)}
              </Text>
              <Button
                variant="default"
                onClick={() => {
                  setEdits({});
                  setChosen({});
                }}
              >
                {words.discard}
              </Button>
            </>
          )}
          <Button variant="default" onClick={() => setSaving(true)}>
            {edited.length > 0 ? words.save : words.export}
          </Button>
        </Group>
      </div>
      {profile.type === 'chunking' ? (
        <EmptyState
          title={words.chunkingHint}
          action={
            <Button component={Link} to="/generations" variant="default">
              {words.generations}
            </Button>
          }
        />
      ) : (
        <TryProfile
          request={
            profile.type === 'workflow'
              ? { profile: profile.name, profiles: chosen }
              : { profiles: { [profile.type]: profile.name } }
          }
          overrides={pickDifferent(
            fields.filter((field) => !isFileOnly(field)),
            values,
            (field) => getAt(saved, field.key),
          )}
          hasFileOnlyEdits={edited.some(isFileOnly)}
        />
      )}
      {profile.type === 'workflow' && (
        <Parts
          names={names}
          catalog={catalog}
          onChoose={(type, name) =>
            setChosen((old) => {
              const { [type]: _, ...rest } = old;
              return name === profile.profiles[type as keyof typeof profile.profiles]
                ? rest
                : { ...rest, [type]: name };
            })
          }
        />
      )}
      <Group gap="md">
        <TextInput
          aria-label={words.filter}
          placeholder={words.filter}
          defaultValue={search.filter ?? ''}
          onChange={(event) => show({ filter: event.currentTarget.value || undefined })}
          style={{ flex: '1 1 200px', maxWidth: 320 }}
        />
        <Switch
          label={words.onlyChanged}
          checked={onlyChanged}
          onChange={(event) => show({ changed: event.currentTarget.checked ? '1' : undefined })}
        />
      </Group>
      {fields.some(isShown) ? (
        <SchemaForm
          section={section}
          values={values}
          saved={saved}
          isShown={isShown}
          isFileOnly={isFileOnly}
          onChange={(field, value) => setEdits((old) => setAt(old, field.key, value))}
        />
      ) : (
        <EmptyState
          title={words.nothingShown}
          action={
            <Button
              variant="default"
              onClick={() => show({ filter: undefined, changed: undefined })}
            >
              {words.showAll}
            </Button>
          }
        />
      )}
      {saving && (
        <SaveProfile
          type={profile.type}
          content={fileContent(section, values, names, catalog)}
          existing={catalog.filter((item) => item.type === profile.type).map((item) => item.name)}
          initialName={edited.length > 0 && profile.name === 'default' ? '' : profile.name}
          onClose={() => setSaving(false)}
        />
      )}
    </Stack>
  );
}

/** The profiles that a workflow consists of; another one can be tried in the place of each. */
function Parts({
  names,
  catalog,
  onChoose,
}: {
  names: Record<string, string>;
  catalog: readonly Profile[];
  onChoose: (type: string, name: string) => void;
}) {
  const words = useWords(profileWords);
  return (
    <Stack gap="sm" p="md" className="panel">
      <Group gap="sm" align="baseline">
        <Title order={2}>{words.consistsOf}</Title>
        <Text size="xs" c="dimmed">
          {words.consistsHint}
        </Text>
      </Group>
      <div className={classes.parts}>
        {Object.entries(names).map(([type, name]) => (
          <div key={type}>
            <Select
              label={words.types[type as ProfileType]}
              data={catalog.filter((item) => item.type === type).map((item) => item.name)}
              value={name}
              allowDeselect={false}
              onChange={(next) => next && onChoose(type, next)}
            />
            <Link
              to="/profiles"
              search={{ type, name }}
              style={{
                fontSize: 12,
                lineHeight: '16px',
                display: 'inline-block',
                padding: '4px 0',
              }}
              className="foreign"
            >
              {words.open(`${type}/${name}`)}
            </Link>
          </div>
        ))}
      </div>
    </Stack>
  );
}

/** Edits of an address, which anyone may have written: what is no object is none. */
export function parseEdits(text: string | undefined): JsonObject {
  if (text === undefined) return {};
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : {};
  } catch {
    return {};
  }
}
