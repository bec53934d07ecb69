"""What boxes cost, beside bubblewrap on a copied tree, as mini-swe-agent runs it; and what 2,000
hostile ones leave. Interleaved; the median, and the fastest, which says what a busy machine hides.

    python -m bench.boxes [--rounds 40] [--hostile 2000]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from assay.judge import Job, Judge
from assay.judge.kinds.repository_cheats import diff_of
from assay.sandbox.box_init import BoxSpec
from assay.sandbox.boxes import Boxes
from assay.sandbox.isolation import probe_isolation
from assay.types import RepositoryTests, Task, Verdict

FILES, FILE_BYTES = 2000, 10_000
OPEN_AT_ONCE = 200
TESTS = (20, 420)
"""Of the small repository that is graded: the difference tells what a test costs."""
HOSTILE = (
    "f() { f | f & }; f; sleep 0.2",
    "head -c 99999999 /dev/zero > big; mkdir -p a/b/c; touch {1..2000}",
    "(setsid sleep 1234567 &); (trap '' TERM HUP INT; sleep 1234567) & kill -9 -1",
    "mkfifo f; ln -s / root; ln -s /proc/1/mem m; chmod 000 . ; :",
    "python3 -c 'import os; [os.fork() for _ in range(5)]; os.setsid(); x = bytes(2**28)'",
    "mount -t tmpfs none /tmp; unshare -Urm true; kill -9 1; exec 3<>/dev/tcp/127.0.0.1/1",
)


def fill(tree: Path) -> None:
    """20 MB in 2,000 files."""
    source = random.Random(0)
    for number in range(FILES):
        file = tree / f"package{number % 50}" / f"module{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(source.randbytes(FILE_BYTES))


def seconds(work: Callable[[], object]) -> float:
    """How long a call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def bubblewrap(copy: Path) -> list[str]:
    """Its command for one command in a copy, with the same namespaces."""
    return ["bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin",
            "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc",
            "--dev", "/dev", "--tmpfs", "/tmp", "--bind", str(copy), "/testbed", "--chdir",
            "/testbed", "--die-with-parent", "true"]  # fmt: skip


async def costs(tree: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of opening, running and closing, here and beside."""
    times = defaultdict[str, list[float]](list)
    boxes, copy = Boxes(probe_isolation().walls), tree.parent / "copy"
    async with boxes.open(BoxSpec(tree)):
        pass
    for _ in range(rounds):
        started = time.perf_counter()
        async with boxes.open(BoxSpec(tree)) as box:
            times["a box is ready"].append(time.perf_counter() - started)
            for name, argv in (
                ("a command, `true`", ("true",)),
                ("`bash -c :`", ("bash", "-c", ":")),
            ):
                started = time.perf_counter()
                await box.run(argv)
                times[f"{name} in a box"].append(time.perf_counter() - started)
            started = time.perf_counter()
            await box.diff()
            times["its diff"].append(time.perf_counter() - started)
            started = time.perf_counter()
        times["it is closed"].append(time.perf_counter() - started)
        times["`true` alone"].append(seconds(lambda: subprocess.run(["true"], check=True)))
        times["`bash -c :` alone"].append(
            seconds(lambda: subprocess.run(["bash", "-c", ":"], check=True))
        )
        times["the tree copied"].append(seconds(lambda: shutil.copytree(tree, copy)))
        if shutil.which("bwrap"):
            run = bubblewrap(copy)
            times["`true` in bubblewrap"].append(
                seconds(lambda run=run: subprocess.run(run, check=True))  # type: ignore[misc]
            )
        times["the copy removed"].append(seconds(lambda: shutil.rmtree(copy)))
    await boxes.close()
    return times


async def at_once(tree: Path) -> tuple[float, float]:
    """Seconds until so many boxes are open and each has run a command, and MiB of each."""
    boxes = Boxes(probe_isolation().walls)
    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        ready, leave = asyncio.Barrier(OPEN_AT_ONCE + 1), asyncio.Event()

        async def stay() -> None:
            async with boxes.open(BoxSpec(tree)) as box:
                done = await box.run(("true",))
                assert done.status == 0, done
                await ready.wait()
                await leave.wait()

        for _ in range(OPEN_AT_ONCE):
            group.create_task(stay())
        await ready.wait()
        took = time.perf_counter() - started
        memory = sum(map(resident_mb, processes(boxes)))
        leave.set()
    await boxes.close()
    return took, memory / OPEN_AT_ONCE


def processes(boxes: Boxes) -> list[Path]:
    """All processes of boxes and of their commands, by their folders in /proc."""
    paths = list[Path]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if parent == str(zygote(boxes)) or b"1234567" in command:
            paths.append(folder)
    return paths


def zygote(boxes: Boxes) -> int:
    """The process that forks boxes."""
    assert boxes._process
    return boxes._process.pid


def resident_mb(process: Path) -> float:
    """Its share of memory in MiB."""
    try:
        text = (process / "smaps_rollup").read_text()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1024


def repository(folder: Path, tests: int) -> Task:
    """A small repository of so many tests, with a fault."""
    (folder / "calc").mkdir(parents=True)
    (folder / "tests").mkdir()
    (folder / "calc/__init__.py").write_text("def add(a, b):\n    return a - b\n")
    lines = (f"def test_{at}():\n    assert add({at}, 1) == {at + 1}\n" for at in range(tests))
    (folder / "tests/test_add.py").write_text("from calc import add\n" + "\n".join(lines))
    ids = tuple(f"tests/test_add.py::test_{at}" for at in range(tests))
    right = diff_of(folder, {"calc/__init__.py": "def add(a, b):\n    return a + b\n"})
    check = RepositoryTests(str(folder), ids, ())
    return Task(f"calc{tests}", "", (check,), "", language="diff", reference=right)


def plain(task: Task, copy: Path) -> float:
    """Seconds of pytest in a fresh copy with the right change."""
    (check,) = task.checks
    assert isinstance(check, RepositoryTests)

    def work() -> None:
        shutil.copytree(check.tree, copy)
        subprocess.run(
            ["git", "apply"], cwd=copy, input=(task.reference or "").encode(), check=True
        )
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=copy, check=True,
            stdout=subprocess.DEVNULL, env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        )  # fmt: skip

    took = seconds(work)
    shutil.rmtree(copy)
    return took


async def grading(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of grading a change, and of plain pytest."""
    times = defaultdict[str, list[float]](list)
    tasks = {tests: repository(folder / f"repository{tests}", tests) for tests in TESTS}
    async with Judge() as judge:
        for number in range(rounds):
            for tests, task in tasks.items():
                started = time.perf_counter()
                done = await judge.run(Job(task, f"{task.reference}\n" + "\n" * number))
                assert done.verdict is Verdict.PASS, done
                times[f"{tests} tests graded"].append(time.perf_counter() - started)
                times[f"{tests} tests, pytest"].append(plain(task, folder / "copy"))
    return times


async def survive(tree: Path, count: int) -> str:
    """Open so many hostile boxes; what is left of them."""
    before = len(Path("/proc/self/mountinfo").read_text().splitlines())
    boxes, room = Boxes(probe_isolation().walls), asyncio.Semaphore(8)

    async def attack(number: int) -> None:
        spec = BoxSpec(tree, size_mb=32, files=3000, processes=64, memory_mb=256)
        async with room, boxes.open(spec) as box:
            await box.run(("bash", "-c", HOSTILE[number % len(HOSTILE)]), wall_seconds=2)
            assert (await box.run(("echo", "on"))).stdout == b"on\n"

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(attack(number))
    took = time.perf_counter() - started
    pid = zygote(boxes)
    left = {
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()) - before,
        "processes": len(processes(boxes)),
        "folders": len(list(Path("/dev/shm").glob(f"assay-{pid}-*"))),
        "control groups": len(list(Path("/sys/fs/cgroup").glob(f"**/assay-{pid}-*"))),
    }
    await boxes.close()
    return f"{count} hostile boxes in {took:.0f} s leave {left}"


def show(times: dict[str, list[float]]) -> None:
    """Print a line for each figure."""
    for name, values in times.items():
        middle, least = 1000 * statistics.median(values), 1000 * min(values)
        print(f"{name}: median {middle:.1f} ms, fastest {least:.1f} ms", flush=True)


async def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--hostile", type=int, default=2000)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        tree = folder / "tree"
        fill(tree)
        show(await costs(tree, options.rounds))
        took, memory = await at_once(tree)
        print(f"{OPEN_AT_ONCE} boxes open at once: after {took:.1f} s, {memory:.1f} MiB each")
        show(await grading(folder, max(5, options.rounds // 4)))
        print(await survive(tree, options.hostile))
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    asyncio.run(main())
