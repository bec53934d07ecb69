"""A real HTTP server with the OpenAI API: scripted, or a tiny model behind it."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Answer = tuple[int, Any, dict[str, str]]
"""A status, the JSON of the body (or its bytes, or an iterator of them), and headers."""


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
    """A server that answers a path and a body, several at once. It resets the connection where
    `answer` raises ConnectionResetError.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            stub.asked.append((self.path, self.headers["Authorization"], body))
            try:
                status, made, headers = answer(self.path, body)
            except ConnectionResetError:
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()
                raise
            drips = isinstance(made, Iterator)
            data = made if isinstance(made, bytes) else b"" if drips else json.dumps(made).encode()
            length = {} if drips else {"Content-Length": str(len(data))}
            self.send_response(status)
            for name, value in {**headers, **length}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
            for part in made if drips else ():
                self.wfile.write(part)
            self.close_connection = drips

        do_GET = do_POST  # noqa: N815  the name is the base class's

        def log_message(self, *_: Any) -> None:
            """Nothing is logged."""

    class Server(ThreadingHTTPServer):
        daemon_threads, request_queue_size = True, 128

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
