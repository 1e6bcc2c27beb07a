"""The Python SDK 2 as a client: `client.py URL legacy|2026-07-28`. Prints what it got as one JSON object."""

import asyncio
import json
import sys

from mcp import Client
from mcp_types import CreateMessageResult, ElicitResult, ListRootsResult, Root, TextContent

url, mode = sys.argv[1:]
seen = {"asked": [], "progress": [], "logs": []}


async def elicit(context, params):
    seen["asked"].append(params.message)
    return ElicitResult(action="accept", content={"name": "Ada"})


async def sample(context, params):
    content = params.messages[0].content
    seen["asked"].append((content[0] if isinstance(content, list) else content).text)
    return CreateMessageResult(role="assistant", model="peer", content=TextContent(type="text", text="Paris"))


async def roots(context):
    seen["asked"].append("roots")
    return ListRootsResult(roots=[Root(uri="file:///lent", name="lent")])


async def log(params):
    seen["logs"].append(params.data)


async def progress(done, total, message):
    seen["progress"].append([done, total])


async def main():
    async with Client(
        url,
        mode=mode,
        elicitation_callback=elicit,
        sampling_callback=sample,
        list_roots_callback=roots,
        logging_callback=log,
        log_level="info" if mode != "legacy" else None,
    ) as client:
        async def text(tool, arguments={}, **more):
            result = await client.call_tool(tool, arguments, **more)
            return ("error: " if result.is_error else "") + result.content[0].text

        seen["tools"] = sorted(tool.name for tool in (await client.list_tools()).tools)
        seen["echo"] = await text("echo", {"text": "tschüß"})
        seen["ask_name"] = await text("ask_name")
        seen["ask_model"] = await text("ask_model")
        seen["folders"] = await text("folders")
        seen["count"] = await text("count", {"to": 3}, progress_callback=progress)
        seen["fail"] = await text("fail")
        seen["resource"] = (await client.read_resource("peer://greeting")).contents[0].text
        prompt = await client.get_prompt("greet", {"name": "Ada"})
        seen["prompt"] = prompt.messages[0].content.text
        print(json.dumps(seen))


asyncio.run(main())
