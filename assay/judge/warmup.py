"""The program of a zygote: imports modules, warms up caches, puts up the walls and forks on
command. It holds no secrets.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import json
import linecache
import socket
import sys
from types import SimpleNamespace
from typing import cast

from assay.judge import candidate, test_code, worker
from assay.judge.answer_code import AnswerCode
from assay.judge.answer_names import AnswerNames
from assay.judge.kinds import asserts
from assay.judge.proxy import Connection
from assay.judge.worker_messages import CheckJob, Outcome
from assay.sandbox import repl, script
from assay.sandbox.kernel import MIB
from assay.sandbox.program import INTERPRETERS, Pool
from assay.sandbox.sockets import TIMES, FramedSocket, rehearse_receiving
from assay.sandbox.zygote import serve

MODULES = (
    "__future__", "abc", "array", "bisect", "cmath", "collections", "copy", "datetime", "decimal",
    "enum", "fractions", "functools", "heapq", "io", "itertools", "json", "math", "operator",
    "random", "re", "statistics", "string", "time", "typing",
)  # fmt: skip
"""Imported once here, since many programs import them."""

REHEARSAL: CheckJob = {
    "program": """
from typing import Dict, List, Optional, Tuple

def f(numbers: List[float], threshold: float = 1.0) -> Dict[str, Tuple[int, ...]]:
    \"\"\" What most programs do. \"\"\"
    found = {}
    for at, number in enumerate(sorted(numbers, key=lambda it: -it)):
        if abs(number) < threshold and not number % 2:
            found[str(number).strip()] = tuple(range(at))
    return found
""",
    "setup": "from typing import List", "entry_point": "f", "checker": "",
    "reference": "", "objects": False, "subclasses": False, "aliases": False,
    "stop_early": True, "large": False, "numpy": False, "mutates": False, "classes": [],
    "identity": False, "files": False, "doubt": "", "requested_names": None, "imports": {},
    "reply_mb": 1, "kinds": {},
    "checks": [[asserts.__name__, "assert f([2.0, 0.5, 0], 1.0) == {'0': (0, 1)}"],
               [asserts.__name__, "def check(f):\n    assert not f([])\ncheck(f)"]],
}  # fmt: skip


def rehearse() -> None:
    """Judge a program of ours in this process, so that forks inherit filled caches and specialised
    code.
    """
    near, far = (FramedSocket(end, MIB) for end in socket.socketpair())

    def answer(frame: bytes) -> None:
        far.send(frame)
        candidate.respond(program, near.receive())

    sock = cast(
        "FramedSocket", SimpleNamespace(send=answer, receive=far.receive, is_quiet=far.is_quiet)
    )
    names = AnswerNames(AnswerCode(-1))
    for objects in (True, False) * TIMES:
        program = candidate.Candidate(near)
        job: CheckJob = {**REHEARSAL, "objects": objects}
        report = worker.run_checks(Connection(sock, job), names)
        assert report.checks == [Outcome("held")] * 2, report
    for end in (near, far):
        end.stream.close()
    rehearse_receiving(b"pass", lambda source: script.execute(script.compiled(source), {}))
    del sys.modules[candidate.MODULE]
    test_code.COMPILED.clear()


def rehearse_blocks() -> None:
    """The same for interpreters: blocks that show a value, and blocks that raise."""
    with contextlib.redirect_stdout(io.StringIO()):
        for end in ("sorted(found)", "found[0]") * TIMES:
            block = f"{REHEARSAL['program']}\nprint(found := f([2.0, 0.5, 0]))\n{end}"
            repl.run(block, "<block>", {})
    del builtins._  # type: ignore[attr-defined]  # the last value that was shown
    linecache.clearcache()


def main() -> None:
    """Warm up, then fork until the supervisor hangs up."""
    for name in MODULES:
        importlib.import_module(name)
    pool = Pool(*json.loads(sys.argv[2]))
    for name in ["numpy"] if pool == INTERPRETERS else pool.imports.split():
        module = importlib.import_module(name)
        module.random.seed(0) if name == "numpy" else module.rehearse()
    rehearse()
    if pool == INTERPRETERS:
        rehearse_blocks()
    serve(
        int(sys.argv[1]),
        candidate=repl.prepare if pool == INTERPRETERS else candidate.prepare,
        companion=worker.prepare,
    )


if __name__ == "__main__":
    main()
