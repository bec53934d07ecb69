"""Plug-ins: found by name, suggested on a typo, loaded from the user's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.algorithms import algorithms
from assay.errors import SettingsError
from assay.registry import Registry, load_plugins, suggest
from assay.rewards import rewards


def test_a_typo_gets_the_nearest_name() -> None:
    with pytest.raises(SettingsError, match="unknown algorithm 'grp'; did you mean 'grpo'"):
        algorithms["grp"]


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "not found"),
        ("1 / 0", "ZeroDivisionError"),
        ("raise ValueError('a\\nb')", "ValueError: a b$"),
    ],
)
def test_a_plug_in_that_is_missing_or_broken_is_named(
    tmp_path: Path, text: str | None, message: str
) -> None:
    if text:
        (tmp_path / "broken.py").write_text(text)
    with pytest.raises(SettingsError, match=message):
        load_plugins(("broken.py",), tmp_path)


def test_every_algorithm_says_what_it_is() -> None:
    for name in algorithms:
        assert len(algorithms.summary(name)) > 10
        assert "What an algorithm is" not in algorithms.summary(name)
