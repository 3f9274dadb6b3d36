// Uses the generated TypeScript client as a program of a user would: base URL and token as arguments.
import createClient from "openapi-fetch";
import type { components, paths } from "./anabranch.js";

declare const process: { argv: string[] };

function check(condition: unknown, seen: unknown): asserts condition {
  if (!condition) throw new Error(JSON.stringify(seen));
}

const [baseUrl, token] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });

const ingested = await client.POST("/v1/ingest", {
  body: {
    text: "The valve in hall nine is oiled each Friday by Pablo Stern.",
    filename: "valve.md",
    external_id: "valve-typescript",
  },
});
check(ingested.data, ingested.error);
const receipt: components["schemas"]["IngestReceipt"] = ingested.data;

const deadline = Date.now() + 60_000;
let status: components["schemas"]["JobStatus"] | undefined;
while (status?.state !== "searchable") {
  check(Date.now() < deadline, status);
  await new Promise((resolve) => setTimeout(resolve, 100));
  const told = await client.GET("/v1/ingest/status/{job}", {
    params: { path: { job: receipt.ingestion_job_id } },
  });
  status = told.data;
}
const index = status.stages.filter((stage) => stage.stage === "index").map((stage) => stage.state);
check(index.join() === "done", index);

const found = await client.POST("/v1/search", { body: { query: "Who oils the valve?" } });
check(found.data?.results.some((result) => result.external_id === "valve-typescript"), found);
const answered = await client.POST("/v1/query", { body: { query: "Who oils the valve in hall nine?" } });
// With `stream`, the same operation answers text: server-sent events.
check(typeof answered.data === "object" && answered.data.answer?.includes("Stern"), answered);

const page = await client.GET("/v1/documents", { params: { query: { external_id: "valve-typescript" } } });
check(page.data?.items.length === 1, page);
const unknown = await client.GET("/v1/documents/{document}", {
  params: { path: { document: receipt.ingestion_job_id } },
});
check(unknown.error?.code === "NOT_FOUND", unknown);
console.log("ok");
