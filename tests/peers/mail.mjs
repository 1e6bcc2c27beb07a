// The TypeScript SDK 2 as an agent that has mail: `mail.mjs legacy|2026-07-28`. Standard input has a JSON object a line:
// first `{"url", "key"}`; then `{"call", "arguments"}` for a tool, `{"subscribe"}` to an address, or `{"heard"}`, which waits
// until an address has changed since that was last asked. Each is answered by a line, `{"said"}` or `{"refused"}`.
// CALLBOARD_PEERS names the folder that the SDK is installed in.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(`${process.env.CALLBOARD_PEERS}/node/`);
const { Client, ProtocolError, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");

const mode = process.argv[2];
const LONGEST_MS = 60_000;
const changes = new Map();

function change(uri) {
  if (!changes.has(uri)) changes.set(uri, Promise.withResolvers());
  return changes.get(uri);
}

async function connect({ url, key }) {
  const negotiated = { mode: mode === "legacy" ? "legacy" : { pin: mode } };
  const client = new Client({ name: "typescript-mail", version: "1.0.0" }, { versionNegotiation: negotiated });
  client.setNotificationHandler("notifications/resources/updated", ({ params }) => change(params.uri).resolve());
  const requestInit = { headers: { Authorization: `Bearer ${key}` } };
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
  return client;
}

async function take(client, { call, arguments: args, subscribe, heard }) {
  if (call) {
    const result = await client.callTool({ name: call, arguments: args });
    return result.isError ? { refused: result.content[0].text } : { said: result.structuredContent };
  }
  if (heard) {
    await change(heard).promise;
    changes.delete(heard);
    return { said: true };
  }
  if (mode === "legacy") {
    await client.subscribeResource({ uri: subscribe });
    return { said: true };
  }
  const { honoredFilter } = await client.listen({ resourceSubscriptions: [subscribe] });
  const honored = honoredFilter.resourceSubscriptions?.includes(subscribe);
  return honored ? { said: true } : { refused: "left out of the filter" };
}

let client;
for await (const line of createInterface({ input: process.stdin })) {
  const late = new Promise((_, reject) => setTimeout(() => reject(new Error("too late")), LONGEST_MS).unref());
  const step = async () => {
    if (client) return take(client, JSON.parse(line));
    client = await connect(JSON.parse(line));
    return { said: client.getNegotiatedProtocolVersion?.() ?? mode };
  };
  let answer;
  try {
    answer = await Promise.race([step(), late]);
  } catch (why) {
    if (!(why instanceof ProtocolError)) throw why;
    answer = { refused: String(why.message) };
  }
  console.log(JSON.stringify(answer));
}
process.exit(0);
