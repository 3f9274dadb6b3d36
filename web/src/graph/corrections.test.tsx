import { MantineProvider } from '@mantine/core';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { cleanup, fireEvent, render, screen, waitFor } from '@testing-library/react';
import { afterEach, expect, test, vi } from 'vitest';
import { api } from '@/shared/api/client';
import { Corrections } from './corrections';
import type { EntityDetails } from './data';

// jsdom lacks them.
window.matchMedia ??= (query: string) =>
  ({ matches: false, media: query, addEventListener() {}, removeEventListener() {} }) as never;
globalThis.ResizeObserver ??= class {
  observe() {}
  unobserve() {}
  disconnect() {}
};
afterEach(() => {
  cleanup();
  vi.restoreAllMocks();
});

const whole = {
  id: 'w',
  type: 'ORG',
  name: 'Norte Energia',
  parts: [
    { id: 'w', type: 'ORG', name: 'Norte Energia', aliases: [], mentions: 3 },
    { id: 'p', type: 'PERSON', name: '<b>Norte</b>', aliases: ['NORTE'], mentions: 1 },
  ],
} as unknown as EntityDetails;

function show(role: string) {
  const sent: { path: string; body: unknown }[] = [];
  const send = async (path: string, { body }: { body: unknown }) => {
    sent.push({ path, body });
    return { data: { ...whole, status: 'applied' }, response: new Response() };
  };
  vi.spyOn(api, 'POST').mockImplementation(send as never);
  vi.spyOn(api, 'PATCH').mockImplementation(send as never);
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  client.setQueryData(['whoami'], { role });
  render(
    <QueryClientProvider client={client}>
      <MantineProvider env="test">
        <Corrections entity={whole} types={['TEAM']} onSelect={() => {}} />
      </MantineProvider>
    </QueryClientProvider>,
  );
  return sent;
}

test('a part is split off only after it is confirmed', async () => {
  const sent = show('admin');
  expect(screen.getByText('PERSON · 1')).toBeTruthy();
  fireEvent.click(screen.getByRole('button', { name: 'Split off <b>Norte</b>' }));
  const dialog = await screen.findByRole('dialog');
  expect(dialog.textContent).toContain('Norte Energia keeps the rest.');
  expect(sent).toEqual([]);
  fireEvent.click(
    screen.getAllByRole('button', { name: 'Split off <b>Norte</b>' }).at(-1) as never,
  );
  await waitFor(() =>
    expect(sent).toEqual([{ path: '/v1/entities/{entity}/split', body: { part: 'p' } }]),
  );
});

test('a type that the entity has cannot be sent, another one is', async () => {
  const sent = show('admin');
  fireEvent.click(screen.getByRole('button', { name: 'Change type…' }));
  const submit = await screen.findByRole('button', { name: 'Change the type of Norte Energia' });
  expect(submit.hasAttribute('disabled')).toBe(true);
  fireEvent.change(screen.getByRole('combobox', { name: 'Type' }), { target: { value: ' TEAM ' } });
  fireEvent.click(submit);
  await waitFor(() =>
    expect(sent).toEqual([
      {
        path: '/v1/entities/{entity}',
        body: { add_aliases: [], remove_aliases: [], type: 'TEAM' },
      },
    ]),
  );
});

test('a reader sees the parts and corrects nothing', () => {
  show('reader');
  expect(screen.getByText('PERSON · 1')).toBeTruthy();
  expect(screen.queryAllByRole('button')).toEqual([]);
});
