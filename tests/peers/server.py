"""A server of the Python SDK 2 that asks back: `server.py stdio|streamable-http|sse [PORT]`. Both eras."""

import sys
from typing import Annotated

from mcp import CreateMessageResult, SamplingMessage
from mcp.server.mcpserver import Context, Elicit, ListRoots, MCPServer, Resolve, Sample
from mcp_types import ListRootsResult, TextContent
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


transport = sys.argv[1]
if transport == "stdio":
    server.run("stdio")
else:
    server.run(transport, port=int(sys.argv[2]))
