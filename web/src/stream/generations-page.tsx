import { Button, Stack, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { lazy, Suspense, useState } from 'react';
import { appWords } from '@/app/words';
import { useAddress } from '@/shared/address';
import { api, call } from '@/shared/api/client';
import { useCan } from '@/shared/api/identity';
import { useWords } from '@/shared/i18n';
import { Page } from '@/shared/ui/page';
import { EmptyState, LoadingState, QueryState } from '@/shared/ui/states';
import {
  CalibrateDialog,
  DropDialog,
  type GenerationAct,
  RollbackDialog,
} from './generations/acts';
import { BuildDialog } from './generations/build-dialog';
import { GenerationCard } from './generations/generation-card';
import { PromoteDialog, type Refusal } from './generations/promote-dialog';
import { generationWords } from './generations/words';
import { useRefresh } from './use-refresh';

const Comparison = lazy(() =>
  import('./generations/comparison').then((m) => ({ default: m.Comparison })),
);
const ComparisonView = lazy(() =>
  import('./generations/comparison-view').then((m) => ({ default: m.ComparisonView })),
);

const REFRESH_MS = 3000;

export function GenerationsPage() {
  const words = useWords(generationWords);
  const screens = useWords(appWords).screens;
  const isOperator = useCan('operator');
  const [{ compare, build }, change] = useAddress();
  const [act, setAct] = useState<GenerationAct | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const generations = useQuery({
    queryKey: ['generations', 'list'],
    queryFn: () => call(api.GET('/v1/generations')),
    // A build reports no event until it ends.
    refetchInterval: ({ state }) =>
      state.data?.items.some((item) => item.state === 'building') ? REFRESH_MS : false,
  });
  useRefresh(['generation.', 'document.indexed'], 'generations');
  const items = generations.data?.items ?? [];
  const live = items.find((item) => item.live);
  // Nothing is compared with itself: one that was compared may be live by now.
  const compared = items.find((item) => item.name === compare && !item.live);
  const dialog = act && { generation: act.generation, live, onClose: () => setAct(null) };
  return (
    <Page
      title={screens.generations}
      subtitle={live && words.subtitle(live.name)}
      actions={
        isOperator && (
          <Button onClick={() => change({ build: '1' })} disabled={live === undefined}>
            {words.build}
          </Button>
        )
      }
    >
      <QueryState query={generations} rows={4}>
        {(page) =>
          page.items.length === 0 ? (
            <EmptyState title={words.none} command="anabranch worker">
              <p>{words.noneHint}</p>
            </EmptyState>
          ) : (
            <Stack gap="sm" component="section" aria-label={words.list}>
              {page.items.map((generation) => (
                <GenerationCard
                  key={generation.name}
                  generation={generation}
                  live={live}
                  onAct={setAct}
                  onCompare={(name) => change({ compare: name })}
                />
              ))}
            </Stack>
          )
        }
      </QueryState>
      {refusal && <NotPromoted refusal={refusal} onClose={() => setRefusal(null)} />}
      {isOperator && live && compared && (
        <Suspense fallback={<LoadingState />}>
          <Comparison
            key={compared.name}
            a={live.name}
            b={compared.name}
            onClose={() => change({ compare: undefined })}
          />
        </Suspense>
      )}
      {isOperator && build && live && (
        <BuildDialog live={live} onClose={() => change({ build: undefined })} />
      )}
      {dialog && act.kind === 'promote' && <PromoteDialog {...dialog} onRefused={setRefusal} />}
      {dialog && act.kind === 'rollback' && <RollbackDialog {...dialog} />}
      {dialog && act.kind === 'drop' && <DropDialog {...dialog} />}
      {dialog && act.kind === 'calibrate' && <CalibrateDialog {...dialog} />}
    </Page>
  );
}

/** Why the gate held a generation back, with the comparison that it saw. */
function NotPromoted({ refusal, onClose }: { refusal: Refusal; onClose: () => void }) {
  const words = useWords(generationWords);
  const { name, result } = refusal;
  return (
    <Stack gap="xs" className="panel" p="md" role="alert">
      <Text fw={600} className="bad">
        {words.notPromoted(name)}
      </Text>
      <ul style={{ margin: 0, paddingLeft: 20 }}>
        {result.reasons.map((reason) => (
          <li key={reason} className="foreign">
            {reason}
          </li>
        ))}
      </ul>
      {result.comparison && result.comparison.queries > 0 && (
        <Suspense fallback={<LoadingState />}>
          <ComparisonView report={result.comparison} />
        </Suspense>
      )}
      <Button variant="default" onClick={onClose} style={{ alignSelf: 'flex-start' }}>
        {words.dismiss}
      </Button>
    </Stack>
  );
}
