"""Each example runs: the plain loop, every kind of plug-in, and the notebook."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.recipes import assay

EXAMPLES = Path(__file__).parent.parent / "examples"
KINDS = {
    "multiples": "task set", "short_program": "reward", "second_try": "environment",
    "best_of_group": "algorithm", "perl": "language",
}  # fmt: skip
PLAN = f"""
name = "examples"
plugins = {json.dumps([str(EXAMPLES / f"{name}.py") for name in KINDS])}
trackers = ["jsonl", "rollouts"]
policy.tiny = {{ vocabulary = 300, width = 32, layers = 1, heads = 2, context = 192 }}
tasks = {{ train = "multiples:train", limit = 4 }}
judge.allow_weak_isolation = true
algorithm.name = "best_of_group"
environment.name = "second_try"
rewards = {{ tests = {{}}, short_program = {{ weight = 0.1 }} }}
rollout = {{ tasks_per_step = 2, group_size = 2, max_tokens = 4 }}
steps = 1
evaluate = {{ tasks = "multiples:test", limit = 2, samples = 1, max_tokens = 4 }}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a plug-in of each kind."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "plan.toml").write_text(PLAN)
    done = assay("train", "plan.toml", folder=folder)
    assert done.returncode == 0, done.stderr
    return folder / "runs/examples"


@pytest.mark.long
def test_a_plug_in_of_each_kind_takes_part_in_a_run(run: Path) -> None:
    from pyarrow import parquet

    rows = parquet.read_table(run / "best_of_group/rollouts/step_000001.parquet").to_pylist()
    assert {row["task_id"].partition("/")[0] for row in rows} == {"multiples"}
    assert {name for row in rows for name, _ in row["parts"]} == {"tests", "short_program"}
    assert max(row["turn"] for row in rows) == 1, "the environment asks twice"


def test_references_of_the_task_set_pass_and_programs_of_the_language_are_judged() -> None:
    code = f"""
from pathlib import Path
from assay.judge import Job, judge_all
from assay.registry import load_plugins
from assay.tasks import load
from assay.types import Exchange, Task
load_plugins([Path({str(EXAMPLES)!r}) / name for name in ("perl.py", "multiples.py")])
task = Task("double", "Double it.", (Exchange("21", "42"),), "", language="perl")
jobs = [Job(task, "print 2 * <STDIN>;"), Job(task, "print 41;")]
jobs += [Job(one, one.reference) for one in load("multiples:test", limit=2)]
print(*(one.verdict for one in judge_all(jobs, allow_weak=True)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["pass", "wrong", "pass", "pass"], done.stderr


@pytest.mark.long
def test_the_notebook_loads_and_plots_a_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("ASSAY_RUN", str(run))
    notebook = json.loads((EXAMPLES / "look_at_a_run.ipynb").read_text())
    names: dict[str, object] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["stages"]
    assert names["evaluations"]


@pytest.mark.long
def test_the_plain_loop_learns_for_two_steps_in_at_most_200_lines() -> None:
    file = EXAMPLES / "plain_loop.py"
    assert len(file.read_text().splitlines()) <= 200
    words = ["--sft-steps", "3", "--steps", "2", "--tasks", "2"]
    done = subprocess.run(
        [sys.executable, file, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "GRPO step 1: pass rate" in done.stdout


@pytest.mark.long
def test_small_repositories_pass_their_tests_and_splits_share_no_package(tmp_path: Path) -> None:
    splits = {"train": 41, "test": 16}
    for split, count in splits.items():
        words = [str(EXAMPLES / "small_repositories.py"), split, "--count", str(count)]
        subprocess.run([sys.executable, *words, "--split", split], cwd=tmp_path, check=True)
    train, test = (
        {one.name for one in (tmp_path / split).iterdir()} for split in ("train", "test")
    )
    assert (len(train), len(test), train & test) == (41, 16, set())
    functions = [
        set(re.findall(r"^def (\w+)", file.read_text(), re.MULTILINE))
        for split in splits
        for file in sorted((tmp_path / split).glob("*/*.py"))
    ]
    assert [len(one) for one in functions] == [4] * 57
    assert not set().union(*functions[:41]) & set().union(*functions[41:])
    own = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", "-c", "/dev/null"]
    for package in (min(train), min(test)):
        folder = tmp_path / ("train" if package in train else "test") / package
        done = subprocess.run(
            [sys.executable, *own, "tests"], cwd=folder, capture_output=True, text=True,
            env={"PYTHONPATH": ".", "PATH": ""},
        )  # fmt: skip
        assert "4 passed" in done.stdout, done.stdout
