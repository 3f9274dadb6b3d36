import { expect, test, vi } from 'vitest';
import { ApiError, type Problem } from '@/shared/api/client';
import { type Receipt, type Send, UploadQueue } from './uploads';

const RECEIPT = { document_id: 'd' } as Receipt;
const refuse = (status: number) => new ApiError({ status, code: 'X', detail: '' } as Problem);
const states = (queue: UploadQueue) => queue.snapshot().map((upload) => upload.state);

test('three are sent at a time and the others wait', async () => {
  const ends: (() => void)[] = [];
  const send: Send = () => new Promise((resolve) => ends.push(() => resolve(RECEIPT)));
  const queue = new UploadQueue(send);
  queue.add(['a', 'b', 'c', 'd', 'e']);
  expect(states(queue)).toEqual(['sending', 'sending', 'sending', 'queued', 'queued']);
  ends[1]?.();
  await vi.waitFor(() => expect(states(queue)[1]).toBe('accepted'));
  expect(states(queue)).toEqual(['sending', 'accepted', 'sending', 'sending', 'queued']);
});

test('a server that is away is tried again with the same key', async () => {
  const keys: string[] = [];
  const send: Send = async ({ id }) => {
    keys.push(id);
    if (keys.length < 3) throw refuse(503);
    return RECEIPT;
  };
  const queue = new UploadQueue(send, 0);
  queue.add(['a']);
  await vi.waitFor(() => expect(states(queue)).toEqual(['accepted']));
  expect(new Set(keys).size).toBe(1);
});

test('a refusal is final until a person retries', async () => {
  const send = vi.fn<Send>().mockRejectedValueOnce(refuse(415)).mockResolvedValue(RECEIPT);
  const queue = new UploadQueue(send, 0);
  queue.add(['a']);
  await vi.waitFor(() => expect(states(queue)).toEqual(['failed']));
  expect(queue.snapshot()[0]?.problem?.status).toBe(415);
  queue.retry(queue.snapshot()[0]?.id ?? '');
  await vi.waitFor(() => expect(states(queue)).toEqual(['accepted']));
  queue.clear();
  expect(queue.snapshot()).toEqual([]);
});
