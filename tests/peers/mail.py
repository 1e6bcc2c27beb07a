"""The Python SDK 2 as an agent that has mail: `mail.py legacy|2026-07-28`.

Standard input has a JSON object a line: first `{"url", "key"}`; then `{"call", "arguments"}` for a tool, `{"subscribe"}` to
an address, or `{"heard"}`, which waits until an address has changed since that was last asked. Each is answered by a line,
`{"said"}` or `{"refused"}`.
"""

import json
import sys
import warnings

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

mode = sys.argv[1]
LONGEST_SECONDS = 60
# The older era's words are deprecated.
warnings.simplefilter("ignore")
changes = {}


def change(uri):
    return changes.setdefault(str(uri), anyio.Event())


async def told(message):
    if getattr(message, "method", "") == "notifications/resources/updated":
        change(message.params.uri).set()


async def listen(client, uri, *, task_status):
    async with client.listen(resource_subscriptions=[uri]) as stream:
        honored = uri in (stream.honored.resource_subscriptions or [])
        task_status.started({"said": True} if honored else {"refused": "left out of the filter"})
        if honored:
            async for event in stream:
                change(event.uri).set()


async def take(client, group, step):
    match step:
        case {"call": name, "arguments": arguments}:
            result = await client.call_tool(name, arguments)
            return {"refused": result.content[0].text} if result.is_error else {"said": result.structured_content}
        case {"subscribe": uri} if mode == "legacy":
            await client.subscribe_resource(uri)
            return {"said": True}
        case {"subscribe": uri}:
            return await group.start(listen, client, uri)
        case {"heard": uri}:
            await change(uri).wait()
            del changes[uri]
            return {"said": True}


async def line():
    return await anyio.to_thread.run_sync(sys.stdin.readline)


def say(answer):
    print(json.dumps(answer), flush=True)


async def main():
    where = json.loads(await line())
    headers = {"Authorization": f"Bearer {where['key']}"}
    http = httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(LONGEST_SECONDS))
    async with http, Client(
        streamable_http_client(where["url"], http_client=http), mode=mode, message_handler=told
    ) as client, anyio.create_task_group() as group:
        say({"said": client.protocol_version})
        while read := await line():
            try:
                with anyio.fail_after(LONGEST_SECONDS):
                    say(await take(client, group, json.loads(read)))
            except MCPError as refused:
                say({"refused": str(refused)})
        group.cancel_scope.cancel()


anyio.run(main)
