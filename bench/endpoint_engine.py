"""An engine that says one text: for `bench.endpoint`, and behind HTTP for a proxy beside it. It
needs the standard library alone, since a proxy has packages of its own.

    python -m bench.endpoint_engine      # prints its port; serves /v1/chat/completions
"""

from __future__ import annotations

import asyncio
import heapq
import json
import random
import threading
import time
from typing import Any

COMMAND = (
    "sed -n '1,40p' src/parser.py | grep -n 'def ' && python -m pytest -x -q tests/test_parser.py"
)
TEXT = "I look at the parser first, then run its tests."
CALL = json.dumps({"name": "bash", "arguments": {"command": COMMAND}})
REPLY = f"{TEXT}\n<tool_call>\n{CALL}\n</tool_call>"
START, END = 1, 2
HEAD = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
MEAN_SECONDS = 1.0
"""How long a call of the engine that waits takes, on average."""


class Clock:
    """Wakes coroutines from a thread, as an engine's completions come: asyncio's own timer is up
    to a millisecond late.
    """

    def __init__(self) -> None:
        self._due: list[tuple[float, int, asyncio.Future[None]]] = []
        self._changed, self._count = threading.Condition(), 0
        threading.Thread(target=self._run, daemon=True).start()

    async def wait(self, seconds: float) -> None:
        """Return after so many seconds."""
        if not seconds:
            return
        woken = asyncio.get_running_loop().create_future()
        with self._changed:
            self._count += 1
            heapq.heappush(self._due, (time.perf_counter() + seconds, self._count, woken))
            self._changed.notify()
        await woken

    def _run(self) -> None:
        with self._changed:
            while True:
                while self._due and self._due[0][0] <= time.perf_counter():
                    woken = heapq.heappop(self._due)[2]
                    woken.get_loop().call_soon_threadsafe(_wake, woken)
                left = self._due[0][0] - time.perf_counter() if self._due else None
                self._changed.wait(left)


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


def seconds_of(number: int) -> float:
    """How long the engine that waits takes for a call."""
    return random.Random(number).uniform(0.5, 1.5) * MEAN_SECONDS


def ids_of(message: dict[str, Any]) -> list[int]:
    """Token ids of a message: a third of its bytes, so as many as a tokenizer gives."""
    calls = [call["function"]["arguments"] for call in message.get("tool_calls") or ()]
    return list((message.get("content") or "").encode()[::3] + "".join(calls).encode()[::3])


def completion(body: dict[str, Any]) -> dict[str, Any]:
    """The answer to a chat completion, with vLLM's token ids."""
    prompt = [START]
    for sent in body["messages"]:
        prompt += [*ids_of(sent), END, START]
    function = {"name": "bash", "arguments": json.dumps({"command": COMMAND})}
    call = {"id": f"call_{time.monotonic_ns()}", "type": "function", "function": function}
    message: dict[str, Any] = {"role": "assistant", "content": TEXT, "tool_calls": [call]}
    sampled = [*ids_of(message), END]
    logprobs: list[dict[str, Any]] = [
        {"token": f"token_id:{token}", "logprob": -0.5, "bytes": None, "top_logprobs": []}
        for token in sampled
    ]
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "policy",
        "prompt_token_ids": prompt,
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls",
                     "logprobs": {"content": logprobs}, "token_ids": sampled}],
        "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(sampled),
                  "total_tokens": len(prompt) + len(sampled)},
    }  # fmt: skip


async def read_request(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """The first line and the body of one request."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    lengths = [line.split(":")[1] for line in head.lower().split("\r\n")
               if line.startswith("content-length:")]  # fmt: skip
    return head.partition("\r\n")[0], await reader.readexactly(int(lengths[0]) if lengths else 0)


async def serve() -> None:
    """Serve until the process is ended."""
    clock = Clock()

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                _, raw = await read_request(reader)
                body = json.loads(raw or b"{}")
                await clock.wait(float(body.get("user") or 0))
                content = completion(body) if raw else {"object": "list", "data": []}
                data = json.dumps(content).encode()
                writer.write(HEAD.format(len(data)).encode() + data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(client, "127.0.0.1", 0, limit=2**20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
