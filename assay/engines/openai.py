"""Asks any OpenAI-compatible endpoint for completions: hosted models, and servers of others."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

from assay.config.generation import EngineSettings
from assay.endpoint import Endpoint, open_endpoint, text_of
from assay.engines.base import GenerationRequest, Sampling
from assay.errors import MachineError, RolloutLostError
from assay.extract.tool_calls import HERMES, CallFormat
from assay.policy.chat import Chat, as_fields
from assay.tools import Tool
from assay.types import Completion, Message, Metrics, Turn, as_dicts

MAX_LOST = 32
"""Completions lost in a row after which the endpoint is given up."""
OPTIONAL = {"top_p": 1.0, "top_k": 0, "min_p": 0.0}
"""Sampling parameters that a request leaves out at these values: some endpoints refuse them."""


class HostedChat(Chat):
    """Prompts of a model whose tokenizer is elsewhere: the request's fields as JSON, in bytes."""

    def takes(self, argument: str) -> bool:
        """The endpoint decides."""
        return True

    def reply(self, turn: Turn) -> Message:
        """The text as it came, and the calls that were answered as the API has them."""
        text = turn.completion.text
        if not turn.results:
            return Message("assistant", text)
        calls = as_fields(turn.calls)
        for call in calls:
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
        return Message("assistant", text.partition(HERMES.opens)[0], fields={"tool_calls": calls})

    def call_format(self, tools: Sequence[Tool], arguments: Mapping[str, Any]) -> CallFormat:
        """The one in which `_completion` writes the calls of the endpoint."""
        return HERMES

    def encode_next(
        self, turn: Turn, before: Sequence[Message], reply: Message, more: Sequence[Message],
        arguments: Mapping[str, Any],
    ) -> tuple[int, ...]:  # fmt: skip
        """[P] bytes of the whole conversation."""
        return self.encode_prompt((*before, reply, *more), arguments)

    def opened(self, prompt: Sequence[int]) -> str:
        """Nobody says."""
        return ""

    def encode_prompt(
        self, messages: Sequence[Message], arguments: Mapping[str, Any]
    ) -> tuple[int, ...]:
        """[P] bytes: `messages` for chat completions, or `prompt` for plain ones."""
        chat = self.has_template
        fields: dict[str, Any] = (
            {"messages": as_dicts(messages)} if chat else {"prompt": self.render(messages, {})}
        )
        others = dict(arguments)
        fields |= {"tools": others.pop("tools")} if "tools" in others else {}
        fields |= {"chat_template_kwargs": others} if others else {}
        return tuple(json.dumps(fields).encode())


def hosted_chat(mode: str) -> Chat:
    """How a hosted model is asked: by `text` to continue, or else by chat messages."""
    return HostedChat(None, frozenset(), 0, mode != "text", ())


class OpenAIEngine:
    """Generates with an endpoint; it gives neither token ids nor log-probabilities."""

    def __init__(self, endpoint: Endpoint, model: str, settings: EngineSettings) -> None:
        self.max_concurrent, self.metrics = settings.max_concurrent, Metrics()
        self._endpoint, self._model, self._settings = endpoint, model, settings
        self._lost = self.tokens_generated = 0

    async def load(self, policy: Any, version: int) -> None:
        """The weights are the endpoint's."""

    async def generate(self, request: GenerationRequest, sampling: Sampling) -> Completion:
        """Generate one completion, with a seed of 31 bits.

        Raises SettingsError if the endpoint refuses, RolloutLostError for a completion that it
        fails, and MachineError when it fails one after another.
        """
        fields = json.loads(bytes(request.prompt))
        ours = {"model": self._model, "seed": request.seed % 2**31, **asdict(sampling), **fields}
        ours |= {"stop": list(request.stop)} if request.stop else {}
        changed = {key: value for key, value in ours.items() if OPTIONAL.get(key) != value}
        body = {k: value for k, value in (changed | self._settings.request).items() if value != ""}
        path = "chat/completions" if "messages" in fields else "completions"
        try:
            completion = await self._endpoint.ask(path, body, _completion)
        except RolloutLostError as error:
            self._lost += 1
            if self._lost >= MAX_LOST:
                raise MachineError(f"{error} ({self._lost} times in a row)") from error
            raise
        self._lost = 0
        self.tokens_generated += completion.length
        return completion


@asynccontextmanager
async def open_openai(model: str, settings: EngineSettings) -> AsyncIterator[OpenAIEngine]:
    """An engine for `model` at the endpoint that the settings name."""
    concurrent, seconds = settings.max_concurrent, settings.timeout_seconds
    async with open_endpoint(
        settings.servers[0], concurrent, seconds, "engine.servers"
    ) as endpoint:
        yield OpenAIEngine(endpoint, model, settings)


def _completion(answer: Any) -> Completion:
    choice, counted = answer["choices"][0], answer.get("usage") or {}
    text = choice["text"] if "text" in choice else text_of(choice["message"])
    for call in choice.get("message", {}).get("tool_calls") or ():
        name, arguments = json.dumps(call["function"]["name"]), call["function"]["arguments"]
        block = f'{{"name": {name}, "arguments": {arguments}}}'
        text += f"{HERMES.opens}\n{block}\n{HERMES.closes}"
    ended = choice.get("finish_reason")
    return Completion(
        text,
        (),
        (),
        "length" if ended == "length" else "stop",
        (),
        int(counted.get("completion_tokens") or 0),
    )
