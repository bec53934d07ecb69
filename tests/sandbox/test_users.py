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

from assay.sandbox.attack import ATTACKS, HIDING
from tests.images import RELEASE, make_image
from tests.test_architecture import PACKAGE

NOBODY = 65_534
SYSTEM_PYTHON = "/usr/bin/python3"
NEEDED = (
    "__init__.py",
    "archives.py",
    "checks.py",
    "errors.py",
    "files.py",
    "sync.py",
    "types.py",
    "tools.py",
    "judge",
    "sandbox",
    "languages",
    "registry.py",
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
    return (
        subprocess.run(
            command, user=user, group=user, extra_groups=[], capture_output=True, check=False
        ).returncode
        == 0
    )


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


IN_IMAGE = """
import asyncio, sys
from pathlib import Path
from assay.sandbox.box import Boxes, BoxSpec
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
