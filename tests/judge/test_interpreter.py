"""A walled Python between blocks of code: state, output, limits, many at once, and nothing left
behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.errors import RolloutLostError, SandboxError
from assay.judge import Judge
from assay.judge.interpreter import Interpreter, Observation
from assay.sandbox.limits import Limits
from assay.sandbox.processes import is_stopped
from assay.sandbox.seccomp import SETRLIMIT, column
from assay.types import Verdict
from tests.judge.jobs import RIGHT, add
from tests.judge.opened import blocks_together, judge_all, with_judge
from tests.judge.processes import alive, children, descendants, gone, until, zygotes
from tests.judge.test_faults import nothing_left

PATIENT = Limits(memory_mb=256, printed_mb=1)
LIMITS = Limits(cpu_seconds=0.4, wall_seconds=1.2, memory_mb=256, printed_mb=1)


@pytest.fixture
def nothing_is_left() -> Iterator[None]:
    with nothing_left():
        yield


def run_blocks(*blocks: str, limits: Limits = LIMITS) -> list[Observation]:
    return blocks_together(blocks, limits)


async def stopped(judge: Judge, count: int) -> list[int]:
    """The processes behind a judge that are stopped, when they are so many."""
    await until(lambda: len(sleepers(judge)) == count)
    return sleepers(judge)


def sleepers(judge: Judge) -> list[int]:
    """Processes behind a judge that are stopped."""
    found = descendants(judge.pid)
    return [pid for pid in found if is_stopped(pid)]


def test_state_is_kept_from_block_to_block_and_the_last_expression_is_shown() -> None:
    assert run_blocks("x = 1\nprint(x)", "def f(n): return n + x", "f(41)", "x; None", "_ + 1") == [
        Observation("1\n", "done"), Observation("", "done"), Observation("42\n", "done"),
        Observation("", "done"),
        Observation("43\n", "done"),
    ]  # fmt: skip


def test_interpreters_share_nothing() -> None:
    async def two(judge: Judge) -> Observation:
        async with (
            judge.interpreter() as one,
            judge.interpreter() as other,
        ):
            await one.run("import sys, builtins\nsecret = sys.secret = builtins.secret = 1")
            return await other.run(
                "import sys\nhasattr(sys, 'secret'), 'secret' in globals(), 'secret' in"
                " dir(__builtins__)"
            )

    assert with_judge(two) == Observation("(False, False, False)\n", "done")


def test_all_that_is_written_is_seen_in_order() -> None:
    code = "import os, sys\nprint('one')\n"
    code += "print('two', file=sys.stderr)\nos.write(1, b'three\\n')\nos.write(2, b'\\xff\\n');"
    assert run_blocks(code) == [
        Observation("one\ntwo\nthree\n\N{REPLACEMENT CHARACTER}\n2\n", "done")
    ]


def test_an_exception_is_shown_with_the_programs_own_lines_and_the_state_stays() -> None:
    raising, syntax, state = run_blocks("x = 1\ndef f():\n    return 1 / 0\nf()", "y = = 2", "x")
    assert raising == Observation(
        'Traceback (most recent call last):\n  File "<block 1>", line 4, in <module>\n    f()\n '
        ' File "<block 1>", line 3, in f\n    return 1 / 0\n           ~~^~~\nZeroDivisionError:'
        " division by zero\n",
        "error",
    )
    assert syntax == Observation(
        '  File "<block 2>", line 1\n    y = = 2\n        ^\nSyntaxError: invalid syntax\n', "error"
    )
    assert state == Observation("1\n", "done")


def test_nothing_of_a_block_runs_that_does_not_compile_to_its_end() -> None:
    assert [seen.ended for seen in run_blocks("x = 1\nreturn", "x")] == ["error", "error"]


def test_a_block_that_exits_has_raised() -> None:
    leaving, state = run_blocks("x = 1\nimport sys\nsys.exit(3)", "x")
    assert (leaving.ended, leaving.output.splitlines()[-1]) == ("error", "SystemExit: 3")
    assert state == Observation("1\n", "done")


def test_long_output_is_kept_at_its_head_and_its_tail() -> None:
    (seen,) = run_blocks("print('a' * 5000)\nprint('b' * 5000)")
    assert seen == Observation(
        "a" * 4096 + "\n[... 1810 bytes left out ...]\n" + "b" * 4095 + "\n", "done"
    )


LIMITS_MET = [
    ("while True: pass", "timeout", "used more than 0.4 s of CPU time"),
    ("import time\ntime.sleep(60)", "timeout", "took more than 1.2 s"),
    ("import os\nos.read(os.pipe()[0], 1)", "timeout", "took more than 1.2 s"),
    ("while True: print('x' * 1000)", "output", "printed more than 1 MiB"),
    ("kept = b'x' * (200 << 20)", "memory", "held more than 128 MiB when the code had ended"),
    (
        "held = []\nwhile True: held.append(bytearray(10**6))",
        "memory",
        "held more than 128 MiB when the code had ended",
    ),
    ("import os\nos._exit(3)", "died", "exited with status 3"),
    ("import ctypes\nctypes.string_at(0)", "died", "killed by SIGSEGV"),
]
"""Code, how it ends, and why."""


@pytest.fixture(scope="module")
def beyond_limits() -> dict[str, list[Observation]]:
    """By code: what comes of it between two other blocks. All run at once."""

    async def run(limits: Limits, ends: tuple[str, ...]) -> dict[str, list[Observation]]:
        found: dict[str, list[Observation]] = {}
        async with Judge(limits, slots=1) as judge:

            async def one(code: str) -> None:
                async with judge.interpreter() as python:
                    blocks = ("x = 1", f"print('begun')\n{code}", "'x' in globals()")
                    found[code] = [await python.run(block) for block in blocks]

            await asyncio.gather(*(one(code) for code, ended, _ in LIMITS_MET if ended in ends))
        return found

    with nothing_left():
        found = asyncio.run(run(LIMITS, ("timeout",)))
        return found | asyncio.run(run(PATIENT, ("output", "memory", "died")))


@pytest.mark.parametrize(("code", "ended", "why"), LIMITS_MET)
def test_a_limit_ends_the_interpreter_and_the_next_block_starts_anew(
    code: str, ended: str, why: str, beyond_limits: dict[str, list[Observation]]
) -> None:
    before, over, after = beyond_limits[code]
    assert (before.ended, over.ended) == ("done", ended)
    assert over.output.startswith("begun\n")
    assert over.output.endswith(f"\n[{why}: the interpreter was ended]\n")
    assert after == Observation("False\n", "done")


def test_memory_that_a_block_asks_for_in_vain_costs_it_nothing_else() -> None:
    asking, state = run_blocks("x = 1\nbytearray(10**9)", "x")
    assert (asking.ended, asking.output.splitlines()[-1]) == ("error", "MemoryError")
    assert state == Observation("1\n", "done")


def test_all_blocks_together_have_ten_times_the_cpu_time_of_one() -> None:
    """0.075 s and a little each: after 13 of them less than that is left of a second."""
    spinning = (
        "import time\nend = time.process_time() + 0.075\nwhile time.process_time() < end: pass"
    )
    ends = [seen.ended for seen in run_blocks(*[spinning] * 14, limits=Limits(cpu_seconds=0.1))]
    assert ends[:9] == ["done"] * 9
    assert "timeout" in ends


def test_threads_do_not_run_between_blocks() -> None:
    count = "import threading, time\nat = 0\ndef go():\n    global at\n    while True:\n"
    count += "        at += 1\n        time.sleep(0.001)\n"
    start = f"{count}threading.Thread(target=go, daemon=True).start()\ntime.sleep(0.05)"

    async def paused(judge: Judge) -> tuple[str, str]:
        async with judge.interpreter() as python:
            await python.run(start)
            before = (await python.run("at")).output
            await asyncio.sleep(0.5)
            return before, (await python.run("at")).output

    before, after = with_judge(paused)
    assert 0 < int(before) <= int(after) < int(before) + 100


def test_an_interpreter_with_many_threads_is_not_kept() -> None:
    many = "import threading, time\nfor _ in range(4):\n"
    many += "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    few = many.replace("4", "3", 1)
    assert [seen.ended for seen in run_blocks("x = 1", few, "x")] == ["done", "done", "done"]
    over, after = run_blocks(many, "'many' in globals()")
    assert (over.ended, over.output) == (
        "died",
        "[left more than 3 threads running: the interpreter was ended]\n",
    )
    assert after.ended == "done"


@pytest.mark.long
@pytest.mark.usefixtures("nothing_is_left")
def test_hundreds_are_open_while_programs_are_judged_and_each_keeps_its_own_state() -> None:
    async def crowd() -> tuple[list[str], Verdict]:
        threads = "import threading\nfor _ in range(20): threading.Thread(target=print).start()"
        async with Judge(slots=1) as judge, contextlib.AsyncExitStack() as stack:
            pythons = [await stack.enter_async_context(judge.interpreter()) for _ in range(300)]
            await asyncio.gather(*(python.run(f"x = {at}") for at, python in enumerate(pythons)))
            judged = await judge.run(add(RIGHT))
            await stopped(judge, 300)
            seen = await asyncio.gather(*(python.run("x") for python in pythons))
            assert (await pythons[0].run(threads)).output == "\n" * 20
            await stack.aclose()
            await stopped(judge, 0)
            return [one.output for one in seen], judged.verdict

    outputs, verdict = asyncio.run(crowd())
    assert outputs == [f"{at}\n" for at in range(300)]
    assert verdict is Verdict.PASS


@pytest.mark.usefixtures("nothing_is_left")
def test_more_than_may_be_open_wait_for_one_that_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    few = "import assay.sandbox.supervisor as it; it.SESSIONS = 2; it.main()"
    monkeypatch.setattr("assay.sandbox.supervisor_client.SUPERVISOR", ("-c", few))

    async def crowd() -> None:
        async with Judge(slots=2) as judge:
            pythons = [judge.interpreter() for _ in range(2)]
            await asyncio.gather(pythons[0].run("x = 0"), pythons[1].run("x = 1"))
            third, fourth = (asyncio.create_task(judge.interpreter().run("2")) for _ in range(2))
            for _ in range(20):
                assert (await pythons[0].run("import time\ntime.sleep(0.02)\nx")).output == "0\n"
            assert not third.done()
            fourth.cancel()
            await pythons[1].__aexit__()
            assert (await asyncio.wait_for(third, 10)).output == "2\n"
            await pythons[0].__aexit__()
            await asyncio.sleep(0.2)
            await stopped(judge, 1)

    asyncio.run(crowd())


@pytest.mark.usefixtures("nothing_is_left")
def test_a_cancelled_block_takes_its_interpreter_with_it_and_no_other() -> None:
    async def cancelled() -> tuple[Observation, Observation]:
        async with (
            Judge(slots=1) as judge,
            judge.interpreter() as python,
            judge.interpreter() as other,
        ):
            await other.run("x = 1")
            await python.run("x = 2")
            run = asyncio.create_task(python.run("x = 3\nwhile True: pass"))
            behind = asyncio.create_task(python.run("x"))
            await asyncio.sleep(0.1)
            run.cancel()
            await asyncio.wait([run])
            seen = await behind, await other.run("x")
            await stopped(judge, 2)
            return seen

    behind, other = asyncio.run(cancelled())
    assert (behind.output, other.output) == (
        "2\n",
        "1\n",
    )  # run again up to the block that was cancelled


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root sees what a process waits for")


async def killed(python: Interpreter, judge: Judge, *, times: int) -> Observation:
    """Run a slow block after another, and kill its process, in each of `times` attempts."""
    run = asyncio.create_task(python.run("import time\ntime.sleep(0.4)\nprint(x)"))
    for _ in range(times):
        await until(lambda: busy(judge) != 0)
        os.kill(pid := busy(judge), signal.SIGKILL)
        await until(lambda pid=pid: busy(judge) != pid)  # type: ignore[misc]
    return await asyncio.wait_for(run, 10)


def busy(judge: Judge) -> int:
    """The process that sleeps in a block, as a C call that nobody interrupts; 0 where there is
    none.
    """
    for pid in descendants(judge.pid):
        with contextlib.suppress(OSError):
            if "nanosleep" in Path(f"/proc/{pid}/wchan").read_text():
                return pid
    return 0


@needs_root
@pytest.mark.usefixtures("nothing_is_left")
def test_an_interpreter_that_is_killed_is_brought_back_to_its_state() -> None:
    async def run() -> tuple[Observation, Observation]:
        async with Judge(slots=1) as judge, judge.interpreter() as python:
            await python.run("x = 1\nprint('once')")
            os.kill((await stopped(judge, 1))[0], signal.SIGKILL)
            between = await python.run("x += 1\nx")
            return between, await killed(python, judge, times=1)

    assert asyncio.run(run()) == (Observation("2\n", "done"), Observation("2\n", "done"))


@needs_root
@pytest.mark.usefixtures("nothing_is_left")
def test_an_interpreter_that_someone_stops_in_a_block_is_brought_back_to_its_state() -> None:
    async def run() -> Observation:
        async with Judge(LIMITS, slots=1) as judge, judge.interpreter() as python:
            await python.run("x = 1")
            seen = asyncio.create_task(python.run("import time\ntime.sleep(0.4)\nx"))
            await until(lambda: busy(judge) != 0)
            os.kill(busy(judge), signal.SIGSTOP)
            return await asyncio.wait_for(seen, 10)

    assert asyncio.run(run()) == Observation("1\n", "done")


@needs_root
@pytest.mark.usefixtures("nothing_is_left")
def test_a_block_whose_process_is_killed_twice_is_taken_to_have_died() -> None:
    async def run() -> list[Observation]:
        async with Judge(slots=1) as judge, judge.interpreter() as python:
            await python.run("x = 1")
            return [await killed(python, judge, times=2), await python.run("'x' in globals()")]

    assert asyncio.run(run()) == [
        Observation("[killed by SIGKILL: the interpreter was ended]\n", "died"),
        Observation("False\n", "done")
    ]  # fmt: skip


@pytest.mark.usefixtures("nothing_is_left")
def test_an_interpreter_that_cannot_be_brought_back_is_the_machines_failure() -> None:
    async def run() -> None:
        async with Judge(slots=1) as judge, judge.interpreter() as python:
            await python.run("import time\ntime.time()")
            os.kill((await stopped(judge, 1))[0], signal.SIGKILL)
            with pytest.raises(RolloutLostError, match="did not do the same again"):
                await python.run("1")
            assert judge._breaker._failed.count(True) == 1

    asyncio.run(run())


@pytest.mark.parametrize("last", ["while True: pass", "signal.raise_signal(signal.SIGXCPU)"])
def test_a_program_cannot_have_the_kernel_kill_it(last: str) -> None:
    code = "import ctypes, os, resource, signal\nlibc = ctypes.CDLL(None)\n"
    code += "zero = (ctypes.c_ulong * 2)(0, 0)\nprint(resource.getrlimit(resource.RLIMIT_CPU))\n"
    code += f"number = {SETRLIMIT[column()[1]]}\n"
    code += "try: resource.setrlimit(resource.RLIMIT_CPU, (0, 0))\nexcept ValueError: pass\n"
    code += f"libc.syscall(number, 0, zero)\nlibc.prlimit(0, 0, zero, None)\n{last}"
    ended = "timeout" if "while" in last else "died"
    assert [seen.ended for seen in run_blocks("x = 1", code)] == ["done", ended]
    verdict = Verdict.TIMEOUT if "while" in last else Verdict.ERROR
    (execution,) = judge_all([add(code)], LIMITS)
    assert execution.verdict is verdict, execution.detail


@pytest.mark.parametrize(
    "sign", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.long)]
)
@pytest.mark.usefixtures("nothing_is_left")
def test_a_zygote_that_fails_takes_no_state_with_it(
    sign: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasty = "import assay.sandbox.supervisor as it; it.ZYGOTE_SECONDS = 2; it.main()"
    monkeypatch.setattr("assay.sandbox.supervisor_client.SUPERVISOR", ("-c", hasty))

    async def run() -> list[str]:
        async with Judge(slots=1) as judge, contextlib.AsyncExitStack() as stack:
            pythons = [await stack.enter_async_context(judge.interpreter()) for _ in range(10)]
            await asyncio.gather(*(python.run(f"x = {at}") for at, python in enumerate(pythons)))
            (zygote,) = [
                it for it in zygotes(judge.pid) if set(children(it)) & set(await stopped(judge, 10))
            ]
            os.kill(zygote, sign)
            if sign is signal.SIGSTOP:
                more = [await stack.enter_async_context(judge.interpreter()) for _ in range(10)]
                await asyncio.gather(*(python.run("1") for python in more))
            seen = await asyncio.wait_for(
                asyncio.gather(*(python.run("x") for python in pythons)), 20
            )
            return [one.output for one in seen]

    assert asyncio.run(run()) == [f"{at}\n" for at in range(10)]


@needs_root
@pytest.mark.usefixtures("nothing_is_left")
def test_without_a_supervisor_there_is_a_clear_error() -> None:
    async def bereft() -> list[int]:
        async with (
            Judge(slots=1) as judge,
            judge.interpreter() as python,
            judge.interpreter() as other,
        ):
            await other.run("x = 1")
            run = asyncio.create_task(python.run("import time\ntime.sleep(60)"))
            await until(lambda: busy(judge) != 0)
            pids = descendants(judge.pid)
            os.kill(judge.pid, signal.SIGKILL)
            for failing in (run, other.run("x")):
                with pytest.raises(SandboxError, match="supervisor died"):
                    await asyncio.wait_for(failing, 5)
            return pids

    assert gone(asyncio.run(bereft()))


@pytest.mark.usefixtures("nothing_is_left")
def test_none_is_left_when_the_judge_closes_before_they_do() -> None:
    async def early() -> list[int]:
        judge = await Judge(slots=1).__aenter__()
        python = judge.interpreter()
        await python.run("x = 1")
        pids = [judge.pid, *descendants(judge.pid)]
        await judge.__aexit__()
        with pytest.raises(SandboxError, match="the judge is closed"):
            await python.run("x")
        await python.__aexit__()
        return pids

    assert not alive(asyncio.run(early()))


TRAINER = """
import asyncio, sys
from assay.judge import Judge
async def main():
    async with Judge(slots=2) as judge:
        pythons = [judge.interpreter() for _ in range(20)]
        await asyncio.gather(*(python.run("x = 1") for python in pythons))
        runs = [asyncio.create_task(python.run("while True: pass")) for python in pythons[:4]]
        await asyncio.sleep(0.1)
        print(judge.pid, flush=True)
        await asyncio.gather(*runs)
asyncio.run(main())
"""


@pytest.mark.usefixtures("nothing_is_left")
def test_none_is_left_when_the_trainer_is_killed() -> None:
    trainer = subprocess.Popen([sys.executable, "-c", TRAINER], stdout=subprocess.PIPE, text=True)
    assert trainer.stdout is not None
    supervisor = int(trainer.stdout.readline())
    pids = [supervisor, *descendants(supervisor)]
    assert len(pids) > 20
    trainer.kill()
    trainer.wait()
    trainer.stdout.close()
    assert gone(pids)


ATTACKS = {
    "read files of the user": ("import os\nprint(open({here!r}).read())", "Error"),
    "look for files of the user": ("import os\nos.listdir('/')\nos.stat({here!r})", "Error"),
    "write a file": ("open('/tmp/left-behind', 'w')", "Error"),
    "network": ("import socket\nsocket.socket()", "PermissionError"),
    "another program": ("import os\nos.execv('/bin/true', ['true'])", "PermissionError"),
    "a process": ("import os\nos.fork()", "PermissionError"),
    "a process, by subprocess": ("import subprocess\nsubprocess.run(['/bin/true'])", "Error"),
    "kill the parent": ("import os\nos.kill(os.getppid(), 9)", "PermissionError"),
    "kill all": ("import os\nos.kill(-1, 9)", "PermissionError"),
    "wake others": ("import os, signal\nfor pid in range(2, 99): os.kill(pid, signal.SIGCONT)",
    "PermissionError"),
    "stop oneself": ("import signal\nsignal.raise_signal(signal.SIGSTOP)", "PermissionError"),
    "a new session": ("import os\nos.setsid()", "PermissionError"),
    "ptrace": (
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "assert libc.ptrace(16, os.getppid(), 0, 0) == 0, ctypes.get_errno()",
        "AssertionError: 1",
    ),
    "read others' memory": ("open('/proc/%d/mem' % __import__('os').getppid(), 'rb')", "Error"),
    "copy others' memory": (
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "assert libc.process_vm_readv(os.getpid() - 1, 0, 0, 0, 0, 0) == 0, ctypes.get_errno()",
        "AssertionError: 1",
    ),
    "see processes": ("import os\nos.listdir('/proc')", "Error"),
    "more limits": ("import resource\nresource.setrlimit(resource.RLIMIT_CPU, (-1, -1))",
    "ValueError"),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_on_the_walls_is_refused(name: str) -> None:
    code, error = ATTACKS[name]
    attack, after = run_blocks(code.replace("{here!r}", repr(__file__)), "1 + 1")
    assert attack.ended == "error"
    assert error in attack.output.splitlines()[-1], attack.output
    assert after.output == "2\n"


CAUGHT = {
    "fork bomb": (
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        "timeout",
    ),
    "thread bomb": (
        (
            "import threading, time\nthreading.stack_size(32768)\nwhile True:\n"
            "    try: threading.Thread(target=time.sleep, args=(60,)).start()\n"
            "    except (RuntimeError, MemoryError): pass"
        ),
        "timeout died",
    ),
    "memory balloon, caught": (
        (
            "held = []\nwhile True:\n    try: held.append(bytearray(10**6))\n    except"
            " MemoryError: pass"
        ),
        "timeout",
    ),
    "pipes full of bytes": (
        (
            "import os, fcntl\nheld = []\nwhile True:\n    try:\n        held.append(os.pipe())\n  "
            "      fcntl.fcntl(held[-1][1], 1031, 1 << 20)\n        os.set_blocking(held[-1][1],"
            " False)\n        os.write(held[-1][1], bytes(1 << 20))\n    except OSError: pass"
        ),
        "timeout",
    ),
    "signals that are ignored": (
        (
            "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n"
            "    except (OSError, ValueError): pass\nwhile True: pass"
        ),
        "timeout",
    ),
    "stops itself as a terminal would": (
        (
            "import signal\nfor sign in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):"
            " signal.raise_signal(sign)"
        ),
        "done",
    ),
    "a C call that blocks": (
        "import ctypes\nctypes.CDLL(None).pause()",
        "timeout",
    ),
    "endless output by threads": (
        (
            "import os, threading\ndef go():\n    while True: os.write(1, b'x' * 999)\n"
            "for _ in range(4): threading.Thread(target=go).start()\ngo()"
        ),
        "output",
    ),
    "bytes on every descriptor": (
        (
            "import os\nfor fd in range(64):\n"
            "    for text in (b'+' * 99, b'\\0\\0\\0\\2{}', b'!'):\n"
            "        try: os.write(fd, text)\n        except OSError: pass"
        ),
        "died",
    ),
    "all descriptors closed": (
        "import os\nos.closerange(0, 64)\nwhile True: pass",
        "died",
    ),
    "the channel closed": (
        "import os\nos.close(3)",
        "died",
    ),
    "the channel read": (
        "import os\nos.read(3, 99)",
        "timeout",
    ),
    "an early end, and on": (
        "import os, threading\nos.write(3, b'\\0\\0\\0\\1+')\nwhile True: pass",
        "done",
    ),
    "an early end, and gone": (
        "import os\nos.write(3, b'\\0\\0\\0\\1+')\nos._exit(0)",
        "done died",
    ),
    "a patched interpreter": (
        (
            "import builtins, sys, traceback\nfor module in list(sys.modules.values()):\n    if"
            " module.__name__.startswith('assay'):\n        for name in dir(module):\n           "
            " try: setattr(module, name, lambda *_, **__: b'+')\n            except Exception:"
            " pass\nbuiltins.compile = builtins.exec = lambda *_, **__: 0"
        ),
        "died",
    ),
    "a poisoned stdout": (
        (
            "import sys\nclass Stream:\n    def __getattr__(self, name): raise SystemExit\n"
            "sys.stdout = sys.stderr = Stream()"
        ),
        "died",
    ),
    "an exception that cannot be shown": (
        "class E(BaseException):\n    __str__ = lambda self: 1 / 0\nraise E",
        "error",
    ),
    "kept alive by exit handlers": (
        "import atexit\ndef again(): atexit.register(again)\nagain()\nwhile True: pass",
        "timeout",
    ),
}


@pytest.mark.long
@pytest.mark.usefixtures("nothing_is_left")
def test_whatever_a_program_does_to_its_own_interpreter_no_other_notices() -> None:
    async def beside() -> dict[str, list[str]]:
        async with Judge(LIMITS, slots=2) as judge, judge.interpreter() as good:
            await good.run("x = 0")
            seen: dict[str, list[str]] = {}

            async def attack(name: str, code: str) -> None:
                async with judge.interpreter() as python:
                    seen[name] = [(await python.run(block)).ended for block in (code, "1", "2")]

            runs = [asyncio.create_task(attack(name, code)) for name, (code, _) in CAUGHT.items()]
            for at in range(1, 30):
                assert await good.run("x += 1\nx") == Observation(f"{at}\n", "done")
                await asyncio.sleep(0.1)
            await asyncio.gather(*runs)
            assert (await judge.run(add(RIGHT))).verdict is Verdict.PASS
            assert await good.run("x") == Observation("29\n", "done")
            await stopped(judge, 1)
            assert judge._breaker._failed.count(True) == 0  # none of it was the machine's
            return seen

    seen = asyncio.run(beside())
    assert len(seen) == len(CAUGHT)
    assert [name for name, ends in seen.items() if ends[0] not in CAUGHT[name][1].split()] == []
    assert {ends[2] for ends in seen.values()} == {"done"}


@pytest.mark.parametrize(
    "late", ["import os, threading\nthreading.Timer(0.05, os.write, (3, b'\\0\\0\\0\\1+')).start()"]
)
def test_a_forged_end_of_a_block_ends_or_deceives_that_interpreter_alone(late: str) -> None:
    forged, *after = run_blocks(late, "import time\ntime.sleep(0.2)\n'the whole block ran'", "1")
    assert forged.ended == "done"
    assert len(after) == 2


def test_a_trace_of_the_judge_gives_no_way_to_others() -> None:
    """What is reachable from the process's own objects: no descriptor but its channel, no test, no
    task.
    """
    code = "import os\nfound = []\nfor fd in range(64):\n    try: os.fstat(fd); found.append(fd)\n"
    code += "    except OSError: pass\nfound"
    assert run_blocks(code) == [Observation("[0, 1, 2, 3]\n", "done")]
