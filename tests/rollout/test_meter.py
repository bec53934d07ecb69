"""What a meter makes of things under way, by a clock that is set by hand."""

from __future__ import annotations

import pytest

from assay.rollout.meter import Meter, standstill


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    return now


def test_overlapping_work_is_busy_once_and_more_than_fits_does_not_count_as_in_use(
    clock: list[float],
) -> None:
    two = Meter(lambda: 2, since=100.0)
    clock[0] = 101.0
    with two:  # 1 of 2 places from 101 to 103
        clock[0] = 103.0
        with two:  # 2 from 103 to 104
            clock[0] = 104.0
            with two:  # 3 wanted, 2 in use from 104 to 108
                clock[0] = 108.0
        clock[0] = 109.0  # 1 from 108 to 109
    clock[0] = 119.0
    taken = two.reset()
    assert taken.busy == 8.0
    assert taken.occupied == 2 * 0.5 + 1 * 1.0 + 4 * 1.0 + 1 * 0.5


def test_what_is_taken_begins_anew_and_what_is_under_way_counts_on_both_sides(
    clock: list[float],
) -> None:
    one = Meter(since=100.0)
    with one:
        clock[0] = 103.0
        one.count += 7
        first = one.reset()
        clock[0] = 104.0
    second = one.reset()
    assert (first.busy, first.count) == (3.0, 7)
    assert (second.busy, second.count) == (1.0, 0)


def test_what_fails_is_no_longer_under_way(clock: list[float]) -> None:
    one = Meter(since=100.0)

    def fail() -> None:
        with one:
            clock[0] = 102.0
            raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        fail()
    clock[0] = 110.0
    assert (one.reset().busy, one.running) == (2.0, 0)


def test_a_standstill_names_what_is_waited_for_and_for_how_long() -> None:
    engine, judge = Meter(), Meter()
    meters = {"engine": engine, "judge": judge}
    with engine:
        assert standstill(meters) == ""
        engine.since -= 75
        assert standstill(meters) == "", "the judge has just moved"
        judge.since -= 80
        assert standstill(meters) == "waiting for engine since 75 s"
    engine.since -= 75
    assert standstill(meters) == "", "nothing is waited for"
