"""A server of the Python SDK 1.3 that does what the round of tests/peers/a2a/mod.rs wants: `a2a_server.py PORT`.

JSON-RPC at `/`, HTTP+JSON at `/rest`.
"""

import sys

import uvicorn
from a2a.helpers.proto_helpers import new_task_from_user_message, new_text_part
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.types import a2a_pb2
from a2a_talking import card, handler
from starlette.applications import Starlette

port = int(sys.argv[1])


def interface(path, binding):
    url = f"http://127.0.0.1:{port}{path}"
    return a2a_pb2.AgentInterface(url=url, protocol_binding=binding, protocol_version="1.0")


shown = card(a2a_pb2, "python-peer", supported_interfaces=[interface("/", "JSONRPC"), interface("/rest", "HTTP+JSON")])
handling = handler(new_text_part, new_task_from_user_message, agent_card=shown)
routes = [
    *create_agent_card_routes(shown),
    *create_jsonrpc_routes(handling, "/"),
    *create_rest_routes(handling, path_prefix="/rest"),
]
uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=port, log_level="warning")
