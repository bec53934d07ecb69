"""Asks any OpenAI-compatible endpoint for completions: hosted models, and servers of others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from assay.config.generation import EngineSettings
from assay.endpoint import Endpoint, RefusedError, open_endpoint
from assay.endpoint_answers import EndpointAnswer
from assay.engines.base import (
    MAX_LOST,
    Engine,
    GenerationRequest,
    HostedModel,
    Opening,
    Sampling,
    engine,
)
from assay.errors import MachineError, RolloutLostError
from assay.extract.call_formats import CallFormat, call_formats
from assay.extract.call_formats.hermes import CLOSES, OPENS
from assay.policy.call_style import CallStyle, styled
from assay.policy.chat import Chat, as_fields
from assay.tools import Tool
from assay.types import Completion, Message, Metrics, Turn, as_dicts

if TYPE_CHECKING:
    from assay.policy.load_model import Policy

OFF = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""What turns a sampling parameter off. It is sent too: without it, vLLM and others sample as the
model's generation_config.json says."""
EXTENSIONS = ("top_k", "min_p", "repetition_penalty")
LEFT_OUT: tuple[tuple[str, ...], ...] = ((), EXTENSIONS, (*EXTENSIONS, "top_p"))
"""Parameters that a request leaves out where they are off, in this order as long as the endpoint
refuses it: those that OpenAI's API lacks, and the one that its reasoning models refuse."""
UNKNOWN_PARAMETER = (400, 422)
"""Statuses with which endpoints refuse a parameter that they do not know."""
API = CallStyle(text_arguments=True, shows_tools=True)
"""How the API takes calls; the endpoint decides whether a prompt shows tools."""


class HostedChat(Chat):
    """Prompts of a model whose tokenizer is elsewhere: the request's fields as JSON, in bytes."""

    @property
    def takes_users_in_a_row(self) -> bool:
        """The endpoint decides."""
        return True

    def takes(self, argument: str) -> bool:
        """The endpoint decides."""
        return True

    def reply(self, turn: Turn) -> Message:
        """The text as it came, and the calls that were answered as the API has them."""
        text = turn.completion.text
        if not turn.results:
            return Message("assistant", text)
        fields = {"tool_calls": as_fields(turn.calls)}
        return Message("assistant", text.partition(OPENS)[0], fields=fields)

    def call_format(self, tools: Sequence[Tool], arguments: Mapping[str, Any]) -> CallFormat:
        """The one in which `_completion` writes the calls of the endpoint."""
        return call_formats["hermes"]

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
            {"messages": styled(as_dicts(messages), API)}
            if chat
            else {"prompt": self.render(messages, {})}
        )
        others = dict(arguments)
        fields |= {"tools": others.pop("tools")} if "tools" in others else {}
        fields |= {"chat_template_kwargs": others} if others else {}
        return tuple(json.dumps(fields).encode())


def hosted_chat(mode: str) -> Chat:
    """How a hosted model is asked: by `text` to continue, or else by chat messages."""
    return HostedChat(None, frozenset(), 0, mode != "text", (), 0, API)


class OpenAIEngine:
    """Generates with an endpoint; it gives neither token ids nor log-probabilities."""

    def __init__(
        self, endpoint: Endpoint, model: str, settings: EngineSettings, not_sent: set[str]
    ) -> None:
        """The engine adds the names of parameters that the endpoint refuses to `not_sent`."""
        self.max_concurrent, self.metrics = settings.max_concurrent, Metrics()
        self._endpoint, self._model, self._settings = endpoint, model, settings
        self._not_sent, self._refused = not_sent, 0
        self._lost = self.tokens_generated = 0

    async def load(self, policy: Policy, version: int) -> None:
        """The weights are the endpoint's."""

    async def generate(self, request: GenerationRequest, sampling: Sampling) -> Completion:
        """Generate one completion, with a seed of 31 bits.

        Raises SettingsError if the endpoint refuses, RolloutLostError for a completion that it
        fails, and MachineError when it fails one after another.
        """
        fields = json.loads(bytes(request.prompt))
        sent = OFF | {key: value for key, value in asdict(sampling).items() if key != "top_k"}
        sent |= {"top_k": sampling.top_k or OFF["top_k"]}
        ours = {"model": self._model, "seed": request.seed % 2**31, **sent, **fields}
        ours |= {"stop": list(request.stop)} if request.stop else {}
        body = {k: v for k, v in (ours | self._settings.request).items() if v != ""}
        path = "chat/completions" if "messages" in fields else "completions"
        try:
            completion = await self._ask(path, body)
        except RolloutLostError as error:
            self._lost += 1
            if self._lost >= MAX_LOST:
                raise MachineError(f"{error} ({self._lost} times in a row)") from error
            raise
        self._lost = 0
        self.tokens_generated += completion.length
        return completion

    async def _ask(self, path: str, body: dict[str, Any]) -> Completion:
        """Ask with all parameters that the endpoint takes. Raises RefusedError for a request that
        it refuses with the fewest.
        """
        level, left_out = 0, set[str]()

        def body_of_level() -> dict[str, Any]:
            nonlocal level, left_out
            level = self._refused
            left_out = {name for name in LEFT_OUT[level] if body.get(name) == OFF[name]}
            return {name: value for name, value in body.items() if name not in left_out}

        while True:
            try:
                completion = await self._endpoint.ask(path, body_of_level, _completion)
            except RefusedError as error:
                if error.status not in UNKNOWN_PARAMETER or level + 1 == len(LEFT_OUT):
                    raise
                self._refused = max(self._refused, level + 1)
            else:
                self._not_sent |= left_out
                return completion


@asynccontextmanager
async def open_openai(
    model: str, settings: EngineSettings, not_sent: set[str]
) -> AsyncIterator[OpenAIEngine]:
    """An engine for `model` at the endpoint that the settings name. It adds the names of parameters
    that the endpoint refuses to `not_sent`.
    """
    concurrent, seconds = settings.max_concurrent, settings.timeout_seconds
    async with open_endpoint(
        settings.servers[0], concurrent, seconds, "engine.servers"
    ) as endpoint:
        yield OpenAIEngine(endpoint, model, settings, not_sent)


def _completion(answer: EndpointAnswer) -> Completion:
    text = answer.text
    for call in answer.calls:
        block = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
        text += f"{OPENS}\n{block}\n{CLOSES}"
    ended, usage = answer.choices[0].finish_reason, answer.usage
    return Completion(
        text, (), (), "length" if ended == "length" else "stop", (),
        (usage and usage.completion_tokens) or 0,
    )  # fmt: skip


@engine
async def openai(opening: Opening[HostedModel]) -> AsyncIterator[Engine]:
    """Any OpenAI-compatible endpoint, in evaluations only."""
    model = opening.policy
    async with open_openai(model.name, opening.settings, model.not_sent) as running:
        yield running
