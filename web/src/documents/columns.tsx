import { Button } from '@mantine/core';
import { useViewportSize } from '@mantine/hooks';
import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useMemo, useRef, useState } from 'react';
import { useCan } from '@/shared/api/identity';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Ago } from '@/shared/ui/bits';
import type { Column } from '@/shared/ui/table';
import { retryDocuments } from './commands';
import classes from './documents.module.css';
import { type DocumentRow, isUnfinished, nameOf } from './stages';
import { StateLine } from './state-line';
import { documentKey, useDocument } from './use-documents';
import { documentsWords } from './words';

type Options = {
  now: number;
  selected: ReadonlySet<string>;
  onSelect: (selected: ReadonlySet<string>) => void;
  onChanged: (id: string) => void;
};

export function useColumns({ now, selected, onSelect, onChanged }: Options): Column<DocumentRow>[] {
  const words = useWords(documentsWords);
  const format = useFormat();
  const canWrite = useCan('writer');
  const isNarrow = useViewportSize().width <= 700;
  return useMemo(() => {
    const name: Column<DocumentRow> = {
      key: 'name',
      label: words.columns.name,
      cell: (row) => (
        <NameCell
          row={row}
          isSelected={selected.has(row.document_id)}
          canSelect={canWrite}
          onToggle={() => onSelect(toggle(selected, row.document_id))}
        />
      ),
    };
    const state: Column<DocumentRow> = {
      key: 'state',
      label: words.columns.state,
      width: '36%',
      cell: (row) => <StateCell row={row} now={now} onChanged={onChanged} />,
    };
    const collection: Column<DocumentRow> = {
      key: 'collection',
      label: words.columns.collection,
      width: '15%',
      cell: (row) => <Belongs row={row} />,
    };
    const chunks: Column<DocumentRow> = {
      key: 'chunks',
      label: words.columns.chunks,
      isNumber: true,
      width: '76px',
      cell: (row) => (row.chunks_count ? format.count(row.chunks_count) : ''),
    };
    const received: Column<DocumentRow> = {
      key: 'received',
      label: words.columns.received,
      isNumber: true,
      width: '120px',
      cell: (row) => <Ago time={row.received_at} />,
    };
    return isNarrow ? [name, state, received] : [name, state, collection, chunks, received];
  }, [words, format, canWrite, isNarrow, now, selected, onSelect, onChanged]);
}

function toggle(selected: ReadonlySet<string>, id: string): ReadonlySet<string> {
  const changed = new Set(selected);
  if (!changed.delete(id)) changed.add(id);
  return changed;
}

function NameCell({
  row,
  isSelected,
  canSelect,
  onToggle,
}: {
  row: DocumentRow;
  isSelected: boolean;
  canSelect: boolean;
  onToggle: () => void;
}) {
  const words = useWords(documentsWords);
  const name = nameOf(row);
  return (
    <span className={classes.name}>
      {canSelect && (
        // Plain, as the link: a table draws dozens of rows at each turn of the wheel.
        <input
          type="checkbox"
          aria-label={words.select(name)}
          checked={isSelected}
          onChange={onToggle}
          onClick={(event) => event.stopPropagation()}
        />
      )}
      <a
        href={`documents/${row.document_id}`}
        dir="auto"
        className="truncate foreign"
        title={row.title && row.title !== name ? `${name}\n${row.title}` : name}
        // The row has the focus and opens; the link is for a new tab.
        tabIndex={-1}
        onClick={(event) => {
          if (event.ctrlKey || event.metaKey || event.shiftKey) event.stopPropagation();
          else event.preventDefault();
        }}
      >
        {name}
        {row.title && row.title !== name && (
          <span className={classes.title}>&ensp;{row.title}</span>
        )}
      </a>
    </span>
  );
}

function Belongs({ row }: { row: DocumentRow }) {
  if (row.collection === null && row.tags.length === 0) return null;
  return (
    <span
      dir="auto"
      className="truncate foreign"
      style={{ display: 'block' }}
      title={[row.collection, ...row.tags].filter(Boolean).join(' · ')}
    >
      {row.collection}
      {row.tags.map((tag) => (
        <span key={tag}>
          {' '}
          <span className={`${classes.tag} muted`}>{tag}</span>
        </span>
      ))}
    </span>
  );
}

/** Of a document that is done, which most are, nothing needs to be asked. */
function StateCell(props: { row: DocumentRow; now: number; onChanged: (id: string) => void }) {
  const { row, now } = props;
  const known = useQueryClient().getQueryData<DocumentRow>(documentKey(row.document_id)) ?? row;
  const isOpen = row.state === 'failed' || isUnfinished(row) || isUnfinished(known);
  return isOpen ? <OpenStateCell {...props} /> : <StateLine document={row} now={now} />;
}

/** The list has no stages; those of a document that is not done are read while it is in view. */
function OpenStateCell({
  row,
  now,
  onChanged,
}: {
  row: DocumentRow;
  now: number;
  onChanged: (id: string) => void;
}) {
  const words = useWords(documentsWords);
  const canRetry = useCan('admin');
  const place = useRef<HTMLSpanElement>(null);
  const status = useDocument(row.document_id, useInView(place));
  // The list may be newer than a status that is no longer asked for.
  const shown: DocumentRow = status.data?.state === row.state ? status.data : row;
  const changedTo = status.data?.state;
  useEffect(() => {
    if (changedTo && changedTo !== row.state && changedTo !== 'accepted') {
      onChanged(row.document_id);
    }
  }, [changedTo, row.state, row.document_id, onChanged]);
  return (
    <span ref={place} className={`${classes.state} ${classes.row}`}>
      <StateLine document={shown} now={now} />
      {row.state === 'failed' && canRetry && (
        <Button
          variant="default"
          size="compact-xs"
          className={classes.retry}
          title={words.retryHint}
          onClick={(event) => {
            event.stopPropagation();
            void retryDocuments([row.document_id], words.retried);
          }}
        >
          {words.retry}
        </Button>
      )}
    </span>
  );
}

function useInView(element: React.RefObject<Element | null>): boolean {
  const [isInView, setInView] = useState(false);
  useEffect(() => {
    const observer = new IntersectionObserver(
      ([entry]) => setInView(entry?.isIntersecting ?? false),
      {
        rootMargin: '200px',
      },
    );
    if (element.current) observer.observe(element.current);
    return () => observer.disconnect();
  }, [element]);
  return isInView;
}
