import type { Schemas } from '@/shared/api/client';

export type Node = Schemas['Node'];
export type Edge = Schemas['Edge'];
export type Subgraph = { nodes: Node[]; edges: Edge[] };

export const EMPTY: Subgraph = { nodes: [], edges: [] };

export function edgeKey(edge: Edge): string {
  return `${edge.subject_id} ${edge.type} ${edge.object_id}`;
}

export function mergeSubgraphs(parts: readonly Subgraph[]): Subgraph {
  const nodes = new Map(parts.flatMap((part) => part.nodes.map((node) => [node.id, node])));
  const edges = new Map(parts.flatMap((part) => part.edges.map((edge) => [edgeKey(edge), edge])));
  return { nodes: [...nodes.values()], edges: [...edges.values()] };
}

/** Without the nodes that the reader removed and without the types that are switched off. */
export function pruneSubgraph(
  graph: Subgraph,
  removed: ReadonlySet<string>,
  hiddenTypes: ReadonlySet<string>,
): Subgraph {
  const nodes = graph.nodes.filter((node) => !removed.has(node.id) && !hiddenTypes.has(node.type));
  const ids = new Set(nodes.map((node) => node.id));
  return {
    nodes,
    edges: graph.edges.filter((edge) => ids.has(edge.subject_id) && ids.has(edge.object_id)),
  };
}

/** The shortest path between two nodes, in either direction of each edge; null if there is none. */
export function findPath(graph: Subgraph, from: string, to: string): Edge[] | null {
  const edgesOf = new Map<string, Edge[]>();
  for (const edge of graph.edges) {
    for (const id of [edge.subject_id, edge.object_id]) {
      edgesOf.set(id, [...(edgesOf.get(id) ?? []), edge]);
    }
  }
  const reachedBy = new Map<string, Edge | null>([[from, null]]);
  const queue = [from];
  for (const id of queue) {
    if (id === to) break;
    for (const edge of edgesOf.get(id) ?? []) {
      const next = otherEnd(edge, id);
      if (!reachedBy.has(next)) {
        reachedBy.set(next, edge);
        queue.push(next);
      }
    }
  }
  if (!reachedBy.has(to)) return null;
  const path: Edge[] = [];
  for (let at = to, edge = reachedBy.get(at); edge; edge = reachedBy.get(at)) {
    path.unshift(edge);
    at = otherEnd(edge, at);
  }
  return path;
}

export function otherEnd(edge: Edge, id: string): string {
  return edge.subject_id === id ? edge.object_id : edge.subject_id;
}

const TYPE_COLORS: Record<string, string> = {
  PERSON: '--semantic',
  ORG: '--accent',
  LOC: '--graph',
  GPE: '--graph',
  DATE: '--lexical',
  MONEY: '--ok',
  EVENT: '--bad',
};
const OTHER_COLORS = ['--warn', '--ok', '--lexical', '--bad'];

/** The token that colors a type; any name has one, since extractors may be configured. */
export function typeColor(type: string): string {
  const known = TYPE_COLORS[type];
  if (known !== undefined) return known;
  const sum = [...type].reduce((total, character) => total + (character.codePointAt(0) ?? 0), 0);
  return OTHER_COLORS[sum % OTHER_COLORS.length] ?? '--muted';
}

/** `represented_by` is read as "represented by". */
export function relationLabel(type: string): string {
  return type.replaceAll('_', ' ');
}
