"""A webhook that keeps what it was told, for both versions of the Python SDK."""

import json
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LONGEST_SECONDS = 30
COMPLETED = ("TASK_STATE_COMPLETED", "completed")


class Hook:
    def __enter__(self):
        told = self.told = queue.Queue()

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                told.put((self.headers, json.loads(body)))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()

    def completed(self):
        """Waits until it is told that a task is completed: the `Authorization` that came with it."""
        while True:
            headers, body = self.told.get(timeout=LONGEST_SECONDS)
            task = body.get("task") or body.get("statusUpdate") or body
            if task.get("status", {}).get("state") in COMPLETED:
                return headers.get("authorization", "")
