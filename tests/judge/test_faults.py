"""Storms of faults: nothing is lost, nothing hangs, every verdict is right or INFRA, and nothing is
left running.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import re
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.errors import SandboxError
from assay.judge import Judge, judge_all
from assay.languages import content_of
from assay.sandbox import kernel, supervisor_client
from assay.sandbox.isolation import probe_isolation
from assay.sandbox.limits import Limits
from assay.sandbox.slot import CANDIDATES_PER_FORK
from assay.types import Execution, Verdict
from tests.judge.jobs import RIGHT, add
from tests.judge.opened import OPEN
from tests.judge.processes import alive, children, descendants, gone, until, zygotes

pytestmark = pytest.mark.long

LOOP = "while True: pass"
MIXED = [
    (RIGHT, Verdict.PASS),
    (f"import time\ntime.sleep(0.3)\n{RIGHT}", Verdict.PASS),
    ("def add(a, b): return a", Verdict.WRONG),
    ("def add(a, b): raise ValueError", Verdict.ERROR),
    (LOOP, Verdict.TIMEOUT),
    ("def add(a, b): return [0] * 10**9", Verdict.MEMORY),
    ("import time\ntime.sleep(60)", Verdict.TIMEOUT),
    ("def add(a, b): return 'x' * 2 * 10**7", Verdict.OUTPUT),
    (f"print('x' * 1000)\n{RIGHT}", Verdict.PASS),
]
LIMITS = Limits(cpu_seconds=0.5, wall_seconds=2.5)
PATIENT_FOR_A_SECOND = (
    "-c",
    "import assay.sandbox.supervisor as it; it.ZYGOTE_SECONDS = 2; it.main()",
)
PR_SET_CHILD_SUBREAPER = 36


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """Orphans of a judge that died come to this process, so that nothing that it left can hide."""
    kernel.prctl(PR_SET_CHILD_SUBREAPER, 1)
    before = descendants(os.getpid())
    yield
    kernel.prctl(PR_SET_CHILD_SUBREAPER, 0)
    end = time.monotonic() + 5
    while left := alive([pid for pid in descendants(os.getpid()) if pid not in before]):
        shared = [pid for sandboxes in OPEN for pid in sandboxes.processes()]
        if time.monotonic() > end or set(left) <= set(shared):
            left = [pid for pid in left if pid not in shared]
            break
        time.sleep(0.02)
    assert not left


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    with nothing_left():
        yield


def role(pid: int) -> str:
    """By its CPU limit, which is large for a worker. Empty for a fork that has not set its limits
    yet, or has ended.
    """
    with contextlib.suppress(OSError):
        if found := re.search(r"Max cpu time +(\d+)", Path(f"/proc/{pid}/limits").read_text()):
            return "worker" if int(found[1]) > 1000 else "candidate"
    return ""


def victims(judge: Judge, kind: str) -> list[int]:
    """Of a kind: `started` (who waits for a zygote with namespaces, or the zygote), `zygote`,
    `worker` or `candidate`.
    """
    if kind == "started":
        return children(judge.pid)
    found = [zygote for zygote in zygotes(judge.pid) if children(zygote)]
    if kind == "zygote":
        return found
    return [child for zygote in found for child in children(zygote) if role(child) == kind]


async def ready(judge: Judge) -> None:
    """Judge a first program, which starts a zygote, and wait for the forks of the next ones."""
    await judge.run(add(RIGHT))
    await until(lambda: victims(judge, "candidate"))


async def storm(judge: Judge, draw: random.Random) -> None:
    """Signal one process after another; SIGKILL candidates only once, since twice counts as the
    program's doing.
    """
    kinds = ("started", "zygote", "worker", "candidate")
    faults = [(kind, sign) for kind in kinds for sign in (signal.SIGKILL, signal.SIGSTOP)]
    while True:
        await asyncio.sleep(draw.uniform(0.05, 0.4))
        kind, sign = draw.choice(faults)
        if pids := victims(judge, kind):
            with contextlib.suppress(ProcessLookupError):
                os.kill(draw.choice(pids), sign)
            if (kind, sign) == ("candidate", signal.SIGKILL):
                faults.remove((kind, sign))


@pytest.mark.parametrize("seed", range(2))
def test_in_a_storm_of_signals_every_verdict_is_right_or_infra(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_client, "SUPERVISOR", PATIENT_FOR_A_SECOND)
    draw = random.Random(seed)
    jobs = draw.sample(MIXED * 3, 3 * len(MIXED))

    async def battered() -> list[Execution]:
        async with Judge(LIMITS, slots=4) as judge:
            lightning = asyncio.create_task(storm(judge, draw))
            verdicts = await asyncio.wait_for(
                asyncio.gather(*(judge.run(add(program)) for program, _ in jobs)), 120
            )
            lightning.cancel()
            return verdicts

    seen = [(execution.verdict, execution.detail) for execution in asyncio.run(battered())]
    wrong = [
        (job, found)
        for job, found in zip(jobs, seen, strict=True)
        if found[0] not in (job[1], Verdict.INFRA)
    ]
    assert not wrong
    assert len([verdict for verdict, _ in seen if verdict is not Verdict.INFRA]) > len(jobs) // 2


@pytest.mark.parametrize("kind", ["started", "zygote", "worker", "candidate"])
def test_a_job_whose_process_is_stopped_is_judged_again(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_client, "SUPERVISOR", PATIENT_FOR_A_SECOND)
    slow = f"import time\ntime.sleep(0.7)\n{RIGHT}"

    async def stopped() -> Execution:
        async with Judge(Limits(wall_seconds=3), slots=1) as judge:
            await ready(judge)
            job = asyncio.create_task(judge.run(add(slow)))
            await asyncio.sleep(0.2)
            os.kill(min(victims(judge, kind)), signal.SIGSTOP)
            return await asyncio.wait_for(job, 20)

    assert asyncio.run(stopped()).verdict is Verdict.PASS


def test_a_worker_that_dies_after_its_report_takes_no_verdict_with_it() -> None:
    async def bereft() -> Execution:
        async with Judge(slots=1) as judge:
            await ready(judge)
            worker = min(victims(judge, "worker"))
            job = asyncio.create_task(judge.run(add(f"import time\ntime.sleep(0.4)\n{RIGHT}")))
            await asyncio.sleep(0.2)
            os.kill(judge.pid, signal.SIGSTOP)
            await asyncio.sleep(0.8)
            os.kill(worker, signal.SIGKILL)
            os.kill(judge.pid, signal.SIGCONT)
            return await asyncio.wait_for(job, 10)

    assert asyncio.run(bereft()).verdict is Verdict.PASS


def test_a_supervisor_that_stands_still_for_a_while_loses_nothing() -> None:
    async def paused() -> list[Execution]:
        async with Judge(LIMITS, slots=2) as judge:
            runs = asyncio.gather(*(judge.run(add(program)) for program, _ in MIXED * 2))
            await asyncio.sleep(0.3)
            os.kill(judge.pid, signal.SIGSTOP)
            await asyncio.sleep(1)
            os.kill(judge.pid, signal.SIGCONT)
            return await asyncio.wait_for(runs, 60)

    assert [execution.verdict for execution in asyncio.run(paused())] == [
        verdict for _, verdict in MIXED * 2
    ]


@pytest.mark.parametrize(
    ("sign", "error"), [(signal.SIGKILL, "supervisor died"), (signal.SIGSTOP, "supervisor hangs")]
)
def test_without_a_supervisor_all_who_wait_get_a_clear_error(
    sign: signal.Signals, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_client, "LOOK_SECONDS", 0.3)

    async def bereft() -> list[Execution | BaseException]:
        async with Judge(LIMITS, slots=2) as judge:
            runs = asyncio.gather(
                *(judge.run(add(LOOP)) for _ in range(50)), return_exceptions=True
            )
            await until(lambda: len(victims(judge, "candidate")) >= 2)
            os.kill(victims(judge, "zygote")[0], signal.SIGSTOP)
            os.kill(judge.pid, sign)
            ends = await asyncio.wait_for(runs, 20)
            with pytest.raises(SandboxError, match=error):
                await judge.run(add(RIGHT))
            return ends

    assert {f"{type(end).__name__}: {end}" for end in asyncio.run(bereft())} == {
        f"SandboxError: the judge's {error}"
    }


TRAINER = """
import asyncio, os, signal, sys, time
from assay.judge import Judge
from tests.judge.jobs import add
from tests.judge.test_faults import LOOP, MIXED
async def main():
    async with Judge(slots=2) as judge:
        await asyncio.gather(*(judge.run(add("")) for _ in range(8)))
        programs = [LOOP, LOOP, *(it for it, _ in MIXED)]
        jobs = [asyncio.create_task(judge.run(add(program))) for program in programs]
        await asyncio.sleep(0.1)
        if "forked" in sys.argv and os.fork() == 0:
            time.sleep(20)
        if "stopped" in sys.argv:
            os.kill(judge.pid, signal.SIGSTOP)
        print(judge.pid, flush=True)
        await asyncio.gather(*jobs)
asyncio.run(main())
"""


@pytest.mark.parametrize("state", ["in the middle of a batch", "stopped", "forked"])
def test_a_killed_trainer_leaves_nothing_even_where_the_supervisor_cannot_see_it(
    state: str,
) -> None:
    """Because it is stopped, or because a fork of the trainer's holds its end of the socket."""
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, state], stdout=subprocess.PIPE, text=True
    )
    assert trainer.stdout is not None
    supervisor = int(trainer.stdout.readline())
    pids = [supervisor, *descendants(supervisor)]
    forks = [pid for pid in children(trainer.pid) if pid != supervisor]
    assert len(pids) >= 1 + 2 + 2
    trainer.kill()
    trainer.wait()
    trainer.stdout.close()
    assert gone(pids)
    for fork in forks:
        os.kill(fork, signal.SIGKILL)


def test_a_thousand_cancelled_jobs_leave_a_judge_as_good_as_new() -> None:
    async def cancelled() -> None:
        async with Judge(Limits(cpu_seconds=60, wall_seconds=60), slots=2) as judge:
            await asyncio.gather(*(judge.run(add(RIGHT)) for _ in range(20)))
            await until(lambda: len(descendants(judge.pid)) >= 2 * (1 + 2 + 2))
            before = open_files(os.getpid()), open_files(judge.pid)
            runs = [asyncio.create_task(judge.run(add(LOOP))) for _ in range(1000)]
            await asyncio.sleep(0.3)
            for run in runs:
                run.cancel()
            ends = await asyncio.wait_for(asyncio.gather(*runs, return_exceptions=True), 20)
            assert all(isinstance(end, asyncio.CancelledError) for end in ends)
            programs = [
                (program, verdict) for program, verdict in MIXED if verdict is not Verdict.TIMEOUT
            ] * 3
            after = await asyncio.wait_for(
                asyncio.gather(*(judge.run(add(program)) for program, _ in programs)), 30
            )
            assert [execution.verdict for execution in after] == [
                verdict for _, verdict in programs
            ]
            assert not judge._sandbox._waiting
            assert open_files(os.getpid()) <= before[0]
            assert open_files(judge.pid) <= before[1] + 2 * 3 * CANDIDATES_PER_FORK
            most = 2 * (
                2 + 2 + 1 + CANDIDATES_PER_FORK + CANDIDATES_PER_FORK // 4
            )  # zygote and workers, a candidate that is kept, those that wait
            await until(lambda: len(descendants(judge.pid)) <= most)

    asyncio.run(cancelled())


def open_files(pid: int) -> int:
    """How many descriptors a process has open; 0 where this user may not see."""
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except PermissionError:
        return 0


def test_results_that_the_trainer_does_not_take_do_not_pile_up_in_the_supervisor() -> None:
    loud = f"print('\\1' * 65536)\n{RIGHT}"

    def most_used(pid: int) -> int:
        """Peak resident memory in KiB."""
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0])

    async def unread() -> int:
        async with Judge(slots=2) as judge:
            await judge.run(add(loud))
            before = most_used(judge.pid)
            runs = [asyncio.create_task(judge.run(add(loud))) for _ in range(300)]
            await asyncio.sleep(0.2)
            seen, now = 0, before
            while (
                now > seen
            ):  # the loop of the trainer stands still, as beside a long step of the learner's
                seen = now
                time.sleep(1)
                now = most_used(judge.pid)
            executions = await asyncio.wait_for(asyncio.gather(*runs), 60)
            assert {(execution.verdict, len(execution.output)) for execution in executions} == {
                (Verdict.PASS, 65536)
            }
            return most_used(judge.pid) - before

    assert asyncio.run(unread()) < 85 * 1024  # all of them are 115 MiB on the wire


def test_the_judge_needs_no_disk(tmp_path: Path) -> None:
    mounting = ["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(tmp_path)]
    if (
        os.getuid() != 0
        or subprocess.run(mounting, capture_output=True, check=False).returncode != 0
    ):
        pytest.skip("a full disk is made by mounting one, which is not allowed here")
    try:
        with contextlib.suppress(OSError), (tmp_path / "full").open("wb", buffering=0) as full:
            while full.write(bytes(4096)):
                pass
        with pytest.raises(OSError, match="No space"):
            (tmp_path / "more").write_text("more")
        code = textwrap.dedent("""
            from assay.judge import judge_all
            from tests.judge.jobs import RIGHT, add
            print([seen.verdict.value for seen in judge_all([add(RIGHT), add("")])])
        """)
        inherited = {
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "TMPDIR": str(tmp_path),
            "HOME": str(tmp_path),
        }
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=os.environ | inherited,
            capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert (done.stdout, done.stderr) == ("['pass', 'no_code']\n", "")
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@contextlib.contextmanager
def limited(which: int, soft: int, pid: int = 0) -> Iterator[None]:
    before = resource.prlimit(pid, which)
    resource.prlimit(pid, which, (soft, before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, which, before)


def leave_descriptors(zygote: int, limits: str) -> None:
    """Change a zygote's RLIMIT_NOFILE to `soft:hard`, as the user that it is: root may lack the
    privilege.
    """
    user = int(re.search(r"Uid:\t(\d+)", Path(f"/proc/{zygote}/status").read_text())[1])  # type: ignore[index]
    identity: dict[str, Any] = (
        {} if user == os.getuid() else {"user": user, "group": user, "extra_groups": []}
    )
    subprocess.run(["prlimit", f"--pid={zygote}", f"--nofile={limits}"], check=True, **identity)


@contextlib.contextmanager
def group(controller: str, *limits: str) -> Iterator[tuple[Path, Path]]:
    """A new control group of this machine's: the file that takes pids, and the file of one of
    `limits`.
    """
    root = Path("/sys/fs/cgroup")
    folder = (
        root / controller if (root / controller).is_dir() else root
    ) / f"assay-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"control groups cannot be made here: {error}")
    try:
        file = next((folder / name for name in limits if (folder / name).exists()), None)
        if file is None:
            pytest.skip(f"control groups do not limit {controller} here")
        yield folder / "cgroup.procs", file
    finally:
        end = time.monotonic() + 5
        while (folder / "cgroup.procs").read_text() and time.monotonic() < end:
            time.sleep(0.02)
        folder.rmdir()


def all_moved(pids: list[int], members: Path) -> bool:
    """Whether all of them were in the group already."""
    outside = set(map(str, pids)) - set(members.read_text().split())
    for pid in outside:
        with contextlib.suppress(ProcessLookupError):
            members.write_text(pid)
    return not outside


def is_open(descriptor: int) -> bool:
    """Whether this process has a file under that number."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_a_trainer_without_descriptors_starts_a_judge_or_says_why_not() -> None:
    async def start(spare: int) -> bool:
        """Whether the judge works where `spare` more descriptors may be opened."""
        unused = (number for number in itertools.count() if not is_open(number))
        with limited(resource.RLIMIT_NOFILE, next(itertools.islice(unused, spare, None))):
            try:
                async with Judge(slots=1) as judge:
                    return (await judge.run(add(RIGHT))).verdict is Verdict.PASS
            except SandboxError:
                return False

    assert asyncio.run(start(100))
    before = open_files(os.getpid())
    works = [asyncio.run(start(spare)) for spare in range(8)]
    assert works == sorted(works)
    assert works[0] is False
    assert works[-1] is True
    assert open_files(os.getpid()) == before


def test_walls_that_could_not_be_tried_are_not_taken_for_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))  # none that was tried before
    with (
        limited(resource.RLIMIT_NOFILE, 3),
        pytest.raises(SandboxError, match="Too many open files"),
    ):
        probe_isolation()


def test_a_trainer_that_runs_out_of_descriptors_later_gets_its_verdicts() -> None:
    async def later() -> list[Execution]:
        async with Judge(LIMITS, slots=2) as judge:
            await judge.run(add(RIGHT))
            with limited(resource.RLIMIT_NOFILE, 3):
                return await asyncio.wait_for(
                    asyncio.gather(*(judge.run(add(program)) for program, _ in MIXED)), 60
                )

    assert [execution.verdict for execution in asyncio.run(later())] == [
        verdict for _, verdict in MIXED
    ]


def test_a_tool_that_the_machine_cannot_read_just_now_is_not_taken_for_absent(
    tmp_path: Path,
) -> None:
    tool = tmp_path / "tool"
    tool.write_text("new, and so read each time")
    with (
        limited(resource.RLIMIT_NOFILE, 3),
        pytest.raises(SandboxError, match="Too many open files; raise the limit"),
    ):
        content_of(str(tool))


async def verdicts_or_error(judge: Judge) -> str:
    """What comes of a batch: `right`, or the one error that all who wait get."""
    jobs = [*MIXED, *MIXED[:4]]
    runs = asyncio.gather(*(judge.run(add(program)) for program, _ in jobs), return_exceptions=True)
    ends = await asyncio.wait_for(runs, 60)
    errors = {str(end) for end in ends if isinstance(end, BaseException)}
    for (_, verdict), end in zip(jobs, ends, strict=True):
        assert isinstance(end, SandboxError) or (
            isinstance(end, Execution) and end.verdict in (verdict, Verdict.INFRA)
        )
    assert len(errors) <= 1
    return errors.pop() if errors else "right"


@pytest.mark.parametrize("most", [3, 12, 24, 40])
def test_a_supervisor_that_runs_out_of_descriptors_works_or_says_so(most: int) -> None:
    async def starved() -> str:
        async with Judge(LIMITS, slots=2) as judge:
            await judge.run(add(RIGHT))
            with limited(resource.RLIMIT_NOFILE, most, judge.pid):
                return await verdicts_or_error(judge)

    end = asyncio.run(starved())
    assert end == "right" or "Too many open files" in end


def test_zygotes_that_cannot_open_descriptors_are_replaced() -> None:
    async def starved() -> str:
        async with Judge(LIMITS, slots=2) as judge:
            await judge.run(add(RIGHT))
            for zygote in victims(judge, "zygote"):
                leave_descriptors(zygote, "3:")
            return await verdicts_or_error(judge)

    assert asyncio.run(starved()) == "right"


def test_a_program_whose_walls_cannot_be_put_up_is_not_blamed() -> None:
    async def half_walled() -> list[Execution]:
        async with Judge(slots=2) as judge:
            await judge.run(add(RIGHT))
            leave_descriptors(victims(judge, "zygote")[0], "31:31")
            return await asyncio.gather(*(judge.run(add(RIGHT)) for _ in range(20)))

    assert {execution.verdict for execution in asyncio.run(half_walled())} == {Verdict.PASS}


@pytest.mark.parametrize("seconds", [0.2, 60])
def test_zygotes_that_cannot_fork_wait_for_room_or_are_replaced(seconds: float) -> None:
    async def crowded(members: Path, most: Path) -> str:
        async with Judge(LIMITS, slots=2) as judge:
            await judge.run(add(RIGHT))
            await until(lambda: all_moved(victims(judge, "zygote"), members))
            most.write_text("1")
            asyncio.get_running_loop().call_later(seconds, most.write_text, "max")
            return await verdicts_or_error(judge)

    with group("pids", "pids.max") as files:
        assert asyncio.run(crowded(*files)) == "right"


def test_a_machine_without_room_for_another_process_is_a_clear_error() -> None:
    async def crowded(members: Path, most: Path) -> str:
        async with Judge(LIMITS, slots=2) as judge:
            await judge.run(add(RIGHT))
            await until(
                lambda: all_moved(
                    [judge.pid, *descendants(judge.pid)],
                    members,
                )
            )
            most.write_text("1")
            return await verdicts_or_error(judge)

    with group("pids", "pids.max") as files:
        assert "Resource temporarily unavailable" in asyncio.run(crowded(*files))


def test_a_judge_that_cannot_start_all_its_zygotes_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def cramped(members: Path, most: Path) -> None:
        joining = f"import os, pathlib; pathlib.Path({str(members)!r}).write_text(str(os.getpid()))"
        most.write_text("2")
        monkeypatch.setattr(
            supervisor_client,
            "SUPERVISOR",
            ("-c", f"{joining}; import assay.sandbox.supervisor as it; it.main()"),
        )
        async with Judge(slots=2) as judge:
            with pytest.raises(SandboxError, match="Resource temporarily unavailable"):
                await asyncio.wait_for(judge.run(add(RIGHT)), 20)

    with group("pids", "pids.max") as files:
        asyncio.run(cramped(*files))


@pytest.mark.parametrize(
    ("limit", "most", "error"),
    [
        ("RLIMIT_CPU", 5000, "the hard limit RLIMIT_CPU is 5000 here, but the judge needs 100001"),
        (
            "RLIMIT_DATA",
            400,
            "the hard limit RLIMIT_DATA is 419430400 here, but the judge needs 536870912",
        ),
    ],
)
def test_a_user_with_too_little_for_the_limits_is_told_so(
    limit: str, most: int, error: str
) -> None:
    code = textwrap.dedent(f"""
        import resource
        from assay.errors import SandboxError
        from assay.judge import judge_all
        from tests.judge.jobs import RIGHT, add
        most = {most} << 20 if "{limit}" == "RLIMIT_DATA" else {most}
        resource.setrlimit(resource.{limit}, (most, most))
        try:
            print(judge_all([add(RIGHT)], slots=1))
        except SandboxError as error:
            print(error)
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"the sandbox fails: {error}\n", "")


HIDDEN_PROC = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
               'mount -t tmpfs none /proc && exec "$@"', "sh")  # fmt: skip


@pytest.mark.parametrize(
    ("place", "setup", "reason"),
    [
        ((), "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))",
         "the hard limit RLIMIT_FSIZE is 8192 here, but the judge needs"),
        ((), "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))",
         "the hard limit RLIMIT_FSIZE is 0 here"),
        (HIDDEN_PROC, "", "No such file or directory: '/proc/self/oom_score_adj'"),
    ],
    ids=["ulimit -f 8", "ulimit -f 0", "hidden /proc"],
)  # fmt: skip
def test_what_keeps_the_sandbox_from_starting_is_the_reason_that_all_give(
    place: tuple[str, ...], setup: str, reason: str
) -> None:
    code = textwrap.dedent(f"""
        import resource
        from assay.errors import SandboxError
        from assay.judge import judge_all
        from assay.sandbox.isolation import probe_isolation
        from tests.judge.jobs import RIGHT, add
        {setup}
        print(probe_isolation().tier, probe_isolation().missing, probe_isolation().advice)
        for weak in (False, True):
            try:
                print(judge_all([add(RIGHT)], slots=1, allow_weak=weak))
            except SandboxError as error:
                print(error)
    """)
    if place and subprocess.run([*place, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no mounts in a namespace")
    command = [*place, sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    probed, refused, judged = done.stdout.splitlines()
    assert probed.startswith("E ")
    assert all(reason.split(" here")[0] in line for line in (probed, refused, judged)), done.stdout
    assert done.stderr == ""


def test_where_memory_runs_out_the_program_that_took_it_dies() -> None:
    balloon = "def add(a, b): return len([bytearray(10**6) for _ in range(300)]) - 297"
    programs = [RIGHT, balloon] * 6

    async def short(members: Path, most: Path) -> list[Execution]:
        async with Judge(slots=2) as judge:
            await judge.run(add(RIGHT))
            await until(
                lambda: all_moved(
                    [judge.pid, *descendants(judge.pid)],
                    members,
                )
            )
            most.write_text(str(200 << 20))
            return await asyncio.wait_for(
                asyncio.gather(*(judge.run(add(program)) for program in programs)), 60
            )

    with group("memory", "memory.limit_in_bytes", "memory.max") as files:
        executions = asyncio.run(short(*files))
    assert [execution.verdict for execution in executions[::2]] == [Verdict.PASS] * 6
    for execution in executions[1::2]:
        assert execution.verdict in (Verdict.MEMORY, Verdict.ERROR, Verdict.INFRA), execution


def test_programs_die_before_the_trainer_where_memory_runs_out() -> None:
    async def scores() -> set[str]:
        async with Judge(slots=1) as judge:
            await judge.run(add(RIGHT))
            pids = [
                pid for kind in ("zygote", "worker", "candidate") for pid in victims(judge, kind)
            ]
            return {Path(f"/proc/{pid}/oom_score_adj").read_text().strip() for pid in pids}

    assert asyncio.run(scores()) == {"1000"}


@pytest.fixture
def busy() -> Iterator[None]:
    """Three processes that take time on every core."""
    processes = [
        subprocess.Popen([sys.executable, "-c", LOOP])
        for _ in range(3 * len(os.sched_getaffinity(0)))
    ]
    yield
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.usefixtures("busy")
def test_a_program_is_not_charged_for_the_time_that_it_waits_for_a_core() -> None:
    """It needs 0.5 s, and has less than 0.25 s in each second; the best of three, for what else a
    machine does is charged.
    """
    working = f"import time\nwhile time.process_time() < 0.5: pass\n{RIGHT}"
    verdicts = (
        judge_all([add(f"{working}\n# {number}")], Limits(wall_seconds=1))[0].verdict
        for number in range(3)
    )
    assert Verdict.PASS in verdicts


@pytest.mark.usefixtures("busy")
def test_a_hundred_jobs_are_judged_while_the_machine_is_busy() -> None:
    jobs = [*MIXED[:4], MIXED[-1]] * 20
    executions = judge_all([add(program) for program, _ in jobs], slots=4)
    assert [execution.verdict for execution in executions] == [verdict for _, verdict in jobs]
