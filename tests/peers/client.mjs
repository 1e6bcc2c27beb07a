// The TypeScript SDK 2 as a client: `client.mjs legacy|2026-07-28`. Standard input has a JSON object a line,
// `{"url"|"command", "steps"}`. For each it goes through the steps and prints what it got as one JSON object, or
// `{"broken": …}`. CALLBOARD_PEERS names the folder that the SDK is installed in.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(`${process.env.CALLBOARD_PEERS}/node/`);
const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

const mode = process.argv[2];
const LONGEST_MS = 60_000;

async function round({ url, command, steps }, seen) {
  const client = new Client(
    { name: "typescript-peer", version: "1.0.0" },
    {
      capabilities: { sampling: {}, elicitation: {}, roots: {} },
      versionNegotiation: { mode: mode === "legacy" ? "legacy" : { pin: mode } },
    },
  );
  let heard;
  client.setRequestHandler("elicitation/create", async ({ params }) => {
    heard.asked.push(params.message);
    return { action: "accept", content: { name: "Ada" } };
  });
  client.setRequestHandler("sampling/createMessage", async ({ params }) => {
    heard.asked.push([params.messages[0].content].flat()[0].text);
    return { role: "assistant", model: "peer", content: { type: "text", text: "Paris" } };
  });
  client.setRequestHandler("roots/list", async () => {
    heard.asked.push("roots");
    return { roots: [{ uri: "file:///lent", name: "lent" }] };
  });
  client.setNotificationHandler("notifications/message", ({ params }) => {
    seen.logs.push(params.data);
  });
  await client.connect(url ? new StreamableHTTPClientTransport(new URL(url)) : stdio(command));
  try {
    for (const step of steps) {
      heard = seen.steps[step.label] = { said: "", asked: [], progress: [] };
      heard.said = await take(client, step, heard);
      heard.asked.sort();
    }
  } finally {
    await client.close();
  }
}

function stdio([command, ...args]) {
  return new StdioClientTransport({ command, args, stderr: "inherit", env: process.env });
}

async function take(client, { kind, name, arguments: args }, heard) {
  const gone = new AbortController();
  const call = async () => {
    const params = { name, arguments: args };
    if (mode !== "legacy") params._meta = { "io.modelcontextprotocol/logLevel": "info" };
    const onprogress = ({ progress, total }) => {
      // The SDK counts the rounds of its own questions this way, too: without a total.
      if (total === undefined) return;
      heard.progress.push([progress, total]);
      if (kind === "give_up") gone.abort("enough");
    };
    const result = await client.callTool(params, { onprogress, signal: gone.signal });
    return (result.isError ? "error: " : "") + result.content[0].text;
  };
  switch (kind) {
    case "tools":
      return (await client.listTools()).tools.map((tool) => tool.name).sort().join(" ");
    case "tool":
      return call();
    case "give_up":
      return call().catch((why) => {
        if (!gone.signal.aborted) throw why;
        return "given up";
      });
    case "resource":
      return (await client.readResource({ uri: name })).contents[0].text;
    case "prompt":
      return (await client.getPrompt({ name, arguments: args })).messages[0].content.text;
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const seen = { steps: {}, logs: [], broken: null };
  const late = new Promise((_, reject) => setTimeout(() => reject(new Error("too late")), LONGEST_MS).unref());
  try {
    await Promise.race([round(JSON.parse(line), seen), late]);
  } catch (why) {
    seen.broken = `after ${Object.keys(seen.steps)}: ${why?.stack ?? why}`;
  }
  console.log(JSON.stringify(seen));
}
process.exit(0);
