"""Two ranks agree: on every architecture with one process, and with each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from assay.train.ranks import Ranks
from tests.distributed.agreement import MODEL, loaded, opened, save_moments
from tests.distributed.launch import run
from tests.policy.test_architectures import MODELS, NAMES, RARE

pytestmark = pytest.mark.long
SHAPES = dict(zip(NAMES, [*MODELS, *RARE], strict=True))


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("architectures")
    for ranks in (1, 2):
        run(ranks, "tests.distributed.architectures", f"{folder}/{ranks}", *NAMES)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_learn_of_every_architecture_what_one_learns_or_refuse_it(
    name: str, learned: Path
) -> None:
    one, two = (json.loads((learned / ranks / f"{name}.json").read_text()) for ranks in "12")
    if "rope_parameters" in SHAPES[name][1] and SHAPES[name][3] == "padded":
        assert "from 16 tokens on, this model's results depend on what shares" in two["refused"]
        assert "loss" in one
        return
    if name.startswith("Zamba2"):
        assert "has weights that several blocks share, as model.layers.3." in two["refused"]
        assert "loss" in one
        return
    one.pop("time/learn"), two.pop("time/learn")
    assert two == pytest.approx(one, rel=1e-5, abs=1e-6)
    mine, theirs = (load_file(learned / ranks / f"{name}.safetensors") for ranks in "12")
    assert mine.keys() == theirs.keys()
    for weight in mine:
        assert torch.allclose(mine[weight], theirs[weight], rtol=0, atol=1e-6), weight


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("agreement")
    run(2, "tests.distributed.agreement", str(folder))
    return folder, [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def test_gradients_in_bfloat16_of_many_micro_batches_are_added_up_in_float32(
    said: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    folder, _ = said
    alone = loaded(folder / MODEL.format(0), dtype="bfloat16")
    save_moments(opened(alone, {"name": "sft"}, Ranks()), tmp_path)
    one, two = (
        torch.cat([t.flatten() for n, t in sorted(file.items()) if n.endswith("|exp_avg")])
        for file in (load_file(path / "bfloat16.safetensors") for path in (tmp_path, folder))
    )
    assert float((one - two).norm() / one.norm()) < 0.004  # 0.006 if they were in bfloat16


def test_the_error_of_a_loss_that_is_not_finite_holds_the_batches_of_the_rank_that_had_them(
    said: tuple[Path, list[dict[str, Any]]],
) -> None:
    leader, follower = said[1]
    assert leader["batches"] == follower["batches"]
    assert sum(map(len, leader["batches"])) == 4


def test_each_rank_draws_its_own_dropout(said: tuple[Path, list[dict[str, Any]]]) -> None:
    leader, follower = said[1]
    assert leader["seed"] != follower["seed"]
