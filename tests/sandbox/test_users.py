"""The judge and its walls as root and as an ordinary user, where namespaces are allowed and where
they are not.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.languages import language_named
from assay.sandbox.attack import ATTACKS, HIDING
from tests.attacks import hungry
from tests.attacks import test_memory as attacks
from tests.images import RELEASE, make_image
from tests.judge.test_languages import INSTALLED
from tests.sandbox import test_box as box_attacks
from tests.sandbox.test_launch import WITHOUT
from tests.test_architecture import PACKAGE

NOBODY = 65_534
SYSTEM_PYTHON = "/usr/bin/python3"
NEEDED = (
    "__init__.py",
    "archives.py",
    "bounded.py",
    "checks.py",
    "content.py",
    "errors.py",
    "files.py",
    "lines.py",
    "os_errors.py",
    "paths.py",
    "sync.py",
    "types.py",
    "user_cache.py",
    "tools.py",
    "judge",
    "sandbox",
    "languages",
    "imported_files.py",
    "plugin_code.py",
    "registry.py",
    "suggestions.py",
    "syntax_trees.py",
)
"""All of the package that judging takes; nothing of it needs a third-party package."""

JUDGED = '''
import json, sys
from dataclasses import asdict
from assay.sandbox import kernel, seccomp
from assay.sandbox.limits import Limits
if sys.argv[1] == "refused":
    kernel.forgo_privileges()
    unshare = seccomp.NUMBERS["unshare"][seccomp.column()[1]]
    steps = [(seccomp.LOAD, 0, 0, seccomp.NR), *seccomp._refuse([unshare]), seccomp.PASS_ON]
    seccomp.Filter(steps).load()
from assay.judge import Job, judge_all
from assay.sandbox.isolation import probe_isolation
from assay.types import Check, Task
task = Task("add", "", (Check("assert add(1, 2) == 3"),), "add")
threads = """
import decimal, sqlite3, threading, wave
threading.stack_size(32768)
def add(a, b):
    stop, started = threading.Event(), 0
    try:
        for started in range(400): threading.Thread(target=stop.wait).start()
    except RuntimeError: pass
    stop.set()
    print(started)
    return a + b
"""
programs = {
    "pass": threads,
    "wrong": "def add(a, b): return a - b",
    "timeout": "def add(a, b):\\n    while True: pass",
    "memory": "def add(a, b): return len(b'x' * 2**30)",
    "error": "import os\\nwhile True: os.fork()",
    "compile": "def add(",
}
jobs = [Job(task, program) for program in programs.values()]
done = judge_all(jobs, Limits(cpu_seconds=1), slots=2)
verdicts = {name: [str(seen.verdict), seen.detail] for name, seen in zip(programs, done)}
spun = done[list(programs).index("timeout")].cpu_seconds
found = {"probe": asdict(probe_isolation()), "verdicts": verdicts, "spun": spun}
print(json.dumps({**found, "threads": int(done[0].output)}))
'''


@pytest.fixture(scope="module")
def python_for_all() -> Iterator[str]:
    """An interpreter that an ordinary user may run, to which the judge is installed in a folder
    open to all.
    """
    open_to_all = all(
        step.stat().st_mode & 0o001 for step in Path(sysconfig.get_path("stdlib")).resolve().parents
    )
    base = sys.executable if open_to_all else SYSTEM_PYTHON
    version = subprocess.run(
        [base, "-c", "import sys; print(sys.version_info >= (3, 11))"],
        capture_output=True,
        text=True,
    )
    if version.stdout.strip() != "True":
        pytest.skip("no interpreter of Python 3.11 or newer that an ordinary user may run")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        subprocess.run([base, "-m", "venv", "--without-pip", folder], check=True)
        (packages,) = Path(folder).glob("lib/python3*/site-packages")
        (packages / "assay").mkdir()
        for name in NEEDED:
            if (PACKAGE / name).is_dir():
                shutil.copytree(PACKAGE / name, packages / "assay" / name)
            else:
                shutil.copy(PACKAGE / name, packages / "assay" / name)
        yield f"{folder}/bin/python"


def judged(python: str, namespaces: str, user: int | None) -> dict[str, Any]:
    identity: dict[str, Any] = (
        {"user": user, "group": user, "extra_groups": []} if user is not None else {}
    )
    done = subprocess.run(
        [python, "-I", "-c", JUDGED, namespaces],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={},
        **identity,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def assert_judged(found: dict[str, Any]) -> None:
    assert {name: how for name, (how, _) in found["verdicts"].items()} == {
        name: name for name in found["verdicts"]
    }
    assert 1 <= found["spun"] < 2.5, (
        "not the supervisor's eye on its CPU time ended the program, but RLIMIT_CPU"
    )


def allows_namespaces(user: int) -> bool:
    """Whether this user may make them; False where only root could find out."""
    if user != os.getuid() != 0:
        return False
    command = ["unshare", "--user", "--map-current-user", "--mount", "--net", "true"]
    if user != os.getuid():
        command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *command]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become someone else")


@needs_root
@pytest.mark.parametrize("namespaces", ["allowed", pytest.param("refused", marks=pytest.mark.long)])
@pytest.mark.parametrize("user", [None, NOBODY], ids=["root", "nobody"])
def test_the_judge_is_sound(python_for_all: str, user: int | None, namespaces: str) -> None:
    found = judged(python_for_all, namespaces, user)
    probe_isolation = found["probe"]
    if namespaces == "allowed" and allows_namespaces(NOBODY if user else 0):
        assert probe_isolation["tier"] == "A"
        assert set(ATTACKS | HIDING) <= set(probe_isolation["enforced"])
    else:
        assert probe_isolation["tier"] == ("C" if user else "B")
        assert "docker run --security-opt" in probe_isolation["advice"] or namespaces == "allowed"
    assert set(ATTACKS) <= set(probe_isolation["enforced"])
    assert_judged(found)
    bounded = probe_isolation["tier"] in "AB" or "group" in probe_isolation["walls"]
    assert 100 < found["threads"] < 300 if bounded else found["threads"] == 399


@pytest.mark.long
@needs_root
@pytest.mark.parametrize("namespaces", ["allowed", "refused"])
def test_the_judge_is_sound_with_an_interpreter_that_only_root_can_get_to(namespaces: str) -> None:
    found = judged(sys.executable, namespaces, None)
    assert found["probe"]["tier"] in "ABC"
    assert set(ATTACKS) <= set(found["probe"]["enforced"])
    assert_judged(found)


MEMORY = """
import json, sys
from dataclasses import replace
from assay.judge import Job, judge, judge_all
from assay.sandbox.isolation import probe_isolation
from assay.sandbox.limits import Limits
from assay.types import Check, Exchange, Task
TEST = Check("open('in', 'w').write('x')\\nassert f() == open('in').read()")
SHARED = Task("f", "", (TEST,), "f")
without, programs, memory_mb = json.load(sys.stdin)
isolation = probe_isolation()
walls = tuple(wall for wall in isolation.walls if wall not in without)
vars(judge)["probe_isolation"] = lambda: replace(isolation, walls=walls)
jobs = [Job(Task(str(at), "", (Exchange(stdin, "ok"),), "", language=language)
            if language != "shared" else SHARED, source)
        for at, (language, source, stdin) in enumerate(programs)]
limits = Limits(memory_mb=memory_mb, stack_mb=16, cpu_seconds=5, wall_seconds=20)
print(json.dumps([[run.verdict, run.detail, run.memory_mb]
                  for run in judge_all(jobs, limits, slots=1)]))
"""


def in_judge_of_nobody(python: str, tier: str, programs: list[list[str]]) -> list[Any]:
    """Verdict, detail and memory of programs, each with its language and its input, as an ordinary
    user judges them.
    """
    if tier == "A" and not allows_namespaces(NOBODY):
        pytest.skip("no namespaces for ordinary users")
    done = subprocess.run(
        [python, "-I", "-c", MEMORY], text=True, capture_output=True, check=False,
        input=json.dumps([WITHOUT[tier], programs, attacks.LIMITS.memory_mb]), cwd="/", env={},
        user=NOBODY, group=NOBODY, extra_groups=[],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    runs: list[Any] = json.loads(done.stdout)
    return runs


@pytest.mark.long
@needs_root
@pytest.mark.parametrize("tier", WITHOUT)
def test_no_program_of_an_ordinary_user_takes_much_more_memory_than_it_may(
    python_for_all: str, tier: str
) -> None:
    if not shutil.which("gcc"):
        pytest.skip("needs gcc")
    hiding = [attacks.NAMELESS.replace("HIDES", how) for how in attacks.HIDDEN.values()]
    bodies = [*attacks.ATTACKS.values(), attacks.THREADS, *hiding]
    source, python = attacks.native(bodies), [f"{attacks.MOVED}print('ok')"]
    python += [attacks.FILLS.replace("RESERVES", how) for how in attacks.RESERVES.values()]
    programs = [["c", source, str(at)] for at in range(len(bodies))]
    programs += [["python", before + each, ""] for before in ("", "import tempfile\n")
                 for each in python]  # fmt: skip
    runs = in_judge_of_nobody(python_for_all, tier, programs)
    full = "error" if tier == "A" else "memory"  # a namespace counts threads, a file system files
    expected = ["memory"] * len(attacks.ATTACKS) + [full] * 3 + ["error"]
    assert [verdict for verdict, *_ in runs] == expected + ["memory"] * 2 * len(python), runs
    assert max(memory_mb for *_, memory_mb in runs) < attacks.MOST_MB


@needs_root
def test_no_warm_program_of_an_ordinary_user_hides_files(python_for_all: str) -> None:
    programs = [["shared", attacks.IN_ITS_FOLDER.replace("HIDES", how), ""]
                for how in attacks.HIDES.values()]  # fmt: skip
    runs = in_judge_of_nobody(python_for_all, "C", programs)
    assert {verdict for verdict, *_ in runs} == {"memory"}, runs


@pytest.mark.long
@needs_root
@pytest.mark.parametrize("tier", WITHOUT)
@pytest.mark.parametrize("language", hungry.PROGRAMS)
def test_no_language_of_an_ordinary_user_takes_much_more_memory_than_it_may(
    python_for_all: str, language: str, tier: str
) -> None:
    if language not in INSTALLED:
        pytest.skip(f"needs the tools of {language}")
    source, ways = hungry.PROGRAMS[language]
    programs = [[language, source, str(at)] for at in range(ways)]
    runs = in_judge_of_nobody(python_for_all, tier, programs)
    assert {verdict for verdict, *_ in runs} <= {"memory", "error"}, runs
    most_mb = attacks.MOST_MB + language_named(language).runtime_mb
    assert max(memory_mb for *_, memory_mb in runs) < most_mb, runs


IN_BOX = """
import asyncio, json, sys, tempfile
from pathlib import Path
from assay.sandbox.box_init import BoxSpec
from assay.sandbox.boxes import Boxes
from assay.sandbox.isolation import probe_isolation

async def main():
    without, fields, commands = json.load(sys.stdin)
    boxes, done = Boxes([wall for wall in probe_isolation().walls if wall not in without]), []
    with tempfile.TemporaryDirectory() as folder:
        for command in commands:
            async with boxes.open(BoxSpec(Path(folder), **fields)) as box:
                result = await box.run(("bash", "-c", command), wall_seconds=8)
                after = await box.run(("echo", "on"))
                done.append([result.ended, result.detail, result.memory_mb, after.stdout.decode()])
    await boxes.close()
    print(json.dumps(done))

asyncio.run(main())
"""


def in_boxes_of_nobody(python: str, tier: str, commands: list[str], **fields: int) -> list[Any]:
    """How each command ended in a box of an ordinary user: how, why, its memory, and what the next
    one printed.
    """
    if tier == "A" and not allows_namespaces(NOBODY):
        pytest.skip("no namespaces for ordinary users")
    done = subprocess.run(
        [python, "-I", "-c", IN_BOX], capture_output=True, text=True, check=False, cwd="/", env={},
        input=json.dumps([WITHOUT[tier], fields, commands]),
        user=NOBODY, group=NOBODY, extra_groups=[],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results: list[Any] = json.loads(done.stdout)
    return results


@needs_root
@pytest.mark.parametrize("tier", WITHOUT)
def test_no_command_of_an_ordinary_user_ends_its_box(python_for_all: str, tier: str) -> None:
    commands = [f"export FIRST=$PPID; ({text}); echo on" for text in box_attacks.ENDING.values()]
    results = in_boxes_of_nobody(python_for_all, tier, commands)
    for how, result in zip(box_attacks.ENDING, results, strict=True):
        assert result[0] in ("exited", "crashed"), (how, result)
        assert result[1] != "the command has ended its box"
        assert result[3] == "on\n"


@pytest.mark.long
@needs_root
@pytest.mark.parametrize("tier", WITHOUT)
def test_the_processes_of_an_ordinary_users_box_have_their_memory_together(
    python_for_all: str, tier: str
) -> None:
    more = box_attacks.SHARED if tier == "A" else box_attacks.FILLS
    attacks = {**box_attacks.TOGETHER, **more}
    results = in_boxes_of_nobody(python_for_all, tier, [*attacks.values()], **box_attacks.SMALL)
    assert {ended for ended, *_ in results} == {"memory"}, results


IN_IMAGE = """
import asyncio, sys
from pathlib import Path
from assay.sandbox.box_init import BoxSpec
from assay.sandbox.boxes import Boxes
from assay.sandbox.isolation import probe_isolation

async def main():
    boxes, image = Boxes(probe_isolation().walls), Path(sys.argv[1])
    async with boxes.open(BoxSpec(image / "testbed", image=image)) as box:
        command = "cat /etc/os-release; id -un; echo x > new; touch /usr/x; ls"
        done = await box.run(("bash", "-c", command), merged=True)
        print(done.stdout.decode(), await box.diff())
    await boxes.close()

asyncio.run(main())
"""


@needs_root
@pytest.mark.skipif(not allows_namespaces(NOBODY), reason="no namespaces for ordinary users")
def test_an_ordinary_user_has_boxes_in_an_image(python_for_all: str) -> None:
    """Its files are another user's here, as those of a folder that root has unpacked."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        image = make_image(Path(folder) / "image")
        done = subprocess.run(
            [python_for_all, "-I", "-c", IN_IMAGE, str(image)], capture_output=True, text=True,
            check=False, cwd="/", env={}, user=NOBODY, group=NOBODY, extra_groups=[],
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{RELEASE}user\n")
    assert "Read-only file system" in done.stdout
    assert "+x" in done.stdout


@needs_root
def test_what_runs_as_in_a_container_is_on_tier_c(python_for_all: str) -> None:
    code = "from assay.sandbox.isolation import probe_isolation as probe; print(probe())"
    found = in_container(python_for_all, code)
    assert "tier='C'" in found
    assert "docker run --security-opt" in found


def in_container(python: str, code: str) -> str:
    """What code prints that an ordinary user runs as in a container."""
    command = [sys.executable, "-m", "tests.as_container", python, "-I", "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=PACKAGE.parent, env={}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
