"""The Python SDK 0.3.26, for the round of tests/peers/a2a/mod.rs: `a2a_old.py client URL`, `a2a_old.py server PORT`."""

import asyncio
import json
import sys
import traceback
import uuid

import uvicorn
from a2a import types
from a2a.client import ClientConfig, ClientFactory
from a2a.server.apps import A2AStarletteApplication
from a2a.types import (
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
from a2a_talking import card, handler

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


def serve(port):
    shown = card(types, "old-peer", url=f"http://127.0.0.1:{port}/")
    handling = handler(part, new_task, question={"final": True})
    app = A2AStarletteApplication(agent_card=shown, http_handler=handling).build()
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if sys.argv[1] == "server":
    serve(int(sys.argv[2]))
else:
    try:
        said = asyncio.run(asyncio.wait_for(round(sys.argv[2]), LONGEST_SECONDS))
    except BaseException:
        said = {"broken": traceback.format_exc()}
    print(json.dumps(said), flush=True)
