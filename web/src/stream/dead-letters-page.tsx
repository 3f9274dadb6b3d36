import { Button, Code } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { appWords } from '@/app/words';
import { useAddress } from '@/shared/address';
import { api, call } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Ago } from '@/shared/ui/bits';
import { Page } from '@/shared/ui/page';
import { EmptyState, QueryState } from '@/shared/ui/states';
import { type Column, DataTable } from '@/shared/ui/table';
import { type Act, ActDialog } from './dead-letters/act-dialog';
import { Letters } from './dead-letters/letters';
import type { Cause } from './dead-letters/selection';
import { deadLetterWords } from './dead-letters/words';
import { useRefresh } from './use-refresh';
import { stageLabel, streamWords } from './words';

export function DeadLettersPage() {
  const words = useWords(deadLetterWords);
  const screens = useWords(appWords).screens;
  const format = useFormat();
  const [{ stage, code, letter }, change] = useAddress();
  const [act, setAct] = useState<Act | null>(null);
  const causes = useQuery({
    queryKey: ['dead-letters', 'causes'],
    queryFn: () => call(api.GET('/v1/dead-letters/causes')),
  });
  useRefresh(['event.dead_lettered', 'dead_letter.closed', 'document.'], 'dead-letters');
  const items = causes.data?.items ?? [];
  const total = items.reduce((sum, cause) => sum + cause.events, 0);
  return (
    <Page
      title={screens['dead-letters']}
      subtitle={causes.data && words.subtitle(format.count(total), format.count(items.length))}
      actions={
        total > 0 && (
          <>
            <Button
              variant="default"
              onClick={() => setAct({ kind: 'redrive', selection: { all: true } })}
            >
              {words.redriveAll}
            </Button>
            <Button
              variant="default"
              onClick={() => setAct({ kind: 'discard', selection: { all: true } })}
            >
              {words.discardAll}
            </Button>
          </>
        )
      }
    >
      <QueryState query={causes} rows={4}>
        {(page) =>
          page.items.length === 0 ? (
            <EmptyState
              title={words.empty}
              action={
                <Button component={Link} to="/pipeline" variant="default">
                  {words.toPipeline}
                </Button>
              }
              command="anabranch dlq list --by-cause"
            >
              <p>{words.emptyHint}</p>
            </EmptyState>
          ) : (
            <Causes
              causes={page.items.filter((cause) => !stage || code || cause.stage === stage)}
              isSelected={(cause) => cause.stage === stage && cause.code === code}
              onOpen={(cause) =>
                change({ stage: cause.stage, code: cause.code, letter: undefined })
              }
            />
          )
        }
      </QueryState>
      {stage && code && (
        <Letters
          key={`${stage} ${code}`}
          cause={
            items.find((cause) => cause.stage === stage && cause.code === code) ?? { stage, code }
          }
          letter={letter}
          onOpen={(id) => change({ letter: id })}
          onAct={setAct}
        />
      )}
      <ActDialog act={act} onClose={() => setAct(null)} />
    </Page>
  );
}

function Causes({
  causes,
  isSelected,
  onOpen,
}: {
  causes: Cause[];
  isSelected: (cause: Cause) => boolean;
  onOpen: (cause: Cause) => void;
}) {
  const words = useWords(deadLetterWords);
  const stream = useWords(streamWords);
  const format = useFormat();
  const columns: Column<Cause>[] = [
    {
      key: 'cause',
      label: words.cause,
      cell: (cause) => (
        <div dir="auto" className="foreign truncate" title={cause.latest_detail}>
          {cause.latest_detail}
        </div>
      ),
    },
    { key: 'code', label: words.code, width: '220px', cell: (cause) => <Code>{cause.code}</Code> },
    {
      key: 'stage',
      label: stream.stage,
      width: '120px',
      cell: (cause) => stageLabel(stream, cause.stage),
    },
    {
      key: 'count',
      label: words.count,
      isNumber: true,
      width: '90px',
      cell: (cause) => <b>{format.count(cause.events)}</b>,
    },
    {
      key: 'first',
      label: words.first,
      width: '130px',
      cell: (cause) => <Ago time={cause.first} />,
    },
    { key: 'last', label: words.last, width: '130px', cell: (cause) => <Ago time={cause.last} /> },
  ];
  return (
    <DataTable
      label={words.causes}
      rows={causes}
      columns={columns}
      rowKey={(cause) => `${cause.stage} ${cause.code}`}
      onOpen={onOpen}
      isSelected={isSelected}
      maxHeight="40vh"
    />
  );
}
