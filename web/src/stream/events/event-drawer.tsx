import { Button, CopyButton, Drawer, Group, Stack, Title, UnstyledButton } from '@mantine/core';
import { useMediaQuery } from '@mantine/hooks';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { api, call } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { QueryState } from '@/shared/ui/states';
import { sharedWords } from '@/shared/words';
import common from '../stream.module.css';
import { causalChain, entryKey, type LogEntry } from './event-log';
import classes from './events.module.css';
import { eventWords } from './words';

/** The envelope of an event, with the events that caused it and that it caused. */
export function EventDrawer({
  id,
  rows,
  onSelect,
  onFilter,
  onClose,
}: {
  id: string | undefined;
  rows: readonly LogEntry[];
  onSelect: (entry: LogEntry) => void;
  onFilter: (change: { key?: string; type?: string }) => void;
  onClose: () => void;
}) {
  const words = useWords(eventWords).envelope;
  const shared = useWords(sharedWords);
  const isNarrow = useMediaQuery('(max-width: 900px)');
  const entry = rows.find((row) => row.id === id);
  return (
    <Drawer
      opened={id !== undefined}
      onClose={onClose}
      position="right"
      size={isNarrow ? '100%' : '44%'}
      title={
        <span className="mono foreign">
          {entry ? (entry.type ?? entryKey(entry)) : words.title}
        </span>
      }
      closeButtonProps={{ 'aria-label': shared.close }}
      overlayProps={{ backgroundOpacity: 0.1 }}
      transitionProps={{ duration: 120 }}
    >
      {entry ? (
        <Envelope entry={entry} rows={rows} onSelect={onSelect} onFilter={onFilter} />
      ) : (
        <p>{words.missing}</p>
      )}
    </Drawer>
  );
}

function Envelope({
  entry,
  rows,
  onSelect,
  onFilter,
}: {
  entry: LogEntry;
  rows: readonly LogEntry[];
  onSelect: (entry: LogEntry) => void;
  onFilter: (change: { key?: string; type?: string }) => void;
}) {
  const words = useWords(eventWords).envelope;
  const shared = useWords(sharedWords);
  const format = useFormat();
  const document = entry.document_id;
  const related = useQuery({
    queryKey: ['events', 'of-document', document],
    queryFn: () =>
      call(
        api.GET('/v1/events', { params: { query: { document: document as string, limit: 500 } } }),
      ),
    enabled: document !== null,
  });
  const json = JSON.stringify(entry, null, 2);
  const time = (value: string | null) =>
    value && (
      <time dateTime={value}>
        {format.exact(value)} <span className="mono muted">{value}</span>
      </time>
    );
  const values: Record<keyof typeof words.fields, ReactNode> = {
    type: <span className="mono foreign">{entry.type}</span>,
    topic: <span className="mono">{entry.topic}</span>,
    position: (
      <span className="mono">
        {entry.partition}:{entry.offset}
      </span>
    ),
    appended_at: time(entry.appended_at),
    time: time(entry.time),
    key: entry.key && <span className="mono foreign">{entry.key}</span>,
    document_id: document && (
      <Link to="/documents/$document" params={{ document }} className="mono">
        {document}
      </Link>
    ),
    tenant: entry.tenant && <span className="foreign">{entry.tenant}</span>,
    id: entry.id && <span className="mono foreign">{entry.id}</span>,
    source: entry.source && <span className="mono foreign">{entry.source}</span>,
    cause: entry.cause && <span className="mono">{entry.cause}</span>,
    how: entry.how && <span className="mono">{entry.how}</span>,
    bytes: format.bytes(entry.bytes),
    cursor: <span className="mono">{entry.cursor}</span>,
  };
  return (
    <Stack gap="md">
      <Group gap="xs">
        {document && (
          <Button
            component={Link}
            variant="default"
            to="/documents/$document"
            params={{ document } as never}
          >
            {words.openDocument}
          </Button>
        )}
        {entry.key && (
          <Button variant="default" onClick={() => onFilter({ key: entry.key as string })}>
            {words.onlyDocument}
          </Button>
        )}
        {entry.type && (
          <Button variant="default" onClick={() => onFilter({ type: entry.type as string })}>
            {words.onlyType}
          </Button>
        )}
        <CopyButton value={json}>
          {({ copied, copy }) => (
            <Button variant="default" onClick={copy}>
              {copied ? shared.copied : words.copyJson}
            </Button>
          )}
        </CopyButton>
      </Group>
      <dl className={common.fields}>
        {Object.entries(values)
          .filter(([, value]) => value !== null && value !== undefined && value !== '')
          .map(([name, value]) => (
            <FieldRow key={name} label={words.fields[name as keyof typeof words.fields]}>
              {value}
            </FieldRow>
          ))}
      </dl>
      <Stack gap={4}>
        <Title order={2}>{words.chain}</Title>
        {document ? (
          <QueryState query={related} rows={4}>
            {(page) => (
              <Chain entry={entry} entries={[...rows, ...page.items]} onSelect={onSelect} />
            )}
          </QueryState>
        ) : (
          <Chain entry={entry} entries={rows} onSelect={onSelect} />
        )}
      </Stack>
      <Stack gap={4}>
        <Title order={2}>{words.payload}</Title>
        {entry.data ? (
          <pre className={`panel mono foreign ${common.payload}`}>
            {JSON.stringify(entry.data, null, 2)}
          </pre>
        ) : (
          <p className="muted">{words.noPayload}</p>
        )}
      </Stack>
    </Stack>
  );
}

function FieldRow({ label, children }: { label: string; children: ReactNode }) {
  return (
    <>
      <dt>{label}</dt>
      <dd>{children}</dd>
    </>
  );
}

function Chain({
  entry,
  entries,
  onSelect,
}: {
  entry: LogEntry;
  entries: readonly LogEntry[];
  onSelect: (entry: LogEntry) => void;
}) {
  const words = useWords(eventWords).envelope;
  const format = useFormat();
  const chain = causalChain(entry, entries);
  return (
    <>
      {entry.cause && !chain.some((event) => event.id === entry.cause) && (
        <p className="muted">{words.causeUnknown}</p>
      )}
      <ul className={classes.chain} aria-label={words.chainHint}>
        {chain.map((event) => (
          <li key={entryKey(event)}>
            <UnstyledButton
              aria-current={event.id === entry.id ? 'true' : undefined}
              onClick={() => onSelect(event)}
            >
              <Group gap="xs" wrap="nowrap">
                <span className={classes.topic}>{event.topic}</span>
                <span className="mono truncate" style={{ flex: 1 }}>
                  {event.type}
                </span>
                <span className="muted">{format.clock(event.appended_at)}</span>
              </Group>
            </UnstyledButton>
          </li>
        ))}
      </ul>
    </>
  );
}
