import { Anchor, Stack, Title } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { Fragment, type ReactNode } from 'react';
import type { Schemas } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Ago, State } from '@/shared/ui/bits';
import { describe } from './describe';
import { documentWords } from './document-words';
import classes from './documents.module.css';
import { isStalled, STRIP, type StageLine, type StageName } from './stages';
import { stateWords } from './state-words';

type Document = Schemas['DocumentStatus'];
type Shown = { document: Document; now: number };

/** What is known of the document, its warnings, and where it is in the pipeline. */
export function OverviewTab({ document, now }: Shown) {
  return (
    <div className={classes.overview}>
      <Stack gap="md">
        <Advice document={document} now={now} />
        <Warnings document={document} />
        <Facts document={document} />
      </Stack>
      <Stages document={document} now={now} />
    </div>
  );
}

/** Why it waits or failed, and what to do. */
function Advice({ document, now }: Shown) {
  const words = useWords(stateWords);
  const { tone, text, advice } = describe(document, words, useFormat(), now);
  if (tone !== 'bad' && tone !== 'warn') return null;
  return (
    <div className={`panel foreign ${classes.advice}`} role={tone === 'bad' ? 'alert' : 'status'}>
      <strong className={tone}>{text}</strong>
      {advice && <span>{advice}</span>}
    </div>
  );
}

function Warnings({ document }: { document: Document }) {
  const words = useWords(documentWords);
  const warnings = document.warnings ?? [];
  if (warnings.length === 0) return null;
  return (
    <section className={`panel ${classes.advice}`}>
      <Title order={2}>{words.warnings}</Title>
      <ul className={classes.plain}>
        {warnings.map((warning) => {
          const page = /\bpage (\d+)\b/i.exec(warning.detail)?.[1];
          return (
            <li key={`${warning.code} ${warning.detail}`}>
              <State tone="warn" label="" />
              <span className="foreign">{warning.detail}</span>{' '}
              <code className="muted">{warning.code}</code>{' '}
              {page && (
                <Anchor
                  component={Link}
                  inherit
                  to="/documents/$document/$tab"
                  params={{ document: document.document_id, tab: 'pages' } as never}
                  search={{ page } as never}
                >
                  {words.page(page)}
                </Anchor>
              )}
            </li>
          );
        })}
      </ul>
    </section>
  );
}

function Facts({ document }: { document: Document }) {
  const words = useWords(documentWords);
  const format = useFormat();
  const text = (value: string | null | undefined, isCode = false) =>
    value && <span className={`foreign ${isCode ? 'mono' : ''}`}>{value}</span>;
  const count = (value: number | null | undefined) => (value ? format.count(value) : null);
  const { revision, visible_revision: visible, readers } = document;
  const values: Record<keyof typeof words.fields, ReactNode> = {
    filename: text(document.filename),
    title: document.title !== document.filename && text(document.title),
    media_type: text(document.media_type, true),
    bytes: document.bytes !== null && format.bytes(document.bytes),
    pages: count(document.pages),
    characters: count(document.characters),
    chunks: count(document.chunks_count),
    tokens: count(document.tokens_estimate),
    language: text(document.language, true),
    document_date: text(document.document_date),
    collection: document.collection && (
      <Anchor
        component={Link}
        inherit
        className="foreign"
        to="/documents"
        search={{ collection: document.collection } as never}
      >
        {document.collection}
      </Anchor>
    ),
    tags: document.tags.length > 0 && (
      <span className={classes.tags}>
        {document.tags.map((tag) => (
          <Link
            key={tag}
            to="/documents"
            search={{ tag } as never}
            className={`${classes.tag} foreign`}
          >
            {tag}
          </Link>
        ))}
      </span>
    ),
    readers: readers && text(readers.length > 0 ? readers.join(', ') : words.restricted),
    metadata: Object.keys(document.metadata).length > 0 && (
      <pre className="mono foreign" style={{ margin: 0, whiteSpace: 'pre-wrap' }}>
        {JSON.stringify(document.metadata, null, 2)}
      </pre>
    ),
    revision:
      visible === revision
        ? format.count(revision)
        : words.revisionOf(
            format.count(revision),
            visible === null ? words.notVisible : format.count(visible),
          ),
    received_at: document.received_at && (
      <>
        {format.exact(document.received_at)}{' '}
        <span className="muted">
          <Ago time={document.received_at} />
        </span>
      </>
    ),
    source: text(document.source, true),
    source_uri: text(document.source_uri, true),
    external_id: text(document.external_id, true),
    content_sha256: text(document.content_sha256, true),
    document_id: text(document.document_id, true),
    ingestion_job_id: text(document.ingestion_job_id, true),
  };
  return (
    <dl className={`panel ${classes.facts}`}>
      {Object.entries(values)
        .filter(([, value]) => value)
        .map(([name, value]) => (
          <Fragment key={name}>
            <dt>{words.fields[name as keyof typeof words.fields]}</dt>
            <dd>{value}</dd>
          </Fragment>
        ))}
    </dl>
  );
}

const TONES = {
  done: 'ok',
  running: 'busy',
  stalled: 'warn',
  waiting: 'idle',
  failed: 'bad',
  skipped: 'idle',
} as const;

function Stages({ document, now }: { document: Document; now: number }) {
  const words = useWords(documentWords).stages;
  const states = useWords(stateWords);
  const format = useFormat();
  const order = STRIP.flat() as string[];
  const lines = document.stages.toSorted(
    (one, other) => order.indexOf(one.stage) - order.indexOf(other.stage),
  );
  const stateOf = (line: StageLine) =>
    isStalled(line, now) ? 'stalled' : (line.state as keyof typeof TONES);
  return (
    <section
      className="panel"
      style={{ alignSelf: 'start', overflowX: 'auto' }}
      tabIndex={0}
      aria-label={words.title}
    >
      <table className={classes.stages}>
        <caption>{words.title}</caption>
        <thead>
          <tr>
            <th scope="col">{words.stage}</th>
            <th scope="col">{words.state}</th>
            <th scope="col" className="num">
              {words.duration}
            </th>
            <th scope="col">{words.position}</th>
          </tr>
        </thead>
        <tbody>
          {lines.map((line) => (
            <tr key={line.stage}>
              <th scope="row">{states.stages[line.stage as StageName] ?? line.stage}</th>
              <td>
                <State tone={TONES[stateOf(line)]} label={states.dots[stateOf(line)]} />
                {line.attempts > 1 && (
                  <span className="muted"> × {format.count(line.attempts)}</span>
                )}
              </td>
              <td className="num">
                {line.duration_ms !== null && format.duration(line.duration_ms)}
              </td>
              <td className="mono muted">
                {line.topic && `${line.topic}[${line.partition}]@${line.offset}`}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
