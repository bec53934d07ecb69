"""The edition of the judge changes with every file that may decide a verdict."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import assay
from assay import content
from assay.judge.edition import deciding_files, edition_of

PACKAGE = Path(assay.__file__).parent
TRACER = """#!{python} -I
import contextlib, runpy, sys
sys.executable = {tracer!r}
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "assay":
            with contextlib.suppress(OSError), open({log!r}, "a") as log:
                log.write(name + "\\n")
sys.meta_path.insert(0, Finder)
if "-m" in sys.argv:
    sys.argv = sys.argv[sys.argv.index("-m") + 1 :]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    exec(sys.argv[1])
"""
"""Runs a module or a script as Python does, and so do the processes that it starts; notes what of
assay each process imports before its walls are up."""
JUDGES = """
import sys
from pathlib import Path
from assay.judge import Job, judge_all
from assay.types import *
from assay.checks import *
tree = Path(sys.argv[2])
(tree / "tests").mkdir(parents=True)
(tree / "calc.py").write_text("x = 1\\n")
(tree / "tests/test_x.py").write_text("def test_x():\\n import calc\\n assert calc.x == 2\\n")
diff = "--- a/calc.py\\n+++ b/calc.py\\n@@ -1 +1 @@\\n-x = 1\\n+x = 2\\n"
f = "def f(x): return x"
def task(*checks, name="", language="python"):
    return Task("t", "", checks, name, language=language)
jobs = [
    Job(task(Check("assert f(1) == 1"), Call("[1]", "1"), name="f"), f),
    Job(task(TestFunctions("def test_f(): assert f(1) == 1"), name="f"), f),
    Job(task(Call("[1]", "1"), name="f", language="javascript"), "const f = (x) => x"),
    Job(task(Exchange("", "1")), "print(1)"),
    Job(task(PrintTest("print(f(1))", "1")), f),
    Job(task(OwnTests("assert f(1) == 1"), name="f"), f),
    Job(task(Answer("\\\\frac{1}{2}"), language="answer"), "0.5 x"),
    Job(task(TestBench("", "a", ""), language="verilog"), "module a; endmodule"),
    Job(task(RepositoryTests(str(tree), ("tests/test_x.py::test_x",), ()), language="diff"), diff),
]
print(*(execution.verdict for execution in judge_all(jobs, slots=2, skip_refused=True)))
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The modules of assay that judging imports, in all its processes and for all kinds."""
    folder = tmp_path_factory.mktemp("traced")
    tracer, log = folder / "python", folder / "log"
    text = TRACER.format(python=sys.executable, tracer=str(tracer), log=str(log))
    tracer.write_text(text)
    tracer.chmod(tracer.stat().st_mode | stat.S_IXUSR)
    log.touch()
    command = [str(tracer), JUDGES, str(folder / "tree")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {*log.read_text().split()}


@pytest.fixture(autouse=True)
def reads_only_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy was written just now, and would be read again each time."""
    monkeypatch.setattr(content, "RACY_NS", -(10**18))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package."""
    package = tmp_path_factory.mktemp("copy") / "assay"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    return package


def file_of(module: str, package: Path) -> Path:
    path = package.parent / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def changes_the_edition(file: Path, package: Path) -> bool:
    """Whether another byte in a file makes another edition."""
    before, text = edition_of(package), file.read_bytes()
    file.write_bytes(text + b"\n")
    after = edition_of(package)
    file.write_bytes(text)
    return after != before


@pytest.mark.long
def test_each_module_that_judging_imports_is_part_of_the_edition(
    imported: set[str], copy: Path
) -> None:
    assert len(imported) > 90
    for process in ("judge.judge", "judge.worker", "judge.candidate", "sandbox.supervisor",
                    "sandbox.launch", "sandbox.box_zygote", "sandbox.attack"):  # fmt: skip
        assert f"assay.{process}" in imported, "this process was not traced"
    before = edition_of(copy)
    for file in (file_of(module, copy) for module in imported):
        text = file.read_bytes()
        file.write_bytes(text + b"\n")
        assert edition_of(copy) != before, file
        file.write_bytes(text)


def test_what_a_judge_loads_as_it_starts_is_part_of_it() -> None:
    starts = ("judge.judge", "judge.warmup", "sandbox.supervisor", "sandbox.box_zygote")
    script = f"import sys{''.join(f', assay.{name}' for name in starts)}\n" + (
        "print(*(m.__file__ for name, m in sys.modules.items() if name.startswith('assay')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    files = {Path(name) for name in done.stdout.split()}
    assert len(files) > 60
    assert files <= deciding_files(PACKAGE)


@pytest.mark.parametrize(
    "name",
    ["lines.py", "content.py", "bounded.py", "types.py", "errors.py", "judge/kinds/calls.py",
     "languages/drivers/cpp.cpp", "languages/drivers/python_start.py",
     "judge/kinds/repository_cheats.toml", "judge/cocotb_harness/simulation.py",
     "sandbox/box_init.py", "judge/repository_runner.py", "__init__.py"],
)  # fmt: skip
def test_what_is_read_or_sent_without_an_import_is_part_of_it_too(name: str, copy: Path) -> None:
    assert changes_the_edition(copy / name, copy)


def test_what_decides_no_verdict_is_no_part_of_it(copy: Path) -> None:
    others = ["cli.py", "prompts.py", "viewer/page_server.py", "trackers/wandb.py", "train/loop.py",
              "check/attacks.toml", "viewer/page/app.js", "endpoint.py"]  # fmt: skip
    existing = [name for name in others if (copy / name).is_file()]
    assert len(existing) > 6
    assert [name for name in existing if changes_the_edition(copy / name, copy)] == []
    folders = {file.relative_to(copy).parts[0] for file in deciding_files(copy)}
    assert not folders & {"viewer", "trackers", "engines", "train", "policy", "rewards", "commands"}


def test_a_new_kind_a_moved_file_and_a_new_import_are_noticed(copy: Path) -> None:
    before = edition_of(copy)
    (copy / "judge/kinds/new.py").write_text("")
    with_kind = edition_of(copy)
    (copy / "judge/kinds/new.py").rename(copy / "judge/new.py")
    moved = edition_of(copy)
    (copy / "judge/new.py").rename(copy / "judge/new2.py")
    renamed = edition_of(copy)
    (copy / "judge/new2.py").unlink()
    for source in (
        "def f():\n    from assay.http import x", "import assay.http as p", "from .. import http",
        "from ..http import x", "START = ('-m', 'assay.http')",
        "from assay.maths import seeds\nimport assay.http",
    ):  # fmt: skip
        (copy / "judge/new.py").write_text(source)
        assert changes_the_edition(copy / "http.py", copy), source
    (copy / "judge/new.py").unlink()
    assert len({before, with_kind, moved, renamed}) == 4
    assert edition_of(copy) == before, "what it was, it is again"


def test_rights_times_and_bytecode_make_no_other_edition(copy: Path) -> None:
    before = edition_of(copy)
    (copy / "judge/judge.py").chmod(0o600)
    (copy / "types.py").touch()
    (copy / "judge/__pycache__").mkdir()
    (copy / "judge/__pycache__/judge.cpython-311.pyc").write_bytes(b"x")
    assert edition_of(copy) == before


def test_another_version_of_an_installed_package_is_another_edition() -> None:
    """Debian's packages have the second form."""
    script = (
        "import sys, json, pathlib, tempfile\nfrom assay.judge.edition import edition, installed\n"
        "folder = pathlib.Path(tempfile.mkdtemp()); sys.path.append(str(folder))\nseen = []\n"
        "for name in ('a-1.dist-info', 'a-2.dist-info', 'b-1.egg-info'):\n"
        "    (folder / name).mkdir(); installed.cache_clear(); seen.append(edition().hex())\n"
        "print(json.dumps(seen))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert len(set(json.loads(done.stdout))) == 3
