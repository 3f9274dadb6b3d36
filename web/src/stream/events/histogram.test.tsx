import { MantineProvider } from '@mantine/core';
import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Histogram } from './histogram';

const START = Date.parse('2026-11-28T06:00:00Z');
const SPAN = 60_000;
const BUCKETS = Array.from({ length: 20 }, (_, index) => ({
  start: START + index * SPAN,
  count: index,
  failed: 0,
}));

beforeEach(() => {
  // jsdom has neither.
  vi.stubGlobal('matchMedia', () => ({
    matches: false,
    addEventListener() {},
    removeEventListener() {},
  }));
  vi.stubGlobal(
    'ResizeObserver',
    class {
      observe() {}
      unobserve() {}
      disconnect() {}
    },
  );
});
afterEach(cleanup);

function press(at: number | null, key: string) {
  const onScrub = vi.fn();
  render(
    <MantineProvider env="test">
      <Histogram buckets={BUCKETS} span={SPAN} at={at} onScrub={onScrub} />
    </MantineProvider>,
  );
  fireEvent.keyDown(screen.getByRole('slider'), { key });
  return onScrub.mock.calls[0]?.[0];
}
const minute = (index: number) => START + index * SPAN;

test('arrow keys move the handle by a bar, page keys by ten', () => {
  expect(press(minute(12), 'ArrowLeft')).toBe(minute(11));
  cleanup();
  expect(press(minute(12), 'ArrowRight')).toBe(minute(13));
  cleanup();
  expect(press(minute(12), 'PageDown')).toBe(minute(2));
  cleanup();
  expect(press(minute(12), 'Home')).toBe(minute(0));
});

test('the first step back from now is the last bar, and beyond it the list is live again', () => {
  expect(press(null, 'ArrowLeft')).toBe(minute(19));
  cleanup();
  expect(press(minute(19), 'ArrowRight')).toBeNull();
  cleanup();
  expect(press(minute(3), 'Escape')).toBeNull();
});

test('the handle does not leave the bars, and says the moment and its count', () => {
  expect(press(minute(0), 'ArrowLeft')).toBe(minute(0));
  cleanup();
  press(minute(7), 'a');
  expect(screen.getByRole('slider').getAttribute('aria-valuetext')).toMatch(/: 7 events$/);
});
