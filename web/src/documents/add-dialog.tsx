import {
  Autocomplete,
  Button,
  Group,
  Modal,
  Stack,
  TagsInput,
  Text,
  Textarea,
} from '@mantine/core';
import { type ChangeEvent, useEffect, useRef, useState } from 'react';
import { useWords } from '@/shared/i18n';
import { sharedWords } from '@/shared/words';
import { isWanted, urlOf } from './dropped';
import { useCollectionNames } from './filter-bar';
import { type UploadTarget, uploads } from './uploads';
import { documentsWords } from './words';

/** Choose files or a folder, or give addresses; with the collection and tags that they get. */
export function AddDialog({
  initial,
  target,
  onClose,
}: {
  /** Addresses to begin with; null while closed. */
  initial: string | null;
  target: UploadTarget;
  onClose: () => void;
}) {
  const words = useWords(documentsWords);
  const dialog = words.addDialog;
  const shared = useWords(sharedWords);
  const collections = useCollectionNames();
  const files = useRef<HTMLInputElement>(null);
  const folder = useRef<HTMLInputElement>(null);
  const [urls, setUrls] = useState('');
  const [collection, setCollection] = useState('');
  const [tags, setTags] = useState<string[]>([]);
  useEffect(() => {
    if (initial === null) return;
    setUrls(initial);
    setCollection(target.collection ?? '');
    setTags(target.tags ?? []);
  }, [initial, target]);
  const lines = urls.split('\n').filter((line) => line.trim() !== '');
  const bad = lines.find((line) => urlOf(line) === null);
  const add = (contents: (File | string)[]) => {
    if (contents.length === 0) return;
    const name = collection.trim();
    uploads.add(contents, {
      ...(name ? { collection: name } : {}),
      ...(tags.length ? { tags } : {}),
    });
    onClose();
  };
  const onChosen = (event: ChangeEvent<HTMLInputElement>) => {
    add([...(event.currentTarget.files ?? [])].filter(isWanted));
    event.currentTarget.value = '';
  };
  return (
    <Modal
      opened={initial !== null}
      onClose={onClose}
      title={words.add}
      closeButtonProps={{ 'aria-label': shared.close }}
    >
      <Stack gap="sm">
        <Autocomplete
          size="xs"
          label={dialog.collection}
          description={dialog.collectionHint}
          data={collections}
          value={collection}
          onChange={setCollection}
          maxLength={200}
        />
        <TagsInput label={dialog.tags} value={tags} onChange={setTags} />
        <Group gap="xs">
          <Button onClick={() => files.current?.click()} data-autofocus>
            {dialog.files}
          </Button>
          <Button variant="default" onClick={() => folder.current?.click()}>
            {dialog.folder}
          </Button>
        </Group>
        <input
          ref={files}
          type="file"
          multiple
          hidden
          aria-label={dialog.files}
          onChange={onChosen}
        />
        <input
          ref={folder}
          type="file"
          hidden
          aria-label={dialog.folder}
          onChange={onChosen}
          {...{ webkitdirectory: '' }}
        />
        <Text size="xs" c="dimmed">
          {dialog.orDrop}
        </Text>
        <Textarea
          label={dialog.urls}
          description={dialog.urlsHint}
          error={bad && <span className="foreign">{dialog.badUrl(bad)}</span>}
          placeholder="https://"
          autosize
          minRows={2}
          maxRows={8}
          value={urls}
          onChange={(event) => setUrls(event.currentTarget.value)}
        />
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={onClose}>
            {shared.cancel}
          </Button>
          <Button
            disabled={lines.length === 0 || bad !== undefined}
            onClick={() => add(lines.map((line) => line.trim()))}
          >
            {dialog.submit(lines.length)}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
