import { useSyncExternalStore } from 'react';
import {
  API_ROOT,
  ApiError,
  api,
  call,
  type Problem,
  requestHeaders,
  type Schemas,
} from '@/shared/api/client';

export type Receipt = Schemas['IngestReceipt'];
export type UploadState = 'queued' | 'sending' | 'accepted' | 'failed';
export type Upload = {
  id: string;
  name: string;
  bytes: number | null;
  state: UploadState;
  /** 0 to 1; for a URL the server reports none. */
  progress: number;
  receipt?: Receipt;
  problem?: Problem;
};
export type UploadTarget = {
  collection?: string;
  tags?: string[];
  /** Further fields of the form. */
  fields?: Record<string, string>;
};
type Job = { upload: Upload; content: File | string; target: UploadTarget; attempts: number };
export type Send = (
  job: { id: string; content: File | string; target: UploadTarget },
  onProgress: (share: number) => void,
) => Promise<Receipt>;

const PARALLEL = 3;
const MAX_ATTEMPTS = 4;
const RETRY_MS = 1000;

/** Sends files and URLs, a few at a time. Outlives the screen, so that one may look elsewhere. */
export class UploadQueue {
  private jobs = new Map<string, Job>();
  private list: readonly Upload[] = [];
  private observers = new Set<() => void>();
  private running = 0;

  constructor(
    private readonly send: Send,
    private readonly retryMs = RETRY_MS,
  ) {}

  add(contents: readonly (File | string)[], target: UploadTarget = {}): void {
    for (const content of contents) {
      const id = crypto.randomUUID();
      const isFile = typeof content !== 'string';
      const upload: Upload = {
        id,
        name: isFile ? content.name : content,
        bytes: isFile ? content.size : null,
        state: 'queued',
        progress: 0,
      };
      this.jobs.set(id, { upload, content, target, attempts: 0 });
    }
    this.publish();
    this.pump();
  }

  retry(id: string): void {
    const job = this.jobs.get(id);
    if (job === undefined || job.upload.state !== 'failed') return;
    job.attempts = 0;
    this.change(job, { state: 'queued', progress: 0 });
    this.pump();
  }

  /** Forget what has ended. */
  clear(): void {
    for (const [id, job] of this.jobs)
      if (['accepted', 'failed'].includes(job.upload.state)) this.jobs.delete(id);
    this.publish();
  }

  observe = (observer: () => void): (() => void) => {
    this.observers.add(observer);
    return () => this.observers.delete(observer);
  };

  snapshot = (): readonly Upload[] => this.list;

  private pump(): void {
    for (const job of this.jobs.values()) {
      if (this.running >= PARALLEL) return;
      if (job.upload.state === 'queued') void this.run(job);
    }
  }

  private async run(job: Job): Promise<void> {
    this.running += 1;
    job.attempts += 1;
    this.change(job, { state: 'sending' });
    try {
      const { id } = job.upload;
      const receipt = await this.send(
        { id, content: job.content, target: job.target },
        (progress) => this.change(job, { progress }),
      );
      this.change(job, { state: 'accepted', progress: 1, receipt });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      const { status } = error.problem;
      // The same Idempotency-Key makes a repeat safe, also when the answer alone was lost.
      if ((status === 0 || status === 429 || status >= 500) && job.attempts < MAX_ATTEMPTS) {
        await new Promise((resolve) => setTimeout(resolve, this.retryMs * 2 ** job.attempts));
        this.change(job, { state: 'queued', progress: 0 });
      } else {
        this.change(job, { state: 'failed', problem: error.problem });
      }
    } finally {
      this.running -= 1;
      this.pump();
    }
  }

  private change(job: Job, change: Partial<Upload>): void {
    job.upload = { ...job.upload, ...change };
    this.publish();
  }

  private publish(): void {
    this.list = [...this.jobs.values()].map((job) => job.upload);
    for (const observer of this.observers) observer();
  }
}

const sendToApi: Send = ({ id, content, target }, onProgress) =>
  typeof content === 'string'
    ? call(
        api.POST('/v1/ingest', {
          params: { header: { 'idempotency-key': id } },
          body: {
            url: content,
            force: false,
            ...(target.collection ? { collection: target.collection } : {}),
            ...(target.tags?.length ? { tags: target.tags } : {}),
          } as Schemas['IngestRequest'],
        }),
      )
    : sendFile(id, content, target, onProgress);

/** XMLHttpRequest, since fetch does not report how much of a body was sent. */
function sendFile(
  id: string,
  file: File,
  { collection, tags, fields }: UploadTarget,
  onProgress: (share: number) => void,
): Promise<Receipt> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open('POST', `${API_ROOT}/v1/ingest`);
    request.responseType = 'json';
    const headers = { ...requestHeaders(), 'Idempotency-Key': id };
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.upload.onprogress = ({ loaded, total }) => onProgress(total ? loaded / total : 0);
    request.onload = () =>
      request.status === 202
        ? resolve(request.response as Receipt)
        : reject(new ApiError(toProblem(request.status, request.response)));
    request.onerror = () => reject(new ApiError(toProblem(0, null)));
    const form = new FormData();
    form.append('file', file, file.name);
    if (collection) form.append('collection', collection);
    if (tags?.length) form.append('tags', JSON.stringify(tags));
    for (const [name, value] of Object.entries(fields ?? {})) form.append(name, value);
    request.send(form);
  });
}

function toProblem(status: number, body: unknown): Problem {
  if (typeof body === 'object' && body !== null && 'code' in body) return body as Problem;
  return {
    type: 'about:blank',
    title: 'Upload failed',
    status,
    code: status === 0 ? 'UNREACHABLE' : `HTTP_${status}`,
    detail: status === 0 ? 'The server does not answer.' : `The server answered ${status}.`,
    remedy: 'Try again.',
    instance: '',
    request_id: '',
  };
}

export const uploads = new UploadQueue(sendToApi);

export function useUploads(): readonly Upload[] {
  return useSyncExternalStore(uploads.observe, uploads.snapshot);
}
