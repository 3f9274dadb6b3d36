import { notifications } from '@mantine/notifications';
import { ApiError, api, call } from '@/shared/api/client';

const PARALLEL = 4;

/** Process the failed events of documents again. A refusal is shown as the API says it. */
export async function retryDocuments(ids: readonly string[], done: string): Promise<void> {
  try {
    await forEach(ids, (id) =>
      call(
        api.POST('/v1/dead-letters/redrive', {
          body: { document_id: id, all: false, dry_run: false },
        }),
      ),
    );
    notifications.show({ message: done });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const { detail, remedy } = error.problem;
    notifications.show({ color: 'red', title: detail, message: remedy });
  }
}

export function deleteDocument(id: string) {
  return call(api.DELETE('/v1/documents/{document}', { params: { path: { document: id } } }));
}

export function deleteDocuments(ids: readonly string[]): Promise<void> {
  return forEach(ids, deleteDocument);
}

/** A few at a time: a browser has six connections to a server, and one is the live stream. */
async function forEach<T>(ids: readonly string[], act: (id: string) => Promise<T>): Promise<void> {
  const waiting = [...ids];
  const work = async () => {
    for (let id = waiting.shift(); id !== undefined; id = waiting.shift()) await act(id);
  };
  await Promise.all(Array.from({ length: PARALLEL }, work));
}
