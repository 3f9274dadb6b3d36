import { Button } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useEffect, useMemo, useRef, useState } from 'react';
import { appWords } from '@/app/words';
import { useAddress } from '@/shared/address';
import { api, call } from '@/shared/api/client';
import { useCan } from '@/shared/api/identity';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { useKeys } from '@/shared/keys';
import { Page } from '@/shared/ui/page';
import { EmptyState, ErrorState, LoadingState } from '@/shared/ui/states';
import { DataTable } from '@/shared/ui/table';
import { AddDialog } from './add-dialog';
import { useColumns } from './columns';
import { DropArea } from './drop-area';
import { FilterBar, filtersFrom } from './filter-bar';
import { SelectionBar } from './selection-bar';
import { UploadPanel } from './upload-panel';
import type { UploadTarget } from './uploads';
import { useDocuments } from './use-documents';
import { useNow } from './use-now';
import { documentsWords } from './words';

export function DocumentsPage() {
  const words = useWords(documentsWords);
  const titles = useWords(appWords).screens;
  const navigate = useNavigate();
  const canWrite = useCan('writer');
  const [address, setAddress] = useAddress();
  const filters = useMemo(() => filtersFrom(address), [address]);
  const target = useMemo<UploadTarget>(
    () => ({
      ...(filters.collection ? { collection: filters.collection } : {}),
      ...(filters.tag ? { tags: [filters.tag] } : {}),
    }),
    [filters],
  );
  const { query, rows, refreshRow } = useDocuments(filters);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [adding, setAdding] = useState<string | null>(null);
  const now = useNow();
  const search = useRef<HTMLInputElement>(null);
  const columns = useColumns({ now, selected, onSelect: setSelected, onChanged: refreshRow });
  const isFiltered = Object.keys(filters).length > 0;
  useEffect(() => {
    // A selection must not outlive what the reader sees of it.
    if (filters) setSelected(new Set());
  }, [filters]);
  useKeys([
    { keys: 'f', label: words.keys.filter, run: () => search.current?.focus() },
    ...(canWrite ? [{ keys: 'u', label: words.keys.add, run: () => setAdding('') }] : []),
  ]);
  const add = canWrite && <Button onClick={() => setAdding('')}>{words.add}</Button>;
  const onEnd =
    query.hasNextPage && !query.isFetchingNextPage && !query.isFetchNextPageError
      ? () => void query.fetchNextPage()
      : undefined;
  return (
    <Page
      title={titles.documents}
      subtitle={<Counts loaded={rows.length} hasMore={query.hasNextPage} />}
      actions={add}
    >
      {canWrite && (
        <>
          <DropArea target={target} onUrl={setAdding} />
          <UploadPanel />
          <AddDialog initial={adding} target={target} onClose={() => setAdding(null)} />
        </>
      )}
      <FilterBar inputRef={search} address={address} onChange={setAddress} rows={rows} />
      <SelectionBar rows={rows} selected={selected} onSelect={setSelected} onChanged={refreshRow} />
      {query.isError && <ErrorState error={query.error} onRetry={() => query.fetchNextPage()} />}
      {query.isPending && !query.isError && <LoadingState rows={12} height={33} />}
      {query.data !== undefined &&
        (rows.length > 0 ? (
          <DataTable
            label={titles.documents}
            rows={rows}
            columns={columns}
            rowKey={(row) => row.document_id}
            isSelected={(row) => selected.has(row.document_id)}
            isFixed
            onOpen={(row) =>
              navigate({
                to: '/documents/$document',
                params: { document: row.document_id },
              })
            }
            onEnd={onEnd}
          />
        ) : isFiltered ? (
          <EmptyState
            title={words.noMatch}
            action={
              <Button variant="default" onClick={() => navigate({ to: '.', search: {} })}>
                {words.filters.clear}
              </Button>
            }
          />
        ) : (
          <EmptyState
            title={words.empty}
            action={add || undefined}
            command={canWrite ? 'anabranch ingest ./folder' : undefined}
          >
            <p style={{ margin: 0 }}>{canWrite ? words.emptyHint : words.emptyReader}</p>
          </EmptyState>
        ))}
    </Page>
  );
}

/** How many documents there are, and how many of them are not searchable. */
function Counts({ loaded, hasMore }: { loaded: number; hasMore: boolean }) {
  const words = useWords(documentsWords);
  const format = useFormat();
  const health = useQuery({
    queryKey: ['health'],
    queryFn: () => call(api.GET('/health')),
    refetchInterval: 5000,
  });
  if (health.data === undefined) return <>&nbsp;</>;
  const { documents } = health.data;
  // Who may not read every document gets no counts of all of them.
  if (Object.keys(documents).length === 0) {
    return words.counts(`${format.count(loaded)}${hasMore ? '+' : ''}`, '');
  }
  const total = Object.values(documents).reduce((sum, n) => sum + n, 0);
  const rest = (['running', 'failed'] as const)
    .filter((state) => documents[state])
    .map((state) => ` · ${words.counted[state](format.count(documents[state] ?? 0))}`);
  return words.counts(format.count(total - (documents.withdrawn ?? 0)), rest.join(''));
}
