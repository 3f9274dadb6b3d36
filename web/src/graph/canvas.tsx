import { useComputedColorScheme } from '@mantine/core';
import { useReducedMotion } from '@mantine/hooks';
import { DirectedGraph } from 'graphology';
import { useEffect, useRef } from 'react';
import Sigma from 'sigma';
import type { NodeHoverDrawingFunction } from 'sigma/rendering';
import classes from './graph.module.css';
import type { LayoutReply, LayoutRequest } from './layout.worker';
import { type Edge, type Node, relationLabel, type Subgraph, typeColor } from './model';

type NodeAttributes = { x: number; y: number; size: number; label: string; token: string };
type EdgeAttributes = { label: string; edges: Edge[] };
type Drawing = DirectedGraph<NodeAttributes, EdgeAttributes>;

export type CanvasProps = {
  graph: Subgraph;
  selected: string | undefined;
  path: readonly Edge[] | null;
  label: string;
  onSelect: (id: string | undefined) => void;
  onExpand: (id: string) => void;
};

// Above it only the edges of the chosen entity and of the path have labels: more cover one another.
const MAX_EDGE_LABELS = 16;

/** The graph as WebGL draws it. The table beside it says the same in words. */
export function GraphCanvas(props: CanvasProps) {
  const { graph, label } = props;
  const container = useRef<HTMLDivElement>(null);
  const drawing = useRef<Drawing>(new DirectedGraph());
  const renderer = useRef<Sigma<NodeAttributes, EdgeAttributes> | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const isStill = useReducedMotion();
  const scheme = useComputedColorScheme('light');

  useEffect(() => {
    if (container.current === null) return;
    const sigma = createRenderer(drawing.current, container.current, latest);
    renderer.current = sigma;
    return () => {
      renderer.current = null;
      sigma.kill();
    };
  }, []);

  // biome-ignore lint/correctness/useExhaustiveDependencies: the colors change with the theme.
  useEffect(() => {
    // The attribute of the theme is set after this effect.
    const frame = requestAnimationFrame(() => {
      const sigma = renderer.current;
      if (sigma === null) return;
      sigma.setSetting('labelColor', { color: token('--text') });
      sigma.setSetting('edgeLabelColor', { color: token('--muted') });
    });
    return () => cancelAnimationFrame(frame);
  }, [scheme]);

  useEffect(() => {
    update(drawing.current, graph);
    return layOut(drawing.current, isStill);
  }, [graph, isStill]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: read by the reducers of the drawing.
  useEffect(() => {
    renderer.current?.refresh({ skipIndexation: true });
  }, [props.selected, props.path]);

  return <div ref={container} className={classes.canvas} role="img" aria-label={label} />;
}

function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function createRenderer(
  drawing: Drawing,
  container: HTMLElement,
  latest: { current: CanvasProps },
): Sigma<NodeAttributes, EdgeAttributes> {
  const isOnPath = (edge: Edge) => latest.current.path?.includes(edge) ?? false;
  const isPathNode = (id: string) =>
    latest.current.path?.some((edge) => edge.subject_id === id || edge.object_id === id) ?? false;
  const sigma = new Sigma<NodeAttributes, EdgeAttributes>(drawing, container, {
    allowInvalidContainer: true,
    defaultEdgeType: 'arrow',
    labelFont: 'system-ui, sans-serif',
    labelSize: 13,
    labelWeight: '400',
    labelColor: { color: token('--text') },
    labelRenderedSizeThreshold: 3,
    renderEdgeLabels: true,
    edgeLabelFont: 'system-ui, sans-serif',
    edgeLabelSize: 11,
    edgeLabelColor: { color: token('--muted') },
    stagePadding: 48,
    minCameraRatio: 0.05,
    maxCameraRatio: 4,
    zIndex: true,
    defaultDrawNodeHover: drawHover,
    nodeReducer: (id, data) => {
      const isSelected = id === latest.current.selected;
      const isMarked = isSelected || isPathNode(id);
      return {
        x: data.x,
        y: data.y,
        label: data.label,
        size: isSelected ? data.size + 4 : data.size,
        color: token(data.token),
        forceLabel: isMarked,
        highlighted: isSelected,
        zIndex: isMarked ? 1 : 0,
      };
    },
    edgeReducer: (_, data) => {
      const isMarked = data.edges.some(isOnPath);
      const { selected } = latest.current;
      const isNear = data.edges.some(
        (edge) => edge.subject_id === selected || edge.object_id === selected,
      );
      return {
        label: isMarked || isNear || drawing.size <= MAX_EDGE_LABELS ? data.label : null,
        size: isMarked ? 4 : 2,
        color: token(isMarked ? '--accent' : '--line-strong'),
        forceLabel: isMarked,
        zIndex: isMarked ? 1 : 0,
      };
    },
  });
  sigma.on('clickNode', ({ node }) => latest.current.onSelect(node));
  sigma.on('clickStage', () => latest.current.onSelect(undefined));
  sigma.on('doubleClickNode', (event) => {
    event.preventSigmaDefault();
    latest.current.onExpand(event.node);
  });
  return sigma;
}

/** The name on a card, in the colors of the theme instead of sigma's white. */
const drawHover: NodeHoverDrawingFunction<NodeAttributes, EdgeAttributes> = (
  context,
  data,
  settings,
) => {
  context.font = `600 ${settings.labelSize}px ${settings.labelFont}`;
  const width = data.label ? context.measureText(data.label).width + 12 : 0;
  const height = settings.labelSize + 10;
  context.beginPath();
  context.roundRect(data.x - 2, data.y - height / 2, data.size + width + 6, height, 6);
  context.fillStyle = token('--panel');
  context.fill();
  context.strokeStyle = token('--line-strong');
  context.stroke();
  context.beginPath();
  context.arc(data.x, data.y, data.size + 3, 0, 2 * Math.PI);
  context.fillStyle = token('--accent');
  context.fill();
  context.fillStyle = token('--text');
  if (data.label)
    context.fillText(data.label, data.x + data.size + 6, data.y + settings.labelSize / 3);
};

/** Bring the drawing to these nodes and edges; those that stay keep their places. */
function update(drawing: Drawing, graph: Subgraph): void {
  const ids = new Set(graph.nodes.map((node) => node.id));
  drawing.forEachNode((id) => {
    if (!ids.has(id)) drawing.dropNode(id);
  });
  const most = Math.max(1, ...graph.nodes.map((node) => node.mentions));
  graph.nodes.forEach((node, index) => {
    const look = {
      label: node.name,
      token: typeColor(node.type),
      size: 5 + 11 * Math.sqrt(node.mentions / most),
    };
    if (drawing.hasNode(node.id)) drawing.mergeNodeAttributes(node.id, look);
    else drawing.addNode(node.id, { ...look, ...startPlace(drawing, graph, node, index) });
  });
  drawing.clearEdges();
  const byEnds = new Map<string, Edge[]>();
  for (const edge of graph.edges) {
    if (edge.subject_id === edge.object_id) continue;
    // One line for both directions: two would lie on each other.
    const ends = [edge.subject_id, edge.object_id].sort().join(' ');
    byEnds.set(ends, [...(byEnds.get(ends) ?? []), edge]);
  }
  for (const edges of byEnds.values()) {
    const [first] = edges;
    if (first === undefined) continue;
    const label = [...new Set(edges.map((edge) => relationLabel(edge.type)))].join(', ');
    drawing.addEdge(first.subject_id, first.object_id, { label, edges });
  }
}

/** Near a neighbor that has a place, or on a spiral: the same every time. */
function startPlace(drawing: Drawing, graph: Subgraph, node: Node, index: number) {
  const angle = index * 2.4;
  const radius = 3 + Math.sqrt(index) * 3;
  const edge = graph.edges.find(
    (one) =>
      (one.subject_id === node.id && drawing.hasNode(one.object_id)) ||
      (one.object_id === node.id && drawing.hasNode(one.subject_id)),
  );
  const neighbor = edge && (edge.subject_id === node.id ? edge.object_id : edge.subject_id);
  const center = neighbor ? drawing.getNodeAttributes(neighbor) : { x: 0, y: 0 };
  return { x: center.x + radius * Math.cos(angle), y: center.y + radius * Math.sin(angle) };
}

/** Run the layout in a worker; returns how to stop it. */
function layOut(drawing: Drawing, isStill: boolean): () => void {
  if (drawing.order < 2) return () => {};
  const worker = new Worker(new URL('./layout.worker.ts', import.meta.url), { type: 'module' });
  const ids = drawing.nodes();
  const places = new Map(ids.map((id, place) => [id, place]));
  const request: LayoutRequest = {
    positions: new Float64Array(
      ids.flatMap((id) => [drawing.getNodeAttribute(id, 'x'), drawing.getNodeAttribute(id, 'y')]),
    ),
    sizes: ids.map((id) => drawing.getNodeAttribute(id, 'size')),
    edges: drawing.mapEdges((_, __, source, target) => [
      places.get(source) ?? 0,
      places.get(target) ?? 0,
    ]),
  };
  worker.onmessage = ({ data }: MessageEvent<LayoutReply>) => {
    if (!isStill || data.isDone) {
      drawing.updateEachNodeAttributes((id, attributes) => {
        const place = places.get(id) ?? 0;
        return {
          ...attributes,
          x: data.positions[2 * place] ?? attributes.x,
          y: data.positions[2 * place + 1] ?? attributes.y,
        };
      });
    }
    if (data.isDone) worker.terminate();
  };
  worker.postMessage(request);
  return () => worker.terminate();
}
