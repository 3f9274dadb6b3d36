// Validates an AsyncAPI document: `node check.mjs FILE`. Exits 1 on errors and on warnings, each printed with its place.
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { Parser } from "@asyncapi/parser";

const file = resolve(process.argv[2]);
const { document, diagnostics } = await new Parser().parse(readFileSync(file, "utf8"), { source: file });
const serious = diagnostics.filter(({ severity }) => severity <= 1);
for (const { severity, message, path } of serious) {
  console.error(`${severity === 0 ? "error" : "warning"}: ${message} at ${path.join(".")}`);
}
if (!document || serious.length > 0) process.exit(1);
console.log(`${process.argv[2]}: AsyncAPI ${document.version()}, ${document.channels().all().length} channels, ${document.messages().all().length} messages`);
