"""A server of the Python SDK 1 that asks back: `server_old.py stdio|streamable-http|sse|websocket [PORT]`."""

import pathlib
import sys

import anyio
import uvicorn
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.websocket import websocket_server
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

transport = sys.argv[1]
port = int(sys.argv[2]) if len(sys.argv) > 2 else 0
server = FastMCP("python-old-peer", host="127.0.0.1", port=port, log_level="WARNING")


class Name(BaseModel):
    name: str


async def the_name(ctx, message="What is your name?"):
    return (await ctx.elicit(message, Name)).data.name


async def the_capital(ctx):
    question = TextContent(type="text", text="What is the capital of France?")
    turns = [SamplingMessage(role="user", content=question)]
    # Without the id it would go out on the stream of no call.
    answer = await ctx.session.create_message(turns, max_tokens=100, related_request_id=ctx.request_id)
    return answer.content.text


async def the_folders(ctx):
    roots = await ctx.session.list_roots()
    return ",".join(str(root.uri) for root in roots.roots)


@server.tool()
async def echo(text: str) -> str:
    """Answers the text."""
    return text


@server.tool()
async def ask_name(ctx: Context) -> str:
    """Asks a person."""
    return f"Hello, {await the_name(ctx)}!"


@server.tool()
async def ask_model(ctx: Context) -> str:
    """Asks the caller's model."""
    return await the_capital(ctx)


@server.tool()
async def folders(ctx: Context) -> str:
    """Asks for the caller's folders."""
    return await the_folders(ctx)


@server.tool()
async def ask_all(ctx: Context) -> str:
    """Asks all of it at once."""
    answers = {}

    async def put(key, question):
        answers[key] = await question(ctx)

    async with anyio.create_task_group() as questions:
        for key, question in enumerate([the_name, the_capital, the_folders]):
            questions.start_soon(put, key, question)
    return ", ".join(answers[key] for key in sorted(answers))


@server.tool()
async def ask_twice(ctx: Context) -> str:
    """Asks, and asks again about the answer."""
    return f"Sure, {await the_name(ctx, f'Sure, {await the_name(ctx)}?')}!"


@server.tool()
async def wait(file: str, ctx: Context) -> str:
    """Waits, and writes the file when the caller no longer does."""
    await ctx.report_progress(0, 1)
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        pathlib.Path(file).write_text("given up")
        raise


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


@server.resource("peer://asked/{about}")
async def asked_for(about: str, ctx: Context) -> str:
    """What somebody says."""
    return f"{about}: {await the_name(ctx)}"


@server.prompt()
def greet(name: str) -> str:
    """Greets somebody."""
    return f"Greet {name}"


@server.prompt()
async def ask_and_greet(ctx: Context) -> str:
    """Greets whoever that is."""
    return f"Greet {await the_name(ctx)}"


async def serve(websocket):
    async with websocket_server(websocket.scope, websocket.receive, websocket.send) as (read, write):
        inner = server._mcp_server
        await inner.run(read, write, inner.create_initialization_options())


if transport == "websocket":
    routes = Starlette(routes=[WebSocketRoute("/ws", serve)])
    uvicorn.run(routes, host="127.0.0.1", port=port, log_level="warning")
else:
    server.run(transport)
