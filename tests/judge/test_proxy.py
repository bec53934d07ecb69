"""Between two processes as in one: identity, mutation, order and names; and the proxy features."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from assay.judge import Job, Judge
from assay.judge import judge_all as judge_alone
from assay.judge.prepared_task import ProxyFeatures
from assay.judge.references import References
from assay.types import Cause, Exchange, Execution, Task, Verdict
from tests.judge.jobs import RIGHT, add, task
from tests.judge.opened import judge_all, with_judge


def verdict_of(task: Task, program: str) -> Verdict:
    return judge_all([Job(task, program)])[0].verdict


def test_a_returned_argument_is_the_callers_object() -> None:
    assert (
        verdict_of(task("f", "x = [1]\nassert f(0, x) is x"), "def f(a, b): return b")
        is Verdict.PASS
    )


def test_a_returned_iterator_yields_what_is_left_of_it() -> None:
    assert (
        verdict_of(task("f", "assert list(f(iter([1, 2])))== [1, 2]"), "def f(x): return x")
        is Verdict.PASS
    )
    assert (
        verdict_of(task("f", "assert list(f(iter([1, 2])))== [2]"), "def f(x): next(x); return x")
        is Verdict.PASS
    )


def test_an_object_that_yields_arrives_as_what_it_yields() -> None:
    counting = "class C:\n    n = 0\n    def __iter__(self): return self\n    def __next__(self):\n"
    counting += (
        "        self.n += 1\n        if self.n > 3: raise StopIteration\n        return self.n\n"
    )
    assert (
        verdict_of(task("f", "assert list(f()) == [1, 2, 3]"), counting + "def f(): return C()")
        is Verdict.PASS
    )


@pytest.mark.long
def test_what_a_check_passes_may_be_larger_than_what_a_program_returns() -> None:
    counted = "def f(x): return sum(1 for _ in x)"
    assert (
        verdict_of(task("f", "assert f([(), 1] * 600_000) == 1_200_000"), counted) is Verdict.PASS
    )
    assert (
        verdict_of(task("f", "assert f(iter(range(200_000))) == 200_000"), counted) is Verdict.PASS
    )


@pytest.mark.parametrize("value", ["float16(3.14)", "array(3.14, 'f2')", "array([3.14], 'f2')"])
def test_a_value_of_numpys_does_not_decide_what_it_equals(value: str) -> None:
    pytest.importorskip("numpy")
    program = f"import numpy\ndef f(): return numpy.{value}"
    assert verdict_of(task("f", "assert f() == 3.14159265"), program) is Verdict.WRONG
    plain = program.replace("3.14", "0.5")
    right = "assert f() == [0.5]" if "[" in value else "assert f() == 0.5 and type(f()) is float"
    assert verdict_of(task("f", right), plain) is Verdict.PASS
    uses = task("f", "assert f().dtype == 'f2'", reference=program)
    assert verdict_of(uses, program) is Verdict.PASS


def test_a_function_of_the_programs_may_be_passed_back_to_it() -> None:
    applying = task("f", "assert f(double, [1]) == [2]")
    program = "def double(x): return 2 * x\ndef f(g, x): return list(map(g, x))"
    assert verdict_of(applying, program) is Verdict.PASS


def test_a_returned_argument_that_was_changed_is_the_callers_too() -> None:
    program = "def f(x):\n    x.sort()\n    return x"
    changed = task("f", "x = [2, 1]\nassert f(x) == [1, 2]\nassert x == [1, 2]")
    assert verdict_of(changed, program) is Verdict.PASS
    unchanged = task("f", "x = [2, 1]\nassert f(x) == [1, 2]\nassert x == [2, 1]")
    assert verdict_of(unchanged, program) is Verdict.WRONG


def test_arguments_change_in_the_caller_only_where_the_test_would_fail_otherwise() -> None:
    check = "x = [3, 1]\nf(x)\nassert x == [1, 3]"
    in_place = "def f(x): x.sort()"
    assert verdict_of(task("f", check, reference=in_place), in_place) is Verdict.PASS
    read = "x = [3, 1]\nf(x)\nassert x == sorted(x)"
    compared, forgeable = judge_all([Job(task("f", it), in_place) for it in (check, read)])
    assert (compared.forgeable, forgeable.forgeable) == (False, True)
    unneeded = task(
        "f", "x = [3, 1]\nassert f(x) == sorted(x)", reference="def f(x): return sorted(x)"
    )
    assert verdict_of(unneeded, "def f(x):\n    x.clear()\n    return []") is Verdict.WRONG


def test_objects_are_reached_into() -> None:
    check = "n = Node(1)\nn.right = Node(2)\nassert f(n) == 3 and n.right.value == 2"
    tree = "class Node:\n    def __init__(self, value): self.value, self.right = value, None\n"
    total = tree + "def f(n): return n.value + n.right.value"
    assert verdict_of(task("f", check, reference=total), total) is Verdict.PASS
    assert (
        verdict_of(task("f", check, reference=total), tree + "def f(n): return n.value")
        is Verdict.WRONG
    )
    assert verdict_of(task("f", check), total) is Verdict.PASS


def test_a_program_is_not_judged_while_the_machine_fails_its_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emptied = task(
        "f", "x = [3, 1]\nassert f(x) == sorted(x)", reference="def f(x): return sorted(x)"
    )
    emptying = Job(emptied, "def f(x):\n    x.clear()\n    return []")
    tried: list[str] = []
    real = Judge._execute

    async def failing_once(
        judge: Judge, of: Task, program: str, features: ProxyFeatures
    ) -> Execution:
        execution = await real(judge, of, program, features)
        if program != of.reference:
            return execution
        tried.append(program)
        return (
            replace(execution, verdict=Verdict.INFRA, cause=None) if len(tried) == 1 else execution
        )

    async def judged_three_times(judge: Judge) -> list[Verdict]:
        return [(await judge.run(emptying)).verdict for _ in range(3)]

    monkeypatch.setattr(Judge, "_execute", failing_once)
    assert with_judge(judged_three_times) == [Verdict.INFRA, Verdict.WRONG, Verdict.WRONG]
    assert len(tried) == 2  # once in vain, once plainly: that is kept


def test_a_reference_that_failed_on_a_busy_machine_is_tried_again_for_later_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, of = Judge._execute, task("f", "assert f() == 2", reference="def f(): return 2")
    failing = True

    async def failing_at_first(
        judge: Judge, asked: Task, program: str, features: ProxyFeatures
    ) -> Execution:
        execution = await real(judge, asked, program, features)
        spoiled = failing and program == of.reference
        return replace(execution, verdict=Verdict.WRONG) if spoiled else execution

    async def judged_in_turn(judge: Judge) -> list[Verdict]:
        nonlocal failing
        verdicts = [(await judge.run(Job(of, "def f(): return 3"))).verdict]
        failing = False
        programs = ("def f(): return 4", "def f(): return 5", "def f(): return 2")
        return verdicts + [(await judge.run(Job(of, program))).verdict for program in programs]

    monkeypatch.setattr(Judge, "_execute", failing_at_first)
    wrong, right = Verdict.WRONG, Verdict.PASS
    assert with_judge(judged_in_turn) == [Verdict.UNJUDGED, wrong, wrong, right]


def test_a_reference_that_always_fails_is_tried_three_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, trials = References._find_features, list[str]()

    async def counted(references: References, key: bytes, of: Task) -> ProxyFeatures | None:
        trials.append(of.id)
        return await real(references, key, of)

    monkeypatch.setattr(References, "_find_features", counted)
    broken = task("f", "assert f() == 2", reference="def f(): return 1")
    executions = judge_all([Job(broken, f"def f(): return {number}") for number in range(3, 9)])
    assert {run.cause for run in executions} == {Cause.REFERENCE}
    assert 1 <= len(trials) <= 3


def test_a_reference_that_fails_its_own_checks_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = task("f", "assert f() == 2", reference="def f(): return 1")
    with caplog.at_level(logging.WARNING, "assay.judge"):
        judge_all([Job(broken, "def f(): return 3")] * 3)
    (report,) = [record.getMessage() for record in caplog.records]
    assert "task f cannot be judged (reference)" in report
    assert "gives 1 at `assert f() == 2`" in report


@pytest.mark.parametrize(
    ("check", "reference"),
    [
        ("import re\nassert f() == re.compile('a')", "import re\ndef f(): return re.compile('a')"),
        ("from types import SimpleNamespace\nassert f() == SimpleNamespace(a=1)",
         "from types import SimpleNamespace\ndef f(): return SimpleNamespace(a=1)"),
        ("assert f() == 2", "def f(): return 1"),
        ("assert f() == 2", "def f(): raise ValueError"),
    ],
)  # fmt: skip
def test_no_program_is_wrong_where_the_reference_fails_too(check: str, reference: str) -> None:
    broken = task("f", check, reference=reference)
    programs = reference, f"{reference} # again", "def f(): return None", "def f(): return f.x"
    itself, *others = judge_all([Job(broken, program) for program in programs])
    assert itself.verdict in (Verdict.WRONG, Verdict.ERROR, Verdict.UNJUDGED)
    for execution in others:
        assert execution.verdict is Verdict.UNJUDGED
        assert execution.cause in (Cause.REFERENCE, Cause.CARRY)
    passing = "def f(): return 2"
    assert verdict_of(broken, passing) is (Verdict.PASS if "== 2" in check else Verdict.UNJUDGED)


def test_a_failure_is_kept_where_the_reference_ran_out_of_time_or_memory() -> None:
    large = task("f", "assert f() == 2", reference="def f(): return len(' ' * (1 << 36))")
    assert verdict_of(large, "def f(): return 1") is Verdict.WRONG


def test_a_program_that_passes_plainly_passes_whatever_the_reference_needs() -> None:
    mutating = task(
        "f", "x = [2, 1]\nassert f(x) in (None, [1, 2])", reference="def f(x): x.sort()"
    )
    assert verdict_of(mutating, "def f(x): return sorted(x)") is Verdict.PASS


def test_a_sets_order_is_the_same_on_both_sides() -> None:
    check = task(
        "f", "s = {12, 13, 14, 15, 16}\nassert f(s) == tuple(s) and list(f(s)) != sorted(s)"
    )
    assert verdict_of(check, "def f(s): return tuple(s)") is Verdict.PASS


def test_names_that_nobody_else_defines_are_the_candidates() -> None:
    using = task("f", "assert helper(2) == 4 and LIMIT == 7 and f() == len('abc')")
    program = "LIMIT = 7\ndef helper(n): return n * 2\ndef len(x): return 0\ndef f(): return 3"
    assert verdict_of(using, program) is Verdict.PASS
    assert verdict_of(using, "def f(): return 3") is Verdict.WRONG


def test_an_entry_point_may_have_a_built_in_name() -> None:
    assert (
        verdict_of(task("sum", "assert sum(10, 15) == 6"), "def sum(a, b): return 6")
        is Verdict.PASS
    )


def test_a_type_may_be_an_argument() -> None:
    assert verdict_of(task("f", "assert f((1, 'a'), int) == ['a']"), FILTER) is Verdict.PASS


FILTER = "def f(items, kind): return [item for item in items if not isinstance(item, kind)]"


def test_checks_share_one_namespace_and_the_candidate_keeps_its_state() -> None:
    counting = task("f", "first = f()", "assert f() == first + 1")
    assert (
        verdict_of(counting, "n = 0\ndef f():\n    global n\n    n += 1\n    return n")
        is Verdict.PASS
    )


def test_random_numbers_and_hashes_are_the_same_in_every_run() -> None:
    printing = "import random\nprint(random.random(), hash('a'))\n" + RIGHT
    outputs = {execution.output for execution in judge_all([add(printing) for _ in range(6)])}
    assert len(outputs) == 1


def test_the_hash_seed_is_that_of_the_task_in_the_program_and_in_its_test() -> None:
    printing = f"print(hash('a'))\n{RIGHT}"
    hashed = task("add", "assert add('a', '') == 'a'", "assert add(hash('a'), 1) == hash('a') + 1")
    tasks = [replace(hashed, hash_seed=seed) for seed in (0, 1, 2)]
    tasks.append(Task("stdin", "", (Exchange("", "1"),), ""))
    jobs = [Job(one, f"{printing}\n# {at}") for one in tasks for at in range(2)]
    runs = judge_all(jobs, stop_early=False)
    hashes = [run.output for run in runs]
    assert hashes[::2] == hashes[1::2]
    assert hashes[-1] == hashes[0]
    assert len(set(hashes)) == 3
    assert [run.verdict for run in runs[:-2]] == [Verdict.PASS] * 6


def test_executions_stream_with_their_index_and_many_at_once() -> None:
    async def collected(judge: Judge) -> dict[int, Execution]:
        programs = [RIGHT if at % 3 else "def add(a, b): return 0" for at in range(12)]
        return {index: execution async for index, execution in judge.stream(map(add, programs))}

    found = with_judge(collected)
    assert sorted(found) == list(range(12))
    assert {at for at, execution in found.items() if execution.verdict is Verdict.WRONG} == {
        0,
        3,
        6,
        9,
    }


def test_a_cancelled_job_frees_its_slot() -> None:
    async def cancelled(judge: Judge) -> Execution:
        sleeper = asyncio.create_task(judge.run(add("import time\ntime.sleep(100)")))
        await asyncio.sleep(0.5)
        sleeper.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeper
        return await asyncio.wait_for(judge.run(add(RIGHT)), 5)

    assert with_judge(cancelled).verdict is Verdict.PASS


def test_progress_is_told_of_every_execution() -> None:
    seen: list[tuple[int, str]] = []
    judge_alone(
        [add(RIGHT), add(None)],
        progress=lambda index, execution: seen.append((index, str(execution.verdict))),
    )
    assert sorted(seen) == [(0, "pass"), (1, "no_code")]


def test_an_object_that_is_no_data_is_true_or_false_and_nothing_else() -> None:
    match = "import re\ndef f(text): return re.match('a', text)"
    checks = ("assert f('abc')", "assert not f('xyz')")
    assert verdict_of(task("f", *checks, reference=match), match) is Verdict.PASS
    assert (
        verdict_of(task("f", *checks, reference=match), match.replace("'a'", "''")) is Verdict.WRONG
    )
    assert verdict_of(task("f", "assert f('abc') == True"), match) is Verdict.WRONG
    assert verdict_of(task("f", "assert f('abc') is True"), match) is Verdict.WRONG
    unsure = (
        "class E:\n    def __bool__(self): raise KeyError\n    __eq__ = lambda *_: True\ndef"
        " f(text): return E()"
    )
    assert verdict_of(task("f", "assert f('abc')"), unsure) is Verdict.ERROR
    assert verdict_of(task("f", "x = f('abc')\nassert x"), unsure) is Verdict.ERROR
    handed = task("f", "x = f('abc')\nassert x and x.group() == 'a'", reference=match)
    assert verdict_of(handed, match) is Verdict.PASS
