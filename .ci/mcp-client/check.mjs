// Calls the MCP server as an agent does, over HTTP and over stdio. Arguments: URL, token, question, then the command of `anabranch mcp`.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [url, token, query, command, ...args] = process.argv.slice(2);

function check(condition, seen) {
  if (!condition) throw new Error(JSON.stringify(seen));
}

const headers = { Authorization: `Bearer ${token}` };
for (const transport of [
  new StreamableHTTPClientTransport(new URL("/mcp", url), { requestInit: { headers } }),
  new StdioClientTransport({ command, args }),
]) {
  const client = new Client({ name: "check", version: "1" });
  await client.connect(transport);
  const { tools } = await client.listTools();
  check(tools.some((tool) => tool.name === "answer" && tool.annotations.readOnlyHint), tools);
  // The client validates the structured result by the tool's schema.
  const answer = await client.callTool({ name: "answer", arguments: { query } });
  check(answer.structuredContent.citations.length > 0, answer);
  const failed = await client.callTool({ name: "search", arguments: { query: "" } });
  check(failed.isError && failed.content[0].text.includes("INVALID_REQUEST"), failed);
  const { resources } = await client.listResources();
  const read = await client.readResource({ uri: resources[0].uri });
  check(read.contents[0].text.length > 0, read);
  await client.close();
}
console.log("ok");
