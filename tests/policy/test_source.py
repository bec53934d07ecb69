"""What a model's name stands for is decided in one place."""

import ast
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.config.sections import LoraSettings, PolicySettings
from assay.errors import ModelError, SettingsError
from assay.policy.source import ModelSource, hosted_source, require_model, source_of
from tests.policies import checkpoint, tiny_policy

PACKAGE = Path(__file__).parents[2] / "assay"
READERS = {"policy/source.py"}
"""The only modules that read `policy.model`."""


def named(name: object) -> ModelSource:
    return source_of(PolicySettings(model=str(name)))


def settings_names(tree: ast.AST) -> set[str]:
    """Names of arguments and variables of a function that hold PolicySettings."""
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation:
            names |= {node.arg} if "PolicySettings" in ast.unparse(node.annotation) else set()
        if isinstance(node, ast.Assign) and is_settings(node.value, set()):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            for targets in node.targets:
                pairs = zip(getattr(targets, "elts", ()), node.value.elts, strict=False)
                names |= {ast.unparse(target) for target, value in pairs
                          if is_settings(value, set())}  # fmt: skip
    return names


def is_settings(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression is a `policy` of settings: that of a run that trains is a Policy."""
    if isinstance(node, ast.Name):
        return node.id in names
    if not (isinstance(node, ast.Attribute) and node.attr == "policy"):
        return False
    return ast.unparse(node.value).split(".")[-1] in ("settings", "config", "run", "temporary")


def readers() -> Iterator[str]:
    for file in sorted(PACKAGE.rglob("*.py")):
        for function in ast.walk(ast.parse(file.read_text())):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            names = settings_names(function)
            for node in ast.walk(function):
                if not isinstance(node, ast.Attribute) or node.attr != "model":
                    continue
                if is_settings(node.value, names):
                    yield file.relative_to(PACKAGE).as_posix()


def test_only_one_module_reads_the_name_of_a_model() -> None:
    assert set(readers()) == READERS


def test_the_name_tiny_is_compared_in_one_place() -> None:
    places = [
        file.relative_to(PACKAGE).as_posix()
        for file in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Compare)
        and {"'tiny'", "TINY"} & {ast.unparse(each) for each in (node.left, *node.comparators)}
    ]
    assert places == ["config/model_names.py"]


def test_each_kind_of_model_is_told_by_its_name(tmp_path: Path) -> None:
    tiny = named("tiny")
    assert (tiny.kind, tiny.path, tiny.digest, tiny.is_here) == ("tiny", None, "", True)
    hub = named("org/model")
    assert (hub.kind, hub.path, hub.folder, hub.is_here) == ("hub", None, None, False)
    full = checkpoint(tmp_path, "llama")
    assert (named(full).kind, named(full).base, named(full).folder) == ("folder", str(full), full)
    policy = tiny_policy(tmp_path, lora=LoraSettings(rank=2))
    policy.save(tmp_path / "adapter")
    adapter = named(tmp_path / "adapter")
    assert (adapter.kind, adapter.folder) == ("adapter", tmp_path / "adapter")
    assert adapter.base == str(tmp_path / "tiny")
    step = tmp_path / "run" / "sft" / "checkpoints" / "step_000001"
    shutil.copytree(tmp_path / "adapter", step)
    assert (named(step).kind, named(step).adapter) == ("checkpoint", step)
    endpoint = hosted_source(PolicySettings(model="./gpt/../x"))
    assert (endpoint.kind, endpoint.name) == ("endpoint", "./gpt/../x")


def test_a_folder_named_as_the_built_in_model_needs_a_dot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(checkpoint(tmp_path, "llama"), tmp_path / "copy" / "tiny")
    monkeypatch.chdir(tmp_path / "copy")
    assert (named("tiny").kind, named("./tiny").kind) == ("tiny", "folder")


def test_the_configuration_of_an_adapter_of_a_hubs_model_is_not_here(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path, lora=LoraSettings(rank=2))
    policy.save(tmp_path / "adapter")
    file = tmp_path / "adapter" / "adapter_config.json"
    config = json.loads(file.read_text()) | {"base_model_name_or_path": "org/model"}
    file.write_text(json.dumps(config))
    assert not named(tmp_path / "adapter").is_here, "a dry run would ask the hub"


@pytest.mark.parametrize(
    ("name", "near"), [("./modle", "'model'"), ("tinny", "'tiny'"), ("smolm2", "'smollm2'")]
)
def test_a_mistyped_name_is_answered_with_the_nearest_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, near: str
) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=f"{name}.*did you mean {near}"):
        require_model(PolicySettings(model=name))


def test_the_built_in_model_has_no_files_before_a_run_makes_it() -> None:
    with pytest.raises(SettingsError, match="is made by a training run"):
        named("tiny").load_tokenizer()
