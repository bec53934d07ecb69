"""Renders messages through a tokenizer's chat template."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from assay.errors import ModelError, SettingsError
from assay.policy.call_style import CallStyle, styled
from assay.policy.template_process import apply_template
from assay.registry import one_line
from assay.types import Message, as_dicts


def rendered(
    tokenizer: Any, messages: Sequence[Message], style: CallStyle, **arguments: Any
) -> str:
    """The chat template's rendering. Raises SettingsError for messages or tools that it refuses,
    ModelError for a template that never ends.
    """
    try:
        return _apply(tokenizer, messages, style, arguments)
    except ModelError:
        raise
    except Exception as error:  # templates refuse by an error of theirs, or fall over what they get
        roles = ", ".join(message.role for message in messages)
        what, change = f"messages ({roles})", "the row or prompt.system"
        if arguments.get("tools"):
            with suppress(Exception):
                _apply(tokenizer, messages, style, {**arguments, "tools": None})
                what, change = "tools", "the row's tools"
        raise SettingsError(
            f"the model's chat template refuses the {what}: {one_line(error)}; change"
            f" {change}, or set policy.chat = 'text'"
        ) from error


def _apply(
    tokenizer: Any, messages: Sequence[Message], style: CallStyle, arguments: dict[str, Any]
) -> str:
    dicts = styled(as_dicts(messages), style)
    return apply_template(tokenizer, dicts, **arguments)
