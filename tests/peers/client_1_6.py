"""The Python SDK 1.6 as a client, over a pipe: like `client.py`, without argument. It asks for no progress."""

import json
import os
import sys
import traceback

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import CreateMessageResult, ListRootsResult, Root, TextContent

LONGEST_SECONDS = 60


class Round:
    def __init__(self):
        self.steps, self.logs, self.step = {}, [], None

    async def sample(self, context, params):
        self.step["asked"].append(params.messages[0].content.text)
        return CreateMessageResult(role="assistant", model="peer", content=TextContent(type="text", text="Paris"))

    async def roots(self, context):
        self.step["asked"].append("roots")
        return ListRootsResult(roots=[Root(uri="file:///lent", name="lent")])

    async def log(self, params):
        self.logs.append(params.data)

    async def take(self, session, step):
        heard = self.step = self.steps[step["label"]] = {"said": "", "asked": [], "progress": []}
        match step["kind"]:
            case "tools":
                heard["said"] = " ".join(sorted(tool.name for tool in (await session.list_tools()).tools))
            case "tool":
                result = await session.call_tool(step["name"], step["arguments"])
                heard["said"] = ("error: " if result.isError else "") + result.content[0].text
            case "resource":
                heard["said"] = (await session.read_resource(step["name"])).contents[0].text
            case "prompt":
                prompt = await session.get_prompt(step["name"], step["arguments"])
                heard["said"] = prompt.messages[0].content.text
        heard["asked"].sort()

    async def go(self, target):
        program, *arguments = target["command"]
        started = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
        answers = {
            "sampling_callback": self.sample,
            "list_roots_callback": self.roots,
            "logging_callback": self.log,
        }
        async with stdio_client(started) as streams, ClientSession(*streams, **answers) as session:
            await session.initialize()
            for step in target["steps"]:
                await self.take(session, step)


async def main():
    for line in sys.stdin:
        round = Round()
        try:
            with anyio.fail_after(LONGEST_SECONDS):
                await round.go(json.loads(line))
            broken = None
        except BaseException:
            broken = f"after {list(round.steps)}: {traceback.format_exc()}"
        print(json.dumps({"steps": round.steps, "logs": round.logs, "broken": broken}), flush=True)


anyio.run(main)
