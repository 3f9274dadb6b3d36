import { EventSourceParserStream } from 'eventsource-parser/stream';
import { fetchRaw } from './client';

export type StreamMessage = { event: string; data: unknown; id: string | undefined };

/** Read server-sent events until the server ends them. Unlike EventSource it can send headers. */
export async function* readStream(
  path: string,
  { signal, lastEventId }: { signal: AbortSignal; lastEventId?: string | undefined },
): AsyncGenerator<StreamMessage> {
  const response = await fetchRaw(path, {
    signal,
    headers: {
      Accept: 'text/event-stream',
      ...(lastEventId ? { 'Last-Event-ID': lastEventId } : {}),
    },
  });
  if (response.status === 204 || response.body === null) return;
  const reader = response.body
    .pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array<ArrayBuffer>>)
    .pipeThrough(new EventSourceParserStream())
    .getReader();
  try {
    while (true) {
      const { done, value } = await reader.read();
      if (done) return;
      yield { event: value.event ?? 'message', data: JSON.parse(value.data), id: value.id };
    }
  } finally {
    // Also when the caller stops early: the server must see the connection close.
    await reader.cancel().catch((error: unknown) => {
      if (!signal.aborted) throw error;
    });
  }
}
