import { expect, test } from 'vitest';
import { callerScope, setKey } from './client';

test('a tab with an API key of its own shares no channel', () => {
  const shared = callerScope();
  setKey('first');
  const first = callerScope();
  setKey('second');
  expect(new Set([shared, first, callerScope()]).size).toBe(3);
  setKey(null);
  expect(callerScope()).toBe(shared);
});
