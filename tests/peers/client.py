"""The Python SDK 2 as a client: `client.py legacy|2026-07-28`.

Standard input has a JSON object a line: `{"url"|"command", "steps"}`. For each it goes through the steps and prints what
it got as one JSON object, or `{"broken": …}`.
"""

import json
import os
import sys
import traceback

import anyio
from mcp import Client, StdioServerParameters
from mcp_types import CreateMessageResult, ElicitResult, ListRootsResult, Root, TextContent

mode = sys.argv[1]
LONGEST_SECONDS = 60


class Round:
    def __init__(self):
        self.steps, self.logs, self.step, self.told = {}, [], None, anyio.Event()

    async def elicit(self, context, params):
        self.step["asked"].append(params.message)
        return ElicitResult(action="accept", content={"name": "Ada"})

    async def sample(self, context, params):
        content = params.messages[0].content
        self.step["asked"].append((content[0] if isinstance(content, list) else content).text)
        return CreateMessageResult(role="assistant", model="peer", content=TextContent(type="text", text="Paris"))

    async def roots(self, context):
        self.step["asked"].append("roots")
        return ListRootsResult(roots=[Root(uri="file:///lent", name="lent")])

    async def log(self, params):
        self.logs.append(params.data)

    async def take(self, client, step):
        heard = self.step = self.steps[step["label"]] = {"said": "", "asked": [], "progress": []}

        async def progress(done, total, message):
            heard["progress"].append([done, total])
            self.told.set()

        async def tool():
            result = await client.call_tool(step["name"], step["arguments"], progress_callback=progress)
            return ("error: " if result.is_error else "") + result.content[0].text

        match step["kind"]:
            case "tools":
                heard["said"] = " ".join(sorted(tool.name for tool in (await client.list_tools()).tools))
            case "tool":
                heard["said"] = await tool()
            case "give_up":
                self.told = anyio.Event()
                async with anyio.create_task_group() as group:
                    group.start_soon(tool)
                    await self.told.wait()
                    group.cancel_scope.cancel()
                heard["said"] = "given up"
            case "resource":
                heard["said"] = (await client.read_resource(step["name"])).contents[0].text
            case "prompt":
                prompt = await client.get_prompt(step["name"], step["arguments"])
                heard["said"] = prompt.messages[0].content.text
        heard["asked"].sort()

    async def go(self, target):
        server = target.get("url")
        if server is None:
            program, *arguments = target["command"]
            server = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
        async with Client(
            server,
            mode=mode,
            elicitation_callback=self.elicit,
            sampling_callback=self.sample,
            list_roots_callback=self.roots,
            logging_callback=self.log,
            log_level="info" if mode != "legacy" else None,
        ) as client:
            for step in target["steps"]:
                await self.take(client, step)


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
