import { QueryClient } from '@tanstack/react-query';
import { expect, test } from 'vitest';
import { ApiError, type Problem } from './client';
import { recheckCaller } from './identity';

function isAskedAgain(status: number, isKnown: boolean): boolean {
  const client = new QueryClient();
  if (isKnown) client.setQueryData(['whoami'], { role: 'reader' });
  recheckCaller(client, new ApiError({ status, detail: '' } as Problem));
  return client.getQueryState(['whoami'])?.isInvalidated ?? false;
}

test('a session that ended is asked for, once', () => {
  expect(isAskedAgain(401, true)).toBe(true);
  expect(isAskedAgain(401, false)).toBe(false);
  expect(isAskedAgain(403, true)).toBe(false);
});
