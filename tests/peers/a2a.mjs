// The TypeScript SDK of A2A, for the round of tests/peers/a2a/mod.rs: `a2a.mjs client URL`, `a2a.mjs server PORT`.
// CALLBOARD_PEERS names the folder that the SDK is installed in.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";

const require = createRequire(`${process.env.CALLBOARD_PEERS}/node/`);
const sdk = require("@a2a-js/sdk");

const LONGEST_MS = 60_000;
const [, , side, target] = process.argv;

const part = (text) => ({ text });
const textOf = (parts) => (parts ?? []).map(({ text }) => text ?? "").join("");
const stateOf = (status) => status.state.replace("TASK_STATE_", "").toLowerCase().replaceAll("_", "-");

function saying(text, taskId, configuration) {
  const message = { messageId: randomUUID(), role: "ROLE_USER", parts: [part(text)], taskId };
  return sdk.SendMessageRequest.fromJSON({ message, configuration });
}

async function hook() {
  let tell;
  const told = new Promise((resolve) => (tell = resolve));
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (piece) => (body += piece));
    request.on("end", () => {
      response.end();
      const said = JSON.parse(body);
      const status = (said.task ?? said.statusUpdate)?.status;
      if (status?.state === "TASK_STATE_COMPLETED") tell(request.headers.authorization ?? "");
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}/hook`, told, server };
}

async function round(url) {
  const { ClientFactory } = require("@a2a-js/sdk/client");
  const client = await new ClientFactory().createFromUrl(url);
  const sent = async (...what) => sdk.Task.toJSON(await client.sendMessage(saying(...what)));
  const artifacts = (task) => (task.artifacts ?? []).map(({ parts }) => textOf(parts)).join("");
  const atOnce = { returnImmediately: true };

  const echoed = await sent("echo tschüß");
  const asked = await sent("ask");
  const answered = await sent("Ada", asked.id);

  const [states, pieces] = [[], []];
  for await (const event of client.sendMessageStream(saying("count"))) {
    const { artifactUpdate, statusUpdate, task } = sdk.StreamResponse.toJSON(event);
    if (artifactUpdate) {
      pieces.push(textOf(artifactUpdate.artifact.parts));
      continue;
    }
    const state = stateOf((task ?? statusUpdate).status);
    if (state !== "submitted" && states.at(-1) !== state) states.push(state);
  }

  const begun = await sent("wait", undefined, atOnce);
  await client.cancelTask({ id: begun.id, tenant: "" });
  const cancelled = sdk.Task.toJSON(await client.getTask({ id: begun.id, tenant: "" }));

  const { url: address, told, server } = await hook();
  const authentication = { scheme: "Bearer", credentials: "cr3d" };
  const push = { id: "hook", url: address, token: "t0ken", authentication };
  await sent("echo pushed", undefined, { ...atOnce, taskPushNotificationConfig: push });
  const pushed = await told;
  server.close();

  return {
    send: artifacts(echoed),
    stream: { states, text: pieces.join("") },
    ask: asked.status.message.parts[0].text,
    answer: artifacts(answered),
    cancel: stateOf(cancelled.status),
    push: pushed,
  };
}

class Talking {
  waiting = new Map();

  async execute({ userMessage, task, taskId, contextId }, bus) {
    const { AgentEvent } = require("@a2a-js/sdk/server");
    const said = textOf(sdk.Message.toJSON(userMessage).parts);
    const status = (state, text) => {
      const parts = text && [part(text)];
      const message = parts && { messageId: randomUUID(), role: "ROLE_AGENT", parts, taskId, contextId };
      return { state: `TASK_STATE_${state}`, message, timestamp: new Date().toISOString() };
    };
    const tell = (state, text) => {
      const event = { taskId, contextId, status: status(state, text) };
      bus.publish(AgentEvent.statusUpdate(sdk.TaskStatusUpdateEvent.fromJSON(event)));
    };
    const show = (artifactId, text, append = false, lastChunk = true) => {
      const event = { taskId, contextId, artifact: { artifactId, parts: [part(text)] }, append, lastChunk };
      bus.publish(AgentEvent.artifactUpdate(sdk.TaskArtifactUpdateEvent.fromJSON(event)));
    };
    const begun = { id: taskId, contextId, status: status("SUBMITTED"), history: [sdk.Message.toJSON(userMessage)] };
    bus.publish(AgentEvent.task(task ?? sdk.Task.fromJSON(begun)));

    if (task) show("result", `Hello, ${said}!`);
    else if (said.startsWith("echo ")) show("result", said.slice(5));
    else if (said === "count") {
      tell("WORKING", "counting");
      show("counted", "1", false, false);
      show("counted", " 2", true, false);
      show("counted", " 3", true, true);
    } else if (said === "ask") {
      tell("INPUT_REQUIRED", "What is your name?");
      return;
    } else {
      tell("WORKING", "waiting");
      const stop = new AbortController();
      this.waiting.set(taskId, stop);
      await sleep(600_000, undefined, { signal: stop.signal }).catch(() => {});
      tell("CANCELED");
      bus.finished();
      return;
    }
    tell("COMPLETED");
    bus.finished();
  }

  cancelTask = async (taskId) => this.waiting.get(taskId)?.abort();
}

function serve(port) {
  const { DefaultRequestHandler, InMemoryTaskStore, InMemoryPushNotificationStore, DefaultPushNotificationSender } =
    require("@a2a-js/sdk/server");
  const { agentCardHandler, jsonRpcHandler, restHandler, UserBuilder } = require("@a2a-js/sdk/server/express");
  const express = require("express");
  const at = `http://127.0.0.1:${port}`;
  const card = sdk.AgentCard.fromJSON({
    name: "typescript-peer",
    description: "Talks",
    version: "1",
    supportedInterfaces: [
      { url: `${at}/rpc`, protocolBinding: "JSONRPC", protocolVersion: "1.0" },
      { url: `${at}/rest`, protocolBinding: "HTTP+JSON", protocolVersion: "1.0" },
    ],
    capabilities: { streaming: true, pushNotifications: true },
    defaultInputModes: ["text/plain"],
    defaultOutputModes: ["text/plain"],
    skills: [{ id: "talk", name: "talk", description: "Does what a text says", tags: ["talk"] }],
  });
  const configs = new InMemoryPushNotificationStore();
  const sender = new DefaultPushNotificationSender(configs);
  const requestHandler =
    new DefaultRequestHandler(card, new InMemoryTaskStore(), new Talking(), undefined, configs, sender);
  const userBuilder = UserBuilder.noAuthentication;
  const app = express();
  app.use("/.well-known/agent-card.json", agentCardHandler({ agentCardProvider: requestHandler }));
  app.use("/rpc", jsonRpcHandler({ requestHandler, userBuilder }));
  app.use("/rest", restHandler({ requestHandler, userBuilder }));
  app.listen(port, "127.0.0.1");
}

if (side === "server") {
  serve(Number(target));
} else {
  const late = sleep(LONGEST_MS).then(() => Promise.reject(new Error("the round takes too long")));
  const said = await Promise.race([round(target), late]).catch((error) => ({ broken: String(error?.stack ?? error) }));
  console.log(JSON.stringify(said));
  process.exit(0);
}
