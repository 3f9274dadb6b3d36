import { expect, test } from 'vitest';
import { screenOfPath } from './screens';

test('an address below a screen belongs to that screen', () => {
  expect(screenOfPath('/dead-letters')).toBe('dead-letters');
  expect(screenOfPath('/documents/0b6c/lineage')).toBe('documents');
});

test('an unknown address has no screen', () => {
  expect(screenOfPath('/')).toBeUndefined();
  expect(screenOfPath('/dead-letters-of-old')).toBeUndefined();
});
