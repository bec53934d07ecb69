"""No attack passes, each gets a verdict that says what happened, and the machine is as it was."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from assay.judge import Job, judge_all
from assay.sandbox.limits import Limits
from assay.tasks import load
from assay.types import Check, Execution, Task
from tests.attacks.forgeries import ALL_ATTACKS
from tests.attacks.programs import LEAK, Attack, source_of

REPOSITORY = Path(__file__).parent.parent.parent
HUMANEVAL = ("HumanEval/2", "HumanEval/8", "HumanEval/53")
"""Tests that compare floats by distance, tuples, and ints."""
OWN = {
    "truncate": (
        "assert abs(candidate(3.5) - 0.5) < 1e-6\n    assert abs(candidate(1.33) - 0.33) < 1e-6"
    ),
    "sum_product": "assert candidate([]) == (0, 1)\n    assert candidate([3, 5, 7]) == (15, 105)",
    "add": "assert candidate(2, 3) == 5\n    assert candidate(5, 7) == 12",
}
"""The same shapes, of our own."""
VARIABLES = {
    "ordered": "x = [3, 1]\nassert ordered(x) == sorted(x)",
    "sums": "found = sums(1)\nassert [sum(found), sum(found)] == [3, 4]",
}
"""Checks that look at what they passed, or twice at what they got; no Python value that is data
passes the second."""
SOLUTIONS = {
    "sum_product": "import math; return (sum(args[0]), math.prod(args[0]))",
    "truncate": "return args[0] % 1",
    "truncate_number": "return args[0] % 1",
    "add": "return args[0] + args[1]",
}
FEW = ("sum_product", "sums")
"""On which the attacks run in `make test`; `make test-long` runs them on all."""
LIMITS = Limits(cpu_seconds=0.5, wall_seconds=2.5, memory_mb=256)


@pytest.fixture(
    scope="module",
    params=[
        "few",
        pytest.param("own", marks=pytest.mark.long),
        pytest.param("humaneval", marks=[pytest.mark.long, pytest.mark.data("humaneval")]),
    ],
)
def victims(request: pytest.FixtureRequest) -> list[Task]:
    if request.param == "humaneval":
        return [task for task in load("humaneval") if task.id in HUMANEVAL]
    tasks = own_victims()
    return tasks if request.param == "own" else [task for task in tasks if task.id in FEW]


def own_victims() -> list[Task]:
    own = [
        Task(
            name,
            "",
            (Check(f"METADATA = {{}}\ndef check(candidate):\n    {body}\ncheck({name})"),),
            name,
        )
        for name, body in OWN.items()
    ]
    return own + [Task(name, "", (Check(source),), name) for name, source in VARIABLES.items()]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of data that an attack may look for: the right programs of the victims."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "humaneval").mkdir()
    rows = [{"prompt": f"def {name}(*args):\n    ", "canonical_solution": solution}
            for name, solution in SOLUTIONS.items()]  # fmt: skip
    with gzip.open(folder / "humaneval" / "rows.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return folder


@pytest.fixture(scope="module")
def executions(victims: list[Task], answers: Path) -> dict[str, list[Execution]]:
    places = {
        "data": str(answers),
        "repository": str(REPOSITORY),
        "home": str(Path.home()),
    }
    jobs = [
        Job(task, source_of(attack, task.entry_point, **places))
        for attack in ALL_ATTACKS
        for task in victims
    ]
    done = judge_all(jobs, LIMITS, stop_early=False)
    count = len(victims)
    return {
        attack.name: done[at * count : (at + 1) * count] for at, attack in enumerate(ALL_ATTACKS)
    }


@pytest.mark.parametrize("attack", ALL_ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_never_passes_and_is_named_for_what_it_did(
    attack: Attack, executions: dict[str, list[Execution]]
) -> None:
    for execution in executions[attack.name]:
        verdict = (
            "forgeable" if execution.forgeable and execution.passed else str(execution.verdict)
        )
        assert verdict in attack.verdicts.split(), execution
        assert execution.passed == 0 or execution.forgeable
        assert LEAK not in execution.output


def test_the_machine_is_as_it_was(executions: dict[str, list[Execution]]) -> None:
    assert executions
    for path in (
        "/tmp/assay-attack",
        "/dev/shm/assay-attack",
        "sitecustomize.py",
        "/sitecustomize.py",
    ):
        assert not Path(path).exists()
    assert Path("/etc/hostname").stat().st_mode & 0o022 == 0


def test_the_honest_wrong_program_fails_where_the_attacks_do(victims: list[Task]) -> None:
    jobs = [Job(task, f"def {task.entry_point}(*args): return None") for task in victims]
    assert {str(execution.verdict) for execution in judge_all(jobs, LIMITS)} == {"wrong"}


def test_there_are_attacks_enough() -> None:
    assert len({attack.name for attack in ALL_ATTACKS}) == len(ALL_ATTACKS) >= 120
