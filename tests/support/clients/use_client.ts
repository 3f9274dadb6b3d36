// Uses the TypeScript client as a program of a user would: base URL and token as arguments.
import { ApiError, Client, type Schemas, type StreamEvent } from "anabranch-client";

declare const process: { argv: string[] };

function check(condition: unknown, seen: unknown): asserts condition {
  if (!condition) throw new Error(JSON.stringify(seen));
}

async function fail(call: Promise<unknown>): Promise<ApiError> {
  try {
    await call;
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  throw new Error("the call did not fail");
}

async function collect<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const found: Item[] = [];
  for await (const item of items) found.push(item);
  return found;
}

const [url, token] = process.argv.slice(2);
const client = new Client(url, token);
const question = "Who oils the valve in hall nine?";

// Ingest, wait, search, query.
const receipt: Schemas["IngestReceipt"] = await client.ingest({
  text: "The valve in hall nine is oiled each Friday by Pablo Stern.",
  filename: "valve.md",
  external_id: "valve-typescript",
  idempotencyKey: "valve-1",
});
const status = await client.wait(receipt);
check(status.state === "searchable" && status.chunks_count === 1, status);
const file = new File(["The gate in hall two is oiled by Vera Lind."], "gate.md", { type: "text/markdown" });
const upload = await client.ingest({ file, tags: ["gate", "hall"], metadata: { hall: 2 } });
await client.wait(upload.ingestion_job_id);
const found = await client.search(question, { k: 3, return_text: true });
check(found.results[0]?.text?.startsWith("The valve in hall nine is oiled"), found);
const answer = await client.query(question, { filters: { external_ids: ["valve-typescript"] } });
check(answer.answer?.includes("Stern") && answer.citations[0]?.quote, answer);

// Stream, feedback.
const events: StreamEvent[] = await collect(client.stream(question));
const last = events.at(-1);
check(last?.event === "answer" && last.answer.answer?.includes("Stern"), last);
check(events.some((event) => event.event === "step" && event.name === "fuse"), events);
check((await client.feedback({ run_id: answer.run_id, useful: true })).status === "accepted", answer);

// Lists.
const [gate] = await collect(client.documents({ tag: "gate" }));
check(gate?.filename === "gate.md" && gate.metadata["hall"] === 2, gate);
const documents = await collect(client.documents({ limit: 1 }));
check(documents.length > 1, documents);
const runs = await collect(client.runs({ text: "hall nine" }));
check(runs.some((run) => run.run_id === answer.run_id), runs);
const entries = await collect(client.events({ document: gate.document_id }));
check(entries.some((entry) => entry.type === "document.indexed.v1"), entries);

// Erase.
const erased = await client.erase({ scope: "document", name: gate.document_id });
check(erased.state === "done" && erased.documents === 1, erased);
check((await collect(client.documents({ tag: "gate" }))).length === 0, gate);

// Errors.
const unknown = await fail(client.wait("00000000-0000-4000-8000-000000000000"));
check(unknown.code === "NOT_FOUND" && unknown.status === 404 && unknown.remedy, unknown);
const denied = await fail(new Client(url, "wrong").query(question));
check(denied.code === "UNAUTHENTICATED", denied);
const refused = await fail(collect(client.stream(question, { profile: "none" })));
check(refused.code === "UNKNOWN_PROFILE", refused);
const away = await fail(new Client("http://127.0.0.1:9").search(question));
check(away.code === "SERVER_UNREACHABLE" && away.message.includes("anabranch up"), away.message);
const late = await fail(client.erase({ scope: "document", name: upload.document_id }, { timeoutMs: 0 }));
check(["TIMED_OUT", "NOT_FOUND"].includes(late.code), late.message);
const odd = await fail(client.search(question, { filters: { metadata: { hall: NaN } } }));
check(odd.code === "INVALID_REQUEST" && odd.message.includes("hall"), odd.message);
const aborted = client.query(question, {}, { signal: AbortSignal.abort() });
check((await aborted.catch((error) => error.name)) === "AbortError", "aborted");

// Replies of other servers.
const problem = "application/problem+json";
for (const [text, status, type] of [["event: answer\ndata: {\n\n", 200, ""], ["data: 1\n\n", 200, ""], ["null", 502, problem]] as const) {
  globalThis.fetch = async () => new Response(text, { status, headers: { "content-type": type } });
  const unexpected = await fail(collect(client.stream(question)));
  check(unexpected.code === "UNEXPECTED_REPLY", unexpected.message);
}
console.log("ok");
