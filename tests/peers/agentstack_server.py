"""An agent of BeeAI's agentstack: `agentstack_server.py PORT`. It answers with all that the conversation has said to it."""

import sys

from a2a.types import Message, Role
from a2a.utils.message import get_message_text
from agentstack_sdk.a2a.types import AgentMessage
from agentstack_sdk.server import Server
from agentstack_sdk.server.context import RunContext

server = Server()


@server.agent(name="agentstack-peer")
async def remember(input: Message, context: RunContext):
    """Answers with all that was said."""
    await context.store(input)
    turns = [turn async for turn in context.load_history()]
    texts = (get_message_text(turn) for turn in turns if getattr(turn, "role", None) == Role.user)
    yield AgentMessage(text=", ".join(texts))


server.run(host="127.0.0.1", port=int(sys.argv[1]), self_registration=False, log_level="warning")
