"""The command line as users meet it: what it prints, what it writes, and how it refuses."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from assay.cli import main
from assay.config.sections import TinySettings
from assay.policy.tiny import make_tiny
from tests.end_to_end.recipes import TINY, assay, write
from tests.policies import TASKS

ROWS = [
    {"id": "add", "prompt": "Add.", "entry_point": "add", "tests": ["assert add(1, 2) == 3"],
     "reference": "def add(a, b):\n    return a + b\n"},
    {"id": "neg", "prompt": "Negate.", "entry_point": "neg", "tests": ["assert neg(2) == -2",
    "assert neg(0) == 0"]},
]  # fmt: skip


OWN_KIND = '''"""Two kinds of mine."""

from dataclasses import dataclass

from assay.judge.kinds.kind import Kind


@dataclass(frozen=True)
class Mine:
    """A check of mine. It has more to say."""

    mine: str
    hidden: bool = True


class Mines(Kind[Mine], judges=Mine):
    """Judges none."""


@dataclass(frozen=True)
class Mute:
    mute: str
    hidden: bool = True


class Mutes(Kind[Mute], judges=Mute):
    """Judges none."""
'''


def write_rows(file: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.parametrize("words", [[], ["train"], ["eval"], ["check"]])
def test_help_answers_in_under_a_second_without_loading_torch(words: list[str]) -> None:
    code = f"import sys; sys.argv = ['assay', *{words!r}, '--help']\nfrom assay.cli import main\n"
    code += (
        "try:\n    main()\nexcept SystemExit:\n    pass\nprint('torch' in sys.modules or"
        " 'transformers' in sys.modules)"
    )
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    took = time.monotonic() - start
    assert done.stdout.strip().endswith("False")
    assert "Usage" in done.stdout
    assert took < 30, "a generous bound: the figure itself is in docs/measured/learning.md"


@pytest.mark.parametrize(
    "words",
    [
        ["train", "small.toml", "--policy.model", "./nothing"],
        ["eval", "--model", "./nothing", "--tasks", "drills:test"],
        ["screen", "./nothing", "drills:test", "--output", "kept.jsonl"],
    ],
)
def test_a_mistyped_path_of_a_model_is_answered_before_torch_is_loaded(
    words: list[str], tmp_path: Path
) -> None:
    write(tmp_path, TINY)
    code = f"import sys; sys.argv = ['assay', *{words!r}]\nfrom assay.cli import main\n"
    code += "try:\n    main()\nexcept SystemExit:\n    print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout == "False\n"
    assert done.stderr.endswith("assay: model directory './nothing' does not exist\n")


def test_grade_judges_solutions_and_completions_and_writes_verdicts_beside(tmp_path: Path) -> None:
    tasks = write_rows(tmp_path / "tasks.jsonl", ROWS)
    samples = write_rows(
        tmp_path / "samples.jsonl",
        [
            {"task_id": "add", "solution": "def add(a, b):\n    return a + b\n"},
            {"task_id": "add", "solution": "def add(a, b):\n    return a - b\n"},
            {"task_id": "neg", "completion": "def neg(x):\n    return -x\n"},
            {"task_id": "neg", "completion": "def neg(x):\n    return abs(x)\n"},
        ],
    )
    done = assay("grade", "--tasks", tasks, "--samples", samples, "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["verdicts"] == {"pass": 2, "wrong": 2}
    assert summary["pass_at_1"] == 0.5
    rows = [
        json.loads(line)
        for line in (tmp_path / "samples.jsonl.verdicts.jsonl").read_text().splitlines()
    ]
    assert [row["passed"] for row in rows] == [True, False, True, False]
    assert [row["checks_passed"] for row in rows] == [1, 0, 2, 1]
    shown = assay("grade", "--tasks", tasks, "--samples", samples, folder=tmp_path)
    assert "pass@1   0.500" in shown.stdout


def test_list_names_every_plug_in(tmp_path: Path) -> None:
    done = assay("list", folder=tmp_path)
    for name in (
        "sft",
        "reinforce",
        "grpo",
        "humaneval",
        "mbpp",
        "drills",
        "jsonl",
        "tests",
        "length",
        "format",
    ):
        assert name in done.stdout


def test_list_names_kinds_of_tests_a_users_own_among_them(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN_KIND)
    words = ("list", "kinds", "--plugins", "mine.py")
    shown = " ".join(assay(*words, folder=tmp_path).stdout.split())
    assert "kinds Exchange One run of a whole program: its standard input" in shown
    assert "kinds Mine A check of mine. kinds Mute Two kinds of mine. kinds OwnTests" in shown


@pytest.mark.parametrize("words", [["list"], ["plan", "no.toml"], ["eval", "no.toml"]])
def test_under_torchrun_commands_other_than_train_run_on_the_first_rank_alone(
    words: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["assay", *words])
    codes, said = [], []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(SystemExit) as ended:
            main()
        codes.append(ended.value.code or 0)
        said.append("".join(capfd.readouterr()).strip())
    assert codes == [0 if words == ["list"] else 2, 0]
    assert said[0]
    assert not said[1]


def test_doctor_reports_what_was_found_by_trying(tmp_path: Path) -> None:
    assert assay("doctor", folder=tmp_path).returncode == 0
    found = json.loads(assay("doctor", "--json", folder=tmp_path).stdout)
    assert found["isolation"]["tier"] in "ABCDE"


BAD_ROW = '{"task_id": "add", "completion": "x"}\n{"task_id": "add"}\n'
GRADE = ("grade", "--tasks", "tasks.jsonl", "--samples")


@pytest.mark.parametrize(
    ("words", "files", "message"),
    [
        (["train", "gone.toml"], {}, "settings file gone.toml not found"),
        (["train", "a.toml"], {"a.toml": TINY + "\n[optimizer]\nlrr = 1\n"},
         "unknown setting 'optimizer.lrr'; did you mean 'optimizer.lr'?"),
        (["train", "a.toml", "--steps"], {"a.toml": TINY}, "--steps lacks its value"),
        (["train", "a.toml", "--stages.grpo.algorithm.name", "grpoo"], {"a.toml": TINY},
        "did you mean 'grpo'?"),
        (["train", "a.toml", "--tasks.train", "drils"], {"a.toml": TINY}, "did you mean 'drills'?"),
        (["train", "a.toml", "--rewards.lenght.alpha", "1"], {"a.toml": TINY},
        "did you mean 'length'?"),
        (["train", "a.toml", "--rewards.tests.mod", "all"], {"a.toml": TINY}, "did you mean"),
        (["train", "a.toml", "--trackers", '["consol"]'], {"a.toml": TINY},
        "must be 'console', 'jsonl'"),
        (["train", "a.toml", "--policy.model", "./nothing"], {"a.toml": TINY},
        "'./nothing' does not exist"),
        (["train", "a.toml", "--policy.model", "./bare"], {"a.toml": TINY,
        "bare/config.json": "{}"},
         "holds no tokenizer"),
        (["train", "a.toml", "--tasks.train", "empty.jsonl"], {"a.toml": TINY, "empty.jsonl": ""},
        "holds no tasks"),
        (["train", "a.toml", "--tasks.train", "t.jsonl"],
         {"a.toml": TINY,
         "t.jsonl": '{"id": "x", "prompt": "p", "entry_point": "f", "tests": []}\n'}, "tests"),
        (["train", "a.toml", "--plugins", '["mine.py"]'], {"a.toml": TINY},
        "plug-in 'mine.py' not found"),
        ([*GRADE, "gone.jsonl"], {}, "gone.jsonl does not exist"),
        ([*GRADE, "s.jsonl"], {"s.jsonl": BAD_ROW}, "s.jsonl, line 2: 'add' has neither"),
        ([*GRADE, "s.jsonl"], {"s.jsonl": '{"task_id": "ad", "completion": ""}\n'},
        "did you mean 'add'?"),
        ([*GRADE, "s.jsonl"], {"s.jsonl": "not json\n"}, "s.jsonl, line 1"),
        ([*GRADE, "s.jsonl"], {"s.jsonl": ""}, "holds no samples"),
        (["eval", "--model", "./bare", "--tasks", "drills:test"], {"bare/config.json": "{}"},
        "holds no tokenizer"),
        (["eval", "--model", "./bare", "--tasks", "drills:tset"], {"bare/config.json": "{}"},
        "did you mean 'test'?"),
        (["list", "reward"], {}, "did you mean 'rewards'?"),
        (["train", "a.toml", "--folder", "afile"], {"a.toml": TINY, "afile": ""}, "afile"),
        (["train", "a.toml", "--name", ".."], {"a.toml": TINY}, "'name' = '..'"),
        (["train", "a.toml", "--fresh", "--folder", ".", "--name", "mine"], {"a.toml": TINY,
        "mine/x": ""},
         "is not a run"),
        (["train", "a.toml", "--policy.model", "nobody/none"], {"a.toml": TINY},
        "needs the network"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_clear_line_exit_code_2_and_writes_nothing(
    tmp_path: Path,
    words: list[str],
    files: dict[str, str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_rows(tmp_path / "tasks.jsonl", ROWS)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["assay", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2, said
    *progress, error = said.splitlines()
    assert message in error
    assert error.startswith("assay: ")
    assert all(line.endswith(" s") for line in progress), "a busy machine shows progress before"
    assert sorted(tmp_path.rglob("*")) == before


def test_a_refusal_reaches_the_shell(tmp_path: Path) -> None:
    done = assay("train", "gone.toml", folder=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert {"assay:", "gone.toml", "demo,", "laptop,"} <= {*done.stderr.split()}


@pytest.mark.long
def test_eval_measures_a_model_directory_and_its_samples_can_be_graded_again(
    tmp_path: Path,
) -> None:
    make_tiny(
        tmp_path / "model", TASKS, TinySettings(vocabulary=300, width=64, layers=1, heads=2), 0
    )
    words = (
        "eval",
        "--model",
        "model",
        "--tasks",
        "drills:test",
        "--samples",
        "2",
        "--limit",
        "3",
        "--max-tokens",
        "20",
        "--json",
    )
    done = assay(*words, "--out", "out", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["evaluations"][0]["pass_at"]["1"] == 0.0
    assert (tmp_path / "out" / "report.md").is_file()
    again = assay(
        "grade",
        "--tasks",
        "drills:test",
        "--samples",
        "out/samples.jsonl",
        "--json",
        folder=tmp_path,
    )
    assert json.loads(again.stdout)["samples"] == 6


@pytest.mark.long
def test_a_run_that_exists_with_other_settings_is_not_overwritten(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        TINY.replace("[stages.grpo]", "[stages.sft.save]\nevery = 2\n[stages.grpo]").split(
            "[stages.grpo]"
        )[0],
    )
    assert assay("train", file, "--steps", "1", folder=tmp_path).returncode == 0
    refused = assay("train", file, "--steps", "1", "--seed", "5", folder=tmp_path)
    assert refused.returncode == 2
    assert "made with other settings (seed)" in refused.stderr
    assert "--fresh" in refused.stderr
    longer = assay("train", file, "--steps", "2", folder=tmp_path)
    assert longer.returncode == 0, longer.stderr
    steps = [
        json.loads(line)["step"]
        for line in (tmp_path / "runs/small/sft/metrics.jsonl").read_text().splitlines()
    ]
    assert steps == [1, 2]
    assert (
        assay("train", file, "--steps", "1", "--seed", "5", "--fresh", folder=tmp_path).returncode
        == 0
    )


@pytest.mark.long
@pytest.mark.data("llm_samples", "humaneval")
def test_grade_agrees_with_the_recorded_verdict_on_every_completion_of_gpt_4(
    public_data: Path, tmp_path: Path
) -> None:
    with gzip.open(public_data / "llm_samples/samples.jsonl.gz", "rt") as lines:
        recorded = [row for row in map(json.loads, lines) if row["set"] == "reflexion/simple_gpt-4"]
    keys = {"body": "completion", "program": "solution"}
    rows = [{"task_id": row["task_id"], keys[row["code_kind"]]: row["code"]} for row in recorded]
    samples = write_rows(tmp_path / "gpt4.jsonl", rows)
    done = assay("grade", "--tasks", "humaneval", "--samples", samples, "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    verdicts = [
        json.loads(line)
        for line in (tmp_path / "gpt4.jsonl.verdicts.jsonl").read_text().splitlines()
    ]
    assert [row["passed"] for row in verdicts] == [row["passed"] for row in recorded]
    assert json.loads(done.stdout)["pass_at_1"] == pytest.approx(134 / 164)
