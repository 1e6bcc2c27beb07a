"""A server of the Python SDK 2 that asks back: `server.py stdio|streamable-http|sse [PORT]`. Both eras."""

import pathlib
import sys
from typing import Annotated

import anyio

from mcp import CreateMessageResult, SamplingMessage
from mcp.server.mcpserver import Context, Elicit, ListRoots, MCPServer, Resolve, Sample
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult, ListRootsResult, TextContent
from pydantic import BaseModel

server = MCPServer("python-peer", instructions="Ask it what you like.")


class Name(BaseModel):
    name: str


async def the_name() -> Elicit[Name]:
    return Elicit("What is your name?", Name)


async def the_capital() -> Sample:
    question = TextContent(type="text", text="What is the capital of France?")
    return Sample([SamplingMessage(role="user", content=question)], max_tokens=100)


async def the_folders() -> ListRoots:
    return ListRoots()


@server.tool()
async def echo(text: str) -> str:
    """Answers the text."""
    return text


@server.tool()
async def ask_name(name: Annotated[Name, Resolve(the_name)]) -> str:
    """Asks a person."""
    return f"Hello, {name.name}!"


@server.tool()
async def ask_model(capital: Annotated[CreateMessageResult, Resolve(the_capital)]) -> str:
    """Asks the caller's model."""
    return capital.content.text


@server.tool()
async def folders(roots: Annotated[ListRootsResult, Resolve(the_folders)]) -> str:
    """Asks for the caller's folders."""
    return ",".join(str(root.uri) for root in roots.roots)


@server.tool()
async def ask_all(
    name: Annotated[Name, Resolve(the_name)],
    capital: Annotated[CreateMessageResult, Resolve(the_capital)],
    roots: Annotated[ListRootsResult, Resolve(the_folders)],
) -> str:
    """Asks all of it: without a session in one round, with one it's one after the other."""
    return f"{name.name}, {capital.content.text}, {roots.roots[0].uri}"


async def the_certainty(name: Annotated[Name, Resolve(the_name)]) -> Elicit[Name]:
    return Elicit(f"Sure, {name.name}?", Name)


@server.tool()
async def ask_twice(again: Annotated[Name, Resolve(the_certainty)]) -> str:
    """Asks, and asks again about the answer."""
    return f"Sure, {again.name}!"


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


@server.prompt()
def greet(name: str) -> str:
    """Greets somebody."""
    return f"Greet {name}"


async def asked(ctx: Context) -> str | InputRequiredResult:
    """The name. Dependencies are for tools only: here the question is put as the era of the client has it."""
    if ctx.protocol_version < "2026-07-28":
        return (await ctx.elicit("What is your name?", Name)).data.name
    if ctx.input_responses:
        return ctx.input_responses["name"].content["name"]
    form = ElicitRequestFormParams(message="What is your name?", requested_schema=Name.model_json_schema())
    return InputRequiredResult(input_requests={"name": ElicitRequest(params=form)}, request_state="asked")


@server.prompt()
async def ask_and_greet(ctx: Context) -> str | InputRequiredResult:
    """Greets whoever that is."""
    name = await asked(ctx)
    return f"Greet {name}" if isinstance(name, str) else name


@server.resource("peer://asked/{about}")
async def asked_for(about: str, ctx: Context) -> str | InputRequiredResult:
    """What somebody says."""
    name = await asked(ctx)
    return f"{about}: {name}" if isinstance(name, str) else name


transport = sys.argv[1]
if transport == "stdio":
    server.run("stdio")
else:
    server.run(transport, port=int(sys.argv[2]))
