import { MantineProvider } from '@mantine/core';
import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import { afterEach, expect, test, vi } from 'vitest';
import { AnswerText, splitAnswer } from './answer-text';

// jsdom has neither.
window.matchMedia ??= (query: string) =>
  ({
    matches: false,
    media: query,
    addEventListener() {},
    removeEventListener() {},
  }) as unknown as MediaQueryList;
globalThis.ResizeObserver ??= class {
  observe() {}
  unobserve() {}
  disconnect() {}
};
afterEach(cleanup);

function show(answer: string, onOpen = vi.fn()) {
  render(
    <MantineProvider>
      <AnswerText
        answer={answer}
        onOpen={onOpen}
        preview={({ n }) => (n <= 2 ? <span>quote {n}</span> : null)}
      />
    </MantineProvider>,
  );
  return onOpen;
}

test('an answer is split into text, values and markers', () => {
  expect(splitAnswer('Give **45** days. [1] [F2][3]\nThen * 2 [x].')).toEqual([
    { kind: 'text', text: 'Give ' },
    { kind: 'bold', text: '45' },
    { kind: 'text', text: ' days.' },
    { kind: 'citation', n: 1 },
    { kind: 'fact', n: 2 },
    { kind: 'citation', n: 3 },
    { kind: 'text', text: '\nThen * 2 [x].' },
  ]);
});

test('a long answer without an end of a mark takes linear time', () => {
  const start = performance.now();
  splitAnswer('**'.repeat(100_000));
  splitAnswer('['.repeat(100_000));
  expect(performance.now() - start).toBeLessThan(1000);
});

test('a citation opens its quote, and a number without a source is no button', () => {
  const onOpen = show('Forty-five days. [2] Or not. [9]');
  fireEvent.click(screen.getByRole('button', { name: 'Open source 2 in its document' }));
  expect(onOpen).toHaveBeenCalledWith(2);
  expect(screen.getAllByRole('button')).toHaveLength(1);
  expect(screen.getByText('9').tagName).toBe('SUP');
});

test('markup of a hostile answer stays text', () => {
  const hostile =
    '<img src=x onerror="alert(1)"> **<script>alert(2)</script>** [a](javascript:alert(3)) [1]';
  show(hostile);
  expect(document.querySelector('img, script, a, iframe, svg')).toBeNull();
  expect(document.body.textContent).toContain('<img src=x onerror="alert(1)">');
  expect(document.querySelector('strong')?.textContent).toBe('<script>alert(2)</script>');
});
