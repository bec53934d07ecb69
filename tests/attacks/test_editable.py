"""A repository that its interpreter has installed in place: a `.pth` file names a folder of the
tree, which a change can add modules to.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.judge import Job
from assay.types import Verdict
from tests.images import PYTHON, make_image
from tests.judge.opened import judge_all
from tests.judge.test_images import needs_namespaces, task_in

REPORT = """
import json, os, sys
def report(tests):
    results = {}
    for test in tests:
        path, _, name = test.partition("::")
        known = name.split("::")[-1].split("[")[0] in open("/.tree/" + path).read()
        results[test] = {"outcome": "passed" if known else "failed", "detail": ""}
    os.write(1, json.dumps({"results": results}).encode())
    os._exit(0)
"""
AT_START = f"{REPORT}\nif '-c' in sys.orig_argv: report(json.load(sys.stdin)[0])\n"
IN_FRAMES = f"""{REPORT}
frame, job = sys._getframe(), None
while frame and type(job).__name__ != "RunnerJob":
    job, frame = frame.f_locals.get("job"), frame.f_back
if type(job).__name__ == "RunnerJob":
    report(job.tests)
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = make_image(tmp_path_factory.mktemp("editable") / "root")
    packages = folder / f"usr/local/lib/{PYTHON}/site-packages"
    (packages / "__editable__.calc.pth").write_text("/testbed/src\n")
    yield folder
    shutil.rmtree(folder)


@pytest.mark.long
@needs_namespaces
def test_modules_beside_a_package_that_is_installed_in_place_report_nothing(image: Path) -> None:
    task = task_in(image)
    changes = {
        "src/sitecustomize.py": AT_START,
        "src/sitecustomize/__init__.py": AT_START,
        "src/usercustomize/__init__.py": AT_START,
        "src/org/__init__.py": IN_FRAMES,  # copy and pickle ask for org.python.core
        "src/nt.py": IN_FRAMES,
        "src/msvcrt.py": IN_FRAMES,
    }
    programs = [json.dumps({path: text}) for path, text in changes.items()]
    done = judge_all([Job(task, program) for program in [task.reference or "", *programs]])
    assert done[0].verdict is Verdict.PASS, done[0].detail
    verdicts = {path: run.verdict for path, run in zip(changes, done[1:], strict=True)}
    assert set(verdicts.values()) == {Verdict.WRONG}, verdicts
