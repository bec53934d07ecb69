"""Programs that read and print, and try anything but the task."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from assay.judge import Job, judge_all
from assay.sandbox.limits import Limits
from assay.types import Exchange, Execution, Task, Verdict

TASK = Task("double", "", tuple(Exchange(f"{n}\n", f"{2 * n}\n") for n in (21, 34, 55)), "")
PROGRAMS = {
    "exit at once": "raise SystemExit(0)",
    "exit below everything": "import os\nos._exit(0)",
    "every descriptor gets a report": (
        """
import os
REPORT = (b'{"checks": [["held", ""]], "failure": null, "setup_error": "", "output": null, '
          b'"answers": [], "awaits_exit": false, "worker_reusable": true, '
          b'"candidate_reusable": true}')
for fd in range(64):
    for text in (REPORT, b'\\0\\0\\0\\2""'):
        try: os.write(fd, text)
        except OSError: pass"""
    ),
    "read every descriptor": (
        """
import os
for fd in range(3, 64):
    try: print(os.read(fd, 4096).decode())
    except OSError: pass"""
    ),
    "all answers at once": "print(42)\nprint(68)\nprint(110)",
    "a numeric string that equals anything": (
        "class S(str):\n    __eq__ = lambda *_: True\nprint(S('x'), end='')"
    ),
    "a patched print of the judge's": (
        "import builtins\nbuiltins.print = lambda *_: None\nbuiltins.bytes = object"
    ),
    "patched checkers": (
        """
import sys
for name, module in list(sys.modules.items()):
    if 'assay' in name:
        for attribute in dir(module):
            try: setattr(module, attribute, lambda *_, **__: True)
            except Exception: pass"""
    ),
    "walk the frames": (
        """
import sys
frame = sys._getframe()
while frame:
    for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):
        if isinstance(value, str) and value.strip().isdigit(): print(value)
    frame = frame.f_back"""
    ),
    "fork and stay": (
        "import os\ntry:\n    if os.fork(): os._exit(0)\nexcept OSError: pass\nprint(0)"
    ),
    "kill the family": (
        """
import os, signal
for pid in (os.getppid(), 0, -1, 1):
    try: os.kill(pid, signal.SIGKILL)
    except OSError: pass"""
    ),
    "stop oneself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "no output, and stay": "import os\nos.close(1)\nimport time\ntime.sleep(60)",
    "close everything": "import os\nos.closerange(0, 64)",
    "endless exit handlers": "import atexit\ndef again(): atexit.register(again)\nagain()\nagain()",
    "a thread that never ends": (
        "import threading, time\nthreading.Thread(target=lambda: time.sleep(60)).start()"
    ),
    "endless standard error": "import sys\nwhile True: sys.stderr.write('x' * 9999)",
    "a poisoned stdout": (
        "import sys\nclass W:\n    closed = property(lambda s: 1 / 0)\nsys.stdout = W()"
    ),
    "an exception that cannot be shown": (
        "class E(Exception):\n    __str__ = lambda s: 1 / 0\nraise E"
    ),
    "a deep recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
    "map the input and write": "import mmap\nm = mmap.mmap(0, 0)\nm[:] = b'0' * len(m)",
    "truncate the input": "import os\nos.ftruncate(0, 0)",
    "become another program": "import os\nos.execv('/bin/cat', ['cat'])",
}


@cache
def executions() -> dict[str, Execution]:
    limits = Limits(cpu_seconds=1, wall_seconds=4, memory_mb=256)
    return dict(
        zip(
            PROGRAMS,
            judge_all([Job(TASK, program) for program in PROGRAMS.values()], limits),
            strict=True,
        )
    )


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_does_not_solve_the_task_gets_nowhere(name: str) -> None:
    execution = executions()[name]
    assert execution.verdict not in (Verdict.PASS, Verdict.INFRA, Verdict.UNJUDGED), execution
    assert execution.passed == 0


def test_a_right_program_passes_after_all_of_them() -> None:
    executions()
    assert judge_all([Job(TASK, "print(2 * int(input()))")])[0].verdict is Verdict.PASS


HANGS = "import re\ndef check(*texts): return re.fullmatch('(4*)*2', texts[1].strip()) is not None"


def test_an_output_on_which_the_checker_hangs_is_wrong() -> None:
    limits, hostile = Limits(cpu_seconds=0.1, wall_seconds=1), "print('4' * 60)"
    task = replace(TASK, checks=TASK.checks[:1], checker=HANGS)
    sure = replace(task, reference="print(2 * int(input()))")
    jobs = [Job(sure, sure.reference), Job(sure, hostile), Job(task, hostile)]
    right, wrong, unsure = judge_all(jobs, limits)
    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.WRONG), wrong.detail
    # without a reference too: else its output would choose that it is not judged
    assert unsure.verdict is Verdict.WRONG
