import {
  Button,
  Code,
  CopyButton,
  Group,
  Modal,
  Select,
  Stack,
  TagsInput,
  Text,
  TextInput,
} from '@mantine/core';
import { useState } from 'react';
import { API_ROOT, api, call, type Schemas } from '@/shared/api/client';
import { type Role, useIdentity } from '@/shared/api/identity';
import { useWords } from '@/shared/i18n';
import { Command, ErrorState } from '@/shared/ui/states';
import { sharedWords } from '@/shared/words';
import { keysWords } from './keys-words';

const ROLES: Role[] = ['reader', 'writer', 'admin', 'operator'];
const DAY_MS = 24 * 3600 * 1000;

export function CreateKey({
  onClose,
  onIssued,
}: {
  onClose: () => void;
  onIssued: (key: Schemas['IssuedApiKey']) => void;
}) {
  const words = useWords(keysWords);
  const shared = useWords(sharedWords);
  const identity = useIdentity();
  const [name, setName] = useState('');
  const [role, setRole] = useState<Role>('reader');
  const [user, setUser] = useState('');
  const [groups, setGroups] = useState<string[]>([]);
  const [expires, setExpires] = useState('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  // No more than the caller's own role: the server refuses it.
  const roles = ROLES.slice(0, ROLES.indexOf(identity.data?.role ?? 'reader') + 1);
  const submit = async () => {
    setBusy(true);
    setError(null);
    try {
      const body = {
        name,
        role,
        groups,
        user: user === '' ? null : user,
        expires_at: expires === '' ? null : new Date(expires).toISOString(),
      };
      onIssued(await call(api.POST('/v1/keys', { body })));
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return (
    <Modal
      opened
      onClose={onClose}
      title={words.create.replace('…', '')}
      closeButtonProps={{ 'aria-label': shared.close }}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          submit();
        }}
      >
        <Stack gap="sm">
          <TextInput
            label={words.name}
            description={words.nameHint}
            value={name}
            maxLength={200}
            onChange={(event) => setName(event.currentTarget.value)}
            data-autofocus
          />
          <Select
            label={words.role}
            data={roles.map((value) => ({ value, label: words.roles[value] }))}
            value={role}
            allowDeselect={false}
            onChange={(value) => value && setRole(value as Role)}
          />
          <TextInput
            label={words.user}
            description={words.userHint}
            value={user}
            onChange={(event) => setUser(event.currentTarget.value)}
          />
          <TagsInput
            label={words.groups}
            description={words.groupsHint}
            value={groups}
            onChange={setGroups}
          />
          <TextInput
            type="datetime-local"
            label={words.expires}
            description={words.expiresHint}
            value={expires}
            onChange={(event) => setExpires(event.currentTarget.value)}
          />
          <Group gap="xs">
            {[30, 90, 365].map((days) => (
              <Button
                key={days}
                variant="default"
                size="compact-xs"
                onClick={() => setExpires(toLocalInput(new Date(Date.now() + days * DAY_MS)))}
              >
                {words.days(String(days))}
              </Button>
            ))}
            <Button variant="default" size="compact-xs" onClick={() => setExpires('')}>
              {words.never}
            </Button>
          </Group>
          {error !== null && <ErrorState error={error} />}
          <Group justify="flex-end" gap="xs">
            <Button variant="default" onClick={onClose}>
              {shared.cancel}
            </Button>
            <Button type="submit" loading={busy} disabled={name.trim() === ''}>
              {words.createNow}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

/** The value of an input of type datetime-local, which has no time zone. */
export function toLocalInput(time: Date): string {
  return new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** The new key, shown once. A click beside the dialog does not close it. */
export function IssuedKey({
  issued,
  onClose,
}: {
  issued: Schemas['IssuedApiKey'];
  onClose: () => void;
}) {
  const words = useWords(keysWords);
  const shared = useWords(sharedWords);
  return (
    <Modal
      opened
      onClose={onClose}
      closeOnClickOutside={false}
      closeOnEscape={false}
      withCloseButton={false}
      size="lg"
      title={words.secretTitle}
    >
      <Stack gap="sm">
        <Text size="sm">{words.secretHint}</Text>
        <Text size="sm" fw={600} className="foreign">
          {issued.name} · {issued.role}
        </Text>
        <Group gap="xs" wrap="nowrap">
          <Code aria-label={words.secret} style={{ overflowX: 'auto', flex: 1 }} p={8} tabIndex={0}>
            {issued.key}
          </Code>
          <CopyButton value={issued.key}>
            {({ copied, copy }) => (
              <Button onClick={copy}>{copied ? shared.copied : shared.copy}</Button>
            )}
          </CopyButton>
        </Group>
        <Text size="sm">{words.useIt}</Text>
        <Command text={`curl -H "Authorization: Bearer $ANABRANCH_TOKEN" ${API_ROOT}/v1/whoami`} />
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose}>
            {words.done}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
