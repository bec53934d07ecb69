"""q, run by an interpreter of the user's: kdb+ needs a licence, and that is theirs (docs/q.md)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from assay.errors import DataError
from assay.languages import Language, language

STARTED = "assay: q has started"
LOADER = f"""-2 "{STARTED}";
@[system;"l program.q";{{-2 "'",x;exit 1}}];
exit 0
"""
"""q checks its licence before it runs a script, and a program is loaded after the first line."""
EXITS = r"(?:\s*(?:exit\s+0\s*;?|\\\\)[ \t]*)+\s*\Z"


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
    likely = (Path.home() / "q", Path(path).parent.parent)
    home = os.environ.get("QHOME") or next(
        (str(one) for one in likely if (one / "q.k").exists()), ""
    )
    if not home:
        return {}, (path,)
    home, licences = map(os.path.realpath, (home, os.environ.get("QLIC") or home))
    return {"QHOME": home, "QLIC": licences}, (path, home, f"{licences}/k4.lic")


@language
def q() -> Language:
    """q, run by the user's own interpreter: $ASSAY_Q, or `q` on the PATH."""
    environment, reads = surroundings()
    return Language(
        title="q", source="program.q", fences=("kdb", "kdb+"), comment="/",
        run=("q", "assay.q", "-q"), files={"assay.q": LOADER.encode()}, locate=q_path,
        started=f"{STARTED}\n".encode(), exits=EXITS, environment=environment, reads=reads,
        asks_version="-q", version_script=".z.K\n", runtime_mb=256,
        hello='-1 "hello";', lazy={"empty": "", "echo": "-1 read0 0;"},
    )  # fmt: skip
