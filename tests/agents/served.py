"""A session behind a real server, with an engine that says one text after another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2

from assay.agents.server import PolicyServer, SessionAddress
from assay.agents.session import CallSession, ServedPolicy
from assay.agents.tree import LEARNED, balance
from assay.engines.base import GenerationRequest, Sampling
from assay.environments import CallLimits
from assay.policy.chat import Chat
from assay.rollout.samples import to_samples
from assay.types import Completion, Rollout, Score, Task
from tests.policy.test_chat_templates import chat_of
from tests.scripted import ScriptedEngine

USER = {"role": "user", "content": "List the files."}
SYSTEM = {"role": "system", "content": "Be brief."}
BASH = {
    "type": "function",
    "function": {"name": "bash", "description": "Runs it.",
                 "parameters": {"type": "object", "properties": {"command": {"type": "string"}},
                                "required": ["command"]}},
}  # fmt: skip
LS = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
PWD = '<tool_call>\n{"name": "bash", "arguments": {"command": "pwd"}}\n</tool_call>'


@cache
def chat(name: str = "qwen2_5") -> Chat:
    with TemporaryDirectory() as folder:
        return chat_of(Path(folder), name)


class Speaker(ScriptedEngine):
    """Says texts in turn, each token with a log-probability and a version of its own, and notes
    what it sampled. A text may be an error to raise, tokens, or an event to wait for first.
    """

    def __init__(self, texts: Sequence[Any], chat: Chat) -> None:
        super().__init__(lambda request, member: next(self.texts), chat.encode_reply)
        self.texts, self.chat = iter(texts), chat
        self.sampled: list[tuple[GenerationRequest, Completion]] = []
        self.begun = asyncio.Semaphore(0)
        self.cancelled = 0
        self.sampling: Sampling | None = None

    async def generate(self, request: GenerationRequest, sampling: Sampling) -> Completion:
        text, self.sampling = next(self.texts), sampling
        self.begun.release()
        if isinstance(text, tuple) and isinstance(text[0], asyncio.Event):
            try:
                await text[0].wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                if request.lose:
                    request.lose(7)
                raise
            text = text[1]
        if isinstance(text, Exception):
            raise text
        tokens = self.chat.encode_reply(text) if isinstance(text, str) else tuple(text)
        kept = tokens[: sampling.max_tokens]
        shown = self.chat.text(kept)
        ended = "stop" if len(kept) == len(tokens) else "length"
        for word in request.stop:
            if word in shown:
                shown, kept = shown.partition(word)[0], kept[:-1]
        place = len(self.sampled)
        logprobs = tuple(-(place + 1) - n / 1024 for n in range(len(kept)))
        versions = tuple(place + (n > 2) for n in range(len(kept)))
        completion = Completion(shown, kept, logprobs, ended, versions)  # type: ignore[arg-type]
        self.sampled.append((request, completion))
        return completion


def url_of(address: SessionAddress) -> str:
    """With the key in its path, so a request needs no header."""
    return address.url.replace("/v1", f"/rollout/{address.key}/v1")


class Agent:
    """A client of the endpoint, as the OpenAI package is one."""

    def __init__(self, address: SessionAddress, engine: Speaker, server: PolicyServer) -> None:
        self.address, self.engine, self.server = address, engine, server
        self.session = address.session
        self.url = url_of(address)
        self.http = httpx2.AsyncClient(timeout=60)

    async def post(
        self, *messages: Any, headers: dict[str, str] | None = None, url: str = "",
        path: str = "chat/completions", **body: Any,
    ) -> httpx2.Response:  # fmt: skip
        content = json.dumps({"model": "any", "messages": messages, **body})
        return await self.http.post(
            f"{url or self.url}/{path}", content=content, headers=headers or {}
        )

    async def reply(self, *messages: Any, **body: Any) -> dict[str, Any]:
        """The message of the first choice."""
        response = await self.post(*messages, **body)
        assert response.status_code == 200, response.text
        message: dict[str, Any] = response.json()["choices"][0]["message"]
        return message

    async def hang_up_on(self, *messages: Any) -> None:
        """Make the first call, and hang up while it is sampled."""
        first = asyncio.create_task(self.reply(*messages))
        await self.engine.begun.acquire()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        while self.session._pending[0].waiting:
            await asyncio.sleep(0.01)

    async def events(self, path: str, **body: Any) -> list[Any]:
        """The events of a streamed answer."""
        response = await self.http.post(f"{self.url}/{path}", json={**body, "stream": True})
        lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
        return [json.loads(line) for line in lines]

    @property
    def balance(self) -> dict[str, int]:
        counts = balance(self.session.tree)
        assert sum(counts.values()) == self.session.tree.sampled
        return dict(counts)

    def require_exact(self) -> list[Any]:
        """The samples of the rollout, after a check: what the learner gets of each learned reply
        equals what the engine sampled, ids, log-probabilities and prompt, each once.
        """
        turns = self.session.tree.turns()
        samples = to_samples([[Rollout(Task("t", "", (), ""), turns, Score(1.0))]])
        learned = [
            (token, logprob) for sample in samples
            for token, logprob, on in zip(sample.tokens, sample.logprobs, sample.mask, strict=True)
            if on
        ]  # fmt: skip
        prompts = {request.prompt for request, _ in self.engine.sampled}
        assert all(turn.prompt_tokens in prompts for turn in turns)
        sampled = {id(completion): completion for _, completion in self.engine.sampled}
        whole = [
            completion for completion in sampled.values()
            if any(turn.completion.logprobs == completion.logprobs for turn in turns)
        ]  # fmt: skip
        pairs = [pair for each in whole for pair in zip(each.tokens, each.logprobs, strict=True)]
        assert sorted(learned) == sorted(pairs)
        assert sum(turn.completion.length for turn in turns) == self.balance[LEARNED]
        by_tokens = {completion.logprobs: completion.versions for completion in sampled.values()}
        assert all(
            by_tokens[turn.completion.logprobs] == turn.completion.versions for turn in turns
        )
        return samples


@asynccontextmanager
async def serving(
    *texts: Any, template: str | Chat = "qwen2_5", limits: dict[str, Any] | None = None,
    grace_seconds: float = 60.0, **policy: Any,
) -> AsyncIterator[Agent]:  # fmt: skip
    using = chat(template) if isinstance(template, str) else template
    engine, server = Speaker(texts, using), PolicyServer()
    terms = CallLimits(**{"calls": 100, "seconds": 600.0, **(limits or {})})
    policy = {"sampling": Sampling(400), **policy}
    served = ServedPolicy(engine.generate, using, **policy)
    session = CallSession(served, 3, terms, grace_seconds=grace_seconds)
    async with server.open(session) as address:
        agent = Agent(address, engine, server)
        async with agent.http:
            yield agent
