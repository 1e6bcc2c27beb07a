"""The Python SDK 1.3 as a client: `a2a_client.py URL [JSONRPC|HTTP+JSON]` goes through the round of tests/peers/a2a/mod.rs with
the agent whose card is there, and prints what came of it as one JSON object, or `{"broken": …}`.
"""

import asyncio
import json
import sys
import traceback

from a2a.client import ClientConfig, create_client
from a2a.helpers.proto_helpers import get_artifact_text, get_message_text, new_text_message
from a2a.types.a2a_pb2 import (
    AuthenticationInfo,
    CancelTaskRequest,
    GetTaskRequest,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a_hook import Hook

LONGEST_SECONDS = 60
url = sys.argv[1]
bindings = sys.argv[2:] or ["JSONRPC"]


def saying(text, task=None, **configuration):
    message = new_text_message(text, task_id=task, role=Role.ROLE_USER)
    return SendMessageRequest(message=message, configuration=SendMessageConfiguration(**configuration))


def name(state):
    return TaskState.Name(state).removeprefix("TASK_STATE_").lower().replace("_", "-")


def text(task):
    return "".join(get_artifact_text(artifact, "") for artifact in task.artifacts)


async def sent(client, *arguments, **configuration):
    async for event in client.send_message(saying(*arguments, **configuration)):
        return event.task


async def streamed():
    states, pieces = [], []
    async with await create_client(url, ClientConfig(supported_protocol_bindings=bindings)) as client:
        async for event in client.send_message(saying("count")):
            kind = event.WhichOneof("payload")
            if kind == "artifact_update":
                pieces.append(get_artifact_text(event.artifact_update.artifact, ""))
                continue
            state = name((event.task if kind == "task" else event.status_update).status.state)
            if state != "submitted" and states[-1:] != [state]:
                states.append(state)
    return {"states": states, "text": "".join(pieces)}


async def cancelled(client):
    begun = await sent(client, "wait", return_immediately=True)
    await client.cancel_task(CancelTaskRequest(id=begun.id))
    return name((await client.get_task(GetTaskRequest(id=begun.id))).status.state)


async def pushed(client):
    with Hook() as hook:
        push = TaskPushNotificationConfig(
            id="hook",
            url=hook.url,
            token="t0ken",
            authentication=AuthenticationInfo(scheme="Bearer", credentials="cr3d"),
        )
        await sent(client, "echo pushed", return_immediately=True, task_push_notification_config=push)
        return await asyncio.to_thread(hook.completed)


async def round():
    config = ClientConfig(streaming=False, supported_protocol_bindings=bindings)
    async with await create_client(url, config) as client:
        echoed = await sent(client, "echo tschüß")
        asked = await sent(client, "ask")
        answered = await sent(client, "Ada", asked.id)
        return {
            "send": text(echoed),
            "stream": await streamed(),
            "ask": get_message_text(asked.status.message).split("\n")[0],
            "answer": text(answered),
            "cancel": await cancelled(client),
            "push": await pushed(client),
        }


try:
    said = asyncio.run(asyncio.wait_for(round(), LONGEST_SECONDS))
except BaseException:
    said = {"broken": traceback.format_exc()}
print(json.dumps(said), flush=True)
