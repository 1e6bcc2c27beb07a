// The TypeScript SDK 2 as a client: `client.mjs URL legacy|2026-07-28`. Prints what it got as one JSON object.
// CALLBOARD_PEERS names the folder that it is installed in.

import { createRequire } from "node:module";

const require = createRequire(`${process.env.CALLBOARD_PEERS}/node/`);
const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");

const [url, mode] = process.argv.slice(2);
const seen = { asked: [], progress: [], logs: [] };

const client = new Client(
  { name: "typescript-peer", version: "1.0.0" },
  {
    capabilities: { sampling: {}, elicitation: {}, roots: {} },
    versionNegotiation: { mode: mode === "legacy" ? "legacy" : { pin: mode } },
  },
);
client.setRequestHandler("elicitation/create", async ({ params }) => {
  seen.asked.push(params.message);
  return { action: "accept", content: { name: "Ada" } };
});
client.setRequestHandler("sampling/createMessage", async ({ params }) => {
  seen.asked.push([params.messages[0].content].flat()[0].text);
  return { role: "assistant", model: "peer", content: { type: "text", text: "Paris" } };
});
client.setRequestHandler("roots/list", async () => {
  seen.asked.push("roots");
  return { roots: [{ uri: "file:///lent", name: "lent" }] };
});
client.setNotificationHandler("notifications/message", ({ params }) => {
  seen.logs.push(params.data);
});

await client.connect(new StreamableHTTPClientTransport(new URL(url)));

async function text(name, args = {}, options = undefined) {
  const params = { name, arguments: args };
  if (mode !== "legacy") params._meta = { "io.modelcontextprotocol/logLevel": "info" };
  const result = await client.callTool(params, options);
  return (result.isError ? "error: " : "") + result.content[0].text;
}

seen.tools = (await client.listTools()).tools.map((tool) => tool.name).sort();
seen.echo = await text("echo", { text: "tschüß" });
seen.ask_name = await text("ask_name");
seen.ask_model = await text("ask_model");
seen.folders = await text("folders");
seen.count = await text("count", { to: 3 }, { onprogress: ({ progress, total }) => seen.progress.push([progress, total]) });
seen.fail = await text("fail");
seen.resource = (await client.readResource({ uri: "peer://greeting" })).contents[0].text;
seen.prompt = (await client.getPrompt({ name: "greet", arguments: { name: "Ada" } })).messages[0].content.text;
console.log(JSON.stringify(seen));
await client.close();
process.exit(0);
