"""A server of the Python SDK 1.6 over a pipe, which no request may reach before `initialize` but `ping`.

An unknown one, such as what a client asks to find out the era, ends its session and leaves its process.
"""

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import SamplingMessage, TextContent

server = FastMCP("python-1-6-peer", log_level="CRITICAL")


@server.tool()
async def echo(text: str) -> str:
    """Answers the text."""
    return text


@server.tool()
async def ask_model(ctx: Context) -> str:
    """Asks the caller's model."""
    question = TextContent(type="text", text="What is the capital of France?")
    turns = [SamplingMessage(role="user", content=question)]
    return (await ctx.session.create_message(turns, max_tokens=100)).content.text


@server.tool()
async def folders(ctx: Context) -> str:
    """Asks for the caller's folders."""
    return ",".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)


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


server.run("stdio")
