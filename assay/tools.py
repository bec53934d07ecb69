"""Tools that a model may call between its replies, and its calls."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

CallStatus = Literal[
    "ok", "invalid_json", "unclosed_block", "missing_name", "unknown_tool", "wrong_arguments"
]
"""Whether a tool call can be run, or what is wrong with it."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool in a completion."""

    name: str
    """The tool's name; empty where the call has none."""
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    status: CallStatus = "ok"
    detail: str = ""
    """What is wrong with it, for the model."""
    id: str = field(default="", compare=False)
    """The one that the model gave it, in formats that have one; its result names it."""


@dataclass(frozen=True, slots=True)
class Tool:
    """What a model may call between its replies."""

    name: str
    description: str
    parameters: Mapping[str, str]
    """By name, what each argument is."""
    opens: str = ""
    closes: str = ""
    """What stands around the first argument where calls are written as text."""
    input_schema: Mapping[str, Any] | None = None
    """The JSON schema of the arguments; None: all are texts, and required."""

    @property
    def required(self) -> Sequence[str]:
        """The names of the arguments that each call has."""
        if self.input_schema is None:
            return [*self.parameters]
        return list(self.input_schema.get("required", ()))

    def schema(self) -> dict[str, Any]:
        """As chat templates and chat APIs take it."""
        properties = {
            name: {"type": "string", "description": text} for name, text in self.parameters.items()
        }
        texts = {"type": "object", "properties": properties, "required": self.required}
        parameters = texts if self.input_schema is None else dict(self.input_schema)
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}


def parse_arguments(text: str) -> dict[str, Any]:
    """The arguments of a call, of JSON text. Raises ValueError, which says what is wrong with them,
    for any other text. 1e999 is infinite, which JSON cannot hold.
    """
    try:
        arguments = json.loads(text, parse_constant=_refuse)
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON ({error}); make them an object") from None
    if not isinstance(arguments, dict):
        raise ValueError(f"no object ({text[:40]}); make them one")
    return arguments


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")
