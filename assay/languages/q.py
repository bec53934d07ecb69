"""q, run by the user's own interpreter: $ASSAY_Q, or `q` on the PATH. kdb+ needs a licence, which
is theirs (docs/q.md).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from assay.errors import NotInstalledError
from assay.languages import DRIVERS, Language, content_of, language, version

STARTED = "assay: q has started"
LOADER = (DRIVERS / "q_loader.q").read_text().replace("STARTED", STARTED)
"""q checks its licence before it runs a script, and a program is loaded after the first line."""
LONGEST = 2**63 - 1
"""The first whole number that is no long."""
SPECIAL = re.compile(r'[\x00-\x1f"\\\x7f]')
TEXTS = r'(?:^|(?<=\s))/[^\n]*|"(?:\\.|[^"\\])*+(?:"|\\?\Z)'
EXITS = re.compile(r"(?:\bexit[ \t]++0[ \t]*+;?|\\\\)[ \t]*+\Z")
MOST_EXITS = 20
"""Of a program, in a row at its end, that are taken off."""


def q_path(tool: str = "q", package: str = "") -> str:
    """The user's q: $ASSAY_Q, or `q` on the PATH. Raises NotInstalledError where there is none."""
    variable = os.environ.get("ASSAY_Q")
    path = shutil.which(variable or tool)
    if path is None:
        absent = f"ASSAY_Q is {variable}, which is no program" if variable else "q is not installed"
        raise NotInstalledError(
            f"{absent}; get q and a licence of your own from KX, and set ASSAY_Q to the interpreter"
        )
    return os.path.realpath(path)


def surroundings() -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables by which q finds its home and its licence; and what it reads."""
    try:
        path = q_path()
    except NotInstalledError:
        return {}, ()
    home = os.environ.get("QHOME") or str(Path(path).parent.parent)
    if not Path(home, "q.k").exists():
        return {}, (path,)
    licences = os.environ.get("QLIC") or home
    return {"QHOME": home, "QLIC": licences}, (path, home, f"{licences}/k4.lic")


def listed(items: Iterable[str]) -> str:
    """A list of expressions; q makes a vector of equal atoms."""
    expressions = list(items)
    return f"enlist {expressions[0]}" if len(expressions) == 1 else f"({';'.join(expressions)})"


def literal(value: Any) -> str:
    """A value of JSON in q's notation. A text is a list of characters, also of one; numbers of
    which one is a float are floats.
    """
    if isinstance(value, dict):
        return f"({literal(list(value))})!{literal(list(value.values()))}"
    if isinstance(value, list):
        mixed = set(map(type, value)) == {int, float}
        return listed(literal(float(item) if mixed else item) for item in value)
    if isinstance(value, str):
        text = SPECIAL.sub(lambda match: f"\\{ord(match[0]):03o}", value)
        return f'{"enlist " * (len(value.encode()) == 1)}"{text}"'
    if isinstance(value, bool | None):
        return "(::)" if value is None else f"{int(value)}b"
    if isinstance(value, int):
        return str(value) if abs(value) < LONGEST else f"{value}f"
    return {"nan": "0n", "inf": "0w", "-inf": "-0w"}.get(str(value), str(value).replace("+", ""))


class Q(Language):
    """An interpreter of the user's, which a script ends."""

    def locate(self, tool: str) -> str:
        """The user's."""
        return q_path(tool)

    def versions(self) -> list[str]:
        """What it says of its version."""
        path = q_path()
        return [version(path, content_of(path), "-q", ".z.K\n", *self.environment.items())]

    def without_exit(self, program: str) -> str:
        """A program, less what would end it before code that follows."""
        lines = program.rstrip().split("\n")
        for _ in range(MOST_EXITS):
            if not lines or (statement := EXITS.sub("", lines[-1])) == lines[-1]:
                break
            lines = "\n".join([*lines[:-1], statement]).rstrip().split("\n")
        return "\n".join(lines)

    def drive(
        self, program: str, function: str, calls: Sequence[list[Any]] = ()
    ) -> tuple[str, str]:
        """A program's source with the driver, then the calls, one a line."""
        source, beside = super().drive(program, function)
        spelled = [f".assay.call {listed(map(literal, arguments))};\n" for arguments in calls]
        return "".join([source, *spelled, ".assay.end[];\n"]), beside


ENVIRONMENT, READS = surroundings()
language("q", Q(
    title="q", source="program.q", fences=("kdb", "kdb+"), texts=TEXTS,
    definition=r"^[ \t]*(?:\.\w+\.)?NAME[ \t]*:(?!:?=)",
    run=("q", "assay.q", "-q"), files={"assay.q": LOADER.encode()},
    started=f"{STARTED}\n".encode(), environment=ENVIRONMENT, reads=READS,
    driver="q.q", runtime_mb=256,
    hello='-1 "hello";', lazy={"empty": "", "echo": "-1 read0 0;"},
))  # fmt: skip
