import { Button, Group, Select } from '@mantine/core';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useMemo } from 'react';
import { appWords } from '@/app/words';
import { useWords } from '@/shared/i18n';
import { Page } from '@/shared/ui/page';
import { EmptyState, QueryState } from '@/shared/ui/states';
import { ProfileEditor } from './profile-editor';
import { profileWords } from './profile-words';
import {
  PROFILE_TYPES,
  type Profile,
  type ProfileType,
  profileSection,
  useConfigSchema,
  useProfiles,
} from './profiles';
import classes from './profiles.module.css';
import type { JsonSchema } from './schema';

export function ProfilesPage() {
  const screens = useWords(appWords).screens;
  const words = useWords(profileWords);
  const profiles = useProfiles();
  return (
    <Page title={screens.profiles} subtitle={words.subtitle}>
      <QueryState query={profiles} rows={12}>
        {(catalog) => <Catalog catalog={catalog} />}
      </QueryState>
    </Page>
  );
}

function Catalog({ catalog }: { catalog: readonly Profile[] }) {
  const words = useWords(profileWords);
  const navigate = useNavigate();
  const search = useSearch({ strict: false });
  const type = PROFILE_TYPES.find((known) => known === search.type) ?? 'workflow';
  const name = search.name ?? 'default';
  const schemas = useConfigSchema();
  const schema = schemas.data?.profiles[type];
  const section = useMemo(() => schema && profileSection(schema as JsonSchema), [schema]);
  const profile = catalog.find((item) => item.type === type && item.name === name);
  const namesOf = (of: ProfileType) =>
    catalog.filter((item) => item.type === of).map((item) => item.name);
  const open = (toType: string, toName: string) =>
    navigate({ to: '/profiles', search: { type: toType, name: toName } });
  return (
    <div className={classes.split}>
      <nav className={classes.list} aria-label={words.profiles}>
        {PROFILE_TYPES.map((of) => (
          <div key={of}>
            <div className={classes.group}>{words.types[of]}</div>
            {namesOf(of).map((item) => (
              <Link
                key={item}
                to="/profiles"
                search={{ type: of, name: item }}
                className={`${classes.link} foreign`}
                aria-current={of === type && item === name ? 'true' : undefined}
              >
                {item}
              </Link>
            ))}
          </div>
        ))}
      </nav>
      <Group className={classes.pickers} grow>
        <Select
          label={words.type}
          data={PROFILE_TYPES.map((value) => ({ value, label: words.types[value] }))}
          value={type}
          allowDeselect={false}
          onChange={(value) => value && open(value, 'default')}
        />
        <Select
          label={words.name}
          data={namesOf(type)}
          value={name}
          allowDeselect={false}
          onChange={(value) => value && open(type, value)}
        />
      </Group>
      {profile === undefined ? (
        <EmptyState
          title={words.unknown(type, name)}
          action={<Button onClick={() => open(type, 'default')}>{words.showDefault}</Button>}
          command="anabranch config profiles"
        />
      ) : (
        <QueryState query={schemas} rows={12}>
          {() =>
            section && (
              <ProfileEditor
                key={`${type}/${name}/${profile.sha256}`}
                profile={profile}
                section={section}
                catalog={catalog}
              />
            )
          }
        </QueryState>
      )}
    </div>
  );
}
