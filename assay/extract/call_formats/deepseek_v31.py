"""DeepSeek V3.1: the name before the separator, and the arguments in JSON behind it."""

from collections.abc import Sequence

from assay.extract.call_formats import CallFormat, call_format
from assay.extract.call_formats.deepseek import (
    BLOCK,
    BLOCK_END,
    CLOSES,
    MARKS,
    OPENS,
    SEPARATOR,
    read,
)
from assay.extract.call_formats.reading import arguments_text
from assay.tools import ToolCall


def write(calls: Sequence[ToolCall]) -> str:
    """The calls as a reply holds them."""
    texts = (f"{OPENS}{call.name}{SEPARATOR}{arguments_text(call)}{CLOSES}" for call in calls)
    return BLOCK + "".join(texts) + BLOCK_END


call_format("deepseek_v31", CallFormat(read, write, MARKS))
