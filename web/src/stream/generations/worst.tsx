import { Stack, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { Fragment, useState } from 'react';
import { api, call, type Schemas } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { QueryState } from '@/shared/ui/states';
import { type Column, DataTable } from '@/shared/ui/table';
import classes from './generations.module.css';
import { generationWords } from './words';

type Compared = Schemas['ComparedQuery'];

/** The questions that lost or changed most; one that is opened is asked of both generations. */
export function WorstQuestions({ report }: { report: Schemas['ComparisonReport'] }) {
  const words = useWords(generationWords).comparison;
  const format = useFormat();
  const [open, setOpen] = useState<string | null>(null);
  const { A: a = '', B: b = '' } = report.generations;
  const refused = ({ refused: by }: Compared) => {
    if (by.A && by.B) return words.both;
    if (by.A) return words.refusedBy(a);
    return by.B ? words.refusedBy(b) : words.neither;
  };
  const columns: Column<Compared>[] = [
    {
      key: 'question',
      label: words.question,
      cell: (row) => <span className="foreign">{row.query}</span>,
    },
    {
      key: 'shared',
      label: words.sharedTen,
      isNumber: true,
      width: '120px',
      cell: (row) => format.decimal(row['overlap@10'] * 10, 1),
    },
    ...(report.judged_queries > 0
      ? [
          {
            key: 'ndcg',
            label: words.measures['ndcg@10'],
            isNumber: true,
            width: '150px',
            cell: (row: Compared) => {
              const scores = row['ndcg@10'];
              return scores
                ? `${format.score(scores.A ?? 0)} → ${format.score(scores.B ?? 0)}`
                : '—';
            },
          },
        ]
      : []),
    { key: 'refused', label: words.refused, width: '120px', cell: refused },
  ];
  return (
    <Stack gap="xs">
      <Title order={3}>{words.worst}</Title>
      <DataTable
        label={words.worst}
        rows={report.worst}
        columns={columns}
        rowKey={(row) => row.query}
        onOpen={(row) => setOpen(row.query === open ? null : row.query)}
        isSelected={(row) => row.query === open}
        maxHeight="40vh"
      />
      {open !== null && (
        <section aria-label={words.sideBySide}>
          <Title order={3} mb={8} className="foreign">
            {open}
          </Title>
          <div className={classes.sides}>
            <Side key={`${a} ${open}`} generation={a} query={open} />
            <Side key={`${b} ${open}`} generation={b} query={open} />
          </div>
        </section>
      )}
    </Stack>
  );
}

function Side({ generation, query }: { generation: string; query: string }) {
  const words = useWords(generationWords).comparison;
  const answer = useQuery({
    queryKey: ['generations', 'answer', generation, query],
    queryFn: async ({ signal }) => {
      const body = { query, generation, return_context: false } as Schemas['QueryRequest'];
      // Without `stream` the response is never a stream.
      return (await call(api.POST('/v1/query', { body, signal }))) as Schemas['QueryResponse'];
    },
    staleTime: Number.POSITIVE_INFINITY,
  });
  return (
    <div className="panel" style={{ padding: 12 }}>
      <Text size="sm" c="dimmed" mb={4}>
        {generation}
      </Text>
      <QueryState query={answer} rows={4}>
        {(data) => (
          <>
            <p className={`foreign ${classes.answer}`}>
              {data.refused
                ? `${words.refusal}: ${data.message ?? ''}`
                : emphasize(data.answer ?? '')}
            </p>
            {data.citations.length > 0 && (
              <ol className="foreign" style={{ margin: '0 0 8px', paddingLeft: 20 }}>
                {data.citations.map((citation) => (
                  <li key={citation.n}>
                    {citation.title ?? citation.source_uri ?? citation.document_id}
                    {citation.section && ` · ${citation.section}`}
                  </li>
                ))}
              </ol>
            )}
            <Link to="/runs/$run" params={{ run: data.run_id }}>
              {words.openRun}
            </Link>
          </>
        )}
      </QueryState>
    </div>
  );
}

/** The values that an answer sets between asterisks, in bold. */
function emphasize(text: string) {
  return text.split(/(\*\*[^*]+\*\*)/).map((part, index) => {
    const isValue = part.startsWith('**') && part.endsWith('**');
    // biome-ignore lint/suspicious/noArrayIndexKey: the parts of one text keep their order.
    return <Fragment key={index}>{isValue ? <b>{part.slice(2, -2)}</b> : part}</Fragment>;
  });
}
