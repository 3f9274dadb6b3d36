import { Stack, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Fragment, type ReactNode } from 'react';
import { api, call } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Id, State } from '@/shared/ui/bits';
import { QueryState } from '@/shared/ui/states';
import { documentWords } from './document-words';
import classes from './documents.module.css';

/** What an erasure removed, and what it cannot reach. */
export function Receipt({ id }: { id: string }) {
  const words = useWords(documentWords).receipt;
  const format = useFormat();
  const query = useQuery({
    queryKey: ['erasure', id],
    queryFn: () =>
      call(api.GET('/v1/erasures/{receipt_id}', { params: { path: { receipt_id: id } } })),
    refetchInterval: (state) => (state.state.data?.state === 'done' ? false : 1000),
  });
  return (
    <QueryState query={query}>
      {(receipt) => {
        const isDone = receipt.state === 'done';
        const values: [string, ReactNode][] = [
          [words.title, <Id key="id" id={receipt.receipt_id} />],
          [words.requested, format.exact(receipt.requested_at)],
          [words.completed, receipt.completed_at && format.exact(receipt.completed_at)],
          [words.documents, receipt.documents !== null && format.count(receipt.documents)],
          [words.events, receipt.log.events !== null && format.count(receipt.log.events)],
          [words.rawUntil, receipt.raw_until && format.exact(receipt.raw_until)],
        ];
        const removed = Object.entries(receipt.removed ?? {}).filter(([, n]) => n > 0);
        return (
          <Stack gap="md" role="status">
            <State tone={isDone ? 'ok' : 'busy'} label={isDone ? words.done : words.running} />
            <dl className={`panel ${classes.facts}`}>
              {values
                .filter(([, value]) => value)
                .map(([label, value]) => (
                  <Fragment key={label}>
                    <dt>{label}</dt>
                    <dd>{value}</dd>
                  </Fragment>
                ))}
            </dl>
            {removed.length > 0 && (
              <section
                className="panel"
                style={{ overflowX: 'auto' }}
                tabIndex={0}
                aria-label={words.removed}
              >
                <table className={classes.stages}>
                  <caption>{words.removed}</caption>
                  <thead>
                    <tr>
                      <th scope="col">{words.place}</th>
                      <th scope="col" className="num">
                        {words.count}
                      </th>
                    </tr>
                  </thead>
                  <tbody>
                    {removed.map(([place, n]) => (
                      <tr key={place}>
                        <th scope="row" className="mono">
                          {place}
                        </th>
                        <td className="num">{format.count(n)}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </section>
            )}
            {isDone && (
              <section className={`panel ${classes.advice}`}>
                <Title order={2}>{words.remains}</Title>
                {receipt.remains?.length ? (
                  <ul className={classes.plain}>
                    {receipt.remains.map((copy) => (
                      <li key={copy} className="foreign">
                        {copy}
                      </li>
                    ))}
                  </ul>
                ) : (
                  <span>{words.nothingRemains}</span>
                )}
              </section>
            )}
          </Stack>
        );
      }}
    </QueryState>
  );
}
