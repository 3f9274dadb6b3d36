import { Button } from '@mantine/core';
import { useState } from 'react';
import { useCan } from '@/shared/api/identity';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Confirm } from '@/shared/ui/confirm';
import { deleteDocuments, retryDocuments } from './commands';
import classes from './documents.module.css';
import { type DocumentRow, nameOf } from './stages';
import { documentsWords } from './words';

const MAX_NAMED = 5;

/** What can be done with the selected documents. */
export function SelectionBar({
  rows,
  selected,
  onSelect,
  onChanged,
}: {
  rows: readonly DocumentRow[];
  selected: ReadonlySet<string>;
  onSelect: (selected: ReadonlySet<string>) => void;
  onChanged: (id: string) => void;
}) {
  const words = useWords(documentsWords);
  const format = useFormat();
  const canRetry = useCan('admin');
  const [isAsking, setAsking] = useState(false);
  const chosen = selected.size === 0 ? [] : rows.filter((row) => selected.has(row.document_id));
  const ids = chosen.map((row) => row.document_id);
  const failed = chosen.filter((row) => row.state === 'failed').map((row) => row.document_id);
  const remove = async () => {
    await deleteDocuments(ids);
    for (const id of ids) onChanged(id);
    onSelect(new Set());
  };
  if (chosen.length === 0) return null;
  return (
    <section className={`panel ${classes.bar}`} aria-live="polite">
      <strong>{words.selected(format.count(chosen.length))}</strong>
      <span style={{ flex: 1 }} />
      {chosen.length < rows.length && (
        <Button
          variant="subtle"
          onClick={() => onSelect(new Set(rows.map((row) => row.document_id)))}
        >
          {words.selectAll(format.count(rows.length))}
        </Button>
      )}
      <Button variant="subtle" onClick={() => onSelect(new Set())}>
        {words.selectNone}
      </Button>
      {canRetry && failed.length > 0 && (
        <Button variant="default" onClick={() => void retryDocuments(failed, words.retried)}>
          {words.retryMany(failed.length)}
        </Button>
      )}
      <Button color="red.8" onClick={() => setAsking(true)}>
        {words.deleteMany(chosen.length)}
      </Button>
      <Confirm
        opened={isAsking}
        onClose={() => setAsking(false)}
        action={words.deleteMany(chosen.length)}
        onConfirm={remove}
        danger
      >
        <ul style={{ margin: 0, paddingInlineStart: 20 }}>
          {chosen.slice(0, MAX_NAMED).map((row) => (
            <li key={row.document_id} className="foreign">
              {nameOf(row)}
            </li>
          ))}
          {chosen.length > MAX_NAMED && <li>+ {format.count(chosen.length - MAX_NAMED)}</li>}
        </ul>
        <p style={{ margin: 0 }}>{words.deleteHint}</p>
      </Confirm>
    </section>
  );
}
