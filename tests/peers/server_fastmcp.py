"""A server of FastMCP 3 or 4: `server_fastmcp.py stdio|http [PORT]`.

A session sees the tool `treasure` once it has called `unlock`; no other session does. `ask_name` asks a person.
"""

import sys
from dataclasses import dataclass

from fastmcp import Context, FastMCP

transport = sys.argv[1]
server = FastMCP("vault")


@dataclass
class Name:
    name: str


@server.tool
async def unlock(ctx: Context) -> str:
    """Shows this session what is locked."""
    await ctx.enable_components(tags={"locked"}, components={"tool"})
    return "unlocked"


@server.tool(tags={"locked"})
def treasure() -> str:
    """Answers what is locked."""
    return "gold"


@server.tool
async def ask_name(ctx: Context) -> str:
    """Asks a person."""
    return f"Hello, {(await ctx.elicit('What is your name?', Name)).data.name}!"


server.disable(tags={"locked"})
where = {} if transport == "stdio" else {"host": "127.0.0.1", "port": int(sys.argv[2])}
server.run(transport=transport, show_banner=False, **where)
