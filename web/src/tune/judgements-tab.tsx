import { Button, Group, Stack, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import type { Search } from '@/app/router';
import { api, call, type Schemas } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Ago } from '@/shared/ui/bits';
import { DateRange, toPeriod } from '@/shared/ui/date-range';
import { EmptyState, QueryState } from '@/shared/ui/states';
import { DataTable } from '@/shared/ui/table';
import { download } from './download';
import { evaluationWords } from './evaluation-words';

type Judgements = Schemas['JudgementExport'];

/** What people judged in a period: golden questions, and the difficult ones with their runs. */
export function JudgementsTab() {
  const words = useWords(evaluationWords);
  const navigate = useNavigate();
  const search = useSearch({ strict: false });
  const { from, to } = toPeriod(search);
  const judgements = useQuery({
    queryKey: ['judgements', from, to],
    queryFn: () =>
      call(
        api.GET('/v1/judgements', {
          params: {
            query: {
              ...(from ? { since: from } : {}),
              ...(to ? { until: to } : {}),
            },
          },
        }),
      ),
  });
  const show = (next: Record<string, string | undefined>) =>
    navigate({ to: '/evaluation', search: (old: Search) => ({ ...old, ...next }), replace: true });
  return (
    <Stack gap="md">
      <Group gap="sm" align="flex-end">
        <DateRange days={search} onChange={show} />
        <Button
          variant="default"
          disabled={judgements.data === undefined}
          onClick={() =>
            download(
              'judgements.json',
              JSON.stringify(judgements.data, null, 2),
              'application/json',
            )
          }
        >
          {words.export}
        </Button>
      </Group>
      <QueryState query={judgements}>
        {(data) => (
          <>
            <Golden data={data} />
            <Difficult data={data} />
          </>
        )}
      </QueryState>
    </Stack>
  );
}

function Golden({ data }: { data: Judgements }) {
  const words = useWords(evaluationWords);
  const format = useFormat();
  return (
    <Stack gap="xs">
      <Heading
        title={`${words.golden} · ${format.count(data.golden.length)}`}
        hint={`${words.goldenHint} ${words.hardNegatives}: ${format.count(data.hard_negatives.length)}.`}
      />
      {data.golden.length === 0 ? (
        <EmptyState title={words.noGolden} command="anabranch eval candidates" />
      ) : (
        <DataTable
          label={words.golden}
          rows={data.golden}
          rowKey={(row) => row.query}
          maxHeight="360px"
          columns={[
            {
              key: 'query',
              label: words.question,
              cell: (row) => <span className="foreign">{row.query}</span>,
            },
            {
              key: 'n',
              label: words.nJudgements,
              isNumber: true,
              cell: (row) => format.count(row.judgements.length),
            },
          ]}
        />
      )}
    </Stack>
  );
}

function Difficult({ data }: { data: Judgements }) {
  const words = useWords(evaluationWords);
  const navigate = useNavigate();
  const reasonOf = (row: Judgements['difficult'][number]) =>
    row.useful === false ? words.notUseful : row.refused ? words.refused : words.lowConfidence;
  return (
    <Stack gap="xs">
      <Heading title={words.difficult} hint={words.difficultHint} />
      {data.difficult.length === 0 ? (
        <EmptyState title={words.noDifficult} />
      ) : (
        <DataTable
          label={words.difficult}
          rows={data.difficult}
          rowKey={(row) => row.run_id}
          maxHeight="480px"
          onOpen={(row) => navigate({ to: '/runs/$run', params: { run: row.run_id } })}
          columns={[
            {
              key: 'query',
              label: words.question,
              cell: (row) => (
                <>
                  <span className="foreign">{row.query}</span>
                  {row.corrected_answer && (
                    <div className="muted foreign">{row.corrected_answer}</div>
                  )}
                  {row.note && <div className="muted foreign">{row.note}</div>}
                </>
              ),
            },
            {
              key: 'reason',
              label: words.reason,
              cell: (row) => (
                <>
                  {reasonOf(row)} {row.code && <code className="muted">{row.code}</code>}
                </>
              ),
            },
            { key: 'at', label: words.answered, cell: (row) => <Ago time={row.answered_at} /> },
          ]}
        />
      )}
    </Stack>
  );
}

function Heading({ title, hint }: { title: string; hint: string }) {
  return (
    <Group gap="sm" align="baseline">
      <Title order={2}>{title}</Title>
      <Text size="xs" c="dimmed">
        {hint}
      </Text>
    </Group>
  );
}
