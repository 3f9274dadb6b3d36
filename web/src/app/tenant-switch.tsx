import { Autocomplete, Button, Group, Popover, Stack, Text } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { type QueryClient, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, call, chooseTenant, chosenTenant } from '@/shared/api/client';
import { useIdentity } from '@/shared/api/identity';
import { useWords } from '@/shared/i18n';
import classes from './shell.module.css';
import { appWords } from './words';

/** The tenant that the reader acts for; an operator may choose another one. */
export function TenantSwitch() {
  const words = useWords(appWords);
  const identity = useIdentity();
  const [opened, panel] = useDisclosure(false);
  if (identity.data === undefined) return null;
  const { tenant, role } = identity.data;
  const label = `${tenant} · ${role}`;
  if (role !== 'operator') return <span className={`${classes.wide} muted foreign`}>{label}</span>;
  return (
    <Popover opened={opened} onChange={panel.toggle} trapFocus position="bottom-start" withArrow>
      <Popover.Target>
        <Button
          variant={chosenTenant() === null ? 'subtle' : 'light'}
          color="gray"
          size="compact-xs"
          maw={220}
          className={chosenTenant() === null ? classes.wide : undefined}
          aria-label={`${words.tenant}: ${label}`}
          onClick={panel.toggle}
        >
          <span className="truncate">{label} ▾</span>
        </Button>
      </Popover.Target>
      <Popover.Dropdown>
        <TenantForm current={tenant} />
      </Popover.Dropdown>
    </Popover>
  );
}

function TenantForm({ current }: { current: string }) {
  const words = useWords(appWords);
  const client = useQueryClient();
  const [name, setName] = useState(current);
  const system = useQuery({
    queryKey: ['system'],
    queryFn: () => call(api.GET('/v1/system')),
  });
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        switchTenant(client, name.trim());
      }}
    >
      <Stack gap="sm" w={260}>
        <Text size="xs" c="dimmed">
          {words.tenantHint}
        </Text>
        <Autocomplete
          size="xs"
          label={words.tenant}
          data={system.data?.tenants ?? []}
          value={name}
          onChange={setName}
          comboboxProps={{ withinPortal: false }}
          data-autofocus
        />
        <Group gap="xs" justify="flex-end">
          {chosenTenant() !== null && (
            <Button variant="default" onClick={() => switchTenant(client, null)}>
              {words.ownTenant}
            </Button>
          )}
          <Button type="submit" disabled={name.trim() === '' || name.trim() === current}>
            {words.actFor}
          </Button>
        </Group>
      </Stack>
    </form>
  );
}

/**
 * Nothing of one tenant stays for the next: the caches are cleared, and the page reloads at
 * a screen that names no document or run, with a live channel of its own.
 */
export function switchTenant(
  client: Pick<QueryClient, 'clear'>,
  tenant: string | null,
  go: (address: string) => void = (address) => location.assign(address),
): void {
  client.clear();
  chooseTenant(tenant);
  go(new URL('query', document.baseURI).href);
}
