// A language model behind OpenAI's chat completions: `llm.mjs MODEL.gguf PORT`, by node-llama-cpp. CALLBOARD_PEERS names
// the folder that it is installed in. It listens once it can answer.

import http from "node:http";

const { getLlama, LlamaChatSession, LlamaLogLevel } =
  await import(`${process.env.CALLBOARD_PEERS}/llm/node_modules/node-llama-cpp/dist/index.js`);

const [modelPath, port] = process.argv.slice(2);
const BODY_BYTES_MAX = 1024 * 1024;
// One thread: several spin for each other where other work has the processors, and a token takes half a minute.
const llama = await getLlama({ gpu: false, build: "never", maxThreads: 1, logLevel: LlamaLogLevel.error });
const model = await llama.loadModel({ modelPath });
const name = "smollm2-135m-instruct";

const text = (content) =>
  typeof content === "string" ? content : (content ?? []).filter((p) => p.type === "text").map((p) => p.text).join("\n");

// What was said before, as the session wants it.
function history(messages) {
  return messages.map(({ role, content }) =>
    role === "assistant" ? { type: "model", response: [text(content)] } : { type: role === "system" ? "system" : "user", text: text(content) });
}

// Answers one request; `piece` is told each text as it comes, `signal` ends it early.
async function answer({ messages, max_tokens: maxTokens, temperature = 0, stop }, piece, signal) {
  const context = await model.createContext({ contextSize: 2048, threads: 1 });
  const sequence = context.getSequence();
  try {
    const session = new LlamaChatSession({ contextSequence: sequence });
    session.setChatHistory(history(messages.slice(0, -1)));
    const before = sequence.tokenMeter.getState();
    const customStopTriggers = stop === undefined ? undefined : [stop].flat();
    const options = { maxTokens, temperature, customStopTriggers, onTextChunk: piece, signal, stopOnAbortSignal: true };
    const { responseText, stopReason } = await session.promptWithMeta(text(messages.at(-1).content), options);
    const used = sequence.tokenMeter.diff(before);
    const usage = { prompt_tokens: used.usedInputTokens, completion_tokens: used.usedOutputTokens };
    usage.total_tokens = usage.prompt_tokens + usage.completion_tokens;
    return { responseText, usage, finish_reason: stopReason === "maxTokens" ? "length" : "stop" };
  } finally {
    await context.dispose();
  }
}

async function complete(request, response) {
  let body = "";
  for await (const chunk of request) {
    body += chunk;
    if (body.length > BODY_BYTES_MAX) return response.writeHead(413).end();
  }
  const params = JSON.parse(body);
  const gone = new AbortController();
  response.on("close", () => gone.abort());
  const head = { id: "chatcmpl-1", created: 0, model: name };
  if (!params.stream) {
    const { responseText, usage, finish_reason } = await answer(params, undefined, gone.signal);
    const message = { role: "assistant", content: responseText };
    response.setHeader("content-type", "application/json");
    return response.end(JSON.stringify({ ...head, object: "chat.completion", choices: [{ index: 0, message, finish_reason }], usage }));
  }
  response.setHeader("content-type", "text/event-stream");
  const say = (rest) => response.write(`data: ${JSON.stringify({ ...head, object: "chat.completion.chunk", ...rest })}\n\n`);
  const piece = (content) => say({ choices: [{ index: 0, delta: { content }, finish_reason: null }] });
  const { usage, finish_reason } = await answer(params, piece, gone.signal);
  say({ choices: [{ index: 0, delta: {}, finish_reason }] });
  say({ choices: [], usage });
  response.end("data: [DONE]\n\n");
}

const server = http.createServer((request, response) => {
  if (request.method !== "POST" || request.url !== "/v1/chat/completions") return response.writeHead(404).end();
  complete(request, response).catch(() => (response.headersSent ? response.destroy() : response.writeHead(400).end()));
});
server.listen(Number(port), "127.0.0.1");
