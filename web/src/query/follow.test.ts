import { expect, test } from 'vitest';
import { ApiError, type Problem } from '@/shared/api/client';
import { advance, NO_PROGRESS, type Progress } from './follow';

function after(...messages: [string, unknown][]): Progress {
  return messages.reduce(
    (progress, [event, data]) => advance(progress, { message: { event, data, id: undefined } }),
    NO_PROGRESS,
  );
}

test('a step gets its duration when it ends, also when it runs twice', () => {
  const { steps } = after(
    ['step', { name: 'fuse', ms: null }],
    ['step', { name: 'fuse', ms: 1.5 }],
    ['step', { name: 'fuse', ms: null }],
    ['step', { name: 'read', ms: null }],
    ['step', { name: 'fuse', ms: 2.5 }],
  );
  expect(steps).toEqual([
    { name: 'fuse', ms: 1.5 },
    { name: 'fuse', ms: 2.5 },
    { name: 'read', ms: null },
  ]);
});

test('a later draft replaces the words of the earlier one', () => {
  const { draft } = after(
    ['delta', { draft: 1, text: 'Wrong ' }],
    ['delta', { draft: 1, text: 'words' }],
    ['delta', { draft: 2, text: 'Right ' }],
    ['delta', { draft: 2, text: 'words' }],
  );
  expect(draft).toEqual({ number: 2, text: 'Right words' });
});

test('an answer ends an error of the connection, and other messages change nothing', () => {
  const lost = advance(after(['step', { name: 'plan', ms: 1 }]), {
    error: new ApiError({ detail: 'away' } as Problem),
  });
  expect(lost.error?.message).toBe('away');
  const answered = advance(lost, {
    message: { event: 'answer', data: { answer: '45' }, id: 'end' },
  });
  expect(answered).toMatchObject({ error: null, answer: { answer: '45' } });
  expect(answered.steps).toHaveLength(1);
  expect(advance(answered, { message: { event: 'other', data: {}, id: undefined } })).toBe(
    answered,
  );
});
