// A server of the TypeScript SDK 2 that asks back: `server.mjs stdio|http [PORT]`. Both eras over the pipe; over HTTP only
// the newer one, for without sessions (it keeps none for the older era) it can't ask.

import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { Readable } from "node:stream";

const require = createRequire(`${process.env.CALLBOARD_PEERS}/node/`);
const { McpServer, ResourceTemplate, createMcpHandler, fromJsonSchema, inputRequired } = require("@modelcontextprotocol/server");
const { serveStdio } = require("@modelcontextprotocol/server/stdio");

const text = (text) => ({ content: [{ type: "text", text }] });
const object = (properties) => fromJsonSchema({ type: "object", properties, required: Object.keys(properties) });

const name = (message = "What is your name?") => inputRequired.elicit({
  message,
  requestedSchema: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
});
const capital = () => inputRequired.createMessage({
  messages: [{ role: "user", content: { type: "text", text: "What is the capital of France?" } }],
  maxTokens: 100,
});
const roots = () => inputRequired.listRoots();

// The answers, or what is to be asked first.
function asking(ctx, inputRequests, then) {
  const answers = ctx.mcpReq.inputResponses ?? {};
  const missing = Object.keys(inputRequests).some((key) => !(key in answers));
  return missing ? inputRequired({ inputRequests, requestState: "asked" }) : then(answers);
}
const said = {
  name: (answer) => answer.content.name,
  capital: (answer) => [answer.content].flat()[0].text,
  roots: (answer) => answer.roots.map((root) => root.uri).join(","),
};

function server() {
  const capabilities = { tools: {}, resources: {}, prompts: {}, logging: {} };
  const server = new McpServer({ name: "typescript-peer", version: "1.0.0" }, { capabilities });
  const tool = (title, inputSchema, run) => server.registerTool(title, { description: "A tool of a round", inputSchema }, run);
  const none = object({});

  tool("echo", object({ text: { type: "string" } }), ({ text: echoed }) => text(echoed));
  tool("ask_name", none, (_, ctx) => asking(ctx, { q: name() }, ({ q }) => text(`Hello, ${said.name(q)}!`)));
  tool("ask_model", none, (_, ctx) => asking(ctx, { q: capital() }, ({ q }) => text(said.capital(q))));
  tool("folders", none, (_, ctx) => asking(ctx, { q: roots() }, ({ q }) => text(said.roots(q))));
  tool("ask_all", none, (_, ctx) => asking(ctx, { n: name(), c: capital(), r: roots() }, ({ n, c, r }) =>
    text([said.name(n), said.capital(c), said.roots(r)].join(", "))));
  tool("ask_twice", none, (_, ctx) => {
    const answers = ctx.mcpReq.inputResponses ?? {};
    if (answers.again) return text(`Sure, ${said.name(answers.again)}!`);
    const inputRequests = answers.first ? { again: name(`Sure, ${said.name(answers.first)}?`) } : { first: name() };
    return inputRequired({ inputRequests, requestState: "asked" });
  });
  tool("wait", object({ file: { type: "string" } }), async ({ file }, { mcpReq }) => {
    const gone = new Promise((resolve) => mcpReq.signal.addEventListener("abort", resolve));
    await told(mcpReq, 0, 1);
    await gone;
    writeFileSync(file, "given up");
    return text("nobody waits");
  });
  tool("count", object({ to: { type: "integer" } }), async ({ to }, { mcpReq }) => {
    for (let n = 1; n <= to; n++) {
      await told(mcpReq, n, to);
      await mcpReq.log("info", `at ${n}`);
    }
    return text(String(to));
  });
  tool("fail", none, () => ({ ...text("on purpose"), isError: true }));

  const read = (uri, text) => ({ contents: [{ uri: uri.href, text }] });
  server.registerResource("greeting", "peer://greeting", {}, (uri) => read(uri, "Good morning"));
  server.registerResource("asked", new ResourceTemplate("peer://asked/{about}", { list: undefined }), {}, (uri, { about }, ctx) =>
    asking(ctx, { q: name() }, ({ q }) => read(uri, `${about}: ${said.name(q)}`)));
  const greeting = (name) => ({ messages: [{ role: "user", content: { type: "text", text: `Greet ${name}` } }] });
  server.registerPrompt("greet", { argsSchema: object({ name: { type: "string" } }) }, ({ name }) => greeting(name));
  server.registerPrompt("ask_and_greet", {}, (ctx) => asking(ctx, { q: name() }, ({ q }) => greeting(said.name(q))));
  return server;
}

async function told(mcpReq, progress, total) {
  const progressToken = mcpReq._meta?.progressToken;
  if (progressToken === undefined) return;
  await mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress, total } });
}

// The SDK speaks in web streams, Node in its own.
async function http(request, response) {
  const gone = new AbortController();
  response.on("close", () => gone.abort());
  const hasBody = request.method === "POST";
  const answer = await handler.fetch(new Request(`http://${request.headers.host}${request.url}`, {
    method: request.method,
    headers: Object.entries(request.headers).filter(([, value]) => typeof value === "string"),
    body: hasBody ? Readable.toWeb(request) : undefined,
    duplex: hasBody ? "half" : undefined,
    signal: gone.signal,
  }));
  response.writeHead(answer.status, Object.fromEntries(answer.headers));
  response.flushHeaders();
  if (answer.body) Readable.fromWeb(answer.body).on("error", () => response.destroy()).pipe(response);
  else response.end();
}

const [transport, port] = process.argv.slice(2);
const handler = createMcpHandler(server, { legacy: "reject" });
if (transport === "stdio") serveStdio(server);
else createServer((request, response) => http(request, response).catch(() => response.destroy())).listen(Number(port), "127.0.0.1");
