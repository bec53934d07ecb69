"""The servers that `bench.endpoint` measures, each a process that takes orders on its input."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from transformers import AutoTokenizer

from assay.agents.server import PolicyServer
from assay.agents.session import CallSession, ServedPolicy
from assay.config.sections import PolicySettings, TinySettings
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.torch import TorchEngine
from assay.environments import CallLimits
from assay.policy.load_model import Policy, load_policy
from assay.policy.tiny import make_tiny
from assay.types import Completion, Task
from bench.endpoint_engine import REPLY, Clock, completion, seconds_of
from tests.policies import checkpoint
from tests.policy.test_chat_templates import FOLDER

PACKAGE = Path(__file__).parent.parent / "assay"


def small_policy(folder: Path) -> Policy:
    """A random model with Qwen2.5's chat template and a tokenizer of this repository's text."""
    texts = [file.read_text() for file in sorted(PACKAGE.glob("*.py"))]
    tasks = [Task(str(n), text, (), "", reference=text) for n, text in enumerate(texts)]
    tiny = make_tiny(folder / "text", tasks, TinySettings(vocabulary=4096), 0)
    template = (FOLDER / "qwen2_5.jinja").read_text()
    marks = ("<|im_start|>", "<|im_end|>")
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    model = checkpoint(folder, "llama", template, tokenizer=tokenizer, special=marks)
    return load_policy(PolicySettings(model=str(model), device="cpu"))


class MeasuredEngine:
    """Says one text, or asks an engine, and notes how long each call took that engine."""

    def __init__(self, policy: Policy, engine: TorchEngine | None) -> None:
        tokens = policy.chat.encode_reply(REPLY)
        logprobs = tuple(-0.5 - n / 1024 for n in range(len(tokens)))
        self._text = Completion(REPLY, tokens, logprobs, "stop", (0,) * len(tokens))
        self._engine, self._clock = engine, Clock()
        self.sessions: list[CallSession] = []
        self.waits = False
        self.times: dict[object, list[float]] = {}

    async def generate(self, request: GenerationRequest, sampling: Sampling) -> Completion:
        times = self.times[request.rollout]
        if self._engine is None:
            session = self.sessions.index(request.rollout)  # type: ignore[arg-type]
            if self.waits:
                await self._clock.wait(seconds_of(1000 * session + len(times)))
            times.append(0.0)
            return self._text
        started = time.perf_counter()
        completion = await self._engine.generate(request, sampling)
        times.append(time.perf_counter() - started)
        return completion


async def orders() -> AsyncIterator[dict[str, Any]]:
    """What `bench.endpoint` says, line by line."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        yield json.loads(line)


def report(**answer: Any) -> None:
    """Answer an order."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    used = {"cpu": time.process_time(), "mib": pages * resource.getpagesize() / 2**20}
    print(json.dumps(used | answer), flush=True)


async def serve_policy(policy: Policy, engine: TorchEngine | None) -> None:
    """Serve the policy's endpoint before an engine."""
    measured, server = MeasuredEngine(policy, engine), PolicyServer()
    served = ServedPolicy(measured.generate, policy.chat, Sampling(200 if engine is None else 16))
    async with AsyncExitStack() as always:
        await always.enter_async_context(server.open(CallSession(served, 0, CallLimits(1, 1e9))))
        opened = AsyncExitStack()
        async for order in orders():
            if order["do"] == "look":
                nodes = sum(len(session.tree.nodes) for session in measured.sessions)
                times = [measured.times[session] for session in measured.sessions]
                report(nodes=nodes, engine=times)
                continue
            await opened.aclose()
            opened, count = AsyncExitStack(), order["sessions"]
            measured.waits = order["waits"]
            measured.sessions = [
                CallSession(served, n, CallLimits(10_000, 1e9)) for n in range(count)
            ]
            measured.times = {session: [] for session in measured.sessions}
            addresses = [
                await opened.enter_async_context(server.open(session))
                for session in measured.sessions
            ]
            port = int(addresses[0].url.split(":")[2].split("/")[0])
            path, keys = "/v1/chat/completions", [address.key for address in addresses]
            report(port=port, path=path, keys=keys)


@asynccontextmanager
async def bare_server() -> AsyncIterator[int]:
    """A route that reads a body and answers as much as the policy would; its port."""
    message = completion({"messages": []})
    for name in ("prompt_token_ids", "object"):
        del message[name]
    message["choices"][0] |= {"logprobs": None, "token_ids": None}
    content, clock = json.dumps(message), Clock()

    async def answer(request: Request) -> Response:
        await request.body()
        await clock.wait(float(request.headers["x-wait"]))
        return Response(content, media_type="application/json")

    app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])
    config = uvicorn.Config(app, port=0, http="h11", log_level="error", access_log=False)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    serving.cancel()


async def serve_bare() -> None:
    """What HTTP alone costs."""
    async with bare_server() as port:
        async for order in orders():
            keys = [""] * order.get("sessions", 0)
            report(port=port, path="/v1/chat/completions", keys=keys, nodes=0, engine=[])


def main() -> None:
    if sys.argv[1] == "http":
        asyncio.run(serve_bare())
        return
    with tempfile.TemporaryDirectory() as folder:
        policy = small_policy(Path(folder))

    async def serve() -> None:
        engine = TorchEngine(policy) if sys.argv[1] == "torch" else None
        await serve_policy(policy, engine)

    asyncio.run(serve())


if __name__ == "__main__":
    main()
