"""What a server of the Python SDK does for the round of tests/peers/a2a/mod.rs, and shows on its card, in either version.

The versions differ in their types, in how a part and a task are made, and in what is said with a question.
"""

import asyncio

import httpx
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)


class Talking(AgentExecutor):
    def __init__(self, part, task, question):
        self.part, self.task, self.question = part, task, question

    async def execute(self, context, queue):
        part, is_answer = self.part, context.current_task is not None
        task = context.current_task or self.task(context.message)
        updater = TaskUpdater(queue, task.id, task.context_id)
        if not is_answer:
            await queue.enqueue_event(task)
        said = context.get_user_input()

        def saying(text):
            return updater.new_agent_message([part(text)])

        if is_answer:
            await updater.add_artifact([part(f"Hello, {said}!")], artifact_id="result")
        elif said.startswith("echo "):
            await updater.add_artifact([part(said.removeprefix("echo "))], artifact_id="result")
        elif said == "count":
            await updater.start_work(saying("counting"))
            for piece, append, last in [("1", False, False), (" 2", True, False), (" 3", True, True)]:
                await updater.add_artifact([part(piece)], artifact_id="counted", append=append, last_chunk=last)
        elif said == "ask":
            return await updater.requires_input(saying("What is your name?"), **self.question)
        else:
            await updater.start_work(saying("waiting"))
            await asyncio.sleep(600)
        await updater.complete()

    async def cancel(self, context, queue):
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


def card(types, name, **more):
    return types.AgentCard(
        name=name,
        description="Talks",
        version="1",
        capabilities=types.AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[types.AgentSkill(id="talk", name="talk", description="Does what a text says", tags=["talk"])],
        **more,
    )


def handler(part, task, question={}, **more):
    configs = InMemoryPushNotificationConfigStore()
    return DefaultRequestHandler(
        agent_executor=Talking(part, task, question),
        task_store=InMemoryTaskStore(),
        push_config_store=configs,
        push_sender=BasePushNotificationSender(httpx.AsyncClient(), configs),
        **more,
    )
