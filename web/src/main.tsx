import '@mantine/core/styles.css';
import '@mantine/notifications/styles.css';
import './app/tokens.css';
import { MantineProvider } from '@mantine/core';
import { MutationCache, QueryCache, QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { RouterProvider } from '@tanstack/react-router';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { router } from './app/router';
import { theme, variables } from './app/theme';
import { ApiError } from './shared/api/client';
import { recheckCaller } from './shared/api/identity';
import { LanguageProvider } from './shared/i18n';
import { KeysProvider } from './shared/keys';

const onError = (error: unknown) => recheckCaller(client, error);
const client: QueryClient = new QueryClient({
  queryCache: new QueryCache({ onError }),
  mutationCache: new MutationCache({ onError }),
  defaultOptions: {
    // The server may run on this machine, which needs no network.
    mutations: { networkMode: 'always' },
    queries: {
      networkMode: 'always',
      // A refusal stays a refusal; a server that is away comes back.
      retry: (count, error) =>
        error instanceof ApiError && isTemporary(error.problem.status) && count < 3,
      // Keeps asking while the server is away, so that each screen recovers by itself.
      refetchInterval: (query) => (isAway(query.state.error) ? 3000 : false),
      staleTime: 5000,
    },
  },
});

function isTemporary(status: number): boolean {
  return status === 0 || status === 429 || status >= 500;
}

function isAway(error: unknown): boolean {
  return error instanceof ApiError && isTemporary(error.problem.status);
}

const root = document.getElementById('root');
if (root === null) throw new Error('index.html has no element #root');
createRoot(root).render(
  <StrictMode>
    <MantineProvider theme={theme} cssVariablesResolver={variables} defaultColorScheme="auto">
      <LanguageProvider>
        <QueryClientProvider client={client}>
          <KeysProvider>
            <RouterProvider router={router} />
          </KeysProvider>
        </QueryClientProvider>
      </LanguageProvider>
    </MantineProvider>
  </StrictMode>,
);
