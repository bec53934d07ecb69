"""An answer that runs as code beside the tests, or names what they use, earns no pass that counts,
ends no run, and carries nothing of the hidden tests out.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from assay.checks import TestFunctions
from assay.judge import Job, Judge, judge_all
from assay.sandbox.limits import Limits
from assay.types import Check, Execution, Task, Verdict
from tests.attacks.answer_code import ENDS, ROUTES, SAFE, SECRET, Route

LIMITS = Limits(cpu_seconds=1, wall_seconds=1.5)
ORDINARY = {
    "a literal that is evaluated": "assert f(1) == 2\nassert eval('1 + 1') == f(1)",
    "a literal that is run": "assert f(1) == 2\nn = {}\nexec('x = 1 + 1', n)\n"
    "assert n['x'] == f(1)",
    "a literal tree": "import ast\nassert f(1) == ast.literal_eval('2')",
    "a named tuple": "from collections import namedtuple\nassert namedtuple('A', 'x')(f(1)).x == 2",
    "a dataclass": (
        "from dataclasses import make_dataclass\nassert f(0) == 1\n"
        "assert make_dataclass('A', ['x'])(f(1)).x == 2"
    ),
    "a mock": (
        "from unittest.mock import create_autospec\nassert f(0) == 1\n"
        "g = create_autospec(lambda x: x, return_value=2)\nassert g(1) == f(1)"
    ),
    "a pickle of data": (
        "import pickle, datetime\nx = f(1), datetime.date(2020, 1, 1), {1}\n"
        "assert pickle.loads(pickle.dumps(x)) == x"
    ),
    "an import": "assert f(1) == 2\nimport colorsys, importlib\n"
    "assert importlib.import_module('wave') and f(2) == 3",
    "what C imports": "from datetime import datetime\n"
    "assert f(datetime.strptime('1', '%d').day) == 2",
    "an attribute": "assert getattr(f(1), 'real') == 2\nfor name in ('real', 'numerator'):\n"
    "    assert getattr(f(1), name) == 2",
    "a format": "assert 'a {0.real} b'.format(f(1)) == 'a 2 b'\nform = str(f(1)) + '{}'\n"
    "assert form.format(3) == '23'",
    "a namespace": "key = 'f'\nassert globals()['f'](1) == 2 and globals()[key](1) == 2",
    "typing": "import typing\nassert f(0) == 1\nclass A(typing.NamedTuple):\n    x: int\n"
    "assert A(f(1)).x == 2",
    "a doctest of the tests": "def g():\n    '''\n    >>> 1 + 1\n    2\n    '''\n"
    "import doctest\nassert f(1) == 2",
}


def judged(routes: dict[str, Route]) -> dict[str, Execution]:
    """How programs end that take these routes."""
    jobs = [Job(task_of(route.test), program_of(route)) for route in routes.values()]
    return dict(zip(routes, judge_all(jobs, LIMITS), strict=True))


def task_of(test: str, setup: str = f"SECRET = {SECRET!r}") -> Task:
    return Task("row", "", (Check(test, hidden=True),), "f", setup=setup)


def program_of(route: Route) -> str:
    return f"def keep(it): print(it)\ndef f({route.argument}): return {route.answer}\n"


def faults(executions: dict[str, Execution]) -> dict[str, Execution]:
    """Those that count as right, or as the machine's doing, or that show a hidden test."""
    return {
        name: it
        for name, it in executions.items()
        if (it.verdict is Verdict.PASS and not it.forgeable)
        or it.verdict is Verdict.INFRA
        or SECRET in repr(it)
    }


@pytest.fixture(scope="module")
def light() -> dict[str, Execution]:
    return judged({name: route for name, route in ROUTES.items() if not route.heavy})


def test_no_answer_earns_a_pass_that_counts_or_shows_a_hidden_test(
    light: dict[str, Execution],
) -> None:
    assert len(light) > 90
    assert not faults(light)


@pytest.mark.long
def test_no_answer_does_so_through_a_package() -> None:
    assert not faults(judged({name: route for name, route in ROUTES.items() if route.heavy}))


def test_most_routes_would_pass(light: dict[str, Execution]) -> None:
    """Else the table shows nothing."""
    assert sum(it.verdict is Verdict.PASS for it in light.values()) > 50


def test_an_answer_that_ends_the_tests_is_the_programs_error(light: dict[str, Execution]) -> None:
    ends = {name: it.verdict for name, it in light.items() if name.startswith(ENDS)}
    assert len(ends) > 9
    assert not {Verdict.INFRA, Verdict.UNJUDGED} & set(ends.values())


def test_what_only_reads_an_answer_is_not_marked(light: dict[str, Execution]) -> None:
    assert [name for name in SAFE if light[name].forgeable] == []


def test_answers_that_end_the_tests_end_no_run() -> None:
    exits = ROUTES["eval that exits"]
    jobs = [Job(task_of(exits.test), f"{program_of(exits)}# {n}") for n in range(25)]
    assert {run.verdict for run in judge_all(jobs, LIMITS)} == {Verdict.ERROR}


def test_code_of_the_tests_own_is_not_marked() -> None:
    jobs = [Job(task_of(test), "def f(x): return x + 1") for test in ORDINARY.values()]
    runs = dict(zip(ORDINARY, judge_all(jobs), strict=True))
    marked = {it: run for it, run in runs.items() if run.verdict != "pass" or run.forgeable}
    assert not marked


def test_examples_of_the_tests_are_not_marked_and_what_they_evaluate_is() -> None:
    texts = ">>> f(1)\n2\n>>> x = f(2)\n>>> x\n3\n", ">>> f(1)\n2\n>>> eval(str(f(1)))\n2\n"
    jobs = [
        Job(Task("row", "", (TestFunctions(text),), "f"), "def f(x): return x + 1")
        for text in texts
    ]
    ends = [(run.verdict, run.forgeable) for run in judge_all(jobs)]
    assert ends == [(Verdict.PASS, False), (Verdict.PASS, True)]


def test_a_right_answer_that_runs_passes_and_keeps_its_mark_on_disk(tmp_path: Path) -> None:
    job = Job(task_of("assert eval(f('2+3')) == 5"), "def f(x): return x + ' + 0'")

    async def judge() -> Execution:
        async with Judge(LIMITS, slots=1, archive=tmp_path / "verdicts") as judge:
            return await judge.run(job)

    first, stored = asyncio.run(judge()), asyncio.run(judge())
    assert (first.verdict, first.forgeable) == (Verdict.PASS, True)
    assert stored == first
