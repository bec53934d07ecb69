"""All kinds of tests."""

from __future__ import annotations

from typing import Any

from assay.checks import (
    Answer,
    AnyCheck,
    Call,
    Check,
    Exchange,
    Harness,
    OwnTests,
    PrintTest,
    TestBench,
    TestFunctions,
)
from assay.judge.kinds.answers import ANSWERS
from assay.judge.kinds.asserts import ASSERTS
from assay.judge.kinds.driven_calls import DRIVEN_CALLS
from assay.judge.kinds.exchanges import EXCHANGES
from assay.judge.kinds.harness import HARNESS
from assay.judge.kinds.kind import Kind
from assay.judge.kinds.own_tests import OWN_TESTS
from assay.judge.kinds.print_tests import PRINT_TESTS
from assay.judge.kinds.test_bench import TEST_BENCH
from assay.judge.kinds.test_functions import TEST_FUNCTIONS
from assay.languages import Language

KINDS: dict[type[AnyCheck], Kind[Any]] = {
    Check: ASSERTS, Call: DRIVEN_CALLS, Exchange: EXCHANGES, OwnTests: OWN_TESTS,
    PrintTest: PRINT_TESTS, TestFunctions: TEST_FUNCTIONS, Answer: ANSWERS, TestBench: TEST_BENCH,
    Harness: HARNESS,
}  # fmt: skip


def kind_of(check: AnyCheck) -> Kind[Any]:
    """The kind of a check."""
    return KINDS[type(check)]


def runs_alone(check: AnyCheck) -> bool:
    """Whether a run of the program, without a worker, decides the check."""
    return kind_of(check).run_of is not None


def can_judge(check: AnyCheck, language: Language) -> bool:
    """Whether the check can be of a program in this language."""
    driven = kind_of(check).run_of_all is not None and language.driver != ""
    return language.warm or runs_alone(check) or driven
