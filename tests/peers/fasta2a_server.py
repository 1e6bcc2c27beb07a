"""A server of fasta2a 0.6 or 2.1: `fasta2a_server.py PORT`. It answers with all that the conversation has said to it."""

import sys
from contextlib import asynccontextmanager
from importlib.metadata import version

import uvicorn
from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.storage import InMemoryStorage

port = int(sys.argv[1])
# Parts have a kind until A2A 1.0.
kind = {"kind": "text"} if version("fasta2a").startswith("0.") else {}


class Remembering(Worker):
    async def run_task(self, params):
        task, context = params["id"], params["context_id"]
        await self.storage.update_task(task, state="working")
        text = "".join(part.get("text", "") for part in params["message"]["parts"])
        said = [*(await self.storage.load_context(context) or []), text]
        await self.storage.update_context(context, said)
        artifact = {"artifact_id": "said", "parts": [{**kind, "text": ", ".join(said)}]}
        await self.storage.update_task(task, state="completed", new_artifacts=[artifact])

    async def cancel_task(self, params):
        await self.storage.update_task(params["id"], state="canceled")

    def build_message_history(self, history):
        return history

    def build_artifacts(self, result):
        return [result]


storage, broker = InMemoryStorage(), InMemoryBroker()
worker = Remembering(broker=broker, storage=storage)


@asynccontextmanager
async def lifespan(app):
    async with app.task_manager, worker.run():
        yield


skill = {
    "id": "remember",
    "name": "Remember",
    "description": "Answers with all that was said",
    "tags": [],
    "input_modes": ["text/plain"],
    "output_modes": ["text/plain"],
}
app = FastA2A(
    storage=storage,
    broker=broker,
    name="fasta2a-peer",
    url=f"http://127.0.0.1:{port}",
    skills=[skill],
    lifespan=lifespan,
)
uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")
