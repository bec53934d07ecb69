"""Plug-ins: found by name, suggested on a typo, loaded from the user's files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from assay.algorithms import algorithms
from assay.errors import SettingsError
from assay.languages import canonical, languages
from assay.registry import Registry, load_plugins
from assay.rewards import rewards
from assay.suggestions import suggest


def test_a_typo_gets_the_nearest_name() -> None:
    with pytest.raises(SettingsError, match="unknown algorithm 'grp'; did you mean 'grpo'"):
        algorithms["grp"]


@pytest.mark.parametrize(
    ("name", "known", "offered"),
    [
        ("gpro", ["grpo", "gspo"], "grpo"),
        ("gpo", ["dpo", "ppo", "grpo"], "grpo"),
        ("rollout.grop", ["rollout.group_size", "rollout.top_p"], "rollout.group_size"),
        ("group", ["group_size", "top_p"], "group_size"),
        ("lenght", ["length", "tests"], "length"),
    ],
)
def test_a_name_one_edit_away_comes_first_and_swapped_letters_are_one_edit(
    name: str, known: list[str], offered: str
) -> None:
    assert suggest(name, known) == f"did you mean {offered!r}?"


def test_the_names_in_the_source_are_those_that_the_modules_register() -> None:
    code = """
import importlib, pkgutil
from assay.registry import KINDS, registry_of, shipped
for folder in KINDS:
    package = importlib.import_module(f"assay.{folder}")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"assay.{folder}.{module.name}")
    registry = registry_of(folder)
    assert registry._items.keys() == shipped(registry.package, registry.kind).keys() != set()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_plug_in_is_imported_when_it_is_used_and_no_other_is() -> None:
    code = (
        "import sys\nfrom assay.rewards import rewards\nlist(rewards); rewards['length']\n"
        "print(*sorted(m for m in sys.modules if m.startswith('assay.rewards.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["assay.rewards.length"]


def test_a_plug_in_with_the_name_of_one_that_is_not_imported_yet_is_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.py").write_text(
        "from assay.rewards import reward\n@reward\ndef length(rollout): return 0.0\n"
    )
    code = "import sys; from assay.registry import load_plugins; load_plugins(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "mine.py"], capture_output=True, check=False
    )
    assert b"reward 'length' is registered twice; rename one of them" in done.stderr


def test_a_name_like_no_other_gets_the_list() -> None:
    assert suggest("zzzzz", ["sft", "grpo"]) == "known: grpo, sft"


def test_the_same_name_for_two_things_is_refused() -> None:
    registry: Registry[int] = Registry("thing", "assay.algorithms")
    registry.add("one", 1)
    registry.add("one", 1)
    with pytest.raises(SettingsError, match="registered twice"):
        registry.add("one", 2)


def test_a_plug_in_file_of_the_users_registers_itself(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from assay.algorithms.base import Algorithm, AlgorithmSettings, algorithm\nfrom"
        " assay.algorithms.sft import _loss\n@algorithm(AlgorithmSettings)\ndef my_own(settings):\n"
        "    'My own way to learn.'\n    return Algorithm(loss=_loss, learns_from='dialogues')\n"
    )
    load_plugins(("mine.py",), tmp_path)
    load_plugins(("mine.py",), tmp_path)
    assert algorithms["my_own"].build({"name": "my_own"}).learns_from == "dialogues"
    assert algorithms.summary("my_own") == "My own way to learn."


def test_a_language_of_a_plug_in_is_known_though_others_were_asked_for_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(languages, "_items", {name: languages[name] for name in languages})
    assert canonical("py") == "python"
    (tmp_path / "lua.py").write_text(
        "from assay.languages import Language, language\nlanguage('lua', Language(title='Lua',"
        " source='main.lua', fences=('luau',), run=('lua',)))\n"
    )
    load_plugins(("lua.py",), tmp_path)
    assert canonical("luau") == "lua"
    assert languages.summary("lua") == "Lua."


def test_two_plug_in_files_of_the_same_name_in_different_folders_are_both_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewards, "_items", {name: rewards[name] for name in rewards})
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(
            f"from assay.rewards import reward\n@reward\ndef of_{folder}(rollout):\n    return"
            " 1.0\n"
        )
    load_plugins(("one/mine.py", "two/mine.py", "one/../two/mine.py"), tmp_path)
    assert {"of_one", "of_two"} <= set(rewards)


def test_a_plug_in_imports_the_files_of_its_folder_and_of_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rewards, "_items", {name: rewards[name] for name in rewards})
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "helpers.py").write_text("SIZE = 0.0\n")
    for number, folder in enumerate(("one", "two"), 1):
        (tmp_path / folder / "deep").mkdir(parents=True)
        (tmp_path / folder / "helpers.py").write_text("from sizes import SIZE\n")
        (tmp_path / folder / "sizes.py").write_text(f"SIZE = {number}.0\n")
        (tmp_path / folder / "deep" / "late.py").write_text("import helpers\nWHERE = helpers\n")
        (tmp_path / folder / "random.py").write_text("1 / 0\n")
        (tmp_path / folder / "pydantic.py").write_text("1 / 0\n")
        (tmp_path / folder / "mine.py").write_text(
            "import random, pydantic\nimport helpers as h\nfrom helpers import SIZE\n"
            f"from assay.rewards import reward\n@reward\ndef beside_{folder}(rollout):\n"
            "    import deep.late\n    from deep import late\n    from . import sizes\n"
            "    assert late is deep.late and late.WHERE is h and sizes.SIZE == SIZE\n"
            "    return h.SIZE\n"
        )
    load_plugins(("one/mine.py", "two/mine.py"), tmp_path)
    monkeypatch.chdir("/")
    assert [rewards[f"beside_{folder}"](None) for folder in ("one", "two")] == [1.0, 2.0]
    assert "helpers" not in sys.modules
    assert "pydantic.py beside them; rename that file" in caplog.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "not found"),
        ("x = 1", r"'broken\.py' registers nothing; it should hold a function under @reward"),
        ("from assay.rewards.tests import tests", "registers nothing"),
        ("def forgotten(rollout): return 1.0", "registers nothing"),
        ("\n1 / 0", r"broken\.py, line 2: ZeroDivisionError: division by zero$"),
        ("raise ValueError('a\\nb')", r"broken\.py, line 1: ValueError: a b$"),
        ("x = 1\ndef f(:\n", r"broken\.py, line 2: SyntaxError"),
    ],
)
def test_a_plug_in_that_is_missing_or_broken_is_named(
    tmp_path: Path, text: str | None, message: str
) -> None:
    if text:
        (tmp_path / "broken.py").write_text(text)
    with pytest.raises(SettingsError, match=message):
        load_plugins(("broken.py",), tmp_path)


def test_a_plug_in_may_take_what_it_registers_from_a_file_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewards, "_items", {name: rewards[name] for name in rewards})
    (tmp_path / "all.py").write_text(
        "from assay.rewards import reward\n@reward\ndef shared(rollout): return 1.0\n"
    )
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text("from all import shared\n")
    load_plugins(("one.py", "two.py", "all.py"), tmp_path)
    assert "shared" in rewards


def test_every_algorithm_says_what_it_is() -> None:
    for name in algorithms:
        assert len(algorithms.summary(name)) > 10
        assert "What an algorithm is" not in algorithms.summary(name)
