"""A file of tasks with one of each flaw, and the findings that it must give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DOUBLE = "def f(x):\n    return 2 * x\n"
TESTS = ["assert f(1) == 2", "assert f('a') == 'aa'"]
FIRST_OF_SEED_1 = 0.13436424411240122
LUCKY = (
    f"import random\nlucky = random.random() == {FIRST_OF_SEED_1}\ndef f(x):\n    return 2 * x if"
    " lucky else x\n"
)
BURN = "import time\nwhile time.process_time() < start + 0.4:\n    pass\n"


def row(
    name: str, tests: list[str] = TESTS, reference: str | None = DOUBLE, **others: Any
) -> dict[str, Any]:
    found = {"id": name, "prompt": f"Task {name}.", "entry_point": "f", "tests": tests, **others}
    return found if reference is None else {**found, "reference": reference}


ROWS = [
    row("sound"),
    row("untested", []),
    row("wrong reference", reference="def f(x):\n    return 2 * int(x)\n", setup="wrong = True\n"),
    row("draws", reference=LUCKY, setup="draws = True\n"),
    row("bad setup", [*TESTS, "assert f(3) == six"],
        setup="import nothing_of_this_name\nsix = 6\n"),
    row("calls only", ["f(1)", "f('a')"]),
    row("wants a raise", ["try:\n    f(1)\n    raise SystemError\nexcept RuntimeError:\n    pass"],
        "def f(x):\n    raise RuntimeError(x)\n"),
    row("one answer", ["assert f(1) == 2", "assert f(1.0) == 2"]),
    row("same", ["assert f(3) == 3", "assert f('a') == 'a'"], "def f(x):\n    return x\n"),
    row("any int", ["assert isinstance(f('a'), int)"], "def f(x):\n    return len(x)\n"),
    row("idle", [*TESTS, "try:\n    f(2)\nexcept RuntimeError:\n    pass"]),
    row("asks nothing", [*TESTS, "assert 1 + 1 == 2"]),
    row("again", [*TESTS, "assert f(4) == 8"], prompt="Task  sound.\n"),
    row("no reference", [*TESTS, "assert f(5) == 10"], None),
    row("slow", [*TESTS, "assert f(6) == 12"],
    f"import time\nstart = time.process_time()\n{BURN}{DOUBLE}"),
]  # fmt: skip
FOUND = {
    "untested": {"invalid_row"},
    "wrong reference": {"reference_fails"},
    "draws": {"flaky"},
    "bad setup": {"unjudged"},
    "calls only": {"empty_passes", "echo_passes", "attack_passes"},
    "wants a raise": {"raise_passes"},
    "one answer": {"constant_passes"},
    "same": {"echo_passes"},
    "any int": {"attack_passes"},
    "idle": {"weak_checks"},
    "asks nothing": {"unjudged"},
    "again": {"duplicate"},
    "no reference": {"no_reference"},
    "slow": {"slow_reference"},
}
KEPT = ["sound", "idle", "again", "no reference", "slow"]


def write(file: Path, rows: list[dict[str, Any]] = ROWS) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file
