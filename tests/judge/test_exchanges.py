"""Programs that read and print."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cache

import pytest

from assay.judge import Job, Judge
from assay.judge.runner import combined
from assay.rewards.tests import score_execution
from assay.sandbox.limits import Limits
from assay.types import Cause, Check, Exchange, Execution, Task, Verdict
from tests.judge.jobs import judged_in_turn, programs_run
from tests.judge.opened import judge_all, with_judge

SUM = Task("sum", "", (Exchange("1 2\n", "3\n"), Exchange("5 6", "11")), "")
ADD = "print(sum(map(int, {}.split())))"


def judged(program: str, task: Task = SUM) -> Execution:
    return judge_all([Job(task, program)])[0]


READERS = {
    "input": ADD.format("input()"),
    "sys.stdin.read": "import sys\n" + ADD.format("sys.stdin.read()"),
    "sys.stdin.readline as input": (
        "import sys\ninput = sys.stdin.readline\n" + ADD.format("input()")
    ),
    "sys.stdin.buffer": "import sys\n" + ADD.format("sys.stdin.buffer.readline()"),
    "iterating sys.stdin": "import sys\nfor line in sys.stdin: " + ADD.format("line"),
    "open(0)": ADD.format("open(0).read()"),
    "os.read": "import os\n" + ADD.format("os.read(0, 100)"),
    "fileinput": "import fileinput\n" + ADD.format("next(iter(fileinput.input()))"),
    "mmap": "import mmap\n" + ADD.format("mmap.mmap(0, 0, prot=mmap.PROT_READ)[:]"),
    "a main guard": f"if __name__ == '__main__':\n    {ADD.format('input()')}",
    "os.write": "import os\nos.write(1, b'%d' % sum(map(int, input().split())))",
    "an exit handler": "import atexit\natexit.register(lambda: " + ADD.format("input()") + ")",
    "a thread": (
        "import threading\nthreading.Thread(target=lambda: " + ADD.format("input()") + ").start()"
    ),
    "a deep thread": "import sys, "
                     "threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(2**27)\n"
    "def down(n): return n and down(n - 1)\ndef main():\n    down(50000)\n    "
    + ADD.format("input()")
    + "\nthreading.Thread(target=main).start()",
    "a file never closed": (
        "out = open(1, 'w')\nprint(" + ADD.format("input()")[6:-1] + ", file=out)"
    ),
    "a writer never flushed": "import io\nout = io.BufferedWriter(io.FileIO(1, 'w'))\n"
    "out.write(b'%d' % sum(map(int, input().split())))",
    "a finalizer": "class Last:\n    def __del__(self): " + ADD.format("input()") + "\nlast = "
                                                                                    "Last()",
    "before another stdout": "import io, sys\n" + ADD.format("input()") + "\nsys.stdout = "
                                                                          "io.StringIO()",
    "sys.stdout.reconfigure": "import sys\nsys.stdout.reconfigure(encoding='utf-8')\n"
    "sys.stderr.reconfigure(line_buffering=False)\nsys.stdin.reconfigure(encoding='latin-1')\n"
    + ADD.format("input()"),
    "wrapping the buffers": "import io, sys\nsys.stdin = io.TextIOWrapper(sys.stdin.buffer)\n"
    "sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\n" + ADD.format("input()"),
    "wrapping what it detaches": "import io, sys\n"
    "sys.stdout = io.TextIOWrapper(sys.stdout.detach())\n" + ADD.format("input()"),
    "a stdout of two methods": "import os, sys\nclass Out:\n    def write(self, text): "
                               "os.write(1, text.encode())\n"
    "    def flush(self): pass\nsys.stdout = Out()\n" + ADD.format("input()"),
    "exit()": ADD.format("input()") + "\nexit()",
    "os._exit": "import os\nprint(sum(map(int, input().split())), flush=True)\nos._exit(0)",
    "numpy": "import numpy as np\nprint(np.array(input().split(), dtype=int).sum())",
}  # fmt: skip


@cache
def read_in_every_way() -> dict[str, Execution]:
    return dict(
        zip(READERS, judge_all([Job(SUM, program) for program in READERS.values()]), strict=True)
    )


@pytest.mark.parametrize("way", READERS)
def test_a_program_may_read_and_print_in_any_way(way: str) -> None:
    if way == "numpy":
        pytest.importorskip("numpy")
    execution = read_in_every_way()[way]
    assert (execution.verdict, execution.passed, execution.detail) == (Verdict.PASS, 2, "")


@pytest.mark.parametrize(
    ("program", "verdict", "detail"),
    [
        ("print(3)", Verdict.WRONG, "test 2: line 1 is '3', not '11'"),
        ("", Verdict.WRONG, "test 1: line 1 is '', not '3'"),
        ("print(int(input()))", Verdict.ERROR, "test 1: exited with status 1: ValueError: "),
        (
            ADD.format("input()") + "\nraise SystemExit(3)",
            Verdict.ERROR,
            "test 1: exited with status 3",
        ),
        (ADD.format("input()") + "\nexit('no')", Verdict.ERROR, "test 1: exited with status 1: no"),
        ("import os\nos.abort()", Verdict.ERROR, "test 1: killed by SIGABRT"),
        ("print(", Verdict.COMPILE, "SyntaxError: "),
        ("while True: print('x' * 1000)", Verdict.OUTPUT, "test 1: printed more than 10 MiB"),
        ("import sys\nsys.stdout.close()", Verdict.WRONG, "test 1: line 1 is '', not '3'"),
    ],
)
def test_a_program_fails_by_its_cause(program: str, verdict: Verdict, detail: str) -> None:
    execution = judged(program)
    assert execution.verdict is verdict
    assert execution.detail.startswith(detail)
    assert execution.total == 2


def test_right_output_before_a_loop_is_a_timeout() -> None:
    task = Task("one", "", (Exchange("", "1"),), "")
    program = "import os\nprint(1, flush=True)\nos.close(1)\nwhile True: pass"
    (execution,) = judge_all([Job(task, program)], Limits(cpu_seconds=0.3))
    assert execution.verdict is Verdict.TIMEOUT


def test_each_exchange_is_a_new_process() -> None:
    counting = (
        "import builtins\nbuiltins.runs = getattr(builtins, 'runs', 0) + 1\nprint(builtins.runs)"
    )
    assert (
        judged(counting, Task("count", "", (Exchange("", "1"), Exchange("", "1")), "")).verdict
        is Verdict.PASS
    )


def test_a_program_cannot_write_to_its_input() -> None:
    writes = "import os\ntry: os.write(0, b'9 9')\nexcept OSError: pass\n" + ADD.format(
        "open(0).read()"
    )
    assert judged(writes).verdict is Verdict.PASS


def test_the_expected_output_is_nowhere_in_the_programs_process() -> None:
    task = Task("secret", "", (Exchange("", "swordfish-1234"),), "")
    search = (
        "import gc, os\nfound = [o for o in gc.get_objects() if ''.join(reversed('21-hsifdrows'))"
        " in repr(o)[:10**6]]\nfor fd in range(3, 64):\n    try: found.append(os.read(fd, 10**6))\n"
        "    except OSError: pass\nprint(found)"
    )
    execution = judged(search, task)
    assert execution.verdict is Verdict.WRONG
    assert execution.output == "[]\n"


def test_without_stopping_early_every_exchange_counts() -> None:
    async def run(judge: Judge) -> Execution:
        return await judge.run(Job(SUM, "print(11)"))

    execution = with_judge(run, stop_early=False)
    assert (execution.verdict, execution.passed, execution.total) == (Verdict.WRONG, 1, 2)


def test_exchanges_run_in_their_order_whatever_failed_before() -> None:
    task = Task("many", "", tuple(Exchange(str(n), str(n)) for n in range(20)), "")

    wrong = "n = input()\nprint('x' if n == '13' else n)"
    first, second = judged_in_turn(Job(task, wrong), Job(task, wrong + "  # again"))
    assert first.passed == second.passed == 13
    assert first.detail == second.detail == "test 14: line 1 is 'x', not '13'"


def test_bytes_that_are_no_text_cross_unchanged() -> None:
    task = Task("bytes", "", (Exchange("\udcff\x00z", "\udcff\x00z"),), "", checker="exact")
    echo = "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read())"
    assert judged(echo, task).verdict is Verdict.PASS
    assert judged(echo + "\nsys.stdout.buffer.write(b' ')", task).verdict is Verdict.WRONG


def test_a_checker_of_the_tasks_own_decides_with_the_input() -> None:
    divisor = (
        "def check(stdin, output, expected):\n    return 1 < int(output) and int(stdin) %"
        " int(output) == 0"
    )
    task = Task("divisor", "", (Exchange("91", "7"),), "", checker=divisor)
    assert judged("print(13)", task).verdict is Verdict.PASS
    assert judged("print(12)", task).verdict is Verdict.WRONG
    assert judged("print('x')", task).verdict is Verdict.WRONG


def test_a_program_without_a_task_is_run_for_what_it_prints() -> None:
    async def run(judge: Judge) -> tuple[Execution, Execution]:
        shown = await judge.execute(
            "import sys\nprint(input()[::-1])\nprint('e', file=sys.stderr)", "abc"
        )
        failed = await judge.execute("raise SystemExit(4)")
        return shown.execution, failed.execution

    shown, failed = with_judge(run)
    assert (shown.verdict, shown.output, shown.stderr) == (Verdict.PASS, "cba\n", "e\n")
    assert (failed.verdict, failed.detail) == (Verdict.ERROR, "exited with status 4")


def test_a_definite_failure_outweighs_the_machines() -> None:
    found = {
        0: Execution(Verdict.PASS, passed=1, total=1),
        1: Execution(Verdict.INFRA, detail="gone"),
        2: Execution(Verdict.WRONG),
    }
    assert combined(found).verdict is Verdict.WRONG
    assert combined({0: found[0], 1: found[1]}).detail == "test 2: gone"
    assert combined({0: found[0], 1: found[0]}).passed == 2


def test_a_result_is_forgeable_where_that_of_one_check_is() -> None:
    passed, wrong = Execution(Verdict.PASS, passed=1, total=1), Execution(Verdict.WRONG, total=1)
    forged = replace(passed, forgeable=True)
    assert not combined({0: passed, 1: forged}).proven
    assert score_execution(combined({0: wrong, 1: forged}), fraction=True) == 0.0
    assert combined({0: passed, 1: passed}).proven


def test_the_reference_runs_for_the_first_wrong_answer_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    orders = programs_run(monkeypatch)
    jobs = [Job(replace(SUM, reference=ADD.format("input()")), "print(4)")]
    jobs += [Job(jobs[0].task, f"print({n})") for n in range(5, 8)]
    assert [execution.verdict for execution in judged_in_turn(*jobs)] == ["wrong"] * 4
    assert len(orders) == 4 + len(SUM.checks)


def test_a_program_with_numpy_is_not_kept_waiting_by_those_without() -> None:
    pytest.importorskip("numpy")
    busy = (
        "import time\nend = time.process_time() + 0.05\nwhile time.process_time() < end: pass\n"
        + ADD.format("input()")
    )
    numeric = "import numpy\n" + ADD.format("input()")
    ended: list[str] = []

    async def run(judge: Judge) -> None:
        await judge.run(Job(SUM, numeric))

        async def one(program: str) -> None:
            await judge.run(Job(SUM, program))
            ended.append(program)

        await asyncio.gather(
            *(one(f"{busy}  # {n}") for n in range(12)), one(f"{numeric}  # again")
        )

    with_judge(run)
    assert ended[-1].startswith(busy)


def test_a_hook_of_the_programs_own_does_not_hide_that_it_failed() -> None:
    hook = "import sys\ndef hook(*_): raise SystemExit(0)\nsys.excepthook = hook\nprint(3)\n1 / 0"
    assert judged(hook, Task("one", "", (Exchange("", "3"),), "")).verdict is Verdict.ERROR


def test_exchanges_beside_checks_are_no_task() -> None:
    mixed = Task("mixed", "", (Exchange("", "3"), Check("assert False")), "f")
    refused = judged("print(3)", mixed)
    assert (refused.verdict, refused.cause) == (Verdict.UNJUDGED, Cause.TASK)
