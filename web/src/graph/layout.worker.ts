import Graph from 'graphology';
import forceAtlas2 from 'graphology-layout-forceatlas2';

/** A layout to continue from `positions`, which has x and y of each node. */
export type LayoutRequest = {
  positions: Float64Array;
  sizes: number[];
  /** Pairs of places in `sizes`. */
  edges: [number, number][];
};
export type LayoutReply = { positions: Float64Array; isDone: boolean };

const STEPS = 40;
const MAX_ITERATIONS = 600;

// A file of its own instead of the package's worker, which the content security policy forbids: it
// runs from a blob.
self.onmessage = ({ data }: MessageEvent<LayoutRequest>) => {
  const graph = new Graph({ multi: false, type: 'undirected' });
  data.sizes.forEach((size, node) => {
    graph.addNode(node, {
      x: data.positions[2 * node],
      y: data.positions[2 * node + 1],
      size,
    });
  });
  for (const [source, target] of data.edges) {
    if (source !== target && !graph.hasEdge(source, target)) graph.addEdge(source, target);
  }
  const settings = {
    ...forceAtlas2.inferSettings(graph),
    adjustSizes: true,
    gravity: 1,
    scalingRatio: 24,
    slowDown: 4,
  };
  const iterations = Math.max(100, Math.min(MAX_ITERATIONS, 60_000 / Math.max(1, graph.order)));
  for (let step = 1; step <= STEPS; step += 1) {
    forceAtlas2.assign(graph, { iterations: Math.ceil(iterations / STEPS), settings });
    const positions = new Float64Array(2 * graph.order);
    graph.forEachNode((node, { x, y }) => {
      positions[2 * Number(node)] = x;
      positions[2 * Number(node) + 1] = y;
    });
    const reply: LayoutReply = { positions, isDone: step === STEPS };
    self.postMessage(reply);
  }
};
