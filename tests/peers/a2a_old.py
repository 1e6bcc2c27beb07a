"""The Python SDK 0.3.26, for the round of tests/peers/a2a/mod.rs: `a2a_old.py client URL`, `a2a_old.py server PORT`."""

import asyncio
import json
import sys
import traceback
import uuid

import httpx
import uvicorn
from a2a.client import ClientConfig, ClientFactory
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentSkill,
    Message,
    MessageSendConfiguration,
    Part,
    PushNotificationAuthenticationInfo,
    PushNotificationConfig,
    Role,
    TaskArtifactUpdateEvent,
    TaskIdParams,
    TaskQueryParams,
    TextPart,
)
from a2a.utils import new_task
from a2a_hook import Hook

LONGEST_SECONDS = 60


def part(text):
    return Part(root=TextPart(text=text))


def saying(text, task=None):
    return Message(message_id=str(uuid.uuid4()), role=Role.user, parts=[part(text)], task_id=task)


def texts(parts):
    return "".join(part.root.text for part in parts if part.root.kind == "text")


def text(task):
    return "".join(texts(artifact.parts) for artifact in task.artifacts or [])


async def sent(client, *arguments, **configuration):
    configuration = MessageSendConfiguration(**configuration)
    async for task, _ in client.send_message(saying(*arguments), configuration=configuration):
        return task


async def streamed(url):
    states, pieces = [], []
    async with await ClientFactory.connect(url, ClientConfig()) as client:
        async for task, update in client.send_message(saying("count")):
            if isinstance(update, TaskArtifactUpdateEvent):
                pieces.append(texts(update.artifact.parts))
                continue
            state = (update or task).status.state.value
            if state != "submitted" and states[-1:] != [state]:
                states.append(state)
    return {"states": states, "text": "".join(pieces)}


async def cancelled(client):
    begun = await sent(client, "wait", blocking=False)
    await client.cancel_task(TaskIdParams(id=begun.id))
    return (await client.get_task(TaskQueryParams(id=begun.id))).status.state.value


async def pushed(client):
    with Hook() as hook:
        authentication = PushNotificationAuthenticationInfo(schemes=["Bearer"], credentials="cr3d")
        push = PushNotificationConfig(id="hook", url=hook.url, token="t0ken", authentication=authentication)
        await sent(client, "echo pushed", blocking=False, push_notification_config=push)
        return await asyncio.to_thread(hook.completed)


async def round(url):
    async with await ClientFactory.connect(url, ClientConfig(streaming=False)) as client:
        echoed = await sent(client, "echo tschüß")
        asked = await sent(client, "ask")
        answered = await sent(client, "Ada", asked.id)
        return {
            "send": text(echoed),
            "stream": await streamed(url),
            "ask": texts(asked.status.message.parts),
            "answer": text(answered),
            "cancel": await cancelled(client),
            "push": await pushed(client),
        }


class Talking(AgentExecutor):
    async def execute(self, context, queue):
        is_answer = context.current_task is not None
        task = context.current_task or new_task(context.message)
        updater = TaskUpdater(queue, task.id, task.context_id)
        if not is_answer:
            await queue.enqueue_event(task)
        said = context.get_user_input()
        if is_answer:
            await updater.add_artifact([part(f"Hello, {said}!")], artifact_id="result")
        elif said.startswith("echo "):
            await updater.add_artifact([part(said.removeprefix("echo "))], artifact_id="result")
        elif said == "count":
            await updater.start_work(updater.new_agent_message([part("counting")]))
            for piece, append, last in [("1", False, False), (" 2", True, False), (" 3", True, True)]:
                await updater.add_artifact([part(piece)], artifact_id="counted", append=append, last_chunk=last)
        elif said == "ask":
            return await updater.requires_input(updater.new_agent_message([part("What is your name?")]), final=True)
        else:
            await updater.start_work(updater.new_agent_message([part("waiting")]))
            await asyncio.sleep(600)
        await updater.complete()

    async def cancel(self, context, queue):
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


def serve(port):
    card = AgentCard(
        name="old-peer",
        description="Talks",
        version="1",
        url=f"http://127.0.0.1:{port}/",
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="talk", name="talk", description="Does what a text says", tags=["talk"])],
    )
    configs = InMemoryPushNotificationConfigStore()
    handler = DefaultRequestHandler(
        agent_executor=Talking(),
        task_store=InMemoryTaskStore(),
        push_config_store=configs,
        push_sender=BasePushNotificationSender(httpx.AsyncClient(), configs),
    )
    app = A2AStarletteApplication(agent_card=card, http_handler=handler).build()
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if sys.argv[1] == "server":
    serve(int(sys.argv[2]))
else:
    try:
        said = asyncio.run(asyncio.wait_for(round(sys.argv[2]), LONGEST_SECONDS))
    except BaseException:
        said = {"broken": traceback.format_exc()}
    print(json.dumps(said), flush=True)
