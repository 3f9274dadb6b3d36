import type { Schemas } from '@/shared/api/client';

export type Hop = Schemas['Hop'];
export type LogEntry = Schemas['LogEntry'];
export type NodeName =
  | 'file'
  | 'received'
  | 'accepted'
  | 'transcribed'
  | 'chunked'
  | 'embedded'
  | 'entities'
  | 'visible'
  | 'graph';

/** A step of the way from the file to the rows; one with several parts has several hops. */
export type LineageNode = {
  name: NodeName;
  /** Its place in the drawing: the way forks after `chunked`. */
  column: number;
  lane: 0 | 1 | 2;
  hops: Hop[];
  /** null where nothing was to be checked, as of rows. */
  verified: boolean | null;
};

const TRUNK = [
  ['file', 'blob'],
  ['received', 'received'],
  ['accepted', 'accepted'],
  ['transcribed', 'transcribed'],
  ['chunked', 'chunked'],
] as const;

/** Where the branch of entities has its events from: the lineage of the API follows vectors. */
export type Rows = { isVisible: boolean; graph: Schemas['StageStatus'] | undefined };

export function toNodes(
  hops: readonly Hop[],
  entityEvents: readonly LogEntry[],
  rows: Rows,
): LineageNode[] {
  const node = (name: NodeName, column: number, lane: 0 | 1 | 2, own: Hop[]): LineageNode => ({
    name,
    column,
    lane,
    hops: own,
    verified: own.length === 0 ? null : own.every((hop) => hop.verified !== false),
  });
  const named = (name: string) => hops.filter((hop) => hop.name === name);
  const nodes = TRUNK.map(([name, hop], column) => node(name, column, 0, named(hop))).filter(
    (one) => one.hops.length > 0,
  );
  const chunked = new Set(named('chunked').map((hop) => hop.event?.id));
  const entities = entityEvents
    .filter((event) => chunked.has(event.cause ?? ''))
    .map(
      (event): Hop => ({
        name: 'chunked',
        place: `${event.topic}[${event.partition}]@${event.offset}`,
        verified: null,
        detail: '',
        event: toLogEvent(event),
        sha256: null,
      }),
    );
  const embedded = named('embedded');
  if (embedded.length > 0) nodes.push(node('embedded', 5, 1, embedded));
  if (entities.length > 0) nodes.push({ ...node('entities', 5, 2, entities), verified: null });
  if (rows.isVisible) nodes.push(node('visible', 6, 1, []));
  if (entities.length > 0 && rows.graph?.state === 'done') nodes.push(node('graph', 6, 2, []));
  return nodes;
}

/** Lists of events name the author `source`; what lacks id or type cannot be an entity event. */
function toLogEvent({ source, id, type, ...entry }: LogEntry): Schemas['LogEvent'] {
  return { ...entry, id: id ?? '', type: type ?? '', author: source ?? '' };
}
