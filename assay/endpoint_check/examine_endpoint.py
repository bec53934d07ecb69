"""Asks an endpoint what training needs to know, and says what it can be used for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from assay.endpoint import Endpoint, RefusedError, open_endpoint
from assay.endpoint_answers import excerpt, parse_object
from assay.endpoint_check.endpoint_findings import (
    LOW,
    EndpointFinding,
    ProbedReplies,
    findings,
)
from assay.endpoint_check.scored_reply import ScoredReply, scored_reply
from assay.engines.openai import LEFT_OUT, OFF, UNKNOWN_PARAMETER
from assay.errors import MachineError

PROMPT = "Name an animal that few people know. Answer with one or two words."
MAX_TOKENS, SAMPLES, GREEDY = 24, 16, 6
"""Of each reply; replies at each temperature; greedy ones."""
CONCURRENT, SECONDS = 8, 300.0
"""Questions at once, and the time for an answer."""
IDS = {"return_token_ids": True, "return_tokens_as_token_ids": True}
"""vLLM's parameters for token ids."""


@dataclass(frozen=True, slots=True)
class EndpointExamination:
    """What an endpoint gives."""

    url: str
    model: str
    rows: list[EndpointFinding] = field(default_factory=list)

    @property
    def answers(self) -> bool:
        """Whether it gives completions at all."""
        return not any(row.name == "completions" and row.answer == "no" for row in self.rows)

    @property
    def can_train(self) -> bool:
        """Whether it serves training, as far as its replies show."""
        return self.answers and not any(row.answer == "no" for row in self._needed)

    @property
    def _needed(self) -> list[EndpointFinding]:
        return [row for row in self.rows if row.name not in ("models", "seed", "stop token")]

    @property
    def use(self) -> str:
        """What it can be used for, in a sentence."""
        if not self.answers:
            return "It can be used for nothing: it gives no completion."
        if not self.can_train:
            missing = ", ".join(row.name for row in self._needed if row.answer == "no")
            return f"It can be used for evaluation only: training needs more ({missing})."
        doubts = ", ".join(f"{row.name}: {row.advice}" for row in self._needed if row.advice)
        return "It can be used for training." + (f" Not proven: {doubts}." if doubts else "")


async def examine_endpoint(url: str, model: str = "") -> EndpointExamination:
    """Examine the endpoint at `url`, up to /v1, with some forty short replies of `model`; by
    default the first that it lists.

    Raises SettingsError if the URL is none, or the key.
    """
    async with open_endpoint(url, CONCURRENT, SECONDS, "--endpoint") as endpoint:
        listing, models = await _models(endpoint, model)
        name = model or next(iter(models), "")
        rows = [listing]
        if name or listing.answer == "ok":
            rows += await _examined(endpoint, name)
        else:
            rows.append(EndpointFinding("completions", "no", "not asked: there is no model"))
        return EndpointExamination(url, name, rows)


async def _models(endpoint: Endpoint, model: str) -> tuple[EndpointFinding, list[str]]:
    """Whether the endpoint lists the model, and the models that it lists."""
    try:
        models = await endpoint.get("models", _model_names)
    except (RefusedError, MachineError) as error:
        return EndpointFinding("models", "no", str(error), _advice_on(error)), []
    listed = ", ".join(models[:3]) + (", ..." if len(models) > 3 else "")
    if model and model not in models:
        evidence = f"{model} is not among them: {listed}"
        return EndpointFinding("models", "no", evidence, "name one of these with --model"), models
    if not models:
        return EndpointFinding("models", "no", "it lists none", "name one with --model"), models
    return EndpointFinding("models", "ok", f"it lists {model or listed}"), models


def _model_names(text: str) -> list[str]:
    """Raises ValueError for anything but a list of models."""
    data = parse_object(text).get("data")
    if not isinstance(data, list):
        raise ValueError(f"no list of models: {excerpt(text)}")
    names = [entry.get("id") for entry in data if isinstance(entry, dict)]
    return [excerpt(name) for name in names if isinstance(name, str)]


def _advice_on(error: Exception) -> str:
    status = error.status if isinstance(error, RefusedError) else 0
    if status in (401, 403):
        return "put the key into the environment variable OPENAI_API_KEY"
    if status == 404:
        return "give the URL up to /v1, and a model that it serves with --model"
    return "" if status else "see that it runs, and that the URL ends with /v1"


async def _examined(endpoint: Endpoint, model: str) -> list[EndpointFinding]:
    """Whether there are completions, and what they show."""
    try:
        replies = await _Prober(endpoint, model).probe()
    except (RefusedError, MachineError) as error:
        return [EndpointFinding("completions", "no", str(error), _advice_on(error))]
    row = EndpointFinding("completions", "ok", f"{len(replies.all)} replies")
    return [row, *findings(replies)]


class _Prober:
    """Asks one model one prompt."""

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        self._endpoint, self._model = endpoint, model
        self._left_out: list[str] = []

    async def probe(self) -> ProbedReplies:
        """All replies. Raises RefusedError and RolloutLostError."""
        first = await self._first()
        others = await asyncio.gather(
            *(self._ask(1.0, seed) for seed in range(1, SAMPLES)),
            *(self._ask(LOW, seed) for seed in range(SAMPLES)),
            *(self._ask(0.0, seed) for seed in range(GREEDY)),
            self._ask(1.0, 0),
        )
        warm = [first, *others[: SAMPLES - 1]]
        cool, greedy = others[SAMPLES - 1 : -GREEDY - 1], others[-GREEDY - 1 : -1]
        return ProbedReplies(warm, cool, greedy, others[-1], self._left_out)

    async def _first(self) -> ScoredReply:
        """The first reply, to a question with all parameters that the endpoint takes."""
        levels = [*LEFT_OUT, (*LEFT_OUT[-1], *IDS), (*LEFT_OUT[-1], *IDS, "logprobs")]
        for level in levels:
            self._left_out = [*level]
            try:
                return await self._ask(1.0, 0)
            except RefusedError as error:
                if error.status not in UNKNOWN_PARAMETER or level == levels[-1]:
                    raise
        raise AssertionError("the last level returns or raises")

    async def _ask(self, temperature: float, seed: int) -> ScoredReply:
        body: dict[str, Any] = {
            "model": self._model, "messages": [{"role": "user", "content": PROMPT}],
            "max_tokens": MAX_TOKENS, "temperature": temperature, "seed": seed, "logprobs": True,
            **OFF, **IDS,
        }  # fmt: skip
        sent = {name: value for name, value in body.items() if name not in self._left_out}
        return await self._endpoint.ask("chat/completions", lambda: sent, scored_reply)


def as_json(examination: EndpointExamination) -> dict[str, Any]:
    """As plain data."""
    rows = [{"name": row.name, "answer": row.answer, "evidence": row.evidence,
             "advice": row.advice} for row in examination.rows]  # fmt: skip
    return {
        "url": examination.url, "model": examination.model, "can_train": examination.can_train,
        "rows": rows, "use": examination.use,
    }  # fmt: skip
