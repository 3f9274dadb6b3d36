import { Button, Code, Group, Modal, Stack, Text, TextInput } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, call } from '@/shared/api/client';
import { useCan } from '@/shared/api/identity';
import { useWords } from '@/shared/i18n';
import { Command, ErrorState } from '@/shared/ui/states';
import { sharedWords } from '@/shared/words';
import { download } from './download';
import { profileWords } from './profile-words';
import { filePath, type ProfileType } from './profiles';
import { type JsonObject, toYaml } from './schema';

/** The file of a profile to download, where it belongs, and how it takes effect. */
export function SaveProfile({
  type,
  content,
  existing,
  initialName,
  onClose,
}: {
  type: ProfileType;
  content: JsonObject;
  existing: string[];
  initialName: string;
  onClose: () => void;
}) {
  const words = useWords(profileWords);
  const shared = useWords(sharedWords);
  const isOperator = useCan('operator');
  const client = useQueryClient();
  const [name, setName] = useState(initialName);
  const isName = /^[A-Za-z0-9][\w-]{0,99}$/.test(name);
  const yaml = toYaml(content);
  const reload = useMutation({
    mutationFn: () => call(api.POST('/v1/reload-config')),
    onSuccess: () => client.invalidateQueries({ queryKey: ['profiles'] }),
  });
  return (
    <Modal
      opened
      onClose={onClose}
      size="lg"
      title={words.saveTitle(words.types[type])}
      closeButtonProps={{ 'aria-label': shared.close }}
    >
      <Stack gap="sm">
        <TextInput
          label={words.name}
          description={words.nameHint}
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
          data-autofocus
        />
        {existing.includes(name) && (
          <Text size="sm" className="warn foreign">
            {words.nameExists(name)}
          </Text>
        )}
        <Code block tabIndex={0} mah={280} style={{ overflow: 'auto' }}>
          {yaml === '' ? `# ${words.noChange}` : yaml}
        </Code>
        <Text size="sm">{words.place}</Text>
        <Command text={filePath(type, isName ? name : 'NAME')} />
        {type === 'chunking' ? (
          <>
            <Text size="sm">{words.chunkingSet}</Text>
            <Command text={`anabranch reindex --set chunk.profile=${isName ? name : 'NAME'}`} />
          </>
        ) : (
          <>
            <Text size="sm">{words.activate}</Text>
            <Group gap="sm">
              <Command text="anabranch config reload" />
              {isOperator && (
                <Button
                  variant="default"
                  loading={reload.isPending}
                  onClick={() => reload.mutate()}
                >
                  {words.reload}
                </Button>
              )}
            </Group>
          </>
        )}
        {reload.isError && <ErrorState error={reload.error} />}
        {reload.data && (
          <Text size="sm" className="ok foreign" role="status">
            {reload.data.changed.length > 0
              ? words.reloaded(reload.data.changed.join(', '))
              : words.reloadedNone}
          </Text>
        )}
        <Group justify="flex-end">
          <Button
            disabled={!isName}
            onClick={() => download(`${name}.yaml`, yaml, 'application/yaml')}
          >
            {words.download}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
