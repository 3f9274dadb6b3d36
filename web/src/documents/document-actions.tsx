import { Button, Menu } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { type ChangeEvent, useRef, useState } from 'react';
import { ApiError, api, call, fetchRaw, type Schemas } from '@/shared/api/client';
import { useCan } from '@/shared/api/identity';
import { useWords } from '@/shared/i18n';
import { useKeys } from '@/shared/keys';
import { Confirm } from '@/shared/ui/confirm';
import { CopyItem } from '@/shared/ui/copy-item';
import { deleteDocument, retryDocuments } from './commands';
import { documentWords } from './document-words';
import { EditDialog } from './edit-dialog';
import { reingestFields, revisionFields } from './reingest';
import { nameOf } from './stages';
import { uploads } from './uploads';
import { documentKey } from './use-documents';
import { documentsWords } from './words';

type Document = Schemas['DocumentStatus'];

/** What can be done with one document, as far as the caller's role allows. */
export function DocumentActions({ document }: { document: Document }) {
  const words = useWords(documentWords).actions;
  const list = useWords(documentsWords);
  const navigate = useNavigate();
  const client = useQueryClient();
  const canWrite = useCan('writer');
  const isAdmin = useCan('admin');
  const [asking, setAsking] = useState<'edit' | 'remove' | 'erase' | null>(null);
  const close = () => setAsking(null);
  const id = document.document_id;
  const name = nameOf(document);
  const fields = reingestFields(document);
  const file = useRef<HTMLInputElement>(null);
  const addRevision = (event: ChangeEvent<HTMLInputElement>) => {
    uploads.add([...(event.currentTarget.files ?? [])], { fields: revisionFields(document) ?? {} });
    event.currentTarget.value = '';
    notifications.show({ message: words.revisionSent });
  };
  useKeys(canWrite ? [{ keys: 'e', label: words.edit, run: () => setAsking('edit') }] : []);
  const download = () =>
    fetchFile(document)
      .then((file) => saveFile(file))
      .catch(showRefusal);
  const reingest = () =>
    fetchFile(document)
      .then((file) => {
        uploads.add([file], { fields: fields ?? {} });
        notifications.show({ message: words.reingested });
      })
      .catch(showRefusal);
  const erase = async () => {
    const { receipt_id } = await call(
      api.POST('/v1/erasures', { body: { scope: 'document', name: id } }),
    );
    await navigate({ to: '.', search: { receipt: receipt_id } });
  };
  const remove = async () => {
    await deleteDocument(id);
    await client.invalidateQueries({ queryKey: documentKey(id) });
    await navigate({ to: '/documents' });
  };
  const command = `anabranch documents show ${id}`;
  return (
    <>
      {isAdmin && document.state === 'failed' && (
        <Button onClick={() => void retryDocuments([id], list.retried)}>{words.retry}</Button>
      )}
      {document.blob && (
        <Button variant="default" onClick={download}>
          {words.download}
        </Button>
      )}
      {canWrite && (
        <Button variant="default" onClick={() => setAsking('edit')}>
          {words.edit}
        </Button>
      )}
      <Menu position="bottom-end" width={240}>
        <Menu.Target>
          <Button variant="default">{words.more}</Button>
        </Menu.Target>
        <Menu.Dropdown>
          <CopyItem label={command.slice(0, 24)} text={command} />
          {canWrite && fields && (
            <Menu.Item title={words.addRevisionHint} onClick={() => file.current?.click()}>
              {words.addRevision}
            </Menu.Item>
          )}
          {canWrite && fields && (
            <Menu.Item title={words.reingestHint} onClick={reingest}>
              {words.reingest}
            </Menu.Item>
          )}
          {canWrite && document.state !== 'withdrawn' && (
            <Menu.Item className="bad" onClick={() => setAsking('remove')}>
              {words.remove}
            </Menu.Item>
          )}
          {isAdmin && (
            <Menu.Item className="bad" onClick={() => setAsking('erase')}>
              {words.erase}
            </Menu.Item>
          )}
        </Menu.Dropdown>
      </Menu>
      <input ref={file} type="file" hidden aria-label={words.addRevision} onChange={addRevision} />
      <EditDialog document={document} opened={asking === 'edit'} onClose={close} />
      <Confirm
        opened={asking === 'remove'}
        onClose={close}
        action={words.remove}
        onConfirm={remove}
        danger
      >
        <strong className="foreign">{name}</strong>
        <p style={{ margin: 0 }}>{words.removeHint}</p>
      </Confirm>
      <Confirm
        opened={asking === 'erase'}
        onClose={close}
        action={words.erase}
        name={name}
        onConfirm={erase}
        danger
      >
        <p style={{ margin: 0 }}>{words.eraseHint}</p>
      </Confirm>
    </>
  );
}

async function fetchFile(document: Document): Promise<File> {
  const response = await fetchRaw(`/v1/documents/${document.document_id}/file`);
  return new File([await response.blob()], nameOf(document), {
    type: document.media_type ?? 'application/octet-stream',
  });
}

/** Saved, never shown: a document is hostile content in the page's own origin. */
export function saveFile(file: File): void {
  const link = window.document.createElement('a');
  link.href = URL.createObjectURL(file);
  link.download = file.name;
  link.click();
  URL.revokeObjectURL(link.href);
}

function showRefusal(error: unknown): void {
  if (!(error instanceof ApiError)) throw error;
  const { detail, remedy } = error.problem;
  notifications.show({ color: 'red', title: detail, message: remedy });
}
