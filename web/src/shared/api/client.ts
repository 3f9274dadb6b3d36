import createClient from 'openapi-fetch';
import type { components, paths } from './schema.gen';

export type Schemas = components['schemas'];
export type Problem = Schemas['Problem'];

/** Where the API is: one level above the page, which <base> places below `/ui/`. */
export const API_ROOT = new URL('..', document.baseURI).href.replace(/\/$/, '');

/** A problem document (RFC 9457) of the API, or a server that cannot be reached. */
export class ApiError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail);
  }
}

type Credentials = { key: string | null; tenant: string | null; scope: number };
// In memory only: a script that ran in this page would find no credential in the storage.
const credentials: Credentials = {
  key: null,
  tenant: sessionStorage.getItem('tenant'),
  scope: 0,
};

export function setKey(key: string | null): void {
  credentials.key = key;
  credentials.scope = Math.random();
}

export function hasKey(): boolean {
  return credentials.key !== null;
}

export function chooseTenant(tenant: string | null): void {
  credentials.tenant = tenant;
  if (tenant === null) sessionStorage.removeItem('tenant');
  else sessionStorage.setItem('tenant', tenant);
}

export function chosenTenant(): string | null {
  return credentials.tenant;
}

/** Who calls with this tab's credentials; tabs of one session share what they listen to. */
export function callerScope(): string {
  return `${credentials.tenant ?? ''}${credentials.key ? `:${credentials.scope}` : ''}`;
}

/** The headers of every request: unsafe methods need the first one beside a session's cookie. */
export function requestHeaders(): Record<string, string> {
  return {
    'X-Anabranch-Request': '1',
    ...(credentials.key ? { Authorization: `Bearer ${credentials.key}` } : {}),
    ...(credentials.tenant ? { 'X-Anabranch-Tenant': credentials.tenant } : {}),
  };
}

export const api = createClient<paths>({ baseUrl: API_ROOT });
api.use({
  onRequest({ request }) {
    for (const [name, value] of Object.entries(requestHeaders())) request.headers.set(name, value);
    return request;
  },
});

/**
 * Return the body of a response. Throws ApiError for a problem and for a server that is away.
 *
 * `await call(api.GET('/v1/documents', { params: { query } }))`
 */
export async function call<T>(
  request: Promise<{ data?: T; error?: unknown; response: Response }>,
): Promise<T> {
  let result: Awaited<typeof request>;
  try {
    result = await request;
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiError(UNREACHABLE);
  }
  if (result.error !== undefined || !result.response.ok) {
    throw new ApiError(toProblem(result.error, result.response));
  }
  return result.data as T;
}

/** Fetch what has no JSON: files, exports, streams. */
export async function fetchRaw(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(API_ROOT + path, {
      ...init,
      headers: { ...requestHeaders(), ...(init.headers as Record<string, string> | undefined) },
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiError(UNREACHABLE);
  }
  if (!response.ok) {
    throw new ApiError(toProblem(await response.json().catch(() => null), response));
  }
  return response;
}

const UNREACHABLE: Problem = {
  type: 'about:blank',
  title: 'Server unreachable',
  status: 0,
  code: 'UNREACHABLE',
  detail: 'The server does not answer.',
  remedy: 'Check that `anabranch up` runs; the page tries again by itself.',
  instance: '',
  request_id: '',
};

function toProblem(body: unknown, response: Response): Problem {
  if (typeof body === 'object' && body !== null && 'code' in body) return body as Problem;
  return {
    ...UNREACHABLE,
    title: response.statusText || 'Error',
    status: response.status,
    code: `HTTP_${response.status}`,
    detail: `The server answered with status ${response.status}.`,
    remedy: 'Try again; look in the log of the server if it stays.',
  };
}
