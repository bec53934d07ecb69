"""All kinds of tests."""

from __future__ import annotations

from typing import Any

from assay.judge.kinds.asserts import ASSERTS
from assay.judge.kinds.calls import CALLS
from assay.judge.kinds.exchanges import EXCHANGES
from assay.judge.kinds.kind import Kind
from assay.judge.kinds.test_functions import TEST_FUNCTIONS
from assay.types import AnyCheck, Call, Check, Exchange, Task, TestFunctions

KINDS: dict[type[AnyCheck], Kind[Any]] = {
    Check: ASSERTS, Call: CALLS, Exchange: EXCHANGES, TestFunctions: TEST_FUNCTIONS,
}  # fmt: skip


def kind_of(check: AnyCheck) -> Kind[Any]:
    """The kind of a check."""
    return KINDS[type(check)]


def reads_and_prints(task: Task) -> bool:
    """Whether the task's programs are whole ones, which read and print."""
    return any(kind_of(check).whole_program for check in task.checks)
