import { Button, Stack } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { appWords } from '@/app/words';
import { useAddress } from '@/shared/address';
import { api, call } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Page } from '@/shared/ui/page';
import { EmptyState, QueryState } from '@/shared/ui/states';
import { RemoveDialog, ResetDialog } from './sources/acts';
import { AddDialog } from './sources/add-dialog';
import type { Source } from './sources/request';
import { SourceCard } from './sources/source-card';
import { sourceWords } from './sources/words';
import { useRefresh } from './use-refresh';

// A worker reports its status to the tables, not to the log.
const REFRESH_MS = 5000;

export function SourcesPage() {
  const words = useWords(sourceWords);
  const screens = useWords(appWords).screens;
  const format = useFormat();
  const [{ add }, change] = useAddress();
  const [act, setAct] = useState<{ kind: 'reset' | 'remove'; source: Source } | null>(null);
  const sources = useQuery({
    queryKey: ['sources'],
    queryFn: () => call(api.GET('/v1/sources')),
    refetchInterval: REFRESH_MS,
  });
  useRefresh(['source.', 'document.indexed'], 'sources');
  const items = sources.data?.items ?? [];
  const documents = items.reduce((sum, source) => sum + source.documents, 0);
  const close = () => setAct(null);
  const addButton = <Button onClick={() => change({ add: '1' })}>{words.add}</Button>;
  return (
    <Page
      title={screens.sources}
      subtitle={
        items.length > 0 && words.subtitle(format.count(items.length), format.count(documents))
      }
      actions={items.length > 0 && addButton}
    >
      <QueryState query={sources} rows={4}>
        {(page) =>
          page.items.length === 0 ? (
            <EmptyState
              title={words.empty}
              action={addButton}
              command="anabranch source add folder ./contracts"
            >
              <p>{words.emptyHint}</p>
            </EmptyState>
          ) : (
            <Stack gap="sm" component="section" aria-label={words.list}>
              {page.items.map((source) => (
                <SourceCard
                  key={source.name}
                  source={source}
                  onReset={() => setAct({ kind: 'reset', source })}
                  onRemove={() => setAct({ kind: 'remove', source })}
                />
              ))}
            </Stack>
          )
        }
      </QueryState>
      {add && <AddDialog onClose={() => change({ add: undefined })} />}
      {act?.kind === 'reset' && <ResetDialog source={act.source} onClose={close} />}
      {act?.kind === 'remove' && <RemoveDialog source={act.source} onClose={close} />}
    </Page>
  );
}
