/** Typed client of the Anabranch HTTP API, without dependencies. Every call rejects with ApiError. */
import type { components, paths } from "./schema.gen.js";

export type Schemas = components["schemas"];
type List = "/v1/documents" | "/v1/runs" | "/v1/events";
type Query<Path extends List> = paths[Path]["get"]["parameters"]["query"];
export type SearchOptions = Omit<Schemas["SearchRequest"], "query">;
export type QueryOptions = Omit<Schemas["QueryRequest"], "query" | "stream">;
export type IngestOptions = Schemas["IngestRequest"] & { file?: Blob; idempotencyKey?: string };

/** A step of a question (`ms` is null when it starts), unverified words of a draft, or the answer. */
export type StreamEvent =
  | { event: "step"; name: string; ms: number | null }
  | { event: "delta"; draft: number; text: string }
  | { event: "answer"; answer: Schemas["QueryResponse"] };

export interface CallOptions {
  /** Aborts the call; a question that is being answered is cancelled. */
  signal?: AbortSignal;
}

export type WaitOptions = CallOptions & { timeoutMs?: number };
type Request = CallOptions & { query?: object; body?: object; headers?: Record<string, string> };

/** A call failed: the message says what happened and what to do. `status` is 0 without a response. */
export class ApiError extends Error {
  override name = "ApiError";

  constructor(readonly detail: string, readonly code: string, readonly remedy: string, readonly status = 0) {
    super(`${detail.replace(/\.$/, "")}. ${remedy}`.trimEnd() + ` [${code}]`);
  }
}

export class Client {
  readonly url: string;

  /** `token`: an API key, or the token of `anabranch up`. */
  constructor(url = "http://127.0.0.1:8420", private readonly token?: string) {
    this.url = url.replace(/\/+$/, "");
  }

  /** Ingest a `file`, or else `text`, `url` or `storage_key`. Resolves once it is durable. */
  async ingest(document: IngestOptions, options: CallOptions = {}): Promise<Schemas["IngestReceipt"]> {
    const { file, idempotencyKey, ...fields } = document;
    const headers: Record<string, string> = idempotencyKey ? { "Idempotency-Key": idempotencyKey } : {};
    let body: object = fields;
    if (file) {
      const form = new FormData();
      for (const [name, value] of Object.entries(fields))
        if (value != null) form.append(name, typeof value === "string" ? value : JSON.stringify(value));
      form.append("file", file, fields.filename ?? (file as File).name ?? "document");
      body = form;
    }
    return this.#call("POST", "/v1/ingest", { body, headers, ...options });
  }

  /** Wait until the document is searchable, superseded or withdrawn; reject if it failed. */
  async wait(job: Schemas["IngestReceipt"] | string, options: WaitOptions = {}): Promise<Schemas["JobStatus"]> {
    const id = typeof job === "string" ? job : job.ingestion_job_id;
    const status = await poll(`Job ${id} is not finished`, options, async () => {
      const found = await this.#call<Schemas["JobStatus"]>("GET", `/v1/ingest/status/${id}`, { signal: options.signal });
      return ["accepted", "running"].includes(found.state) ? undefined : found;
    });
    const error = status.state === "failed" ? status.stages.find((stage) => stage.error)?.error : undefined;
    if (error) throw new ApiError(error.detail, error.code, error.remedy);
    return status;
  }

  /** Get ranked passages, with `return_text` their whole texts. */
  search(query: string, body: SearchOptions = {}, options: CallOptions = {}): Promise<Schemas["SearchResponse"]> {
    return this.#call("POST", "/v1/search", { body: { query, ...body }, ...options });
  }

  /** Get an answer with citations, or a refusal (`refused`, `code`, `message`). */
  query(query: string, body: QueryOptions = {}, options: CallOptions = {}): Promise<Schemas["QueryResponse"]> {
    return this.#call("POST", "/v1/query", { body: { query, ...body }, ...options });
  }

  /** Get the steps and words of the draft, and last the verified answer. */
  async *stream(query: string, body: QueryOptions = {}, options: CallOptions = {}): AsyncGenerator<StreamEvent> {
    const response = await this.#send("POST", "/v1/query", { body: { query, ...body, stream: true }, ...options });
    let event = "";
    for await (const line of this.#readLines(response)) {
      if (line.startsWith("event:")) event = line.slice(6).trim();
      if (!line.startsWith("data:")) continue;
      const data = this.#parse(line.slice(5), response);
      if (event === "error") throw new ApiError(data.detail, data.code, data.remedy, data.status);
      if (event === "answer") return yield { event, answer: data };
      if (event === "step" || event === "delta") yield { event, ...data };
    }
    throw new ApiError("The server closed the stream before the answer", "SERVER_UNREACHABLE", "Repeat the question.");
  }

  /** Judge the answer of `run_id`, or passages for any `query`. */
  feedback(body: Schemas["FeedbackRequest"], options: CallOptions = {}): Promise<Schemas["FeedbackReceipt"]> {
    return this.#call("POST", "/v1/feedback", { body, ...options });
  }

  /** List the documents that match, the latest first; pages are fetched as needed. */
  documents(query: Query<"/v1/documents"> = {}, options: CallOptions = {}): AsyncGenerator<Schemas["Document"]> {
    return this.#list("/v1/documents", query, options);
  }

  /** List recorded questions, the latest first. */
  runs(query: Query<"/v1/runs"> = {}, options: CallOptions = {}): AsyncGenerator<Schemas["RunSummary"]> {
    return this.#list("/v1/runs", query, options);
  }

  /** List the events of the log up to its end, from the cursor `after`. */
  events(query: Query<"/v1/events"> = {}, options: CallOptions = {}): AsyncGenerator<Schemas["LogEntry"]> {
    return this.#list("/v1/events", query, options);
  }

  /** Erase documents or a fact permanently, and wait for the receipt. */
  async erase(body: Schemas["ErasureRequest"], options: WaitOptions = {}): Promise<Schemas["ErasureReceipt"]> {
    const { signal } = options;
    const { receipt_id } = await this.#call<Schemas["AcceptedErasure"]>("POST", "/v1/erasures", { body, signal });
    return poll(`Erasure ${receipt_id} is not complete`, options, async () => {
      // Not by its id: the request may not have reached the tables yet.
      const page = await this.#call<Schemas["Page_ErasureReceipt_"]>("GET", "/v1/erasures", { query: { limit: 500 }, signal });
      return page.items.find((receipt) => receipt.receipt_id === receipt_id && receipt.state === "done");
    });
  }

  async *#list<Item>(path: string, query: object, options: CallOptions): AsyncGenerator<Item> {
    let page: { items: Item[]; next: string | null; end?: boolean } | undefined;
    do {
      const after = page ? { after: page.next } : {};
      page = await this.#call("GET", path, { query: { ...query, ...after }, ...options });
      yield* page!.items;
    } while (page!.next && !page!.end);
  }

  async #call<Result>(method: string, path: string, request: Request): Promise<Result> {
    const response = await this.#send(method, path, request);
    return this.#parse(await this.#reach(() => response.text()), response);
  }

  // JSON is the server's, and its shape that of the schema; all else comes from a proxy or another server.
  #parse(text: string, { status }: Response): any {
    try {
      const data = JSON.parse(text);
      if (typeof data === "object" && data !== null) return data;
    } catch {} // The error below names the server.
    const remedy = "Check the URL, and that client and server have the same version.";
    throw new ApiError(`Unexpected reply from ${this.url}: ${text.slice(0, 200)}`, "UNEXPECTED_REPLY", remedy, status);
  }

  async #send(method: string, path: string, { query, body, headers, signal }: Request): Promise<Response> {
    const url = new URL(this.url + path);
    for (const [name, value] of Object.entries(query ?? {}))
      if (value != null) url.searchParams.set(name, String(value));
    const sent = new Headers(headers);
    if (this.token) sent.set("Authorization", `Bearer ${this.token}`);
    const isForm = body instanceof FormData;
    if (body && !isForm) sent.set("Content-Type", "application/json");
    const init = { method, headers: sent, body: isForm ? body : body && JSON.stringify(body, refuseNaN), signal };
    const response = await this.#reach(() => fetch(url, { ...init, redirect: "error" }));
    if (response.ok) return response;
    const text = await this.#reach(() => response.text());
    // The text of a proxy, or of another server, is the detail.
    const isProblem = response.headers.get("content-type")?.startsWith("application/problem+json");
    const other = { detail: text.slice(0, 500), code: `HTTP_${response.status}`, remedy: "" };
    const problem: Partial<Schemas["Problem"]> & typeof other = isProblem ? this.#parse(text, response) : other;
    throw new ApiError(problem.detail, problem.code, problem.remedy, response.status);
  }

  async *#readLines(response: Response): AsyncGenerator<string> {
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    const read = () => this.#reach(() => reader.read());
    let rest = "";
    try {
      for (let part = await read(); !part.done; part = await read()) {
        const lines = (rest + part.value).split("\n");
        rest = lines.pop()!;
        yield* lines;
      }
    } finally {
      // Closes the connection, which cancels a question that is being answered.
      await reader.cancel().catch(() => undefined);
    }
  }

  async #reach<Result>(call: () => Promise<Result>): Promise<Result> {
    try {
      return await call();
    } catch (cause) {
      if (["AbortError", "TimeoutError"].includes((cause as Error).name)) throw cause;
      const reason = ((cause as Error).cause as Error | undefined)?.message ?? (cause as Error).message;
      const remedy = "Start it with `anabranch up`, or give the URL of another one.";
      throw new ApiError(`${this.url} does not answer: ${reason}`, "SERVER_UNREACHABLE", remedy);
    }
  }
}

/** JSON has no such numbers: `null` would be sent, which is no limit. */
function refuseNaN(name: string, value: unknown): unknown {
  if (typeof value !== "number" || Number.isFinite(value)) return value;
  throw new ApiError(`${name} is ${value}`, "INVALID_REQUEST", "Give a finite number.");
}

async function poll<T>(what: string, options: WaitOptions, check: () => Promise<T | undefined>): Promise<T> {
  const { timeoutMs = 300_000, signal } = options, deadline = Date.now() + timeoutMs;
  for (let pauseMs = 100; Date.now() < deadline; pauseMs = Math.min(2_000, pauseMs * 1.3)) {
    const result = await check();
    if (result !== undefined) return result;
    signal?.throwIfAborted();
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
  const remedy = "It continues on the server: raise `timeoutMs`, or check `anabranch doctor`.";
  throw new ApiError(`${what} after ${timeoutMs} ms`, "TIMED_OUT", remedy);
}
