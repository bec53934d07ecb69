"""A worker serves the next job only after code that cannot have changed it, and serves it as a new one would."""

from __future__ import annotations

import pytest

from assay.errors import DataError
from assay.judge import Job, judge_all
from assay.judge.purity import leaves_no_trace
from assay.tasks import load
from assay.types import Execution
from tests.judge.jobs import RIGHT, add, task
from tests.tasks import sources


def pure(source: str) -> bool:
    return leaves_no_trace(compile(source, "<check>", "exec"))


@pytest.mark.parametrize(
    "source",
    [
        "assert f(1) == 2",
        "import math\nfrom typing import List\nassert math.isclose(f(1), 2.0)",
        "def check(candidate):\n    for i in range(3): assert candidate(i) == i\ncheck(f)",
        "x = {}\nx['a'] = [1]\nassert f(x) == 1",
        "import collections.abc",
    ],
)
def test_plain_checks_leave_no_trace(source: str) -> None:
    assert pure(source)


@pytest.mark.parametrize(
    "source",
    [
        "import math\nmath.sqrt = abs",
        "def check(f):\n    import random\n    random.seed(1)",
        "import os.path",
        "f.calls = 1",
        "import math\ndel math.pi",
        "setattr(f, 'a', 1)",
        "import math\nvars(math)['pi'] = 3",
        "import math\nmath.__dict__['pi'] = 3",
        "exec('import math; math.pi = 3')",
        "__builtins__['abs'] = len",
        "class A:\n    def g(self): self.x = 1",
        "[setattr(f, n, 1) for n in 'ab']",
        "pass\n" + "x = 1\n" * 300 + "import os",
    ],
)
def test_code_that_may_change_the_process_counts_as_a_trace(source: str) -> None:
    assert not pure(source)


def test_nearly_all_real_tests_leave_no_trace() -> None:
    try:
        tasks = load("humaneval") + load("mbpp:all")
    except DataError as error:
        pytest.skip(str(error))
    reused = sum(all(map(pure, [task.setup, *sources(task)])) for task in tasks)
    assert reused > 0.98 * len(tasks)


def judged_in_one_slot(*jobs: Job) -> list[Execution]:
    return judge_all(jobs, slots=1, stop_early=False)


def test_what_one_jobs_tests_change_the_next_job_does_not_see() -> None:
    patching = task("f", "import math\nmath.pi = 3\nassert f() == math.pi")
    asking = task("f", "import math\nassert f() == math.pi == 3.141592653589793")
    three, exact = "def f(): return 3", "import math\ndef f(): return math.pi"
    verdicts = [str(seen.verdict) for seen in judged_in_one_slot(Job(patching, three), Job(asking, exact))]
    assert verdicts == ["pass", "pass"]


def test_a_worker_outlives_many_jobs_and_its_replacement_is_not_noticed() -> None:
    programs = [RIGHT, "def add(a, b): return 0", "import os\nos._exit(0)"] * 70
    programs[10] = "def add(a, b): return 'x' * 30_000_000"
    verdicts = [str(seen.verdict) for seen in judged_in_one_slot(*map(add, programs))]
    assert verdicts[10] == "output"
    assert (
        verdicts[:10] + verdicts[11:] == (["pass", "wrong", "error"] * 70)[:10] + (["pass", "wrong", "error"] * 70)[11:]
    )


def test_what_one_program_does_to_its_descriptors_the_next_does_not_see() -> None:
    mark = "import fcntl, os\nfcntl.fcntl(0, fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK)\n"
    look = "import fcntl, os\nprint(fcntl.fcntl(0, fcntl.F_GETFL) & (os.O_APPEND | os.O_NONBLOCK))\n"
    _, after = judge_all([add(mark + RIGHT), add(look + RIGHT)], slots=1)
    assert after.output == "0\n"
