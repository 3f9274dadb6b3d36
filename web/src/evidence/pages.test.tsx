import { MantineProvider } from '@mantine/core';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { cleanup, render, screen } from '@testing-library/react';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { EvidencePages } from './pages';
import { fetchText } from './source';

const DOCX = 'application/vnd.openxmlformats-officedocument.wordprocessingml.document';
const QUOTE = 'A van pays 4.50 crowns.';
const REASON = 'Document d has no text of revision 1: removed from the log by retention.';
const problem = () =>
  new Response(JSON.stringify({ code: 'NOT_FOUND', status: 404, detail: REASON, remedy: '' }), {
    status: 404,
  });

/** Serve texts by the end of their address. */
function serve(texts: Record<string, string>) {
  vi.stubGlobal('fetch', async (url: string) => {
    const found = Object.entries(texts).find(([end]) => url.endsWith(end));
    return found ? new Response(found[1]) : problem();
  });
}

function show(mediaType: string, quote: string) {
  const hit = { documentId: 'd', revision: 1, spans: [], title: 'Tolls', quote };
  const client = new QueryClient({
    defaultOptions: { queries: { retry: false, staleTime: Number.POSITIVE_INFINITY } },
  });
  client.setQueryData(['documents', 'd'], { revision: 2, visible_revision: 2 });
  return render(
    <QueryClientProvider client={client}>
      <MantineProvider env="test">
        <EvidencePages documentId="d" revision={1} mediaType={mediaType} hits={[hit]} />
      </MantineProvider>
    </QueryClientProvider>,
  ).container;
}

beforeEach(() => {
  vi.stubGlobal('matchMedia', () => ({
    matches: false,
    addEventListener() {},
    removeEventListener() {},
  }));
  Element.prototype.scrollIntoView = () => {};
  vi.stubGlobal(
    'ResizeObserver',
    class {
      observe() {}
      unobserve() {}
      disconnect() {}
    },
  );
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

describe('the passage of a superseded revision', () => {
  it('is marked in the text of that revision', async () => {
    serve({ 'markdown?revision=1': `# Tolls\n\nFirst. ${QUOTE} Last.`, '/markdown': 'Another.' });
    const container = show(DOCX, QUOTE);
    await screen.findByText(/Last\./);
    expect(container.querySelector('mark')?.textContent).toBe(QUOTE);
  });

  it('is marked in the sheet of that revision', async () => {
    serve({ 'markdown?revision=1': '| vehicle | toll |\n| --- | --- |\n| van | 4.50 |' });
    show('text/csv', '| van | 4.50 |');
    expect(await screen.findByRole('table')).toBeDefined();
    expect(screen.queryByRole('status')).toBeNull();
  });

  it('is shown alone, with the reason, where the log has lost the text', async () => {
    serve({});
    const container = show(DOCX, QUOTE);
    const notice = await screen.findByText(REASON);
    expect(notice.closest('[role=status]')?.textContent).toContain('can no longer be shown');
    expect(container.querySelector('mark')?.textContent).toBe(QUOTE);
  });
});

it('reads the file instead of a lost text only if the file is text', async () => {
  serve({ 'file?revision=1': 'bytes' });
  expect(await fetchText('d', 1, 'text/markdown')).toBe('bytes');
  await expect(fetchText('d', 1, DOCX)).rejects.toThrow(REASON);
  await expect(fetchText('d', null, 'text/markdown')).rejects.toThrow(REASON);
});
