"""Repositories of public sets: each format's rows, what they need, and how they are refused."""

from __future__ import annotations

import json
import os
import venv
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from assay.errors import DataError
from assay.judge import Job, Judge
from assay.judge.patches import unified
from assay.tasks import exact, load
from assay.tasks.nemo_gym import set_of
from assay.tasks.repository import without_time
from assay.tasks.rows import Row, warn_once
from assay.types import Execution, RepositoryTests, Task, Verdict
from tests.environments.repositories import FIX, FIXED, SOURCE, TESTS
from tests.judge.opened import with_judge
from tests.repositories import copy_pytest

NAME = "owner__calc-1"
ADD, TWICE = "tests/test_calc.py::test_add", "tests/test_calc.py::test_twice"
TEST_PATCH = unified({}, {"tests/test_calc.py": TESTS})
BASE = {"instance_id": NAME, "repo": "owner/calc", "base_commit": "1" * 40, "patch": FIX,
        "test_patch": TEST_PATCH, "problem_statement": "add subtracts.", "version": "1.0",
        "hints_text": "", "created_at": "2024-03-01T10:00:00Z", "difficulty": "<15 min fix",
        "environment_setup_commit": "2" * 40,
        "FAIL_TO_PASS": json.dumps([ADD]), "PASS_TO_PASS": json.dumps([TWICE])}  # fmt: skip
LISTS = BASE | {"FAIL_TO_PASS": [ADD], "PASS_TO_PASS": [TWICE]}
BUG = unified({"calc.py": FIXED}, {"calc.py": SOURCE})
PROMPT = {"input": [{"role": "user", "content": "Repair add."}]}
WRAPPED = {"responses_create_params": {
    "input": [], "metadata": {"instance_dict": json.dumps(LISTS)}}}  # fmt: skip
"""As NeMo Gym's agents have it."""
FORMATS: dict[str, dict[str, Any]] = {
    "swe_bench": BASE,
    "swe_gym": BASE | {"FAIL_TO_PASS": str([ADD]), "PASS_TO_PASS": str([TWICE])},
    "swe_smith": LISTS | {"repo": "swesmith/owner__calc.12345678", "patch": BUG,
                          "image_name": "swesmith.x86_64.owner__calc.12345678"},
    "swe_rebench": LISTS | {"language": "python", "image_name": "swerebench/calc",
                            "created_at": 1_700_000_000_000, "install_config": {
                                "base_image_name": "python_base_310", "test_cmd": ["pytest -rA"],
                                "install": ["pip install -e ."], "log_parser": "pytest"}},
    "r2e_gym": {"repo_name": "calc", "docker_image": "calc_final:1", "commit_hash": "1" * 40,
                "instance_id": NAME, "problem_statement": "add subtracts.",
                "patch": TEST_PATCH + FIX, "expected_output_json": json.dumps(
                    {"\x1b[1mtest_add\x1b[0m": "PASSED", "test_twice": "PASSED", "x": "SKIPPED"})},
    "swe_polybench": {
        **{key: value for key, value in BASE.items() if not key.endswith("_TO_PASS")},
        "F2P": str([f"{ADD} (0.01s)"]), "P2P": json.dumps([f"{TWICE} [12 ms]"]),
        "language": "Python", "Dockerfile": "FROM python:3.9", "test_command": "pytest -rA",
        "task_category": "Bug Fix"},
    "multi_swe_bench": {
        "org": "owner", "repo": "calc", "number": 1, "state": "closed", "title": "Fix add",
        "body": "", "base": {"label": "owner:main", "ref": "main", "sha": "1" * 40},
        "resolved_issues": [{"number": 2, "title": "add", "body": "It subtracts."}],
        "fix_patch": FIX, "test_patch": TEST_PATCH,
        "f2p_tests": {ADD: {"run": "FAIL", "test": "FAIL", "fix": "PASS"}},
        "p2p_tests": {TWICE: {"run": "PASS", "test": "PASS", "fix": "PASS"}},
        "s2p_tests": {}, "n2p_tests": {}, "fixed_tests": {}},
    "swerl_gen": {"instance": BASE, "metadata": {"image": "/images/calc.sif"}, "mode": "eval",
                  "responses_create_params": PROMPT},
}  # fmt: skip
"""A row of each format."""
IMAGES = {
    "swe_bench": "swebench/sweb.eval.x86_64.owner_1776_calc-1:latest",
    "swe_gym": "xingyaoww/sweb.eval.x86_64.owner_s_calc-1:latest",
    "swe_smith": "swesmith.x86_64.owner__calc.12345678", "swe_rebench": "swerebench/calc",
    "swe_polybench": "polybench_python_owner__calc-1",
    "multi_swe_bench": "mswebench/owner_m_calc:pr-1", "r2e_gym": "calc_final:1",
    "swerl_gen": "/images/calc.sif",
}  # fmt: skip


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of trees, which has the one of the rows."""
    folder = tmp_path / "trees"
    (folder / NAME).mkdir(parents=True)
    (folder / NAME / "calc.py").write_text(SOURCE)
    (folder / NAME / "tests").mkdir()
    monkeypatch.setenv("ASSAY_TREES", str(folder))
    return folder


def file_of(folder: Path, *rows: dict[str, Any]) -> Path:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def verdict(task: Task, program: str) -> Execution:
    async def run(judge: Judge) -> Execution:
        return await judge.run(Job(task, program))

    return with_judge(run)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] * (at > 1)) for at, name in enumerate(FORMATS)],
)
def test_a_row_with_its_tree_is_a_task_that_is_graded_and_round_trips(
    name: str, trees: Path, tmp_path: Path
) -> None:
    row = FORMATS[name]
    if name == "swe_smith":  # its tests lie in the tree
        (trees / NAME / "tests" / "test_calc.py").write_text(TESTS)
    (task,) = load(f"{name}:{file_of(tmp_path, row)}")
    (check,) = task.checks
    assert isinstance(check, RepositoryTests)
    assert (*check.fail_to_pass, *check.pass_to_pass) == (ADD, TWICE)
    assert task.reference
    assert verdict(task, task.reference).verdict is Verdict.PASS
    assert verdict(task, "").verdict is not Verdict.PASS
    assert exact.task_of(Row(json.loads(json.dumps(exact.row_of(task))), "x, line 1")) == task
    assert [message.content for message in task.messages] == ["Repair add."] * (name == "swerl_gen")


@pytest.mark.parametrize("name", FORMATS)
def test_a_row_without_its_tree_is_refused_by_the_image_that_it_needs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASSAY_TREES", raising=False)
    with pytest.raises(DataError) as caught:
        load(f"{name}:{file_of(tmp_path, FORMATS[name])}")
    message = str(caught.value)
    assert f"{NAME} needs the image {IMAGES[name]}, " in message
    is_file = IMAGES[name].startswith("/")
    assert ("apptainer build" if is_file else f"`podman pull {IMAGES[name]}`") in message
    assert f"$ASSAY_TREES/{NAME}" in message
    assert "\n" not in message


def test_a_row_whose_tests_need_packages_is_judged_with_the_virtual_environment_beside_its_tree(
    trees: Path, tmp_path: Path
) -> None:
    venv.create(trees / f"{NAME}.venv", symlinks=True)
    (packages,) = (trees / f"{NAME}.venv").glob("lib/python3*/site-packages")
    copy_pytest(packages)
    (packages / "sums.py").write_text("def three():\n    return 3\n")
    tests = TESTS.replace("== 3", "== three()") + "\n\nfrom sums import three\n"
    row = LISTS | {"test_patch": unified({}, {"tests/test_calc.py": tests})}
    (task,) = load(f"swe_bench:{file_of(tmp_path, row)}")
    assert verdict(task, FIX).verdict is Verdict.PASS
    assert verdict(task, "").verdict is Verdict.WRONG
    (packages / "sums.py").unlink()
    (task,) = load(f"swe_bench:{file_of(tmp_path, row)}")
    assert verdict(task, FIX).verdict is not Verdict.PASS


def test_rows_without_a_tree_are_left_out_where_others_have_theirs(
    trees: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = file_of(tmp_path, BASE, BASE | {"instance_id": "owner__calc-2"})
    assert [task.id for task in load(f"swe_bench:{rows}")] == [NAME]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("swe_bench", {"repo": "swesmith/owner__calc.1"}, "read it as swe_smith"),
        ("swe_gym", {"repo": "swesmith/owner__calc.1"}, "read it as swe_smith"),
        ("swe_smith", {"repo": "owner/calc"}, "here `patch` makes the bug"),
        ("swe_smith", {"patch": "no diff"}, "'patch': it is no unified diff"),
        ("swe_smith", {"patch": FIX}, "calc-1 holds the fix already"),
        ("swe_bench", {"patch": BUG}, "calc-1 holds the fix already"),
        ("swe_bench", {"patch": FIX.replace("calc.py", "x.py")}, "does not fit"),
        ("swe_bench", {"FAIL_TO_PASS": "['a'"}, "no list of tests' ids"),
        ("swe_bench", {"FAIL_TO_PASS": "[1]"}, "make it a list of strings"),
        ("swe_bench", {"FAIL_TO_PASS": ["test_add (calc.Tests)"]}, "holds no tasks"),
        ("swe_rebench", {"language": "go"}, "holds no tasks"),
        (
            "r2e_gym",
            {"expected_output_json": "["},
            "'expected_output_json' is a str .*make it an object",
        ),
        ("swerl_gen", {"mode": "repro-gen"}, "holds no tasks"),
    ],
)
def test_a_row_that_is_wrong_or_the_wrong_way_round_is_refused(
    name: str, change: dict[str, Any], message: str, trees: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(f"{name}:{file_of(tmp_path, FORMATS[name] | change)}")
    assert "\n" not in str(caught.value)


HOSTILE: list[Any] = [
    None, 0, True, 1e999, [], {}, "", "x", "a\nb\x00c\r", "../../etc", "y" * 5000, "[" * 100_000,
    [[1]], ["a\nb"], {"a": [0]}, "\ud800", '[["a", 1]]', '{"a": {"b": 1}}', "{1: 2}", "['a', 'b']",
]  # fmt: skip


def changed(value: Any) -> Iterator[Any]:
    """A row with one of its values, at any depth, replaced by each hostile one, or left out."""
    if isinstance(value, dict):
        for name in value:
            rest = {key: one for key, one in value.items() if key != name}
            yield rest
            yield from (rest | {name: one} for one in (*HOSTILE, *changed(value[name])))
    elif isinstance(value, list) and value:
        yield from ([one, *value[1:]] for one in (*HOSTILE, *changed(value[0])))


@pytest.mark.parametrize("name", [*FORMATS, "wrapped", "in parts"])
def test_a_row_with_any_hostile_value_is_a_task_or_refused_in_one_line(
    name: str, trees: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    row = {"wrapped": WRAPPED, "in parts": IN_PARTS, **FORMATS}[name]
    spec = {"wrapped": "swe_bench", "in parts": "r2e_gym"}.get(name, name)
    for one in changed(row):
        refused = ["one line"]
        try:
            assert load(f"{spec}:{file_of(tmp_path, one)}")
        except DataError as error:
            refused = str(error).splitlines()
        except Exception as error:
            raise AssertionError(ascii(one)[:200]) from error
        assert len(refused) == 1, ascii(one)[:200]
    caplog.text.encode()


def hunk(path: str, before: str, after: str) -> dict[str, Any]:
    """A file that changes, as R2E-Gym has it."""
    sides = (("deleted", before), ("added", after))
    lines = [
        {"type": kind, "content": line} for kind, text in sides for line in text.split("\n")[:-1]
    ]
    counts = [{"start": 1 if text else 0, "length": len(text.splitlines())} for _, text in sides]
    names = [
        f"{side}/{path}" if text else "/dev/null" for side, text in (("a", before), ("b", after))
    ]
    return {
        "header": {"file": {"path": path}}, "minus_file": {"path": names[0]},
        "plus_file": {"path": names[1]}, "is_binary_file": False,
        "hunks": [{"descriptor": {"old_range": counts[0], "new_range": counts[1], "section": ""},
                   "line_group": {"all_lines": lines}}],
    }  # fmt: skip


IN_PARTS = {name: value for name, value in FORMATS["r2e_gym"].items() if name != "patch"} | {
    "parsed_commit_content": json.dumps({"file_diffs": [
        hunk("tests/test_calc.py", "", TESTS), hunk("calc.py", SOURCE, FIXED),
        {"header": {"file": {"path": "a.png"}}, "hunks": []}]})}  # fmt: skip
"""As R2E-Gym publishes it; NeMo Gym makes a patch of the parts."""
PRO = {name: value for name, value in BASE.items() if not name.endswith("PASS")} | {
    "repo_language": "python", "dockerhub_tag": "calc.1", "fail_to_pass": str([ADD]),
    "pass_to_pass": json.dumps([TWICE])}  # fmt: skip
"""As SWE-bench Pro has it."""
QUOTED = BASE | {"FAIL_TO_PASS": f'["{ADD}"]', "PASS_TO_PASS": f"""["{TWICE}", 'a"b::c']"""}


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "row"), [("r2e_gym", IN_PARTS), ("swe_bench", PRO), ("swe_gym", QUOTED)]
)
def test_a_row_in_another_published_shape_is_the_same_task(
    name: str, row: dict[str, Any], trees: Path, tmp_path: Path
) -> None:
    (task,) = load(f"{name}:{file_of(tmp_path, row)}")
    (check,) = task.checks
    assert isinstance(check, RepositoryTests)
    assert (*check.fail_to_pass, *check.pass_to_pass)[:2] == (ADD, TWICE)
    if row is not QUOTED:
        (known,) = load(f"{name}:{file_of(tmp_path, FORMATS[name])}")
        assert (task.id, task.prompt) == (known.id, known.prompt)
        assert verdict(task, task.reference or "").verdict is Verdict.PASS
        assert verdict(task, "").verdict is not Verdict.PASS


def test_a_language_that_pro_names_is_left_out_and_its_image_is_named(
    trees: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match="holds no tasks"):
        load(f"swe_bench:{file_of(tmp_path, PRO | {'repo_language': 'go'})}")
    with pytest.raises(DataError, match="holds no tasks"):
        load(f"swe_smith:{file_of(tmp_path, FORMATS['swe_smith'] | {'problem_statement': ''})}")
    monkeypatch.delenv("ASSAY_TREES")
    with pytest.raises(DataError, match=r"needs the image calc\.1, which"):
        load(f"swe_bench:{file_of(tmp_path, PRO)}")


def folder_of_version_5(folder: Path, **files: str) -> Path:
    """A set with one task, some of whose files have other texts."""
    home = folder / "tasks" / NAME
    home.mkdir(parents=True)
    texts = {"task.yaml": f"instance_id: {NAME}\nrepo: owner/calc\nimage: own/calc\n"
                          "difficulty: <15 min fix\n",
             "tests.json": json.dumps({"FAIL_TO_PASS": [ADD], "PASS_TO_PASS": [TWICE]}),
             "gold.patch": FIX, "test.patch": TEST_PATCH, "problem_statement.md": "add subtracts.",
             "eval.sh": "pytest\n"}  # fmt: skip
    for name, text in (texts | files).items():
        (home / name).write_bytes(text.encode())
    return folder


def test_a_folder_of_swe_bench_5_is_read(
    trees: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = folder_of_version_5(tmp_path / "set") / "tasks" / NAME
    assert load(f"swe_bench:{tmp_path / 'set'}") == load(f"swe_bench:{file_of(tmp_path, LISTS)}")
    monkeypatch.delenv("ASSAY_TREES")
    with pytest.raises(DataError, match=f"{NAME} needs the image own/calc, which is not"):
        load(f"swe_bench:{tmp_path / 'set'}")
    (home / "gold.patch").unlink()
    with pytest.raises(DataError, match="not a task of SWE-bench 5"):
        load(f"swe_bench:{tmp_path / 'set'}")


CRLF = {name: text.replace("\n", "\r\n") for name, text in
        (("bug", SOURCE), ("fixed", FIXED), ("tests", TESTS))}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("form", ["rows", "a folder", "r2e_gym", "in parts"])
def test_a_fix_of_a_file_with_carriage_returns_keeps_them(
    form: str, trees: Path, tmp_path: Path
) -> None:
    (trees / NAME / "calc.py").write_bytes(CRLF["bug"].encode())
    fix = unified({"calc.py": CRLF["bug"]}, {"calc.py": CRLF["fixed"]})
    tests = unified({}, {"tests/test_calc.py": CRLF["tests"]})
    row, name = LISTS | {"patch": fix, "test_patch": tests}, "swe_bench"
    if form == "a folder":
        file = folder_of_version_5(tmp_path / "set", **{"gold.patch": fix, "test.patch": tests})
    else:
        if form != "rows":
            name, row = "r2e_gym", FORMATS["r2e_gym"] | {"patch": tests + fix}
        if form == "in parts":
            row = IN_PARTS | {"parsed_commit_content": json.dumps({"file_diffs": [
                hunk("tests/test_calc.py", "", CRLF["tests"]),
                hunk("calc.py", CRLF["bug"], CRLF["fixed"])]})}  # fmt: skip
        file = file_of(tmp_path, row)
    (task,) = load(f"{name}:{file}")
    assert verdict(task, task.reference or "").verdict is Verdict.PASS


def test_a_row_with_binary_files_is_left_out_and_says_so(
    trees: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = folder_of_version_5(tmp_path / "set")
    (home / "tasks" / NAME / "test_assets" / "img").mkdir(parents=True)
    (home / "tasks" / NAME / "test_assets" / "img" / "a.png").write_bytes(b"\x89PNG")
    row = BASE | {"image_assets": json.dumps({"test_patch": [{"path": "a.png"}]})}
    for spec in (home, file_of(tmp_path, row)):
        caplog.clear()
        with pytest.raises(DataError, match="holds no tasks"):
            load(f"swe_bench:{spec}")
        assert "1 with binary files that no diff holds" in caplog.text
    row |= {"image_assets": json.dumps({"problem_statement": ["b.png"], "patch": []})}
    assert [task.id for task in load(f"swe_bench:{file_of(tmp_path, row)}")] == [NAME]


def test_a_row_inside_one_of_nemo_gyms_is_read(trees: Path, tmp_path: Path) -> None:
    wrapped = load(f"swe_bench:{file_of(tmp_path, WRAPPED)}")
    assert wrapped == load(f"swe_bench:{file_of(tmp_path, LISTS)}")


def harbor_task(folder: Path, more: str = "") -> Path:
    home = folder / "harbor" / NAME
    (home / "tests").mkdir(parents=True)
    (home / "task.toml").write_text(f'schema_version = "1.4"\n[agent]\ntimeout_sec = 9.0\n{more}')
    (home / "instruction.md").write_text("add subtracts.")
    (home / "tests" / "test.sh").write_text("curl -LsSf https://example.com | sh\n")
    return folder / "harbor"


HARBOR = """
[verifier]
timeout_sec = 600.0
environment_mode = "separate"
[[verifier.collect]]
source = "/app"
[environment]
docker_image = "calc:1"
cpus = 1
memory_mb = 2048
network_mode = "none"
[[steps]]
name = "repair"
"""
"""What else task.toml has in version 1.4."""


def test_a_task_of_harbors_that_names_its_tests_is_judged(trees: Path, tmp_path: Path) -> None:
    (trees / NAME / "tests" / "test_calc.py").write_text(TESTS)
    ids = f'[metadata.maker.tests]\nfail_to_pass = ["{ADD}"]\npass_to_pass = ["{TWICE}"]\n'
    (task,) = load(f"harbor:{harbor_task(tmp_path, ids + HARBOR)}")
    assert task.prompt == "add subtracts."
    assert verdict(task, FIX).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("more", "needs"),
    [
        ('[metadata]\nfail_to_pass = ["t.py::t"]\n[environment]\ndocker_image = "calc:1"\n',
         "the image calc:1, which is not here"),
        ("", "a network"),
    ],
)  # fmt: skip
def test_a_task_of_harbors_that_is_not_whole_here_is_refused(
    more: str, needs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASSAY_TREES", raising=False)
    with pytest.raises(DataError, match=f"{NAME} needs {needs}"):
        load(f"harbor:{harbor_task(tmp_path, more)}")


@pytest.mark.data("swe", "nemo_gym", "harbor")
@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("swe_bench:{}/swe/swe_bench.jsonl", "astropy__astropy-12907"),
        ("swe_bench:{}/swe/swe_bench_lists.jsonl", "sphinx-doc__sphinx-8595"),
        ("swe_bench:{}/swe/swe_agents.jsonl", "astropy__astropy-12907"),
        ("swe_bench:{}/swe/anyswe_agent.jsonl", "astropy__astropy-12907"),
        ("swe_gym:{}/nemo_gym/mini_swe_agent/example.jsonl", "getmoto__moto-7365"),
        ("swe_smith:{}/swe/swe_smith.jsonl", "pandas-dev__pandas.95280573.pr_53652"),
        ("r2e_gym:{}/swe/r2e_gym.jsonl", "pillow__6e97dd5c"),
        ("swerl_gen:{}/nemo_gym/swerl_gen/example.jsonl.gz", "python__mypy-17071"),
        ("harbor:{}/harbor", "hello-mcp needs servers of tools"),
    ],
)
def test_published_rows_are_read_and_name_their_image(
    spec: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASSAY_TREES", raising=False)
    with pytest.raises(DataError, match=name):
        load(spec.format(os.environ["ASSAY_DATA"]))


@pytest.mark.parametrize(
    ("name", "row", "language"),
    [
        ("multi_swe_bench", {"fix_patch": unified({"a.go": "a"}, {"a.go": "b"})}, "in Go"),
        ("multi_swe_bench", {"f2p_tests": {"com.owner.CalcTest": {}}}, "no ids of pytest"),
        ("swe_polybench", {"language": "Java"}, "in Java"),
        ("swe_rebench", {"language": "rust"}, "in rust"),
        ("swe_polybench", {"problem_statement": " "}, "without a statement"),
    ],
)
def test_a_row_that_pytest_cannot_judge_asks_for_no_image(
    name: str, row: dict[str, Any], language: str, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    warn_once.__globals__["_warned"].clear()
    with pytest.raises(DataError, match="holds no tasks"):
        load(f"{name}:{file_of(tmp_path, FORMATS[name] | row)}")
    assert language in caplog.text


@pytest.mark.parametrize(
    ("test", "name"),
    [
        (f"{ADD} (0.01s)", ADD), (f"{ADD} [12 ms]", ADD), (f"{ADD} (1 seconds)", ADD),
        (f"{ADD}  0.5s", ADD), ("t.py::test[a (1 s)]", "t.py::test[a (1 s)]"),
        ("t.py::test[wait 3 s]", "t.py::test[wait 3 s]"), ("t.py::test[a b] (2.5 s)",
        "t.py::test[a b]"), ("t.py::test_3s", "t.py::test_3s"),
        ("t.py::test[it takes 3 s", "t.py::test[it takes 3 s"),
    ],
)  # fmt: skip
def test_the_time_of_a_test_is_no_part_of_its_id(test: str, name: str) -> None:
    assert without_time(test) == name


NEMO_GYM = {
    "swerl_gen": FORMATS["swerl_gen"],
    "swe_bench": WRAPPED,
    "nemo_gym": {"responses_create_params": PROMPT, "verifier_metadata": {"unit_tests": {}}},
    "bigcodebench": {"responses_create_params": PROMPT, "verifier_metadata": {"code_prompt": "x"}},
    "nemo_gym_math": {"responses_create_params": PROMPT, "question": "1+1", "expected_answer": 2},
    "": {"responses_create_params": PROMPT, "expected_result": "32", "expected_code_contains": ""},
}


@pytest.mark.parametrize("name", NEMO_GYM)
def test_a_refusal_of_nemo_gyms_rows_leads_to_the_set_that_reads_them(
    name: str, tmp_path: Path
) -> None:
    file = file_of(tmp_path, NEMO_GYM[name])
    hint = f"read it as the task set {name}:" if name else "which assay does not run"
    for spec in (str(file), f"nemo_gym:{file}") if name != "nemo_gym" else (str(file),):
        with pytest.raises(DataError) as caught:
            load(spec)
        assert hint in str(caught.value)
    if name:  # the set that is named does not send it on
        with suppress(DataError):
            load(f"{name}:{file}")
        assert set_of(Row(NEMO_GYM[name], "x, line 1")) == name
