"""q, run by an interpreter of the user's: kdb+ needs a licence, and that is theirs (docs/q.md)."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from assay.errors import DataError
from assay.languages import DRIVERS, Language, language

STARTED = "assay: q has started"
LOADER = (DRIVERS / "q_loader.q").read_text().replace("STARTED", STARTED)
"""q checks its licence before it runs a script, and a program is loaded after the first line."""
LONGEST = 2**63 - 1
"""The first whole number that is no long."""
SPECIAL = re.compile(r'[\x00-\x1f"\\\x7f]')
TEXTS = r'(?:^|(?<=\s))/[^\n]*|"(?:\\.|[^"\\])*+(?:"|\\?\Z)'
EXITS = r"(?:\bexit[ \t]++0[ \t]*+;?|\\\\)[ \t]*+\Z"


def q_path(tool: str = "q", package: str = "") -> str:
    """The user's q: $ASSAY_Q, or `q` on the PATH. Raises DataError where there is none."""
    given = os.environ.get("ASSAY_Q")
    path = shutil.which(given or tool)
    if path is None:
        absent = f"ASSAY_Q is {given}, which is no program" if given else "q is not installed"
        raise DataError(
            f"{absent}; get q and a licence of your own from KX, and set ASSAY_Q to the interpreter"
        )
    return os.path.realpath(path)


def surroundings() -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables by which q finds its home and its licence; and what it reads."""
    try:
        path = q_path()
    except DataError:
        return {}, ()
    home = os.environ.get("QHOME") or str(Path(path).parent.parent)
    if not Path(home, "q.k").exists():
        return {}, (path,)
    licences = os.environ.get("QLIC") or home
    return {"QHOME": home, "QLIC": licences}, (path, home, f"{licences}/k4.lic")


def spell_calls(calls: Sequence[list[Any]]) -> str:
    """The calls, one a line, and the end of the driver."""
    made = (listed(map(literal, given)) for given in calls)
    return "".join(f".assay.call {given};\n" for given in made) + ".assay.end[];\n"


def listed(items: Iterable[str]) -> str:
    """A list of expressions; q makes a vector of equal atoms."""
    found = list(items)
    return f"enlist {found[0]}" if len(found) == 1 else f"({';'.join(found)})"


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
        text = SPECIAL.sub(lambda found: f"\\{ord(found[0]):03o}", value)
        return f'{"enlist " * (len(value.encode()) == 1)}"{text}"'
    if isinstance(value, bool | None):
        return "(::)" if value is None else f"{int(value)}b"
    if isinstance(value, int):
        return str(value) if abs(value) < LONGEST else f"{value}f"
    return {"nan": "0n", "inf": "0w", "-inf": "-0w"}.get(str(value), str(value).replace("+", ""))


@language
def q() -> Language:
    """q, run by the user's own interpreter: $ASSAY_Q, or `q` on the PATH."""
    environment, reads = surroundings()
    return Language(
        title="q", source="program.q", fences=("kdb", "kdb+"), comment="/", texts=TEXTS,
        definition=r"^[ \t]*(?:\.\w+\.)?NAME[ \t]*:(?!:?=)",
        run=("q", "assay.q", "-q"), files={"assay.q": LOADER.encode()}, locate=q_path,
        started=f"{STARTED}\n".encode(), exits=EXITS, environment=environment, reads=reads,
        driver="q.q", spell_calls=spell_calls,
        asks_version="-q", version_script=".z.K\n", runtime_mb=256,
        hello='-1 "hello";', lazy={"empty": "", "echo": "-1 read0 0;"},
    )  # fmt: skip
