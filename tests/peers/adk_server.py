"""An agent of Google's ADK: `adk_server.py PORT`. Its model answers with all that the session has said to it."""

import sys

import uvicorn
from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types

port = int(sys.argv[1])


class Remembering(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        turns = (content for content in llm_request.contents if content.role == "user")
        said = ", ".join(part.text for content in turns for part in content.parts if part.text)
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=said)]))


agent = LlmAgent(name="adk_peer", description="Remembers", model=Remembering(model="remembering"))
uvicorn.run(to_a2a(agent, host="127.0.0.1", port=port), host="127.0.0.1", port=port, log_level="warning")
