"""What an OpenAI-compatible endpoint answers: completions, or something else, which is named."""

import json
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    NonNegativeInt,
    ValidationError,
    model_validator,
)

from assay.files import encodable
from assay.types import printable

SHOWN = 200
"""Characters of an answer that an error shows."""
FAILED = ("error", "abort", "content_filter")
"""Reasons for the end of a completion that are the server's failure: its text is half a reply."""


def _without_surrogates(value: Any) -> Any:
    return encodable(value) if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_without_surrogates)]
"""A model may write half of a surrogate pair, which no file in UTF-8 can hold."""


class CalledFunction(BaseModel):
    """The function that a tool call names."""

    name: Text
    arguments: Text | dict[str, Any] = "{}"
    """JSON; some servers send the object."""


class ToolCallField(BaseModel):
    """A tool call."""

    function: CalledFunction


class Part(BaseModel):
    """A part of a message's content: text, thoughts, an image."""

    type: str
    text: Text | None = None


class ChatMessage(BaseModel):
    """The reply of a chat completion."""

    content: Text | list[Part] | None = None
    """None where a reply has calls alone, or was cut off in its thoughts."""
    tool_calls: list[ToolCallField] | None = None


class Choice(BaseModel):
    """One completion, of chat or of plain text."""

    message: ChatMessage | None = None
    text: Text | None = None
    finish_reason: str | None = None
    logprobs: Any = None
    token_ids: Any = None
    prompt_token_ids: Any = None
    """These three may be anything: an evaluation needs none of them."""

    @model_validator(mode="after")
    def _has_a_whole_completion(self) -> "Choice":
        if self.message is None and self.text is None:
            raise ValueError("neither 'message' nor 'text'")
        if self.finish_reason in FAILED:
            raise ValueError(f"finish_reason is {self.finish_reason!r}")
        return self


class Usage(BaseModel):
    """How many tokens a completion took."""

    completion_tokens: NonNegativeInt | None = None


class EndpointAnswer(BaseModel):
    """An answer with completions."""

    choices: list[Choice] = Field(min_length=1)
    usage: Usage | None = None
    prompt_token_ids: Any = None

    @property
    def text(self) -> str:
        """The text of the first completion, which may be in parts or absent; thoughts among the
        parts are left out.
        """
        choice = self.choices[0]
        content = choice.message.content if choice.message else choice.text
        if isinstance(content, list):
            texts = [part.text for part in content if part.type in ("text", "output_text")]
            return "".join(filter(None, texts))
        return content or ""

    @property
    def calls(self) -> list[CalledFunction]:
        """The tool calls of the first completion."""
        message = self.choices[0].message
        return [call.function for call in (message.tool_calls if message else None) or ()]


def parse_object(text: str) -> dict[str, Any]:
    """The object of JSON in the body of an answer. Raises ValueError that says what came instead,
    which may be an error.
    """
    if not text.strip():
        raise ValueError("an empty body")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"what is no JSON: {excerpt(text)}") from None
    if not isinstance(data, dict):
        raise ValueError(f"no object of JSON: {excerpt(text)}")
    if data.get("error"):
        raise ValueError(f"an error: {excerpt(json.dumps(data['error']))}")
    return data


def parse_answer(text: str) -> EndpointAnswer:
    """The completions in the body of an answer. Raises ValueError that says what came instead."""
    data = parse_object(text)
    try:
        return EndpointAnswer.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        names = [str(part) for part in first["loc"]]
        place = ".".join(name for name in names if "[" not in name)  # else a kind of value
        why = f"{place}: {first['msg'].removeprefix('Value error, ')}"
        raise ValueError(f"no completion ({why}): {excerpt(text)}") from None


def excerpt(text: str) -> str:
    """The beginning of a text, in one line that cannot write to a terminal."""
    line = " ".join(text.split())
    return printable(line[:SHOWN] + ("..." if len(line) > SHOWN else ""))[: 2 * SHOWN]
