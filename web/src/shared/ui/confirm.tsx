import { Button, Group, Modal, Stack, Text, TextInput } from '@mantine/core';
import { type ReactNode, useState } from 'react';
import { useWords } from '../i18n';
import { sharedWords } from '../words';
import { ErrorState } from './states';

/**
 * Ask before an act. `action` says what happens ("Erase 3 documents"). `name`, for what cannot be
 * undone, has to be typed.
 */
export function Confirm({
  opened,
  onClose,
  action,
  onConfirm,
  name,
  danger = false,
  disabled = false,
  size,
  children,
}: {
  opened: boolean;
  onClose: () => void;
  action: string;
  onConfirm: () => Promise<unknown>;
  name?: string;
  danger?: boolean;
  /** While what the children ask for is missing. */
  disabled?: boolean;
  size?: string;
  children?: ReactNode;
}) {
  const words = useWords(sharedWords);
  const [typed, setTyped] = useState('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const close = () => {
    setTyped('');
    setError(null);
    onClose();
  };
  const confirm = async () => {
    setBusy(true);
    try {
      await onConfirm();
      close();
    } catch (failure) {
      setError(failure);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Modal
      opened={opened}
      onClose={close}
      title={action}
      {...(size ? { size } : {})}
      closeButtonProps={{ 'aria-label': words.close }}
    >
      <Stack gap="sm">
        {children}
        {name !== undefined && (
          <TextInput
            label={<span className="foreign">{words.nameToConfirm(name)}</span>}
            value={typed}
            onChange={(event) => setTyped(event.currentTarget.value)}
            data-autofocus
          />
        )}
        {error !== null && <ErrorState error={error} />}
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={close}>
            {words.cancel}
          </Button>
          <Button
            color={danger ? 'red.8' : undefined}
            loading={busy}
            disabled={disabled || (name !== undefined && typed !== name)}
            onClick={confirm}
          >
            <Text inherit className="truncate">
              {action}
            </Text>
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
