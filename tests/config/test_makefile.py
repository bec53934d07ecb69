"""Installing with make: a virtual environment that could not be made, and one that was made by
half.
"""

from __future__ import annotations

import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

WITHOUT_VENV = """#!/bin/sh
[ "$1" = -c ] && exit 0
mkdir -p .venv/bin && cp "$0" .venv/bin/python
echo "The virtual environment was not created successfully because ensurepip is not available." >&2
exit 1
"""
WITH_VENV = """#!/bin/sh
[ "$1" = -c ] && exit 0
[ "$2" = pip ] && exit 0
[ "$3" = --clear ] && rm -rf .venv
mkdir -p .venv/bin && cp "$0" .venv/bin/python && cp "$0" .venv/bin/pip
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(folder: Path, target: str, python: str) -> subprocess.CompletedProcess[str]:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    interpreter = folder / "python"
    interpreter.write_text(python)
    interpreter.chmod(0o755)
    words = ["make", target, f"PYTHON={interpreter}"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def test_without_python3_venv_the_package_is_named_and_once_it_is_there_make_starts_over(
    tmp_path: Path,
) -> None:
    failed = make(tmp_path, "install", WITHOUT_VENV)
    assert failed.returncode != 0
    assert "apt install python3-venv" in failed.stderr
    assert (tmp_path / ".venv" / "bin" / "python").exists()
    assert make(tmp_path, "install", WITH_VENV).returncode == 0
    assert (tmp_path / ".venv" / "installed").exists()


def test_an_environment_that_is_there_is_kept(tmp_path: Path) -> None:
    assert make(tmp_path, "install", WITH_VENV).returncode == 0
    (tmp_path / ".venv" / "mine").touch()
    (tmp_path / ".venv" / "installed").unlink()
    assert make(tmp_path, "install", WITH_VENV).returncode == 0
    assert (tmp_path / ".venv" / "mine").exists()


def test_without_a_newer_python_nemo_gym_is_left_out_and_says_so_in_one_line(
    tmp_path: Path,
) -> None:
    for name in ("Makefile", "constraints-agents"):
        (tmp_path / name).symlink_to(ROOT / name)
    words = [str(shutil.which("make")), ".venv-agents/nemo-gym/installed", "PYTHON=false"]
    paths = {"PATH": str(tmp_path), "HOME": str(tmp_path)}  # where no python3.12 is
    ended = subprocess.run(words, cwd=tmp_path, env=paths, capture_output=True, text=True)
    assert ended.returncode == 0
    (line,) = ended.stdout.splitlines()
    assert "nemo-gym is left out: it needs Python 3.12" in line
    assert not (tmp_path / ".venv-agents").exists()


def test_bench_runs_every_measurement() -> None:
    shown = subprocess.run(
        ["make", "-n", "bench"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    sources = {file.stem: file.read_text() for file in (ROOT / "bench").glob("*.py")}
    for name in (name for name, source in sources.items() if "__main__" in source):
        by_another = any(f'"bench.{name}"' in source for source in sources.values())
        assert by_another or f"-m bench.{name} " in f"{shown} ".replace("\n", " \n")


def test_a_quick_run_has_the_tests_of_what_a_change_touches_and_all_where_it_may_touch_all() -> (
    None
):
    touched = runpy.run_path(str(ROOT / ".ci" / "touched.py"))["touched"]
    always = ["tests/test_architecture.py", "tests/test_docs.py"]
    assert touched(["docs/data.md"], ROOT) == always
    assert touched(["assay/train/run.py", "assay/train/model_card.md"], ROOT) == [
        *always, "tests/train"
    ]  # fmt: skip
    assert touched(["assay/judge/codec.py", "assay/files.py"], ROOT) == [
        *always, "tests/judge", "tests/attacks", "tests/test_files.py"
    ]  # fmt: skip
    assert touched(["assay/languages/go.py", "examples/own.py"], ROOT) == [
        *always, "tests/judge/test_languages.py", "tests/test_examples.py"
    ]  # fmt: skip
    assert touched(["tests/train/test_stages.py", "tests/train/__init__.py"], ROOT) == [
        *always, "tests/train/test_stages.py", "tests/train"
    ]  # fmt: skip
    for path in ("pyproject.toml", "assay/types.py", "assay/cli.py", "assay/gone/x.py"):
        assert touched([path], ROOT) == ["tests"], path


def test_ci_prints_the_seconds_of_each_step_also_where_one_fails(tmp_path: Path) -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("step ", "if "))]
    script = tmp_path / "ci" / "run"
    script.parent.mkdir()
    script.write_text("\n".join([*kept, "step true", "step sleep 1.1", "step false", "step true"]))
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    heading, first, second, failed, total = done.stdout.splitlines()
    assert (heading, first, failed) == ("seconds of each step:", "0 s: true", "failed: false")
    assert second in ("1 s: sleep 1.1", "2 s: sleep 1.1")
    assert total.endswith(" s: all")
