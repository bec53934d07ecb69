"""Programs in q that try to pass without an answer, or to be excused."""

from __future__ import annotations

import pytest

from assay.types import Execution, PrintTest, Task, Verdict
from tests.q.test_q import judged

pytestmark = pytest.mark.long
SUM = Task(
    "sum",
    "The sum of two numbers.",
    (PrintTest("show solve[20;22]", "42"), PrintTest("show solve[1;2]", "3")),
    "solve",
    language="q",
)
SAYS = '"\'2026.11.23T00:00:00.000 k4.lic"'
ATTACKS = {
    "prints one answer and exits": ('-1 "42";\nexit 0;\nsolve:{0}', Verdict.WRONG, 1),
    "prints every answer and exits": ('-1 "42";\n-1 "3";\nexit 0;\nsolve:{0}', Verdict.WRONG, 0),
    "ends the script": ('-1 "42";\n\\\\\nsolve:{0}', Verdict.WRONG, 1),
    "turns the test into a comment": ("solve:{[x;y] 0}\n\\", Verdict.WRONG, 0),
    "reads the test for its answer": (
        'solve:{[x;y] -1 read0 `:program.q; -1 read0 `:assay.q; "42"}', Verdict.WRONG, 0
    ),
    "reads a file of the machine's": ("solve:{[x;y] read0 `:/etc/passwd}", Verdict.ERROR, 0),
    "calls the system": ('solve:{[x;y] system "cat /etc/passwd"}', Verdict.ERROR, 0),
    "opens a connection": ("solve:{[x;y] hopen 80}", Verdict.ERROR, 0),
    "prints without end": (f'while[1b;-1 "{"42" * 5000}"]', Verdict.OUTPUT, 0),
    "hangs": ("while[1b;1]", Verdict.TIMEOUT, 0),
    "says that the licence failed": (f"-2 {SAYS};\n-1 {SAYS};\nexit 1", Verdict.ERROR, 0),
    "says that in its function": (f"solve:{{[x;y] -2 {SAYS}; exit 1}}", Verdict.ERROR, 0),
    "says that q has started": ('-2 "assay: q has started";\nsolve:{[x;y] 0}', Verdict.WRONG, 0),
}  # fmt: skip


@pytest.fixture(scope="module")
def found(any_q: None) -> dict[str, Execution]:
    programs = [source for source, *_ in ATTACKS.values()]
    right, *executions = judged(SUM, "solve:{x+y}", *programs)
    assert right.proven
    return dict(zip(ATTACKS, executions, strict=True))


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_neither_passes_nor_is_excused(attack: str, found: dict[str, Execution]) -> None:
    _, verdict, passed = ATTACKS[attack]
    assert (found[attack].verdict, found[attack].passed) == (verdict, passed), found[attack]
    assert "root:" not in found[attack].output
