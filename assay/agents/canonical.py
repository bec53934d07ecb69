"""When two messages are the same message: clients send replies back rewritten in small ways."""

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

ROLES = {"developer": "system", "function": "tool"}
"""Other names of roles."""
MOST_DEPTH = 100
"""Lists and objects inside each other; Python's own writer of JSON stops before 1,000."""
TEXT_PARTS = ("text", "input_text", "output_text")


def text_of(content: Any) -> str:
    """The text of a message's content: a string, a list of parts, or null. Raises ValueError for
    a part that is no text.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ValueError(f"the content is no text and no list of parts: {str(content)[:60]}")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in TEXT_PARTS or not isinstance(part.get("text"), str):
            raise ValueError(f"a part of the content is no text (type {kind!r})")
        texts.append(part["text"])
    return "".join(texts)


def arguments_of(arguments: Any) -> Any:
    """A call's arguments as an object, whether they came as one or as JSON text; "" and null are
    an empty one. Text that is no JSON, or deeply nested, stays as it is.
    """
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    if not isinstance(arguments, str):
        return arguments
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return arguments if is_deep(values) else values


def is_deep(value: Any) -> bool:
    """Whether lists and objects are nested deeper than a request's may be."""
    level = [value]
    for _ in range(MOST_DEPTH):
        level = [
            item for each in level if isinstance(each, dict | list)
            for item in (each.values() if isinstance(each, dict) else each)
        ]  # fmt: skip
        if not level:
            return False
    return True


def functions_of(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The functions that an assistant's message calls; also in the older field `function_call`.
    Raises ValueError for calls of another form.
    """
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise ValueError("the `tool_calls` are no list")
    functions: list[Any] = [
        call.get("function") if isinstance(call, dict) else None for call in calls
    ]
    if older := message.get("function_call"):
        functions.append(older)
    for function in functions:
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise ValueError("a tool call has no `function` with a `name`")
    return functions


def canonical(message: Mapping[str, Any]) -> str:
    """The message as a text that is equal for equal messages.

    What does not count: null against "" and parts against a string; spaces and the order of keys
    in a call's arguments; ids; thoughts, under whatever name; white space around a reply; and
    every field that a prompt does not show. Raises ValueError for a message that is none.
    """
    role = message.get("role")
    if not isinstance(role, str):
        raise ValueError("a message has no `role`")
    text, calls = text_of(message.get("content")), []
    if role == "assistant":
        text = text.strip()
        calls = [[each["name"], arguments_of(each.get("arguments"))]
                 for each in functions_of(message)]  # fmt: skip
    return json.dumps([ROLES.get(role, role), text, calls], sort_keys=True)


def chain(keys: Iterable[str], digest: bytes = b"") -> Iterator[bytes]:
    """The digest of each beginning of a conversation, from its first message to all of them;
    `digest`: of the messages before the first.
    """
    for key in keys:
        digest = blake2b(digest + key.encode(), digest_size=16).digest()
        yield digest
