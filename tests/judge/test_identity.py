"""Whatever decides a verdict is part of its key, and nothing that is only shown is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from assay import languages as languages_file
from assay.checks import (
    Answer,
    Call,
    Check,
    Exchange,
    Harness,
    OwnTests,
    PrintTest,
    Reported,
    RepositoryTests,
    TestBench,
    TestFunctions,
    TestScript,
)
from assay.errors import DataError
from assay.judge import identity
from assay.judge.identity import codes_of
from assay.judge.kinds.kind import KINDS, EachCheck
from assay.judge.prepared_task import NO_FEATURES, PreparedTask
from assay.judges.terms import common_terms, sendable
from assay.languages import language_named
from assay.plugin_code import code_of
from assay.registry import load_plugins
from assay.sandbox.limits import Limits
from assay.types import Message, Task, Verdict

INC = Task("inc", "p", (Check("assert f(1) == 2"),), "f")
NODES = "class Node:\n    def f(self): return 1"


def key(task: Task, limits: Limits | None = None, stop_early: bool = True) -> bytes:
    return PreparedTask(task, limits or Limits(), stop_early).key("def f(x): return x + 1")


TASKS: dict[str, tuple[Task, dict[str, Any]]] = {
    "entry point": (INC, {"entry_point": "g"}),
    "setup": (INC, {"setup": "import math"}),
    "reference": (INC, {"reference": "def f(x): return x + 1"}),
    "hash seed": (INC, {"hash_seed": 3}),
    "large": (INC, {"large": True}),
    "checker of calls": (replace(INC, checks=(Call("[1]", "2"),)),
                         {"checker": "def check(a, b): return True"}),
    "comparator of exchanges": (replace(INC, checks=(Exchange("", "1.0"),)), {"checker": "floats"}),
    "order of checks": (replace(INC, checks=(Check("f(1)"), Check("f(2)"))),
                        {"checks": (Check("f(2)"), Check("f(1)"))}),
    "number of checks": (INC, {"checks": (*INC.checks, *INC.checks)}),
    "language": (replace(INC, checks=(Exchange("", ""),)), {"language": "cpp"}),
    "stub that shows a class": (replace(INC, setup=NODES), {"stub": "class Node: ..."}),
    "prompt that shows a class": (replace(INC, setup=NODES), {"prompt": "Here is Node."}),
    "message that shows a class": (replace(INC, setup=NODES),
                                   {"messages": (Message("user", "Node"),)}),
}  # fmt: skip
"""A task, and a change of it that may decide."""


@pytest.mark.parametrize("name", TASKS)
def test_each_field_of_a_task_that_decides_is_part_of_the_key(name: str) -> None:
    task, change = TASKS[name]
    assert key(replace(task, **change)) != key(task)


CHECKS: list[tuple[Any, str, dict[str, Any]]] = [
    (Check("f(1)"), "", {"source": "f(2)", "hidden": False}),
    (Call("[1]", "2"), "", {"arguments": "[2]", "expected": "3", "tolerance": 0.1,
                            "hidden": False}),
    (Exchange("1", "2"), "", {"stdin": "2", "stdout": "3", "hidden": False}),
    (PrintTest("print(1)", "1"), "", {"code": "print(2)", "prints": "2", "hidden": False}),
    (OwnTests("f(1)"), "", {"after": "f(2)", "before": "x = 1", "beside": "y", "hidden": False}),
    (TestFunctions("def test_f(): f(1)\n"), "", {"module": "def test_f(): f(2)\n",
                                                "hidden": False}),
    (Answer("1"), "answer", {"answer": "2", "exact": True, "ordered": True, "hidden": False}),
    (Reported("a"), "", {"task_data": "b", "hidden": False}),
    (TestBench("a", "m", ""), "verilog", {"bench": "b", "design": "n", "expected": "1",
                                          "passes": "ok", "data": {"a": "1"}, "hidden": False}),
]  # fmt: skip
"""A check of each kind, its language, and another value of each of its fields."""


@pytest.mark.parametrize(("check", "language", "changes"), CHECKS, ids=lambda each: str(each)[:12])
def test_each_field_of_a_check_is_part_of_the_key(
    check: Any, language: str, changes: Mapping[str, Any]
) -> None:
    task = replace(INC, checks=(check,), language=language or "python")
    try:
        usual = key(task)
    except DataError as error:
        pytest.skip(str(error))  # its tools are not installed
    assert changes.keys() == {*check.__dataclass_fields__}
    for name, value in changes.items():
        assert key(replace(task, checks=(replace(check, **{name: value}),))) != usual, name


def test_these_are_all_kinds_and_all_fields_of_limits() -> None:
    others = {RepositoryTests, Harness, TestScript}  # test_changed_files, _harness, _test_scripts
    ours = {each for each in KINDS if each.__module__.startswith("assay.")}
    assert {type(check) for check, _, _ in CHECKS} | others == ours
    for name in Limits.__dataclass_fields__:
        limits = replace(Limits(), **{name: getattr(Limits(), name) * 2})
        assert key(INC, limits) != key(INC), name
    assert key(INC, stop_early=False) != key(INC)


def test_what_is_only_shown_is_no_part_of_it() -> None:
    shown = replace(INC, id="y", prompt="x", stub="s", tags={"a": "b"}, demonstrations=("d",))
    assert key(shown) == key(INC)


def with_tool(monkeypatch: pytest.MonkeyPatch, said: str, content: str) -> bytes:
    monkeypatch.setattr(languages_file, "tool_path", lambda tool, _: f"/usr/bin/{tool}")
    monkeypatch.setattr(languages_file, "content_of", lambda _: content)
    monkeypatch.setattr(languages_file, "version", lambda *_: said)
    monkeypatch.setattr(languages_file, "newest_standard", lambda *_: said[-7:])
    return key(replace(INC, checks=(Exchange("", ""),), language="cpp"))


def test_a_compilers_version_its_content_and_the_standard_are_part_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = [with_tool(monkeypatch, said, content) for said, content in (
        ("g++ 12 gnu++23", "a"), ("g++ 13 gnu++23", "a"), ("g++ 12 gnu++20", "a"),
        ("g++ 12 gnu++23", "b"),
    )]  # fmt: skip
    assert len(set(keys)) == 4


@pytest.mark.parametrize(
    ("language", "tool"),
    [("java", "javac"), ("java", "java"), ("verilog", "iverilog"), ("verilog", "vvp"),
     ("typescript", "tsc"), ("typescript", "node"), ("go", "go"), ("cpp", "g++"),
     ("java", "/bin/sh")],
)  # fmt: skip
def test_each_tool_that_a_language_starts_is_part_of_it(
    language: str, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that a script of ours starts, too."""
    contents = dict[str, str]()
    monkeypatch.setattr(languages_file, "tool_path", lambda tool, _: f"/usr/bin/{tool}")
    monkeypatch.setattr(languages_file, "content_of", lambda path: contents.get(path, path))
    monkeypatch.setattr(languages_file, "version", lambda *_: "1")
    monkeypatch.setattr(languages_file, "newest_standard", lambda *_: "gnu++23")
    task = replace(INC, checks=(Exchange("", ""),), language=language)
    before = key(task)
    contents[tool if tool.startswith("/") else f"/usr/bin/{tool}"] = "another"
    assert key(task) != before


def test_a_language_that_runs_in_another_way_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key(INC)
    python = replace(language_named("python"), environment={"PYTHONOPTIMIZE": "1"})
    monkeypatch.setattr(identity, "language_named", lambda _: python)
    assert key(INC) != before


@dataclass(frozen=True)
class Odd:
    """A check whose text does not show what is in it."""

    oddity: Any = field(repr=False)
    other: Any = field(default=None, compare=False)
    hidden: bool = True


class OddTests(EachCheck[Odd]):
    """Kind of Odd, in the file of this test."""

    async def judge_check(self, *_: Any) -> Any:
        """Never called."""


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, Odd, OddTests())


class Opaque:
    """What has no content that anybody could name."""


@pytest.mark.usefixtures("odd")
@pytest.mark.parametrize(
    ("first", "second"),
    [("a", "b"), (1, True), (1, 1.0), ("1", 1), ((1,), [1]), (b"a", "a"), (None, "None"),
     ({"a": 1}, {"a": 2}), ({1, 2}, {1, 3}), (date(2026, 1, 1), date(2026, 1, 2)),
     (Odd("a"), Odd("b")), (10**5000, 10**5000 + 1), ([[]], [[[]]]), ("\udcff", "\udcfe"),
     (Verdict.PASS, "pass"), (-0.0, 0.0), (float("inf"), float("-inf"))],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_values_that_differ_have_keys_that_differ_whatever_they_show(
    first: Any, second: Any
) -> None:
    keys = {key(replace(INC, checks=(Odd(*pair),))) for pair in ((first,), (second,), ("", first))}
    assert len(keys) == 3


@pytest.mark.usefixtures("odd")
@pytest.mark.parametrize("value", [Opaque(), Opaque, [Opaque()], {"a": Opaque()}, len])
def test_a_check_that_holds_what_is_no_data_is_refused(value: Any) -> None:
    """Two of them look alike once the first one's memory is used again."""
    with pytest.raises(DataError, match="no data"):
        key(replace(INC, checks=(Odd(value),)))


KIND = """
from dataclasses import dataclass
from assay.judge.kinds.kind import EachCheck
import beside_kind
@dataclass(frozen=True)
class Counts:
    counts_of_identity: int
    hidden: bool = True
class CountsTests(EachCheck[Counts], judges=Counts):
    async def judge_check(self, workbench, check, task, program):
        return beside_kind.judge(task.prompt, task.stub, task.tags)
"""
BESIDE = "def judge(*_): pass\n"
Load = Callable[[str, str], Task]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Loads a kind from a folder with the file beside it; returns a task with a check of it."""
    kinds = dict(KINDS)

    def loaded(kind: str, beside: str) -> Task:
        KINDS.clear()
        KINDS.update(kinds)
        folder = tmp_path / str(len([*tmp_path.iterdir()]))
        folder.mkdir()
        (folder / "kind_of_identity.py").write_text(kind)
        (folder / "beside_kind.py").write_text(beside)
        load_plugins(["kind_of_identity.py"], folder)
        (judged,) = KINDS.keys() - kinds.keys()
        return replace(INC, checks=(judged(1),))

    yield loaded
    KINDS.clear()
    KINDS.update(kinds)


def test_a_plug_in_kind_and_the_files_beside_it_are_part_of_key_and_terms(load: Load) -> None:
    """Wherever the folder is."""
    keys, terms = [], []
    for kind, beside in ((KIND, BESIDE), (KIND, BESIDE), (KIND + "x = 1", BESIDE),
                         (KIND, BESIDE + "x = 1")):  # fmt: skip
        task = load(kind, beside)
        keys.append(key(task))
        terms.append(str(common_terms(Limits(), stop_early=True)))
    assert keys[0] == keys[1]
    assert terms[0] == terms[1]
    assert len(set(keys)) == len(set(terms)) == 3


@pytest.mark.parametrize(
    "change",
    [{"prompt": "x"}, {"stub": "x"}, {"tags": {"a": "b"}}, {"id": "y"}, {"demonstrations": ("a",)},
     {"messages": (Message("user", "a", fields={"b": 1}),)}, {"tools": ({"a": 1},)}],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_a_plug_in_kind_may_read_all_of_a_task_here_and_on_a_service(
    change: dict[str, Any], load: Load
) -> None:
    task = load(KIND, BESIDE)
    changed = replace(task, **change)
    assert key(changed) != key(task)
    assert sendable(changed).key != sendable(task).key


def test_code_of_classes_that_a_kind_extends_counts_and_assays_own_does_not(load: Load) -> None:
    kind = KINDS[type(load(KIND, BESIDE).checks[0])]

    class Further(type(kind)):  # type: ignore[misc]
        """In the file of this test."""

    code = code_of(Further)
    assert __name__ in code
    assert "kind_of_identity" in code
    assert "beside_kind" in code
    assert codes_of(INC) == []


def test_code_that_stands_in_no_file_is_never_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook's cell may define it anew at any time."""
    module = ModuleType("notebook_of_identity")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec("class Kind: pass", vars(module))
    assert code_of(module.Kind) != code_of(module.Kind)


def test_calls_have_a_programs_time_each_and_asserts_share_it() -> None:
    steps = [
        PreparedTask(replace(INC, checks=checks), Limits(), True).checked("", NO_FEATURES).steps
        for checks in ((Call("[1]", "2"),) * 3, (Check("f(1)"),) * 3)
    ]
    assert steps == [3, 1]
