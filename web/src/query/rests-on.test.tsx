import { MantineProvider } from '@mantine/core';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import { afterEach, expect, test, vi } from 'vitest';
import { api } from '@/shared/api/client';
import { RestsOn } from './rests-on';
import type { Answer } from './run-data';

// jsdom lacks it.
window.matchMedia ??= (query: string) =>
  ({ matches: false, media: query, addEventListener() {}, removeEventListener() {} }) as never;
afterEach(() => {
  cleanup();
  vi.restoreAllMocks();
});

function show(status: number, body: object) {
  const response = new Response(null, { status });
  const answer = async () => (response.ok ? { data: body, response } : { error: body, response });
  vi.spyOn(api, 'GET').mockImplementation(answer as never);
  vi.spyOn(api, 'POST').mockImplementation(answer as never);
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  render(
    <QueryClientProvider client={client}>
      <MantineProvider>
        <RestsOn answer={{ run_id: 'r' } as Answer} />
      </MantineProvider>
    </QueryClientProvider>,
  );
}

test('a document that says otherwise is named with its value, as text', async () => {
  const document = { document_id: 'd', title: '<b>Rules</b>', citations: [1], revision: 1 };
  show(200, {
    verdict: 'contested',
    is_quoted: true,
    confirming: ['d'],
    documents: [
      {
        ...document,
        outcome: 'other_value',
        value: '45 days',
        said_by: '<i>Old</i>',
        said_in_revision: 2,
      },
    ],
  });
  fireEvent.click(screen.getByText(/What does it rest on/));
  expect(await screen.findByText('<b>Rules</b>')).toBeTruthy();
  expect(screen.getByText('<i>Old</i> (revision 2) says otherwise: 45 days.')).toBeTruthy();
});

test('an unchanged answer is no error', async () => {
  show(422, { code: 'SAME_ANSWER', detail: 'the same', remedy: 'None.' });
  fireEvent.click(screen.getByText('What has changed it since?'));
  expect(await screen.findByText(/the answer is the same/)).toBeTruthy();
});
