"""A reply of an endpoint with its token ids and log-probabilities, as far as they came."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.endpoint_answers import EndpointAnswer


@dataclass(frozen=True, slots=True)
class ScoredReply:
    """A reply. What did not come, or in another form, is None."""

    text: str
    ended: str
    """The finish reason."""
    names: tuple[str, ...] | None
    """What `logprobs.content` calls each token: its text, or `token_id:N`."""
    logprobs: tuple[float | None, ...] | None
    """None where an entry holds no number."""
    ids: tuple[int, ...] | None
    """Of `token_ids`."""
    prompt_ids: bool
    """Whether the ids of the prompt came too."""
    usage: int | None
    """How many tokens the endpoint counts."""

    @property
    def named_ids(self) -> tuple[int, ...] | None:
        """The ids in names of the form `token_id:N`."""
        matches = [re.fullmatch(r"token_id:(\d+)", name) for name in self.names or ()]
        numbers = tuple(int(match[1]) for match in matches if match)
        return numbers if numbers and len(numbers) == len(matches) else None

    @property
    def tokens(self) -> Sequence[int | str]:
        """The tokens: ids where they came, or else texts."""
        return self.ids or self.named_ids or self.names or ()

    @property
    def numbers(self) -> tuple[float, ...]:
        """The log-probabilities. Raises ValueError where they are not one number for each token."""
        numbers = tuple(value for value in self.logprobs or () if value is not None)
        if not numbers or not len(numbers) == len(self.logprobs or ()) == len(self.tokens):
            raise ValueError("not one log-probability for each token")
        return numbers


def scored_reply(answer: EndpointAnswer) -> ScoredReply:
    """The first completion of an answer, whatever its fields hold."""
    choice = answer.choices[0]
    usage = answer.usage.completion_tokens if answer.usage else None
    content = choice.logprobs.get("content") if isinstance(choice.logprobs, dict) else None
    entries = content if isinstance(content, list) and content else None
    names = entries and tuple(str(_field(entry, "token")) for entry in entries)
    logprobs = entries and tuple(_number(_field(entry, "logprob")) for entry in entries)
    prompt = _ids(answer.prompt_token_ids) or _ids(choice.prompt_token_ids)
    return ScoredReply(
        answer.text, choice.finish_reason or "", names or None, logprobs or None,
        _ids(choice.token_ids), prompt is not None, usage,
    )  # fmt: skip


def _field(entry: Any, name: str) -> Any:
    return entry.get(name) if isinstance(entry, dict) else None


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None


def _ids(value: Any) -> tuple[int, ...] | None:
    whole = isinstance(value, list) and value and all(type(token) is int for token in value)
    return tuple(value) if whole else None
