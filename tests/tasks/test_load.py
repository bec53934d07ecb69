"""Specs, files of the user's, bad rows, and a hub that cannot be reached."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.errors import DataError, SettingsError
from assay.tasks import load, task_sets
from assay.tasks.rows import PublicSet
from assay.types import Call, Check
from tests.tasks import sources

ROW: dict[str, Any] = {
    "id": "a/1",
    "prompt": "Add one.",
    "tests": ["assert inc(1) == 2"],
    "entry_point": "inc",
}


def write(file: Path, *rows: object) -> str:
    text = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n"
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())
    return str(file)


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in ROW.items() if key != name}


def test_the_sets_are_found_by_their_files() -> None:
    assert {"drills", "humaneval", "jsonl", "mbpp", "mbpp_sanitized"} <= set(task_sets)
    assert task_sets.summary("drills").startswith("Generated one-function problems")


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("humanevall", "did you mean 'humaneval'?"),
        ("mbpp:tset", "unknown split 'tset' of mbpp; did you mean 'test'?"),
        ("drills:long", "did you mean 'longer'?"),
        ("humaneval:train", "did you mean 'train131'?"),
        ("jsonl", "jsonl:PATH"),
    ],
)
def test_an_unknown_set_or_split_gets_a_hint(spec: str, hint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(spec)
    assert hint in str(caught.value)


def test_a_limit_keeps_the_first_tasks_and_must_be_positive(tmp_path: Path) -> None:
    file = write(tmp_path / "my.jsonl", ROW, {**ROW, "id": "a/2"}, "not read")
    assert [task.id for task in load(file, limit=2)] == ["a/1", "a/2"]
    with pytest.raises(SettingsError, match="at least 1"):
        load(file, limit=0)


@pytest.mark.parametrize("name", ["my.jsonl", "my.jsonl.gz"])
@pytest.mark.parametrize("prefix", ["", "jsonl:"])
def test_rows_of_your_own_load_from_a_file(tmp_path: Path, name: str, prefix: str) -> None:
    row = {
        **ROW,
        "reference": "def inc(n):\r\n    return n + 1\r\n",
        "demonstrations": ["def inc(n): return n"],
        "setup": "k = 1",
    }
    (task,) = load(prefix + write(tmp_path / name, row, ""))
    assert (task.id, task.prompt, task.entry_point, task.setup) == (
        "a/1",
        "Add one.",
        "inc",
        "k = 1",
    )
    assert task.checks == (Check("assert inc(1) == 2"),)
    assert task.reference == "def inc(n):\n    return n + 1\n"
    assert task.demonstrations == ("def inc(n): return n",)
    assert task.stub == ""


def test_the_entry_point_may_be_left_to_the_reference(tmp_path: Path) -> None:
    row = {
        **without("entry_point"),
        "tests": ["assert len(inc([1])) == 1"],
        "reference": "def inc(n):\n    return n\n",
    }
    assert load(write(tmp_path / "my.jsonl", row))[0].entry_point == "inc"
    boxed = {
        **row,
        "tests": ["assert Box(inc(1)).n == 1"],
        "reference": f"class Box:\n    pass\n{row['reference']}",
    }
    assert load(write(tmp_path / "my.jsonl", boxed))[0].entry_point == "inc"


def test_a_stub_gives_setup_and_completes_the_reference(tmp_path: Path) -> None:
    stub = "import math\n\n\n@staticmethod\ndef inc(n):\n    '''Add one.'''\n"
    (task,) = load(
        write(
            tmp_path / "my.jsonl",
            {**ROW, "prompt": stub, "canonical_solution": "    return n + 1\n"},
        )
    )
    assert task.stub == stub
    assert task.setup == "import math\n"
    assert task.reference == stub + "    return n + 1\n"


HEAD = "import math\n\ndef inc(n):\n"
PROSE = [
    f"Complete the function.\n```python\n{HEAD}```",
    f"```python\n{HEAD}```",
    f"Implement the following signature:\n\n{HEAD}",
    f"Task: add\n\n{HEAD}",
    f"Hint\n\n{HEAD}",
    f"{HEAD}    return ...\n\nReturn the sum.",
    f"~~~\n{HEAD}~~~\n\nWrite no tests.",
]


@pytest.mark.parametrize("prompt", PROSE)
@pytest.mark.parametrize("setup", [{}, {"setup": "k = 1\n"}])
def test_prose_that_shows_a_stub_is_no_stub(
    tmp_path: Path, prompt: str, setup: dict[str, str]
) -> None:
    (task,) = load(write(tmp_path / "my.jsonl", {**ROW, **setup, "prompt": prompt}))
    assert (task.stub, task.setup, task.prompt) == ("", setup.get("setup", ""), prompt)


@pytest.mark.parametrize(
    "stub",
    [
        "def inc(n):",
        "def inc(n):\n    # Add one.\n",
        "def inc(n, mark='#'):\n",
        "# Add one to n.\ndef inc(\n    n: int,\n) -> int:  # or more\n",
        "def inc(n):\n    for step in range(1):\n",
        "class Box:\n    def get(self): ...\n\n\nasync def inc(n):\n\t'''Add.'''\n",
        "\x0cdef inc(n):\n",
    ],
)
def test_code_that_a_completion_continues_is_a_stub(tmp_path: Path, stub: str) -> None:
    (task,) = load(write(tmp_path / "my.jsonl", {**ROW, "prompt": stub}))
    assert task.stub == stub
    (task,) = load(write(tmp_path / "my.jsonl", {**ROW, "prompt": stub, "setup": "k = 1"}))
    assert (task.stub, task.setup) == (stub, "k = 1")


def test_a_solution_completes_the_stub_that_prose_shows(tmp_path: Path) -> None:
    row = {**ROW, "prompt": PROSE[0], "canonical_solution": "    return n + 1\n"}
    (task,) = load(write(tmp_path / "my.jsonl", row))
    assert task.reference == f"{HEAD}    return n + 1\n"


@pytest.mark.parametrize("sign", "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")
def test_a_sign_that_ends_no_line_of_python_cuts_no_stub(tmp_path: Path, sign: str) -> None:
    helper = f"MARK = 'a{sign}b'\n# {sign}\n"
    row = {**ROW, "prompt": f"{helper}def inc(n):\n    '''Add{sign} one.'''\n"}
    assert load(write(tmp_path / "my.jsonl", row))[0].setup == helper


def test_a_test_function_is_called_once(tmp_path: Path) -> None:
    test = "def check(candidate):\n    assert candidate(1) == 2\n"
    file = write(
        tmp_path / "my.jsonl",
        {**without("tests"), "test": test},
        {**without("tests"), "id": "a/2", "test": test + "check(inc)\n"},
        {**without("tests"), "id": "a/3", "test": "assert inc(1) == 2"},
    )
    found = [sources(task) for task in load(file)]
    assert found == [[test + "\n\ncheck(inc)"], [test + "check(inc)\n"], ["assert inc(1) == 2"]]


@pytest.mark.data("humaneval", "mbpp")
def test_files_in_humanevals_and_mbpps_format_load_like_the_sets(public_data: Path) -> None:
    humaneval, mbpp = (
        public_data / "humaneval/HumanEval.jsonl.gz",
        public_data / "mbpp/mbpp.jsonl.gz",
    )
    sanitized = public_data / "mbpp/sanitized-mbpp.json.gz"
    assert load(f"humaneval:{humaneval}") == load("humaneval")
    assert load(f"jsonl:{mbpp}") == load(f"mbpp:{mbpp}") == load("mbpp:all")
    assert load(str(sanitized)) == load("mbpp_sanitized:all")
    for own, published in zip(load(str(humaneval)), load("humaneval"), strict=True):
        assert (own.id, own.stub, own.setup, own.reference) == (
            published.id, published.stub, published.setup, published.reference,
        )  # fmt: skip
        assert own.checks == published.checks


def test_rows_may_have_inputs_with_expected_values_or_a_reference_to_ask(tmp_path: Path) -> None:
    checker = "def check(arguments, value, expected): return True"
    asked = {**without("tests"), "inputs": [[1], [{"a": None}]]}
    file = write(
        tmp_path / "my.jsonl",
        {**asked, "expected": [2.5, None], "tolerance": 0, "checker": checker},
        {**asked, "id": "a/2", "reference": "def inc(n): return n"},
        {**asked, "id": "a/3", "expected": [[1], "x"], "tests": ["assert inc(1)"]},
    )
    given, left, both = load(file)
    assert given.checks == (Call("[1]", "2.5", 0), Call('[{"dict":["a",null]}]', "null", 0))
    assert given.checker == checker
    assert left.checks == (Call("[1]", None, 1e-6), Call('[{"dict":["a",null]}]', None, 1e-6))
    assert both.checks == (
        Check("assert inc(1)"), Call("[1]", "[1]", 1e-6), Call('[{"dict":["a",null]}]', '"x"', 1e-6)
    )  # fmt: skip


CALLS = {**without("tests"), "inputs": [[1]], "expected": [2]}


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({**CALLS, "inputs": []}, "'inputs' is no list of argument lists"),
        ({**CALLS, "inputs": [1]}, "'inputs' is no list of argument lists"),
        ({**CALLS, "inputs": "[1]"}, "'inputs' is no list of argument lists"),
        ({**CALLS, "expected": [2, 3]}, "'expected' is no list of 1 values"),
        ({**CALLS, "expected": 2}, "'expected' is no list of 1 values"),
        ({**CALLS, "expected": None}, "neither 'expected' nor a 'reference'"),
        ({**CALLS, "tolerance": "0.1 mm"}, "'tolerance' is '0.1 mm'"),
        ({**CALLS, "tolerance": -1}, "'tolerance' is -1"),
        ({**CALLS, "tolerance": True}, "'tolerance' is True"),
        ({**CALLS, "checker": "check = 1 +"}, "'checker' is no valid Python"),
        (
            {**CALLS, "checker": "def chek(a, v, e): return True"},
            "'checker' defines no function 'check",
        ),
        ({**CALLS, "entry_point": None}, "'entry_point' is missing"),
        ("{", "no valid JSON"),
        ("[1]", "a row is a JSON object, not a list"),
        ({**ROW, "id": [1]}, "the id is '[1]'; make it a string or a whole number"),
        ({**ROW, "language": "lua"}, "'language': the language 'lua' cannot be judged"),
        ({**CALLS, "language": "lua"}, "the language 'lua' cannot be judged"),
        ({"prompt": "p", "completion": ""}, "has nothing to learn from"),
        ({"messages": "Hi"}, "'messages' 1 holds {}; make it a list of messages"),
        ({"messages": [{"role": "robot", "content": "1"}]}, "'messages' 1 holds {'role': 'robot'"),
        ({"messages": [{"role": "user", "content": "Hi"}]}, "no answer of the assistant"),
        (without("prompt"), "no prompt among the columns id, tests, entry_point; "),
        (without("tests"), "no tests among the columns id, prompt, entry_point; "),
        ({**ROW, "test": "assert True"}, "give either 'tests'"),
        ({**ROW, "tests": []}, "has no tests"),
        ({**ROW, "tests": [" "]}, "has no tests"),
        (
            {**ROW, "tests": "assert inc(1) == 2"},
            "'tests' is a str (assert inc(1) == 2); make it a list of strings",
        ),
        ({**ROW, "tests": ["assert inc(1) =="]}, "'tests' is no valid Python"),
        (without("entry_point"), "'entry_point' is missing"),
        ({**ROW, "entry_point": 3}, "'entry_point' is a int (3); make it a string"),
        ({**ROW, "stub": "def inc(:"}, "'stub' is no valid Python"),
        (
            {"task_id": 1, "text": "t", "code": "def f(): 0", "test_list": []},
            "'test_list' is empty",
        ),
        (
            {"task_id": 1, "text": "t", "code": "def f(): 0", "test_list": ["assert g()"]},
            "calls no function",
        ),
        (
            {"task_id": 1, "code": "def f(): 0", "test_list": ["assert f()"]},
            "no prompt among the columns task_id, code, test_list; ",
        ),
    ],
)
def test_a_bad_row_is_blamed_with_file_line_and_remedy(
    tmp_path: Path, row: object, why: str
) -> None:
    file = write(tmp_path / "my.jsonl", {**ROW, "id": "good"}, "", row)
    with pytest.raises(DataError) as caught:
        load(file)
    message = str(caught.value)
    assert message.startswith(f"{file}, line 3: ")
    assert why in message
    assert "\n" not in message


def test_files_that_are_missing_empty_or_broken_are_named(tmp_path: Path) -> None:
    for name, content, why in (
        ("none.jsonl", None, "does not exist"),
        ("empty.jsonl", b"\n", "holds no tasks"),
        ("torn.jsonl.gz", gzip.compress(b"{}" * 99)[:-9], "cannot be read"),
        ("latin.jsonl", b"\xff\xfe\xfa", "cannot be read"),
        ("object.json", b"{}", "no prompt and no tests among the columns of this row; "),
    ):
        file = tmp_path / name
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(DataError) as caught:
            load(str(file))
        assert str(file) in str(caught.value)
        assert why in str(caught.value)


def test_an_id_may_not_occur_twice(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="row 2: the id 'a/1' occurs twice"):
        load(write(tmp_path / "my.jsonl", ROW, ROW))


def test_a_public_set_that_is_nowhere_says_where_it_was_sought(tmp_path: Path) -> None:
    code = (
        "import assay.tasks as t, assay.errors as e\ntry: t.load('mbpp')\nexcept e.DataError as"
        " error: print(error)"
    )
    environment = {
        "HF_HUB_OFFLINE": "1",
        "ASSAY_DATA": str(tmp_path),
        "HF_HOME": str(tmp_path),
        "PATH": "",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.count("\n") == 1
    assert done.stdout.startswith("google-research-datasets/mbpp cannot be loaded from the hub (")
    assert (
        f"{tmp_path / 'mbpp/mbpp.jsonl.gz'} does not exist; go online, or set ASSAY_DATA"
        in done.stdout
    )


def test_rows_from_the_hubs_client_are_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASSAY_DATA", raising=False)
    (tmp_path / "set").mkdir()
    write(tmp_path / "set" / "test.jsonl", {"task_id": "x", "n": 1}, {"task_id": "y", "n": 2})
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    rows = list(PublicSet("absent", "absent", str(tmp_path / "set")).rows("all"))
    assert [dict(row.fields) for row in rows] == [
        {"task_id": "x", "n": 1},
        {"task_id": "y", "n": 2},
    ]
    assert rows[1].where == f"{tmp_path / 'set'}, test row 2"


def test_a_data_folder_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="is no folder"):
        load("humaneval")


def test_a_set_may_read_one_of_the_hubs_splits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASSAY_DATA", raising=False)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    hub = tmp_path / "hub"
    hub.mkdir()
    for split in ("train", "test"):
        (hub / f"{split}.jsonl").write_text(f'{{"split": "{split}"}}\n')
    both = PublicSet("own", "none.jsonl", str(hub))
    one = PublicSet("own", "none.jsonl", str(hub), splits=("test",), part="test")
    assert [row.fields["split"] for row in both.rows("all")] == ["train", "test"]
    (row,) = one.rows("test")
    assert (row.fields["split"], row.place) == ("test", "test_row_1")
