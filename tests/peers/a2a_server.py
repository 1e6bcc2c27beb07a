"""A server of the Python SDK 1.3 that does what the round of tests/peers/a2a/mod.rs wants: `a2a_server.py PORT`.

JSON-RPC at `/`, HTTP+JSON at `/rest`.
"""

import asyncio
import sys

import httpx
import uvicorn
from a2a.helpers.proto_helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette

port = int(sys.argv[1])


class Talking(AgentExecutor):
    async def execute(self, context, queue):
        is_answer = context.current_task is not None
        task = context.current_task or new_task_from_user_message(context.message)
        updater = TaskUpdater(queue, task.id, task.context_id)
        if not is_answer:
            await queue.enqueue_event(task)
        said = context.get_user_input()

        def saying(text):
            return updater.new_agent_message([new_text_part(text)])

        if is_answer:
            await updater.add_artifact([new_text_part(f"Hello, {said}!")], artifact_id="result")
        elif said.startswith("echo "):
            await updater.add_artifact([new_text_part(said.removeprefix("echo "))], artifact_id="result")
        elif said == "count":
            await updater.start_work(saying("counting"))
            for text, append, last in [("1", False, False), (" 2", True, False), (" 3", True, True)]:
                piece = [new_text_part(text)]
                await updater.add_artifact(piece, artifact_id="counted", append=append, last_chunk=last)
        elif said == "ask":
            return await updater.requires_input(saying("What is your name?"))
        else:
            await updater.start_work(saying("waiting"))
            await asyncio.sleep(600)
        await updater.complete()

    async def cancel(self, context, queue):
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


card = AgentCard(
    name="python-peer",
    description="Talks",
    version="1",
    supported_interfaces=[
        AgentInterface(url=f"http://127.0.0.1:{port}/", protocol_binding="JSONRPC", protocol_version="1.0"),
        AgentInterface(url=f"http://127.0.0.1:{port}/rest", protocol_binding="HTTP+JSON", protocol_version="1.0"),
    ],
    capabilities=AgentCapabilities(streaming=True, push_notifications=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="talk", name="talk", description="Does what a text says", tags=["talk"])],
)
configs = InMemoryPushNotificationConfigStore()
handler = DefaultRequestHandler(
    agent_executor=Talking(),
    task_store=InMemoryTaskStore(),
    agent_card=card,
    push_config_store=configs,
    push_sender=BasePushNotificationSender(httpx.AsyncClient(), configs),
)
routes = [
    *create_agent_card_routes(card),
    *create_jsonrpc_routes(handler, "/"),
    *create_rest_routes(handler, path_prefix="/rest"),
]
uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=port, log_level="warning")
