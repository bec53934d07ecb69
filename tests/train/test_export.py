"""An exported model: transformers loads it, and its card says what made it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from assay.config.sections import PolicySettings
from assay.errors import DataError, SettingsError
from assay.policy.load import load_policy
from assay.train.export import export
from tests.train.test_stages import PLAN, run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that trains an adapter of the tiny model."""
    folder = tmp_path_factory.mktemp("trained")
    words = ["--policy.lora.rank", "2", "--optimizer.lr", "0.1", "--name", "mine"]
    return run(folder, PLAN, *words).folder


def test_transformers_loads_the_merged_model_and_it_computes_what_the_adapter_did(
    trained: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    checkpoint = export(trained, tmp_path / "out")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    policy = load_policy(PolicySettings(model=str(checkpoint), device="cpu"))
    tokens = torch.tensor([AutoTokenizer.from_pretrained(tmp_path / "out")("f(x)")["input_ids"]])
    with torch.no_grad():
        expected, plain = policy.model(tokens).logits, policy.model.get_base_model()
        torch.testing.assert_close(merged(tokens).logits, expected, atol=1e-5, rtol=1e-4)
        with policy.model.disable_adapter():
            assert (plain(tokens).logits - expected).abs().max() > 1e-3
    assert not (tmp_path / "out/adapter_config.json").exists()


def test_the_card_has_data_recipe_intervals_prompt_and_licences_and_no_path_of_this_machine(
    trained: Path, tmp_path: Path
) -> None:
    export(trained / "first", tmp_path / "out")
    card = (tmp_path / "out/README.md").read_text()
    assert "stage `first`: `drills:train`" in card
    assert "| runs/mine/first | sft | 1 | 0.0% | 0.0% to " in card
    assert "rank = 2" in card
    assert "AutoTokenizer.from_pretrained('out')" in card
    assert "Base model, random weights: its licence holds" in card
    assert str(trained.parent) not in card


def test_the_card_of_a_stage_names_its_own_base_and_no_stage_that_did_not_make_it(
    tmp_path: Path,
) -> None:
    more = '[stages.next]\n[stages.other]\npolicy.model = "tiny"\ntasks.train = "drills:test"\n'
    made = run(tmp_path, f"{PLAN}{more}", "--name", "mine").folder
    data = []
    for stage in ("first", "next", "other"):
        export(made / stage, tmp_path / stage)
        data.append(re.findall("- stage `(.*?)`", (tmp_path / stage / "README.md").read_text()))
    assert data == [["first"], ["first", "next"], ["other"]]


def test_a_checkpoint_that_no_run_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs/checkpoints/step_000001").mkdir(parents=True)
    with pytest.raises(DataError, match="holds no checkpoint"):
        export(tmp_path / "theirs/checkpoints/step_000001", tmp_path / "out")


def test_a_folder_that_holds_files_and_a_source_without_checkpoint_are_refused(
    trained: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path, tmp_path / "file"):
        with pytest.raises(SettingsError, match="holds files already"):
            export(trained, out)
    with pytest.raises(DataError, match="holds no checkpoint"):
        export(tmp_path, tmp_path / "new")
    assert (tmp_path / "file").read_text() == "mine"
