"""The Python SDK 1 as a client with an access token, which connects as HMCP's client does: to `…/mcp/` or `…/sse/`.

Standard input has a JSON object a line: `{"url", "token", "call", "arguments"}`. For each it connects, calls the tool, and
prints `{"said"}`, or `{"refused"}`: the code and the data of the error, or the status and the challenge of the response.
"""

import json
import sys

import anyio
import httpx
from mcp import ClientSession, McpError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

LONGEST_SECONDS = 60


def connect(url, client):
    if url.endswith("/sse/"):
        return sse_client(url, headers=dict(client.headers), timeout=LONGEST_SECONDS)
    return streamable_http_client(url, http_client=client)


async def call(wanted):
    headers = {"Authorization": f"Bearer {wanted['token']}"}
    async with (
        httpx.AsyncClient(headers=headers, timeout=LONGEST_SECONDS) as client,
        connect(wanted["url"], client) as (read, write, *_),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        return (await session.call_tool(wanted["call"], wanted["arguments"])).structuredContent


def first(error):
    """Of nested groups, which are what task groups raise."""
    return first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


async def answer(wanted):
    answered = {}
    try:
        with anyio.fail_after(LONGEST_SECONDS):
            answered["said"] = await call(wanted)
    except* McpError as errors:
        error = first(errors).error
        answered["refused"] = f"{error.code} {json.dumps(error.data)}"
    except* httpx.HTTPStatusError as errors:
        response = first(errors).response
        answered["refused"] = f"{response.status_code} {response.headers['www-authenticate']}"
    return answered


async def main():
    for line in sys.stdin:
        print(json.dumps(await answer(json.loads(line))), flush=True)


anyio.run(main)
