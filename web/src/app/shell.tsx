import { Drawer, Modal, Table } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { Notifications } from '@mantine/notifications';
import { useQueryClient } from '@tanstack/react-query';
import { Link, Outlet, useLocation, useNavigate, useRouter } from '@tanstack/react-router';
import { lazy, Suspense, useEffect, useRef } from 'react';
import { EvidenceProvider } from '@/evidence/context';
import { ApiError } from '@/shared/api/client';
import { recheckCaller, useCan, useIdentity } from '@/shared/api/identity';
import { useLiveState } from '@/shared/api/live';
import { useIsUnreachable } from '@/shared/api/readiness';
import { useWords } from '@/shared/i18n';
import { useKeyList, useKeys } from '@/shared/keys';
import { Page } from '@/shared/ui/page';
import { EmptyState, LoadingState } from '@/shared/ui/states';
import { sharedWords } from '@/shared/words';
import { Header } from './header';
import { SCREEN_NAMES, SCREENS, screenOfPath } from './screens';
import classes from './shell.module.css';
import { SignIn } from './sign-in';
import { useVisibleScreens } from './visible-screens';
import { appWords } from './words';

const Palette = lazy(() => import('./palette').then((m) => ({ default: m.Palette })));
const BOTTOM_SCREENS = ['query', 'documents', 'graph', 'events'] as const;

/** The frame of every screen; shows nothing but the sign-in page until the caller is known. */
export function Shell() {
  const identity = useIdentity();
  if (identity.isPending) return <LoadingState rows={3} />;
  if (identity.isError) return <SignIn error={identity.error} />;
  return (
    <EvidenceProvider>
      {/* Below the router, because notifications have links. */}
      <Notifications position="bottom-right" />
      <Frame />
    </EvidenceProvider>
  );
}

function Frame() {
  const words = useWords(appWords);
  const shared = useWords(sharedWords);
  const navigate = useNavigate();
  const live = useLiveState();
  const client = useQueryClient();
  useEffect(() => {
    // A screen that only listens has no request of its own that would be refused.
    if (live.problem) recheckCaller(client, new ApiError(live.problem));
  }, [client, live.problem]);
  const isUnreachable = useIsUnreachable();
  const screens = useVisibleScreens();
  const main = useRef<HTMLElement>(null);
  const router = useRouter();
  useEffect(
    () =>
      router.subscribe('onRendered', ({ fromLocation, pathChanged }) => {
        // The row or button that led here is gone; without focus, Tab would start at the top again.
        const isLost = document.activeElement === document.body;
        if (fromLocation && pathChanged && isLost) main.current?.focus({ preventScroll: true });
      }),
    [router],
  );
  const [menuOpen, menu] = useDisclosure(false);
  const [helpOpen, help] = useDisclosure(false);
  useKeys([
    { keys: '?', label: words.keyHints.list, run: help.open },
    {
      keys: '/',
      label: words.keyHints.goTo(words.screens.query),
      run: () => navigate({ to: '/query' }),
    },
    ...screens.map((name) => ({
      keys: `g ${SCREENS[name].key}`,
      label: words.keyHints.goTo(words.screens[name]),
      run: () => navigate({ to: SCREENS[name].path }),
    })),
  ]);
  return (
    <div className={classes.shell}>
      <a href="#main" className={classes.skip}>
        {words.skip}
      </a>
      <nav className={classes.rail} aria-label={words.navigation}>
        <Link to="/query" className={classes.brand}>
          <img src="./anabranch.svg" alt="" height={20} />
          Anabranch
        </Link>
        <ScreenLinks />
      </nav>
      <Header onHelp={help.open} />
      <main ref={main} id="main" className={classes.main} tabIndex={-1}>
        {(live.state === 'lost' || isUnreachable) && (
          <div className={classes.lost} role="alert">
            {words.lost}
          </div>
        )}
        <Allowed />
      </main>
      <nav className={classes.bottom} aria-label={words.navigation}>
        {BOTTOM_SCREENS.map((name) => (
          <Link key={name} to={SCREENS[name].path}>
            {words.screens[name]}
          </Link>
        ))}
        <button type="button" onClick={menu.open}>
          {words.more}
        </button>
      </nav>
      <Drawer
        opened={menuOpen}
        onClose={menu.close}
        title={words.navigation}
        position="bottom"
        size="80%"
        closeButtonProps={{ 'aria-label': shared.close }}
      >
        <ScreenLinks onNavigate={menu.close} />
      </Drawer>
      <Suspense>
        <Palette />
      </Suspense>
      <Modal
        opened={helpOpen}
        onClose={help.close}
        title={words.keys}
        closeButtonProps={{ 'aria-label': shared.close }}
      >
        <KeyTable />
      </Modal>
    </div>
  );
}

/** The screen, or which role it needs: a typed address gets further than the rail. */
function Allowed() {
  const words = useWords(appWords);
  const identity = useIdentity();
  const name = screenOfPath(useLocation().pathname);
  const role = name ? SCREENS[name].role : 'reader';
  const isAllowed = useCan(role);
  if (isAllowed || name === undefined || identity.data === undefined) return <Outlet />;
  return (
    <Page title={words.screens[name]}>
      <EmptyState title={words.forbidden(role)}>
        <p>{words.forbiddenHint(identity.data.role)}</p>
      </EmptyState>
    </Page>
  );
}

function ScreenLinks({ onNavigate }: { onNavigate?: () => void }) {
  const words = useWords(appWords);
  const visible = useVisibleScreens();
  return (['ask', 'library', 'stream', 'tune'] as const).map((group) => (
    <div key={group}>
      <div className={classes.group}>{words.groups[group]}</div>
      {SCREEN_NAMES.filter((name) => SCREENS[name].group === group && visible.includes(name)).map(
        (name) => (
          <Link
            key={name}
            to={SCREENS[name].path}
            className={classes.link}
            {...(onNavigate ? { onClick: onNavigate } : {})}
          >
            {words.screens[name]}
          </Link>
        ),
      )}
    </div>
  ));
}

function KeyTable() {
  const list = useKeyList();
  return (
    <Table>
      <Table.Tbody>
        {list().map((way) => (
          <Table.Tr key={`${way.keys} ${way.label}`}>
            <Table.Td>
              <kbd className="mono">{way.keys}</kbd>
            </Table.Td>
            <Table.Td>{way.label}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}
