"""A server of the Python SDK 1 on a WebSocket: `websocket.py PORT`, at `/ws`."""

import sys

import uvicorn
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.websocket import websocket_server
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

server = FastMCP("python-websocket-peer")


class Name(BaseModel):
    name: str


@server.tool()
async def echo(text: str) -> str:
    """Answers the text."""
    return text


@server.tool()
async def ask_name(ctx: Context) -> str:
    """Asks a person."""
    answer = await ctx.elicit("What is your name?", Name)
    return f"Hello, {answer.data.name}!"


@server.tool()
async def ask_model(ctx: Context) -> str:
    """Asks the caller's model."""
    question = TextContent(type="text", text="What is the capital of France?")
    turns = [SamplingMessage(role="user", content=question)]
    answer = await ctx.session.create_message(turns, max_tokens=100)
    return answer.content.text


@server.tool()
async def folders(ctx: Context) -> str:
    """Asks for the caller's folders."""
    roots = await ctx.session.list_roots()
    return ",".join(str(root.uri) for root in roots.roots)


@server.tool()
async def count(to: int, ctx: Context) -> str:
    """Counts, and says so."""
    for n in range(1, to + 1):
        await ctx.report_progress(n, to)
        await ctx.info(f"at {n}")
    return str(to)


@server.tool()
async def fail() -> str:
    """Fails."""
    raise ValueError("on purpose")


@server.resource("peer://greeting")
def greeting() -> str:
    """A greeting."""
    return "Good morning"


@server.prompt()
def greet(name: str) -> str:
    """Greets somebody."""
    return f"Greet {name}"


async def serve(websocket):
    async with websocket_server(websocket.scope, websocket.receive, websocket.send) as (read, write):
        inner = server._mcp_server
        await inner.run(read, write, inner.create_initialization_options())


routes = Starlette(routes=[WebSocketRoute("/ws", serve)])
uvicorn.run(routes, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
