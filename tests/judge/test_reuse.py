"""A process serves the next job only after code that cannot have changed it, and serves it as a new
one would.
"""

from __future__ import annotations

import asyncio
import dis
from importlib import import_module
from types import CodeType

import pytest

from assay.errors import DataError
from assay.judge import Job, Judge, judge_all
from assay.judge.reuse import ATTRIBUTES, MODULES, WHOLE_MODULES, is_reusable, named, public
from assay.sandbox.limits import Limits
from assay.tasks import load
from assay.types import Execution, Task
from tests.judge.jobs import RIGHT, add, judged_in_turn, task
from tests.judge.processes import children, zygotes
from tests.tasks import sources


def reusable(source: str) -> bool:
    return is_reusable(compile(source, "<check>", "exec"))


@pytest.mark.parametrize(
    "source",
    [
        "assert f(1) == 2",
        "import math\nfrom typing import List\nassert math.isclose(f(1), 2.0)",
        "def check(candidate):\n    for i in range(3): assert candidate(i) == i\ncheck(f)",
        "x = {}\nx['a'] = [1]\nassert f(x) == 1",
        "from typing import *\nfrom math import *\nassert f(sqrt(4)) == 2",
        "def f(xs): return sum(x for x in xs)\nassert f([1]) == 1",
        (
            "def g():\n    try:\n        return f(1)\n    except ValueError as error:\n       "
            " raise KeyError from error"
        ),
        "from functools import lru_cache\n@lru_cache(None)\ndef g(n): return n and g(n - 1)",
        "if __name__ == '__main__':\n    print(f(f'{1:.2f}'))",
        "try: f(1)\nexcept ValueError as error: pass",
        f"g = {'lambda: ' * 60}1",
    ],
)
def test_plain_checks_leave_no_trace(source: str) -> None:
    assert reusable(source)


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
        # reaching for what is not its own
        "import gc",
        "from collections import abc",
        "from operator import methodcaller",
        "from operator import *\nsetitem({}, 1, 2)",
        "from functools import *\nwraps(len)",
        "type('A', (), {})",
        "def f(): pass\nf.__globals__['abs'] = 1",
        "(x for x in ()).gi_frame",
        "'{0.__class__}'.format(1)",
        "if 0:\n    getattr = 1\ngetattr(f, 'a')",
        "global eval\neval = eval",
        "match f:\n    case int(real=x): pass",
        "try: 1 / 0\nexcept ZeroDivisionError as e: e.__traceback__.tb_frame",
        "def g(n):\n    globals()['x'] = n",
        "x: int = 1",
        # what could act later
        "def g():\n    try:\n        yield\n    finally:\n        while True: pass",
        "g = lambda: (yield)",
        "async def g(): pass",
        "class A:\n    def __del__(self): 1 / 0",
        "with f: pass",
        "from random import seed",
        "import sys\nsys.setrecursionlimit(9)",
        "import copy\ncopy.deepcopy(f, {})",
        "__name__ = 'turtle.x'\nfrom .math import pi",
        "def g():\n    global __name__\n    __name__ = 'turtle.x'",
    ],
)
def test_code_that_may_change_the_process_counts_as_a_trace(source: str) -> None:
    assert not reusable(source)


def real() -> list[Task]:
    try:
        return load("humaneval") + load("mbpp:all")
    except DataError as error:
        pytest.skip(str(error))


def test_nearly_all_real_tests_and_programs_leave_no_trace() -> None:
    tasks = real()
    assert sum(all(map(reusable, [task.setup, *sources(task)])) for task in tasks) > 0.97 * len(
        tasks
    )
    assert sum(reusable(task.reference or "") for task in tasks) > 0.96 * len(tasks)


def test_the_steps_that_name_something_are_those_that_python_itself_reads() -> None:
    def pieces(code: CodeType) -> list[CodeType]:
        return [
            code,
            *(
                each
                for inner in code.co_consts
                if isinstance(inner, CodeType)
                for each in pieces(inner)
            ),
        ]

    many = "\n".join(f"a{n}.b{n}(c{n})" for n in range(300))
    for source in [many, *(each.reference or "" for each in real())]:
        for code in pieces(compile(source, "<program>", "exec")):
            kinds: tuple[str, ...] = ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM", "IMPORT_NAME")
            kinds += ("LOAD_NAME", "LOAD_GLOBAL", "STORE_NAME", "STORE_GLOBAL")
            expected = [
                (step.opcode, step.argval)
                for step in dis.get_instructions(code)
                if step.opname in kinds
            ]
            assert [step for step in named(code) if dis.opname[step[0]] in kinds] == expected


def test_what_listed_names_reach_in_listed_modules_has_no_state() -> None:
    """A name listed for one module may be one of another's: none of those is a module, or can be
    changed.
    """
    for module in map(import_module, MODULES):
        for name in public(module) & ATTRIBUTES:
            reached = getattr(module, name)
            listed = module.__name__ in WHOLE_MODULES or name in MODULES[module.__name__].split()
            plain = type(reached) in (str, float, type, type(len)) or module.__name__ in (
                "functools",
                "typing",
            )
            assert listed or plain, (module, name)
            assert not isinstance(reached, type(dis))


CROWDED = (
    "import gc\ndef add(a, b): return [f for f in gc.get_objects() if getattr(f, '__name__', '') =="
    " 'add'][0](a, b)"
)


def test_a_program_that_looks_around_never_finds_another_one() -> None:
    found = judged_in_turn(*map(add, [RIGHT, RIGHT, CROWDED, RIGHT, CROWDED]))
    assert [str(execution.verdict) for execution in found] == [
        "pass",
        "pass",
        "error",
        "pass",
        "error",
    ]


def test_a_process_runs_one_traceless_program_after_another_and_no_other_kind() -> None:
    async def processes() -> list[set[int]]:
        seen = []
        async with Judge(slots=1) as judge:
            for program in [RIGHT, RIGHT, "def add(a, b): return 0", f"import os\n{RIGHT}", RIGHT]:
                await judge.run(add(program))
                (zygote,) = zygotes(judge._supervisor._process.pid)
                seen.append(set(children(zygote)))
        return seen

    first, second, third, _, last = asyncio.run(processes())
    assert first == second == third
    assert (
        len(first - last) == 1
    )  # the one that `import os` was given, which no other program had seen


def test_each_program_in_a_process_has_its_own_time_and_prints() -> None:
    busy = "def add(a, b):\n    for n in range(6_000_000): pass\n    return a + b"
    endless = "def add(a, b):\n    while True: pass"
    limits = Limits(cpu_seconds=1.5)
    programs = [busy, RIGHT, busy, busy, "print('here')\n" + RIGHT, RIGHT, endless, RIGHT]
    seen = judge_all(list(map(add, programs)), limits=limits, slots=1)
    assert [str(execution.verdict) for execution in seen] == ["pass"] * 6 + ["timeout", "pass"]
    assert [execution.output for execution in seen] == [""] * 4 + ["here\n"] + [""] * 3
    assert seen[1].cpu_seconds < 0.05 < seen[0].cpu_seconds


def judged_in_one_slot(*jobs: Job) -> list[Execution]:
    return judge_all(jobs, slots=1, stop_early=False)


def test_what_one_jobs_tests_change_the_next_job_does_not_see() -> None:
    patching = task("f", "import math\nmath.pi = 3\nassert f() == math.pi")
    asking = task("f", "import math\nassert f() == math.pi == 3.141592653589793")
    three, exact = "def f(): return 3", "import math\ndef f(): return math.pi"
    verdicts = [
        str(seen.verdict) for seen in judged_in_one_slot(Job(patching, three), Job(asking, exact))
    ]
    assert verdicts == ["pass", "pass"]


def test_a_worker_outlives_many_jobs_and_its_replacement_is_not_noticed() -> None:
    programs = [RIGHT, "def add(a, b): return 0", "import os\nos._exit(0)"] * 70
    programs[10] = "def add(a, b): return 'x' * 30_000_000"
    verdicts = [str(seen.verdict) for seen in judged_in_one_slot(*map(add, programs))]
    assert verdicts[10] == "output"
    assert (
        verdicts[:10] + verdicts[11:]
        == (["pass", "wrong", "error"] * 70)[:10] + (["pass", "wrong", "error"] * 70)[11:]
    )


def test_what_one_program_does_to_its_descriptors_the_next_does_not_see() -> None:
    mark = "import fcntl, os\nfcntl.fcntl(0, fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK)\n"
    look = (
        "import fcntl, os\nprint(fcntl.fcntl(0, fcntl.F_GETFL) & (os.O_APPEND | os.O_NONBLOCK))\n"
    )
    _, after = judge_all([add(mark + RIGHT), add(look + RIGHT)], slots=1)
    assert after.output == "0\n"


FILLED = "b = bytes(400 << 20)\ndef add(a, b): return a + b"
PINNED = "from typing import List\nb = bytes(400 << 20)\ndef add(a, b): return a + b\nList[add]"
LARGE = "def add(a, b):\n    list(range(3_000_000))\n    return a + b"


@pytest.mark.parametrize("before", [FILLED, PINNED])
def test_memory_that_a_program_took_is_no_others(before: str) -> None:
    verdicts = [
        str(seen.verdict)
        for seen in judged_in_turn(*map(add, [RIGHT, before, LARGE, RIGHT, LARGE]))
    ]
    assert verdicts == ["pass"] * 5


WRITES = (
    "from typing import List\nfor n in (1, 2): List[float(n)]\nimport re\nre.compile('(1|2)')\n"
    + RIGHT
)
READS = """
from typing import List
import re
try:
    cached = bool(re.compile('(1|2)', 0.0))
except TypeError:
    cached = False
def add(a, b):
    assert '.' not in repr(List[1])[12:] and not cached, 'seen'
    return a + b
"""


def test_caches_carry_nothing_from_one_program_to_the_next() -> None:
    seen = judged_in_turn(*map(add, [WRITES, READS]))
    assert [(str(execution.verdict), execution.detail) for execution in seen] == [("pass", "")] * 2


def test_code_nested_deeper_than_a_recursion_goes_is_judged_like_any_other() -> None:
    deep = f"{RIGHT}\ng = {'lambda: ' * 600}1"
    assert [str(seen.verdict) for seen in judged_in_turn(add(deep), add(RIGHT), add(deep))] == [
        "pass"
    ] * 3


def test_a_program_that_is_handed_one_of_our_functions_has_a_process_of_its_own() -> None:
    """Such a function leads to the side that answers, which the next program would talk to."""
    calls = task("f", "assert f(lambda x: x + 1) == 3", reference="def f(g): return g(2)")
    plain = task("f", "assert f() == 3")

    async def processes() -> list[set[int]]:
        seen = []
        async with Judge(slots=1) as judge:
            for job in (
                Job(calls, calls.reference),
                Job(plain, "def f(): return 3"),
                Job(calls, "def f(g): return g(g(1))"),
            ):
                assert (await judge.run(job)).verdict == "pass"
                (zygote,) = zygotes(judge._supervisor._process.pid)
                seen.append(set(children(zygote)))
        return seen

    _, plain_ran, then = asyncio.run(processes())
    assert plain_ran - then


FORGED = "import os\nos.write(3, len(b := b'%s').to_bytes(4, 'big') + b)\nwhile True: pass"
REPORT = (
    '{"checks": %s, "failure": %s, "setup_error": "", "output": null, "answers": [],'
    ' "awaits_exit": false, "worker_reusable": false, "candidate_reusable": true}'
)


@pytest.mark.parametrize(
    ("checks", "failure"),
    [("[]", '["refused", ""]'), ('[["refused", ""]]', "null"), ('[["hung_up", ""]]', "null")],
)
def test_a_data_set_cannot_have_its_job_run_for_ever_or_end_the_judge(
    checks: str, failure: str
) -> None:
    forging = task("f", "assert f() == 1", setup=FORGED % (REPORT % (checks, failure)))
    seen = judged_in_turn(Job(forging, "def f(): return 1"), add(RIGHT))
    assert [str(execution.verdict) for execution in seen] == ["infra", "pass"]
