"""What a model reads in a shell. Texts and forms are those of mini-swe-agent 2.4.6."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

TEXTS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("shell.toml").read_text())
SHORT, HALF = 10_000, 5_000
"""Characters below which an output is shown whole, and of its head and tail otherwise."""


class ObservationForm(NamedTuple):
    """How a model is shown what came of a command."""

    name: str
    write: Callable[..., str]
    """Of the status, the output, and what went wrong with the command."""


def in_tags(status: int, output: str, exception: str = "") -> str:
    """What came of a command, as swebench.yaml shows it."""
    head = f"<exception>{exception}</exception>\n" if exception else ""
    head += f"<returncode>{status}</returncode>\n"
    if len(output) < SHORT:
        return f"{head}<output>\n{output}</output>"
    return (
        f"{head}{TEXTS['too_long']}<output_head>\n{output[:HALF]}\n</output_head>\n<elided_chars>\n"
        f"{len(output) - SHORT} characters elided\n</elided_chars>\n<output_tail>\n"
        f"{output[-HALF:]}\n</output_tail>"
    )


def in_json(status: int, output: str, exception: str = "") -> str:
    """What came of a command, as mini.yaml shows it."""
    if len(output) < SHORT:
        fields: dict[str, int | str] = {"returncode": status, "output": output}
    else:
        fields = {
            "returncode": status, "output_head": output[:HALF], "output_tail": output[-HALF:],
            "elided_chars": len(output) - SHORT, "warning": "Output too long.",
        }  # fmt: skip
    lines = ",\n  ".join(f'"{name}": {_escaped(value)}' for name, value in fields.items())
    last = f', "exception_info": {_escaped(exception)}' if exception else ""
    return f"{{\n  {lines}{last}\n}}"


def _escaped(value: int | str) -> str:
    """JSON as jinja's `tojson` writes it, for pages of HTML."""
    text = json.dumps(value)
    for sign in "<>&'":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


FORMS = {"xml": ObservationForm("xml", in_tags), "json": ObservationForm("json", in_json)}
