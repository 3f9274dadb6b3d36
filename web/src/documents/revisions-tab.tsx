import { Button, Group, Stack, Title } from '@mantine/core';
import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { fetchText } from '@/evidence/source';
import { useAddress } from '@/shared/address';
import { api, call, fetchRaw, type Schemas } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Ago, State, type Tone } from '@/shared/ui/bits';
import { ErrorState, LoadingState, QueryState } from '@/shared/ui/states';
import { DataTable } from '@/shared/ui/table';
import { diffLines } from './diff';
import { saveFile } from './document-actions';
import { documentWords } from './document-words';
import classes from './documents.module.css';
import { documentKey } from './use-documents';

type Revision = Schemas['Revision'];
const TONES: Record<string, Tone> = {
  running: 'busy',
  searchable: 'ok',
  failed: 'bad',
  superseded: 'idle',
  withdrawn: 'idle',
};
const HAVE_TEXT = ['searchable', 'superseded', 'withdrawn'];
const MAX_COMPARED_CHARACTERS = 2_000_000;

export function RevisionsTab({ document }: { document: Schemas['DocumentStatus'] }) {
  const words = useWords(documentWords).revisions;
  const format = useFormat();
  const [address, setAddress] = useAddress();
  const id = document.document_id;
  const query = useInfiniteQuery({
    queryKey: [...documentKey(id), 'revisions'],
    queryFn: ({ pageParam }) =>
      call(
        api.GET('/v1/documents/{document}/revisions', {
          params: {
            path: { document: id },
            query: { limit: 100, ...(pageParam ? { after: pageParam } : {}) },
          },
        }),
      ),
    initialPageParam: undefined as number | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
  });
  if (query.data === undefined) {
    if (query.isError) return <ErrorState error={query.error} onRetry={() => query.refetch()} />;
    return <LoadingState rows={4} />;
  }
  const rows = query.data.pages.flatMap((page) => page.items);
  const before = (row: Revision) => rows[rows.indexOf(row) + 1];
  const hasText = (row: Revision | undefined) => row && HAVE_TEXT.includes(row.state);
  const compared = rows.find((row) => String(row.revision) === address.compare);
  const base = compared && before(compared);
  const download = async (row: Revision) => {
    const response = await fetchRaw(`/v1/documents/${id}/file?revision=${row.revision}`);
    saveFile(new File([await response.blob()], row.filename ?? `${id}-${row.revision}`));
  };
  return (
    <Stack gap="md">
      <DataTable<Revision>
        label={words.revision}
        rows={rows}
        rowKey={(row) => String(row.revision)}
        isSelected={(row) => row.visible}
        onEnd={
          query.hasNextPage && !query.isFetching ? () => void query.fetchNextPage() : undefined
        }
        columns={[
          {
            key: 'revision',
            label: words.revision,
            cell: (row) => (
              <>
                <strong>{format.count(row.revision)}</strong>
                {row.visible && (
                  <>
                    {' '}
                    <State tone="ok" label={words.visible} />
                  </>
                )}
              </>
            ),
          },
          {
            key: 'state',
            label: words.state,
            cell: (row) => (
              <State
                tone={TONES[row.state] ?? 'idle'}
                label={words.states[row.state as keyof typeof words.states] ?? row.state}
              />
            ),
          },
          { key: 'received', label: words.received, cell: (row) => <Ago time={row.received_at} /> },
          {
            key: 'file',
            label: words.file,
            cell: (row) => <span className="foreign">{row.filename ?? row.title}</span>,
          },
          {
            key: 'size',
            label: words.size,
            isNumber: true,
            cell: (row) => row.bytes !== null && format.bytes(row.bytes),
          },
          {
            key: 'text',
            label: words.text,
            isNumber: true,
            cell: (row) =>
              row.characters !== null && words.characters(format.count(row.characters)),
          },
          {
            key: 'sha256',
            label: 'SHA-256',
            cell: (row) => (
              <span className="mono muted" title={row.content_sha256 ?? undefined}>
                {row.content_sha256?.slice(0, 8)}
              </span>
            ),
          },
          {
            key: 'acts',
            label: '',
            cell: (row) => (
              <Group gap={4} wrap="nowrap" justify="flex-end">
                {hasText(row) &&
                  hasText(before(row)) &&
                  before(row)?.content_sha256 !== row.content_sha256 && (
                    <Button
                      variant="default"
                      size="compact-xs"
                      onClick={() => setAddress({ compare: String(row.revision) })}
                    >
                      {words.compare(format.count(before(row)?.revision ?? 0))}
                    </Button>
                  )}
                {row.bytes !== null && (
                  <Button variant="default" size="compact-xs" onClick={() => void download(row)}>
                    {words.download}
                  </Button>
                )}
              </Group>
            ),
          },
        ]}
      />
      {compared && base && <Comparison id={id} from={base} to={compared} />}
    </Stack>
  );
}

/** The lines that the texts of two revisions do not share, with some around them. */
function Comparison({ id, from, to }: { id: string; from: Revision; to: Revision }) {
  const words = useWords(documentWords).revisions;
  const format = useFormat();
  const query = useQuery({
    queryKey: [...documentKey(id), 'compare', from.revision, to.revision],
    queryFn: async () => {
      const read = (row: Revision) => fetchText(id, row.revision, row.media_type);
      const [before, after] = await Promise.all([read(from), read(to)]);
      const isLong = Math.max(before.length, after.length) > MAX_COMPARED_CHARACTERS;
      return { lines: isLong ? null : diffLines(before, after) };
    },
    staleTime: Number.POSITIVE_INFINITY,
  });
  return (
    <section aria-live="polite">
      <Title order={2} mb="xs">
        {words.compareTitle(format.count(from.revision), format.count(to.revision))}
      </Title>
      <QueryState query={query}>
        {({ lines }) => (lines === null ? <p>{words.tooLong}</p> : <Lines lines={lines} />)}
      </QueryState>
    </section>
  );
}

const CONTEXT_LINES = 2;

function Lines({ lines }: { lines: NonNullable<ReturnType<typeof diffLines>> }) {
  const words = useWords(documentWords).revisions;
  const format = useFormat();
  const blocks = useMemo(() => {
    const isNear = lines.map((_, at) =>
      lines
        .slice(Math.max(0, at - CONTEXT_LINES), at + CONTEXT_LINES + 1)
        .some((line) => line.kind !== 'same'),
    );
    const out: { at: number; lines: typeof lines; isShown: boolean }[] = [];
    lines.forEach((line, at) => {
      const last = out.at(-1);
      const isShown = isNear[at] ?? false;
      if (last?.isShown === isShown) last.lines.push(line);
      else out.push({ at, lines: [line], isShown });
    });
    return out;
  }, [lines]);
  const count = (kind: string) => lines.filter((line) => line.kind === kind).length;
  if (count('same') === lines.length) return <p>{words.same}</p>;
  return (
    <>
      <p style={{ margin: '0 0 8px', fontSize: 12 }}>
        <span className="ok">{words.added(format.count(count('added')))}</span>
        {' · '}
        <span className="bad">{words.removed(format.count(count('removed')))}</span>
      </p>
      <section className={`panel ${classes.diff}`} tabIndex={0} aria-label={words.file}>
        {blocks.map((block) =>
          block.isShown ? (
            block.lines.map((line, index) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: a line has no other identity.
              <div key={block.at + index} className={`foreign ${classes[line.kind] ?? ''}`}>
                <span aria-hidden="true">
                  {{ same: ' ', added: '+', removed: '−' }[line.kind]}{' '}
                </span>
                {line.kind === 'added' && <ins>{line.text}</ins>}
                {line.kind === 'removed' && <del>{line.text}</del>}
                {line.kind === 'same' && line.text}
              </div>
            ))
          ) : (
            <div key={block.at} className={`muted ${classes.skippedLines}`}>
              {words.unchangedLines(format.count(block.lines.length))}
            </div>
          ),
        )}
      </section>
    </>
  );
}
