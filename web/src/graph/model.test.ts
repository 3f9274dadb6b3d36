import { describe, expect, it } from 'vitest';
import { type Edge, findPath, mergeSubgraphs, pruneSubgraph, typeColor } from './model';

const node = (id: string, type = 'ORG') => ({ id, type, name: id, mentions: 1 });
const edge = (subject_id: string, object_id: string, type = 'owns'): Edge => ({
  subject_id,
  object_id,
  type,
  weight: 1,
  documents: 1,
  chunk_id: 'c',
});
const graph = {
  nodes: ['a', 'b', 'c', 'd', 'alone'].map((id) => node(id, id === 'c' ? 'LOC' : 'ORG')),
  edges: [edge('a', 'b'), edge('c', 'b'), edge('c', 'd'), edge('a', 'd', 'near')],
};

describe('findPath', () => {
  it('takes the shortest way, against the direction of an edge too', () => {
    expect(findPath(graph, 'b', 'd')?.map((one) => one.type)).toHaveLength(2);
    expect(findPath(graph, 'a', 'c')).toHaveLength(2);
    expect(findPath(graph, 'd', 'a')).toEqual([edge('a', 'd', 'near')]);
  });

  it('is empty from a node to itself and null where there is no way', () => {
    expect(findPath(graph, 'a', 'a')).toEqual([]);
    expect(findPath(graph, 'a', 'alone')).toBeNull();
    expect(findPath(graph, 'a', 'unknown')).toBeNull();
  });
});

it('prunes nodes and types with their edges', () => {
  const pruned = pruneSubgraph(graph, new Set(['a']), new Set(['LOC']));
  expect(pruned.nodes.map((one) => one.id)).toEqual(['b', 'd', 'alone']);
  expect(pruned.edges).toEqual([]);
});

it('merges parts without repeating nodes and edges', () => {
  const merged = mergeSubgraphs([
    graph,
    { nodes: [node('a'), node('z')], edges: [edge('a', 'b')] },
  ]);
  expect(merged.nodes).toHaveLength(6);
  expect(merged.edges).toHaveLength(4);
});

it('has a color for every type', () => {
  for (const type of ['PERSON', 'MISC', '', 'Größe', '<script>'])
    expect(typeColor(type)).toMatch(/^--/);
});
