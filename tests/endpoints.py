"""A real HTTP server with the OpenAI API: scripted, or a tiny model behind it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Answer = tuple[int, Any, dict[str, str]]
"""A status, the JSON of the body, and headers."""


@dataclass
class Stub:
    """Where it is, and the requests that came."""

    url: str
    asked: list[tuple[str, str | None, dict[str, Any]]] = field(default_factory=list)
    """The path, the key, and the body of each."""


def reply(text: str, tokens: int = 7, ended: str = "stop") -> Answer:
    """A completion as both APIs give it."""
    choice = {"message": {"content": text}, "finish_reason": ended}
    return 200, {"choices": [choice], "usage": {"completion_tokens": tokens}}, {}


@contextmanager
def endpoint(answer: Callable[[str, dict[str, Any]], Answer]) -> Iterator[Stub]:
    """A server that answers a path and a body, several at once."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            stub.asked.append((self.path, self.headers["Authorization"], body))
            status, made, headers = answer(self.path, body)
            data = json.dumps(made).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Nothing is logged."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """A client that is killed breaks its connection."""

    server = Server(("127.0.0.1", 0), Handler)
    stub = Stub(f"http://127.0.0.1:{server.server_address[1]}/v1")
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
