"""The shape of the house: layers, short functions, and no torch where none belongs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from re._parser import SubPattern, parse  # type: ignore[import-not-found]
from typing import Any

import pytest

PACKAGE = Path(__file__).parent.parent / "assay"
FILES = sorted(PACKAGE.rglob("*.py"))
LAYERS = [
    "checks", "tools", "types", "errors", "extras", "archives", "bounded", "content",
    "syntax_trees", "user_cache", "tuning", "suggestions", "imported_files", "plugin_code",
    "registry", "lines", "strict_json",
    "os_errors", "paths", "files", "line_file", "task_specs", "sync",
    "progress", "http", "hub", "endpoint_answers", "endpoint", "config",
    "maths",
    "sandbox", "languages", "judge", "tasks", "judges", "check", "prompts", "extract", "make_tasks",
    "policy", "rewards", "callbacks", "environments", "demonstrate", "engines", "agents",
    "rollout", "choices", "algorithms", "trackers", "evaluate", "train", "distributed",
    "doctor", "endpoint_check", "integrations", "viewer", "commands", "cli", "__main__",
]  # fmt: skip
MODULES = {
    "sandbox": "kernel limits cgroups cores fair_use landlock namespaces seccomp walls access"
    " users attack isolation work_dir sockets program ending script blocks repl standalone zygote"
    " launch processes events zygote_process time_limit slot slot_shares program_queue runs"
    " supervisor box_files box_watch box_output box_daemons box_init box_zygote box box_commit"
    " boxes supervisor_client",
    "judge": "worker_messages codec_types aliases shared_files codec task_code branches"
    " library_classes compared_arguments"
    " checkers shared_data requests answer_code answer_names objects one_at_a_time"
    " console proxy test_code answer_text verdict pytest_needs edition shared_work"
    " verdict_archive verdict_cache line_ends patches repository_runner images dockerfiles"
    " repository_tree canaries doctests distribution"
    " copies"
    " kinds normal_form pytest_session worker candidate"
    " warmup task_fields identity prepared_task builds runner references"
    " interpreter base judge cocotb_harness",
    "judge/objects": "operations committed expected remote sameness table unpack",
    "judge/kinds": "pytest_module workbench kind calls asserts driven_calls exchanges"
    " verilog_screen harness own_tests print_tests answers test_bench test_functions"
    " repository_cheats repository find",
    "judges": "terms service_client pool open_judge",
    "make_tasks": """
        settings value_types edits diffs operators pairs failures commits trees visible
        call_recorder snippet_runner one_process snippets trials asking bugs model_bugs statement
        reports maker history packages
    """,
    "demonstrate": "changes script player rows demonstrate",
    "extract": "fences thoughts statements call_formats edits",
    "policy": "onednn lora adapters checkpoints tokenizer gguf_header gguf source tiny"
    " template_process call_style rendering"
    " turn_ends local_template chat layers head packed forward blocks load_model tinker classifier"
    " critic reference teacher",
    "viewer": "file_cache parse page call_tree rollout_index suspects folders query questions"
    " page_server single_page",
    "agents": "reaper box_command canonical calls histories replies tree records renderer session"
    " dialects app uvicorn_server server",
    "engines": "base completions openai tinker torch vllm open_engine",
    "engines/torch": "sampling prefill fused cuda_graphs layer_cache kv_cache cache_probe"
    " decode_loop engine",
    "engines/vllm": "reaper client weight_probe transports server fleet engine",
}
"""The order of the modules inside a folder, as LAYERS is that of the folders."""
PLUG_INS = ("judge/kinds",)
"""Folders in which a file that no other imports need not be listed."""
TORCH_ALLOWED = ("maths", "policy", "engines/torch", "algorithms", "train", "distributed")
FOR_A_PACKAGE = (
    "integrations/harbor.py", "integrations/inspect_ai.py", "integrations/nemo_gym.py",
    "integrations/nemo_gym_boxes.py", "integrations/verifiers.py", "judge/cocotb_harness/run.py",
    "judge/normal_form.py",
)  # fmt: skip
FUNCTION_LINES = 60
DRIVER_LINES = 977
"""Code lines of the drivers in other languages."""
COMMENTS = {".rb": "#", ".sh": "#", ".q": "/ "}
"""How a line begins that is a comment, where that is not `//`."""


@cache
def trees() -> dict[Path, ast.Module]:
    """The files, parsed: a second that a worker without these tests need not wait."""
    return {file: ast.parse(file.read_text()) for file in FILES}


def name_of(file: Path) -> str:
    return file.relative_to(PACKAGE).as_posix()


def layer_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "assay" else None


def imports(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_imports_only_point_up_the_list_of_layers() -> None:
    for file, tree in trees().items():
        layer = name_of(file).removesuffix(".py").split("/")[0]
        if layer == "__init__":
            continue
        assert layer in LAYERS, f"{layer} has no place in LAYERS"
        below = {found for found in imports(tree) if layer_of(found) in LAYERS}
        too_low = sorted(m for m in below if LAYERS.index(str(layer_of(m))) > LAYERS.index(layer))
        assert not too_low, f"{name_of(file)} imports {too_low}, which stand below it"


@pytest.mark.parametrize("folder", MODULES)
def test_imports_inside_a_folder_only_point_up_its_list_of_modules(folder: str) -> None:
    order, package = MODULES[folder].split(), f"assay.{folder.replace('/', '.')}."
    present = {name.stem for name in (PACKAGE / folder).iterdir() if name.stem[0] != "_"}
    if folder in PLUG_INS:
        order += sorted(present - set(order))
    assert present == set(order), f"list the modules of {folder} in MODULES"
    for place, module in enumerate(order):
        path = PACKAGE / folder / module
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]:
            inside = {one.removeprefix(package).split(".")[0] for one in imports(trees()[file])
                      if one.startswith(package)}  # fmt: skip
            below = inside & set(order[place + 1 :])
            assert not below, f"{name_of(file)} imports {below}, below it"


def test_functions_fit_a_screen() -> None:
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno
                assert lines < FUNCTION_LINES, f"{name_of(file)}: {node.name} is too long"


def test_the_drivers_in_other_languages_stay_within_their_budget() -> None:
    count = 0
    for file in (PACKAGE / "languages" / "drivers").iterdir():
        if file.suffix == ".py" or file.is_dir():
            continue
        lines = map(str.strip, file.read_text().splitlines())
        comment = COMMENTS.get(file.suffix, "//")
        count += sum(1 for line in lines if line and not line.startswith(comment))
    assert count <= DRIVER_LINES


def test_a_file_says_in_its_first_line_what_it_is_for() -> None:
    silent = [
        name_of(file)
        for file, tree in trees().items()
        if tree.body and not (ast.get_docstring(tree) or "").strip()
    ]
    assert silent == []


def test_judging_evaluating_and_the_command_line_import_without_torch() -> None:
    without = [
        "assay." + name_of(file).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for file in FILES
        if not name_of(file).startswith(TORCH_ALLOWED)
        and name_of(file) not in ("__init__.py", *FOR_A_PACKAGE)
    ]
    without.append("assay.maths.estimates")
    code = (
        f"import sys, importlib\nfor m in {without!r}: importlib.import_module(m)\nprint('torch' in"
        " sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False"


def test_no_lint_or_type_check_is_switched_off_for_a_whole_file() -> None:
    for file in FILES:
        assert "# mypy: ignore" not in file.read_text()
        assert "# ruff: noqa" not in file.read_text()


PRIVATE_WORDS = re.compile(r"\b(?:seen|told|lean|Means|Bundle|flat_groups|look_out|hopeless)\b")


def test_words_that_only_we_would_use_are_not_used() -> None:
    found = [f"{name_of(file)}: {line.strip()}" for file in FILES
             for line in file.read_text().splitlines() if PRIVATE_WORDS.search(line)]  # fmt: skip
    assert len(found) < 10, found


NO_NAMES = {
    "asked", "begun", "called", "chosen", "drawn", "found", "given", "held", "kept", "known",
    "made", "named", "one", "own", "said", "seen", "shown", "taken", "told", "wanted",
}  # fmt: skip
"""A name says what it names: `matches`, not `found`; `row`, not `one`."""


def bound_names(tree: ast.AST) -> Iterator[str]:
    """The names that a file gives: to variables, parameters, attributes, functions, classes."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.arg(arg=name) | ast.alias(asname=str(name)):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.ExceptHandler(name=str(name)):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name


def test_names_say_what_they_name() -> None:
    root = PACKAGE.parent
    others = {file: ast.parse(file.read_text()) for folder in ("bench", "examples", "docs", ".ci")
              for file in (root / folder).rglob("*.py")}  # fmt: skip
    names = [
        f"{file.relative_to(root)}: {name}" for file, tree in (trees() | others).items()
        for name in bound_names(tree)
        if name in NO_NAMES
    ]  # fmt: skip
    assert not names, names


def test_a_name_may_be_bound_in_many_ways() -> None:
    source = """
from a import b as alias
class Class:
    def method(self, parameter, *, keyword=1): self.field = 0
async def function(): pass
try: variable = [(item, used) for item in used]
except E as error: pass
match used:
    case [pattern, *rest]: pass
"""
    names = "alias Class method self parameter keyword field function variable item error"
    assert {*bound_names(ast.parse(source))} == {*names.split(), "pattern", "rest"}


def test_two_classes_never_share_a_name() -> None:
    names = Counter(node.name for tree in trees().values() for node in ast.walk(tree)
                    if isinstance(node, ast.ClassDef))  # fmt: skip
    # each algorithm's file has its Settings
    assert {name for name, count in names.items() if count > 1} <= {"Settings"}


def repeats_past_backtracking(pattern: str) -> bool:
    """Whether a pattern has a possessive group, such as `(?:a+b)*+`, whose inside repeats or looks
    ahead. Python up to 3.11.4, as Debian 12 has it, goes on at a wrong place after such an inside
    has failed half way.
    """
    inside = {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT", "ASSERT", "ASSERT_NOT"}

    def walk(node: Any, guarded: bool) -> bool:
        if isinstance(node, tuple) and node and str(node[0]) in inside:
            single = len(node[1][-1]) == 1 and str(node[1][-1][0][0]) in ("IN", "ANY", "LITERAL",
                                                                         "NOT_LITERAL")  # fmt: skip
            possessive = str(node[0]) == "POSSESSIVE_REPEAT" and not single
            return guarded or walk(node[1][-1], guarded or possessive)
        children = node if isinstance(node, tuple | list | SubPattern) else ()
        return any(walk(child, guarded) for child in children)

    return walk(parse(pattern), guarded=False)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [(r"(?:a+b)*+", True), (r"(?:[^*]|\*(?!/))*+x", True), (r"x|((?:\w++ )++)", True),
     (r"(?:\\.|[^\"])*+", False), (r"(?:a+b)*", False), (r"\w++[ab]*+", False)],
)  # fmt: skip
def test_possessive_groups_that_old_pythons_get_wrong_are_recognised(
    pattern: str, expected: bool
) -> None:
    assert repeats_past_backtracking(pattern) is expected


def test_no_pattern_has_a_possessive_group_that_old_pythons_get_wrong() -> None:
    wrong = []
    for file, tree in trees().items():
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and re.search(r"\)(?:[*+?]|\{[\d,]*\})\+|\(\?>", text):
                with suppress(re.error):  # the text of another language, or part of a pattern
                    wrong += [f"{name_of(file)}: {text}"] * repeats_past_backtracking(text)
    assert wrong == []
