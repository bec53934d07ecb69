"""The APIs in which agents call the policy, one file each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assay.agents.calls import CallAnswer, ModelCall
from assay.policy.chat import Chat

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AnsweredBody:
    """A request's body and what is answered to it."""

    body: Body
    answer: CallAnswer
    name: str
    """Of the policy."""
    chat: Chat


@dataclass(frozen=True, slots=True)
class Dialect:
    """How an API is read and written."""

    path: str
    """Behind the base URL: /v1/chat/completions."""
    read: Callable[[Body], ModelCall]
    """Raises RefusedCallError."""
    write: Callable[[AnsweredBody], dict[str, Any]]
    """The answer as one object."""
    events: Callable[[dict[str, Any], Body], Iterator[str]]
    """That answer as server-sent events."""
    refusal: Callable[[int, str, str | None, str | None], dict[str, Any]]
    """An error of status, message, code and parameter."""
