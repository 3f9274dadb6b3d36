import { MantineProvider } from '@mantine/core';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { cleanup, fireEvent, render, screen, within } from '@testing-library/react';
import type { ReactNode } from 'react';
import { afterEach, expect, test, vi } from 'vitest';
import { AnswerView } from './answer-view';
import recordedRuns from './recorded-runs.fixture.json';
import { RetrievalTab } from './retrieval-tab';
import { type Answer, type Run, readRun } from './run-data';

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
  vi.unstubAllGlobals();
});

function show(content: ReactNode) {
  // The passages of these runs are in no server.
  vi.stubGlobal('fetch', () => Promise.reject(new TypeError('unreachable')));
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  render(
    <QueryClientProvider client={client}>
      <MantineProvider>{content}</MantineProvider>
    </QueryClientProvider>,
  );
}

const answer = {
  run_id: 'r',
  refused: false,
  answer: '**30 days** [1] or **45 days** [2].',
  citations: [1, 2].map((n) => ({
    n,
    title: `<b>Rules ${n}</b>`,
    quote: `<img src=x onerror=alert(${n})>`,
    document_id: `d${n}`,
    chunk_id: `c${n}`,
    section: '2. Notice',
    pages: [n],
    spans: [],
    revision: 1,
  })),
  contexts: [],
  conflicts: [
    {
      values: [
        { value: '30 days', citations: [1] },
        { value: '45 days', citations: [2] },
      ],
    },
  ],
  confidence: { level: 'low', reasons: ['two values'], probability: 0.5 },
  assumptions: [
    '“Rules” names a document. Set prefer_named to false to search all.',
    'Nothing else.',
  ],
  limitations: [],
  trace: { cached: false, timings_ms: {} },
} as unknown as Answer;

test('conflicting values stand side by side with their documents', () => {
  show(<AnswerView answer={answer} onAskWithout={() => {}} />);
  const conflict = within(screen.getByRole('region', { name: 'The documents disagree' }));
  expect(conflict.getByText('30 days')).toBeTruthy();
  expect(conflict.getByRole('button', { name: '2 · <b>Rules 2</b>' })).toBeTruthy();
  expect(screen.getByText('Low confidence')).toBeTruthy();
});

test('an assumption is removed by asking without it, if it names a way', () => {
  const onAskWithout = vi.fn();
  show(<AnswerView answer={answer} onAskWithout={onAskWithout} />);
  expect(screen.getByText('Nothing else.')).toBeTruthy();
  const [button, ...others] = screen.getAllByRole('button', { name: /^Ask again without/ });
  expect(others).toHaveLength(0);
  fireEvent.click(button as HTMLElement);
  expect(onAskWithout).toHaveBeenCalledWith({ prefer_named: false });
});

test('titles and quotes of hostile documents stay text', () => {
  show(<AnswerView answer={answer} onAskWithout={() => {}} />);
  expect(document.querySelector('b, img')).toBeNull();
  expect(screen.getAllByText('<img src=x onerror=alert(1)>')).toHaveLength(1);
});

test('a refusal shows the closest passages', () => {
  const refused = {
    ...answer,
    refused: true,
    answer: null,
    code: 'NO_SUITABLE_CONTEXT',
    message: 'The passages found do not mention Mongolia.',
    citations: [],
    conflicts: [],
    contexts: [
      {
        rank: 1,
        document_id: 'd',
        parent_id: 'p1',
        title: 'Minutes',
        section: '',
        pages: [],
        spans: [],
        snippet: 'Tides',
      },
      {
        rank: 2,
        document_id: 'd',
        parent_id: 'p2',
        title: 'Minutes',
        section: '',
        pages: [],
        spans: [],
        snippet: 'Boats',
      },
    ],
    trace: { ...answer.trace, max_rerank_score: 0.47, threshold: 0.68 },
  } as unknown as Answer;
  show(<AnswerView answer={refused} onAskWithout={() => {}} />);
  expect(screen.getByText('The passages found do not mention Mongolia.')).toBeTruthy();
  expect(screen.getByText(/The best passage scores \.47; the threshold is \.68/)).toBeTruthy();
  const passages = within(
    screen.getByRole('region', { name: 'Closest passages in the documents' }),
  );
  expect(passages.getAllByRole('listitem')).toHaveLength(1);
});

test('a failed channel says so, and a passage is lit in every column', () => {
  const run = readRun((recordedRuns as unknown as Run[])[0] as Run);
  const trace = {
    ...run.trace,
    route: { mode: 'hybrid', reason: 'no rule' },
    channels: {
      lexical: { k: 100, returned: 19, best: 9, ms: 3 },
      semantic: { k: 100, returned: 24, best: 0.9, ms: 2 },
    },
    channels_failed: { graph: 'TIMED_OUT: Timed out after 10 s.' },
  } as never;
  const record = { ...run.record, chunks: [], parents: [] } as never;
  const candidates = run.candidates.map((candidate) => ({
    ...candidate,
    channels: { ...candidate.channels, graph: undefined },
  })) as never;
  show(<RetrievalTab run={{ ...run, record, trace, candidates }} onAsk={() => {}} />);
  const column = (name: string) => within(screen.getByRole('region', { name }));
  expect(column('Graph').getByText(/TIMED_OUT.*The other channels continued/)).toBeTruthy();
  expect(column('Graph').queryAllByRole('listitem')).toHaveLength(0);
  const best = column('Lexical').getAllByRole('listitem')[0]?.querySelector('button');
  const lit = () => document.querySelectorAll('[data-lit]').length;
  expect(lit()).toBe(0);
  fireEvent.mouseEnter(best as HTMLElement);
  expect(lit()).toBe(2);
  fireEvent.mouseLeave(best as HTMLElement);
  expect(lit()).toBe(0);
});
