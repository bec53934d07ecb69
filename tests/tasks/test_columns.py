"""Columns of users' files under the names that they have there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from assay.config.load_settings import dump, load_plan
from assay.errors import DataError, SettingsError
from assay.judge import Job, judge_all
from assay.task_specs import DataName, data_name, parts_of, spec_of, split_spec
from assay.tasks import load
from assay.tasks.columns import why_no_task, with_lists
from assay.tasks.rows import file_rows

ROW: dict[str, Any] = {
    "uid": "a", "question": "Write inc.", "asserts": ["assert inc(1) == 2"],
    "extra": {"code": "def inc(n):\n    return n + 1\n", "none": None}, "test": "not ours",
}  # fmt: skip
COLUMNS = "prompt=question,tests=asserts,reference=extra.code,id=uid"


def write(file: Path, *rows: dict[str, Any]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def test_columns_are_read_under_the_fields_that_they_are_named_for(tmp_path: Path) -> None:
    (task,) = load(write(tmp_path / "my.jsonl", ROW) + f",{COLUMNS}")
    assert (task.id, task.prompt, task.entry_point) == ("a", "Write inc.", "inc")
    assert task.reference == ROW["extra"]["code"]


def test_a_member_may_be_in_json_text_and_a_name_may_have_dots(tmp_path: Path) -> None:
    row = {**ROW, "extra": json.dumps(ROW["extra"]), "a.b": "inc"}
    (task,) = load(write(tmp_path / "my.jsonl", row) + f",{COLUMNS},entry_point=a.b")
    assert task.reference == ROW["extra"]["code"]


@pytest.mark.parametrize(
    ("columns", "kind", "why"),
    [
        ("prompt=qestion", DataError, "no column 'qestion' for 'prompt'; did you mean 'question'"),
        ("prompt=extra.cod", DataError, "no column 'extra.cod' for 'prompt'; did you mean 'code'"),
        ("promt=question", SettingsError, "no task has a field 'promt'; did you mean 'prompt'"),
    ],
)
def test_a_mistyped_column_or_field_gets_a_hint(
    tmp_path: Path, columns: str, kind: type[Exception], why: str
) -> None:
    with pytest.raises(kind, match=why):
        load(write(tmp_path / "my.jsonl", ROW) + f",{columns}")


@pytest.mark.parametrize(
    ("row", "guess"),
    [
        ({"Question": "q", "asserts": ["assert f()"]}, 'prompt = "Question", tests = "asserts"'),
        ({"task_text": "Do it", "unit": "def check(f): ..."},
         'prompt = "task_text", test = "unit"'),
        ({"x": {"problem": "q"}, "test_list": ["assert f()"]},
         'prompt = "x.problem", tests = "test_list"'),
        ({"prompt": "q", "final_answer": "4"}, 'expected_answer = "final_answer"'),
        ({"query": "a question", "n": 3}, ""),
    ],
)  # fmt: skip
def test_a_row_without_a_task_is_refused_with_the_likeliest_columns(
    tmp_path: Path, row: dict[str, Any], guess: str
) -> None:
    with pytest.raises(DataError, match=f"among the columns {', '.join(row)}; a task ne") as caught:
        load(write(tmp_path / "my.jsonl", row))
    assert "\n" not in str(caught.value)
    assert ("did you mean columns = { " + guess in str(caught.value)) == bool(guess)


def test_a_spec_is_taken_apart_and_a_table_is_one() -> None:
    table = {"path": "d/*.csv", "split": "train", "columns": {"prompt": "a, 5% b"}}
    assert data_name(spec_of(table)) == DataName("d/*.csv", "train", {"prompt": "a, 5% b"})
    assert split_spec("runs/rows,lr=1.jsonl") == ("jsonl", "runs/rows,lr=1.jsonl")
    assert data_name("runs/rows,lr=1.jsonl").columns == {}
    assert parts_of("jsonl:a/b.csv,id=x") == ("jsonl:", "a/b.csv", ",id=x")
    assert parts_of("mbpp:train") == ("mbpp:train", "", "")
    wrongs: list[dict[str, Any]] = [
        {"columns": {}}, {"path": "a", "colums": {}}, {"path": "a", "columns": 3},
    ]  # fmt: skip
    for wrong in wrongs:
        with pytest.raises(SettingsError, match=r"write \{ path = "):
            spec_of(wrong)


def test_settings_take_a_table_whose_path_is_relative_to_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub" / "folder").mkdir(parents=True)
    (tmp_path / "sub" / "own.toml").write_text(
        'steps = 1\nalgorithm.name = "grpo"\n'
        '[tasks]\ntrain = [{ path = "rows.csv", columns = { prompt = "q" } }, "./folder:a"]\n'
        '[evaluate]\ntasks = "owner/name:test"\n'
    )
    monkeypatch.chdir(tmp_path)
    (settings,) = load_plan(Path("sub/own.toml")).stages
    assert settings.tasks.train == ("sub/rows.csv,prompt=q", "sub/folder:a")
    assert settings.evaluate
    assert settings.evaluate.tasks == ("owner/name:test",)
    assert 'train = ["rows.csv,prompt=q", "./folder:a"]' in " ".join(
        dump(settings, tmp_path / "sub").split()
    ).replace("[ ", "[").replace(", ]", "]")
    words = ["--tasks.train", '{ path = "x.json", columns = { tests = "t" } }']
    (changed,) = load_plan(Path("sub/own.toml"), words).stages
    assert changed.tasks.train == ("x.json,tests=t",)


@pytest.mark.data("humaneval", "mbpp")
@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("humaneval/HumanEval.jsonl.gz",
         "prompt=question,test=checker_code,entry_point=fn,canonical_solution=answer,id=uid"),
        ("mbpp/mbpp.jsonl.gz", "text=question,test_list=checks_of,code=answer,task_id=uid"),
    ],
)  # fmt: skip
def test_public_rows_under_other_names_have_the_tasks_and_verdicts_of_the_set(
    public_data: Path, tmp_path: Path, name: str, columns: str
) -> None:
    pairs = dict(pair.split("=") for pair in columns.split(","))
    names = {"task_id" if field == "id" else field: column for field, column in pairs.items()}
    rows = [dict(row.fields) for row in file_rows(public_data / name)]
    renamed = [{names.get(key, key): value for key, value in row.items()} for row in rows]
    parquet.write_table(pa.Table.from_pylist(renamed), tmp_path / "own.parquet")
    tasks = load(f"{tmp_path}/own.parquet,{columns}")
    assert tasks == load(str(public_data / name))
    jobs = [Job(task, task.reference or "") for task in tasks[:12]]
    assert all(execution.passed for execution in judge_all(jobs))


def test_a_column_that_a_shell_would_run_is_not_offered_to_be_pasted() -> None:
    why = why_no_task({"$(touch x).question": "Write f.", "tests": ["assert f() == 1"]}, "r.jsonl")
    assert "command line" not in why
    offered = why_no_task({"my question": "Write f now.", "tests": ["assert f()"]}, "r s.jsonl")
    assert "'r s.jsonl,prompt=my question'" in offered


def test_a_prompt_that_is_json_by_chance_stays_a_text() -> None:
    assert with_lists({"prompt": '[{"a": 1}]'}) == {"prompt": '[{"a": 1}]'}
    talk = [{"role": "user", "content": "Write f."}]
    assert with_lists({"prompt": json.dumps(talk)}) == {"prompt": talk}
