import { Button, SegmentedControl, Text } from '@mantine/core';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { lazy, Suspense, useMemo } from 'react';
import { appWords } from '@/app/words';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Page } from '@/shared/ui/page';
import { EmptyState, LoadingState, QueryState } from '@/shared/ui/states';
import { DataTable } from '@/shared/ui/table';
import { MAX_NODES, useEntities, useRunSeeds, useSubgraph } from './data';
import { EntityPanel } from './entity-panel';
import { EntitySearch } from './entity-search';
import classes from './graph.module.css';
import { GraphTable } from './graph-table';
import { EMPTY, findPath, mergeSubgraphs, pruneSubgraph } from './model';
import { TypeDot } from './type-dot';
import { graphWords } from './words';

// WebGL and the layout are loaded with the first graph.
const GraphCanvas = lazy(() => import('./canvas').then((m) => ({ default: m.GraphCanvas })));

const toList = (text: string | undefined) => text?.split(',').filter(Boolean) ?? [];
const toText = (list: readonly string[]) => (list.length > 0 ? list.join(',') : undefined);

/** Entities and their relations, from a few starts: a search, a run, or those named most often. */
export function GraphPage() {
  const words = useWords(graphWords);
  const screens = useWords(appWords).screens;
  const search = useSearch({ strict: false }) as Record<string, string | undefined>;
  const navigate = useNavigate();
  const set = (changed: Record<string, string | undefined>) =>
    void navigate({ to: '/graph', search: { ...search, ...changed } });
  const run = useRunSeeds(search.run);
  const seeds = search.seed === undefined ? (run.data ?? []) : toList(search.seed);
  const start = (id: string) =>
    set({ seed: toText([...new Set([...seeds, id])]), entity: id, to: undefined });
  const isEmpty = seeds.length === 0 && !(search.run !== undefined && run.isPending);
  return (
    <Page
      title={screens.graph}
      subtitle={
        search.run !== undefined && (
          <>
            {words.fromRun}{' '}
            <Link to="/runs/$run" params={{ run: search.run }}>
              {search.run.slice(0, 8)}
            </Link>
          </>
        )
      }
      actions={
        <>
          <EntitySearch onPick={(entity) => start(entity.id)} />
          <SegmentedControl
            aria-label={words.view}
            value={search.view === 'table' ? 'table' : 'graph'}
            onChange={(view) => set({ view: view === 'table' ? view : undefined })}
            data={[
              { value: 'graph', label: words.graph },
              { value: 'table', label: words.table },
            ]}
          />
        </>
      }
    >
      {search.run !== undefined && run.isError ? (
        <QueryState query={run}>{() => null}</QueryState>
      ) : isEmpty ? (
        <Start isRun={search.run !== undefined} onPick={start} />
      ) : (
        <Graph search={search} seeds={seeds} set={set} onExpand={start} />
      )}
    </Page>
  );
}

/** Never everything at once: the entities that are named most often, to start from. */
function Start({ isRun, onPick }: { isRun: boolean; onPick: (id: string) => void }) {
  const words = useWords(graphWords);
  const format = useFormat();
  const entities = useEntities('', 25);
  return (
    <QueryState query={entities} rows={10}>
      {({ items }) =>
        items.length === 0 ? (
          <EmptyState
            title={words.noEntities}
            action={
              <Button renderRoot={(props) => <Link {...props} to="/documents" />}>
                {words.addDocuments}
              </Button>
            }
            command="anabranch ingest ./folder"
          />
        ) : (
          <>
            {isRun && <Text>{words.noRunEntities}</Text>}
            <Text>{words.start}</Text>
            <DataTable
              label={words.entities}
              rows={items}
              rowKey={(entity) => entity.id}
              onOpen={(entity) => onPick(entity.id)}
              columns={[
                {
                  key: 'name',
                  label: words.entity,
                  cell: (entity) => <span className="foreign">{entity.name}</span>,
                },
                {
                  key: 'type',
                  label: words.type,
                  cell: (entity) => (
                    <span>
                      <TypeDot type={entity.type} /> {entity.type}
                    </span>
                  ),
                },
                {
                  key: 'mentions',
                  label: words.mentions,
                  isNumber: true,
                  cell: (entity) => format.count(entity.mentions),
                },
              ]}
            />
          </>
        )
      }
    </QueryState>
  );
}

type GraphProps = {
  search: Record<string, string | undefined>;
  seeds: string[];
  set: (changed: Record<string, string | undefined>) => void;
  onExpand: (id: string) => void;
};

function Graph({ search, seeds, set, onExpand }: GraphProps) {
  const words = useWords(graphWords);
  const format = useFormat();
  const { entity, to } = search;
  const ends = useMemo(
    () => (entity !== undefined && to !== undefined ? ([entity, to] as const) : null),
    [entity, to],
  );
  const { around, reach, isSearching } = useSubgraph(seeds, ends);
  const removed = useMemo(() => new Set(toList(search.without)), [search.without]);
  const hiddenTypes = useMemo(() => new Set(toList(search.types)), [search.types]);
  const path = useMemo(
    () => (reach && entity && to ? findPath(reach, entity, to) : null),
    [reach, entity, to],
  );
  const loaded = useMemo(() => {
    const parts = [around.data ?? EMPTY];
    if (reach && path) {
      const ids = new Set(path.flatMap((edge) => [edge.subject_id, edge.object_id]));
      parts.push({ nodes: reach.nodes.filter((node) => ids.has(node.id)), edges: path });
    }
    return mergeSubgraphs(parts);
  }, [around.data, reach, path]);
  const shown = useMemo(
    () => pruneSubgraph(loaded, removed, hiddenTypes),
    [loaded, removed, hiddenTypes],
  );
  const types = [...new Set(loaded.nodes.map((node) => node.type))].sort();
  const toggleType = (type: string) =>
    set({
      types: toText(
        hiddenTypes.has(type)
          ? [...hiddenTypes].filter((one) => one !== type)
          : [...hiddenTypes, type],
      ),
    });
  const select = (id: string | undefined) => {
    const isNew = id !== undefined && !loaded.nodes.some((node) => node.id === id);
    set({ entity: id, to: undefined, ...(isNew ? { seed: toText([...seeds, id]) } : {}) });
  };
  const count = (value: number) => format.count(value);
  return (
    <>
      <div className={classes.bar}>
        {types.map((type) => (
          <button
            key={type}
            type="button"
            className={classes.type}
            aria-pressed={!hiddenTypes.has(type)}
            onClick={() => toggleType(type)}
          >
            <TypeDot type={type} />
            <span className="foreign">{type}</span>
            <span className="muted">
              {loaded.nodes.filter((node) => node.type === type).length}
            </span>
          </button>
        ))}
        <Text size="sm" c="dimmed" aria-live="polite">
          {words.shown(
            count(shown.nodes.length),
            count(loaded.nodes.length),
            count(shown.edges.length),
          )}
        </Text>
        {removed.size > 0 && (
          <Button variant="default" size="compact-xs" onClick={() => set({ without: undefined })}>
            {words.restore(count(removed.size))}
          </Button>
        )}
        <Button
          variant="default"
          size="compact-xs"
          renderRoot={(props) => <Link {...props} to="/graph" search={{}} />}
        >
          {words.clear}
        </Button>
      </div>
      {(around.data?.nodes.length ?? 0) >= MAX_NODES && (
        <Text size="sm" className="warn">
          {words.limited(count(MAX_NODES))}
        </Text>
      )}
      <div className={classes.layout} data-alone={entity === undefined || undefined}>
        <QueryState query={around} rows={12}>
          {() =>
            search.view === 'table' ? (
              <GraphTable graph={shown} selected={entity} onSelect={select} />
            ) : (
              <div className="panel">
                <Suspense fallback={<LoadingState rows={12} />}>
                  <GraphCanvas
                    graph={shown}
                    selected={entity}
                    path={path}
                    label={words.canvas(count(shown.nodes.length))}
                    onSelect={select}
                    onExpand={onExpand}
                  />
                </Suspense>
                <div className={`${classes.hint} muted`}>{words.hint}</div>
              </div>
            )
          }
        </QueryState>
        {entity !== undefined && (
          <EntityPanel
            id={entity}
            nodes={loaded.nodes}
            pathTo={to}
            path={path}
            isSearchingPath={isSearching}
            onSelect={select}
            onExpand={onExpand}
            onRemove={(id) =>
              set({ without: toText([...removed, id]), entity: undefined, to: undefined })
            }
            onPath={(end) => set({ to: end })}
          />
        )}
      </div>
    </>
  );
}
