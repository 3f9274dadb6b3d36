import { Anchor, Button, Group, Stack, UnstyledButton } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { Fragment, type ReactNode } from 'react';
import { useAddress } from '@/shared/address';
import { api, call, fetchRaw, type Schemas } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { State, type Tone } from '@/shared/ui/bits';
import { Command, EmptyState, QueryState } from '@/shared/ui/states';
import { saveFile } from './document-actions';
import { documentWords } from './document-words';
import classes from './documents.module.css';
import { type Hop, type LineageNode, toNodes } from './lineage';
import { documentKey } from './use-documents';

type Document = Schemas['DocumentStatus'];

/** From the file through every event to the rows that queries read; each step opens. */
export function LineageTab({ document }: { document: Document }) {
  const words = useWords(documentWords).lineage;
  const id = document.document_id;
  const query = useQuery({
    queryKey: [...documentKey(id), 'lineage'],
    queryFn: async () => {
      const path = { document: id };
      const [lineage, events] = await Promise.all([
        call(api.GET('/v1/documents/{document}/lineage', { params: { path } })),
        call(
          api.GET('/v1/events', {
            params: { query: { document: id, topics: 'entities', limit: 500 } },
          }),
        ),
      ]);
      return { lineage: lineage as Schemas['DocumentLineage'], entities: events.items };
    },
    enabled: document.revision > 0,
  });
  if (document.revision === 0) return <EmptyState title={words.missing} />;
  return (
    <QueryState query={query} rows={6}>
      {({ lineage, entities }) => (
        <Lineage document={document} lineage={lineage} entities={entities} />
      )}
    </QueryState>
  );
}

function Lineage({
  document,
  lineage,
  entities,
}: {
  document: Document;
  lineage: Schemas['DocumentLineage'];
  entities: Schemas['LogEntry'][];
}) {
  const words = useWords(documentWords).lineage;
  const format = useFormat();
  const [address, setAddress] = useAddress();
  const nodes = toNodes(lineage.hops, entities, {
    isVisible: document.visible_revision === lineage.revision,
    graph: document.stages.find((line) => line.stage === 'graph'),
  });
  const chosen = nodes.find((node) => node.name === address.step);
  const download = async () => {
    const response = await fetchRaw(`/v1/documents/${document.document_id}/lineage?format=prov`);
    saveFile(new File([await response.blob()], `${document.document_id}.prov.json`));
  };
  return (
    <Stack gap="md">
      <Group gap="md" justify="space-between">
        <State
          tone={lineage.verified ? 'ok' : 'bad'}
          label={
            lineage.verified ? words.verified : words.broken(format.count(lineage.broken.length))
          }
        />
        <Button variant="default" onClick={() => void download()}>
          {words.prov}
        </Button>
      </Group>
      {lineage.broken.map((step) => (
        <span key={step} className="bad foreign">
          {step}
        </span>
      ))}
      <ol className={classes.lineage} aria-label={words.steps}>
        {nodes.map((node) => (
          <li
            key={node.name}
            className={classes.node}
            data-lane={node.lane}
            data-column={node.column}
            style={{ gridColumn: node.column + 1, gridRow: node.lane === 0 ? '1 / 3' : node.lane }}
          >
            <Step
              node={node}
              document={document}
              lineage={lineage}
              isOpen={chosen === node}
              onOpen={() =>
                setAddress({ step: chosen === node ? undefined : node.name }, { replace: true })
              }
            />
          </li>
        ))}
      </ol>
      {chosen && <Details node={chosen} />}
      <Twin nodes={nodes} />
      <Command text={`anabranch documents lineage ${document.document_id}`} />
    </Stack>
  );
}

function toneOf(verified: boolean | null): Tone {
  return verified === null ? 'idle' : verified ? 'ok' : 'bad';
}

function Step({
  node,
  document,
  lineage,
  isOpen,
  onOpen,
}: {
  node: LineageNode;
  document: Document;
  lineage: Schemas['DocumentLineage'];
  isOpen: boolean;
  onOpen: () => void;
}) {
  const words = useWords(documentWords).lineage;
  const format = useFormat();
  const [first] = node.hops;
  const time = first?.event?.appended_at;
  const label = node.verified === null ? words.unknown : node.verified ? words.yes : words.no;
  const content = (
    <>
      <strong>{words.names[node.name]}</strong>
      <span className="mono foreign truncate">{say()}</span>
      <span className="muted truncate">
        {time
          ? format.clock(time)
          : document.visible_revision && node.hops.length === 0
            ? lineage.generation && words.generation(lineage.generation)
            : ' '}
      </span>
      {node.hops.length > 0 && (
        <span className={classes.verdict} title={label}>
          <State tone={toneOf(node.verified)} label="" />
        </span>
      )}
    </>
  );
  // Rows have no event of their own.
  if (node.hops.length === 0) return <div className={`panel ${classes.step}`}>{content}</div>;
  return (
    <UnstyledButton
      className={`panel ${classes.step}`}
      aria-expanded={isOpen}
      title={words.open}
      onClick={onOpen}
    >
      {content}
    </UnstyledButton>
  );

  function say(): string {
    if (node.name === 'file') return `${lineage.content_sha256.slice(0, 8)}…`;
    if (node.name === 'visible') return words.rows(format.count(document.chunks_count ?? 0));
    if (first === undefined) return ' ';
    if (node.hops.length > 1) return words.events(format.count(node.hops.length));
    return first.event ? `${first.event.topic}@${first.event.offset}` : first.place;
  }
}

/** Everything that is known of a step: what was checked, its event, its position. */
function Details({ node }: { node: LineageNode }) {
  const words = useWords(documentWords).lineage;
  return (
    <Stack gap="sm" role="region" aria-label={words.names[node.name]}>
      {node.hops.map((hop) => (
        <HopDetails key={`${hop.place} ${hop.event?.id}`} hop={hop} />
      ))}
    </Stack>
  );
}

function HopDetails({ hop }: { hop: Hop }) {
  const words = useWords(documentWords).lineage;
  const format = useFormat();
  const event = hop.event ?? null;
  const code = (text: string | null | undefined) =>
    text && <span className="mono foreign">{text}</span>;
  const values: Record<keyof typeof words.fields, ReactNode> = {
    detail: hop.detail && <span className="foreign">{hop.detail}</span>,
    place: event ? null : code(hop.place),
    type: code(event?.type),
    id: code(event?.id),
    position: event && code(`${event.topic}, ${event.partition}, ${event.offset}`),
    time: event?.time && format.exact(event.time),
    appended_at: event?.appended_at && format.exact(event.appended_at),
    author: code(event?.author),
    how: code(event?.how),
    cause: code(event?.cause),
    sha256: code(hop.sha256),
  };
  return (
    <div className="panel">
      <dl className={classes.facts}>
        {Object.entries(values)
          .filter(([, value]) => value)
          .map(([name, value]) => (
            <Fragment key={name}>
              <dt>{words.fields[name as keyof typeof words.fields]}</dt>
              <dd>{value}</dd>
            </Fragment>
          ))}
      </dl>
      {event && (
        <p style={{ margin: 0, padding: '0 12px 12px' }}>
          <Anchor
            component={Link}
            inherit
            to="/events"
            search={{ topics: event.topic, event: event.id ?? undefined } as never}
          >
            {words.inLog}
          </Anchor>
        </p>
      )}
    </div>
  );
}

/** The same as a table, for readers who do not see the drawing. */
function Twin({ nodes }: { nodes: LineageNode[] }) {
  const words = useWords(documentWords).lineage;
  const format = useFormat();
  return (
    <details className={classes.twin}>
      <summary>{words.asTable}</summary>
      <section
        className="panel"
        style={{ overflowX: 'auto' }}
        tabIndex={0}
        aria-label={words.steps}
      >
        <table className={classes.stages}>
          <thead>
            <tr>
              <th scope="col">{words.step}</th>
              <th scope="col">{words.fields.position}</th>
              <th scope="col">{words.fields.appended_at}</th>
              <th scope="col">{words.fields.author}</th>
              <th scope="col">{words.fields.how}</th>
              <th scope="col">{words.yes}</th>
            </tr>
          </thead>
          <tbody>
            {nodes.flatMap((node) =>
              node.hops.map((hop) => (
                <tr key={`${node.name} ${hop.place}`}>
                  <th scope="row">{words.names[node.name]}</th>
                  <td className="mono foreign">{hop.place}</td>
                  <td>{hop.event && format.exact(hop.event.appended_at)}</td>
                  <td className="mono foreign">{hop.event?.author}</td>
                  <td className="mono">{hop.event?.how}</td>
                  <td>
                    <State
                      tone={toneOf(hop.verified)}
                      label={
                        hop.verified === null ? words.unknown : hop.verified ? words.yes : words.no
                      }
                    />
                  </td>
                </tr>
              )),
            )}
          </tbody>
        </table>
      </section>
    </details>
  );
}
