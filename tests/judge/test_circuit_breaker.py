"""When the machine's failures are too many to go on."""

from __future__ import annotations

import pytest

from assay.errors import SandboxError
from assay.judge.verdict import CircuitBreaker


def feed(breaker: CircuitBreaker, pattern: str) -> None:
    """An x is a failure of the machine."""
    for sign in pattern:
        breaker.note(sign == "x", "the zygote died")


def test_twenty_failures_in_a_row_are_borne_and_the_next_is_not() -> None:
    breaker = CircuitBreaker()
    feed(breaker, "x" * 20)
    with pytest.raises(
        SandboxError, match="failed 21 of the last 21 programs, at last: the zygote died"
    ):
        feed(breaker, "x")


def test_one_failure_in_ten_is_borne_for_ever_and_one_in_nine_is_not() -> None:
    breaker = CircuitBreaker()
    feed(breaker, "x........." * 100)
    with pytest.raises(SandboxError, match="failed 21 of the last 200"):
        feed(breaker, "x........" * 100)


def test_what_lies_further_back_than_the_window_is_forgotten() -> None:
    breaker = CircuitBreaker(tolerated=2, window=5)
    feed(breaker, "xx...xx..")
    with pytest.raises(SandboxError, match="failed 3 of the last 5"):
        feed(breaker, "x")


def test_a_program_that_fared_well_never_trips_it() -> None:
    breaker = CircuitBreaker(tolerated=0, window=3)
    with pytest.raises(SandboxError):
        feed(breaker, "x")
    feed(breaker, "..")
