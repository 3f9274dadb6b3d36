import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  redirect,
} from '@tanstack/react-router';
import { NotFound, ScreenFailure } from './failures';
import { Shell } from './shell';

/** Search parameters are plain text; each screen reads those that it knows. */
export type Search = Record<string, string | undefined>;
const validateSearch = (search: Record<string, unknown>): Search =>
  Object.fromEntries(
    Object.entries(search)
      .filter(([, value]) => value !== undefined && value !== '')
      .map(([name, value]) => [name, String(value)]),
  );

const root = createRootRoute({
  component: Shell,
  notFoundComponent: NotFound,
  errorComponent: ScreenFailure,
});
const at = <P extends string>(
  path: P,
  load: () => Promise<Record<string, unknown>>,
  name: string,
) =>
  createRoute({
    getParentRoute: () => root,
    path,
    validateSearch,
    component: lazyRouteComponent(load as never, name as never),
    errorComponent: ScreenFailure,
  });

const tree = root.addChildren([
  createRoute({
    getParentRoute: () => root,
    path: '/',
    beforeLoad: () => {
      throw redirect({ to: '/query' });
    },
  }),
  at('/query', () => import('@/query/query-page'), 'QueryPage'),
  at('/runs', () => import('@/query/runs-page'), 'RunsPage'),
  at('/runs/$run', () => import('@/query/run-page'), 'RunPage'),
  at('/runs/$run/$tab', () => import('@/query/run-page'), 'RunPage'),
  at('/questions', () => import('@/query/questions-page'), 'QuestionsPage'),
  at('/documents', () => import('@/documents/documents-page'), 'DocumentsPage'),
  at('/documents/$document', () => import('@/documents/document-page'), 'DocumentPage'),
  at('/documents/$document/$tab', () => import('@/documents/document-page'), 'DocumentPage'),
  at('/graph', () => import('@/graph/graph-page'), 'GraphPage'),
  at('/facts', () => import('@/graph/facts-page'), 'FactsPage'),
  at('/events', () => import('@/stream/events-page'), 'EventsPage'),
  at('/pipeline', () => import('@/stream/pipeline-page'), 'PipelinePage'),
  at('/dead-letters', () => import('@/stream/dead-letters-page'), 'DeadLettersPage'),
  at('/generations', () => import('@/stream/generations-page'), 'GenerationsPage'),
  at('/replays', () => import('@/stream/replays-page'), 'ReplaysPage'),
  at('/sources', () => import('@/stream/sources-page'), 'SourcesPage'),
  at('/profiles', () => import('@/tune/profiles-page'), 'ProfilesPage'),
  at('/settings', () => import('@/tune/settings-page'), 'SettingsPage'),
  at('/evaluation', () => import('@/tune/evaluation-page'), 'EvaluationPage'),
  at('/keys', () => import('@/tune/keys-page'), 'KeysPage'),
  at('/audit', () => import('@/tune/audit-page'), 'AuditPage'),
  at('/system', () => import('@/tune/system-page'), 'SystemPage'),
]);

export const router = createRouter({
  routeTree: tree,
  basepath: new URL(document.baseURI).pathname.replace(/\/$/, ''),
  defaultPreload: 'intent',
  scrollRestoration: true,
});

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router;
  }
}
