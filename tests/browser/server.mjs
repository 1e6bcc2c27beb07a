// A server of MCP 2025-11-25 over a pipe, without an SDK: `server.mjs TOOLS`. The file TOOLS has its list of tools, read at each
// `tools/list`. `create_issue` asks for the project in mid-call; `wait` goes on until it is cancelled; any other tool repeats `text`.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const [, , TOOLS] = process.argv;
const PROTOCOL_VERSION = "2025-11-25";
const FORM = {
  type: "object",
  properties: {
    project: { type: "string", title: "Project", description: "Key of the project", minLength: 2, maxLength: 20 },
    is_urgent: { type: "boolean", title: "Urgent", default: false },
  },
  required: ["project"],
};

const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const text = (id, text) => send({ id, result: { content: [{ type: "text", text }] } });
// Calls whose question waits, by the id of the question.
const asking = new Map();

function call(id, { name, arguments: args }) {
  if (name === "wait") return;
  if (name !== "create_issue") return text(id, `echo: ${args.text}`);
  const question = `ask-${id}`;
  asking.set(question, id);
  send({ id: question, method: "elicitation/create", params: { message: "Which project?", requestedSchema: FORM } });
}

function answered(id, { action, content }) {
  const how = content?.is_urgent ? "urgent" : "normal";
  text(id, action === "accept" ? `created in ${content.project} (${how})` : `not created: ${action}`);
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params, result } = JSON.parse(line);
  if (asking.has(id)) {
    answered(asking.get(id), result ?? { action: "cancel" });
    asking.delete(id);
  } else if (method === "initialize") {
    const serverInfo = { name: "issue-server", version: "1.0.0" };
    send({ id, result: { protocolVersion: PROTOCOL_VERSION, capabilities: { tools: {} }, serverInfo } });
  } else if (method === "tools/list") {
    send({ id, result: { tools: JSON.parse(readFileSync(TOOLS, "utf8")) } });
  } else if (method === "tools/call") {
    call(id, params);
  } else if (id !== undefined) {
    send({ id, error: { code: -32601, message: `no method ${method}` } });
  }
}
