"""A learner on a Tinker server learns what one of this process does; what such a server cannot
compute is refused by name. tests/agents/test_outside_skyrl.py asks a real server.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from assay.algorithms import algorithms
from assay.cli import app
from assay.config.sections import LearnerSettings, RunSettings
from assay.errors import ModelError, SettingsError
from assay.policy.load_model import Policy
from assay.policy.tinker import RemoteAdapter, TinkerRow, saved_state
from assay.train.batch import to_batch
from assay.train.learner import Learner
from assay.train.tinker import (
    PendingGradients,
    TinkerRanks,
    placed,
    require_supported,
    rows_of,
)
from assay.types import Sample
from tests.policies import random_samples, run_settings, tiny_policy

Reduction = Literal["sum", "sequence_mean"]
STEPS = 3


class LocalServer:
    """What Tinker's definitions say of an adapter, of a model in this process."""

    def __init__(self, policy: Policy, reduction: str) -> None:
        self.policy, self.reduction = policy, reduction
        self.adamw: torch.optim.AdamW | None = None
        self.start, self.asked_for = deepcopy(policy), list[int]()

    def at_start(self) -> LocalServer:
        return LocalServer(self.start, self.reduction)

    def _logprobs(self, row: Sequence[int]) -> Tensor:
        tokens = torch.tensor([row])
        logprobs = self.policy.model(tokens).logits[0, :-1].log_softmax(-1)
        return logprobs.gather(-1, tokens[0, 1:, None]).squeeze(-1)  # type: ignore[no-any-return]

    @torch.no_grad()
    def logprobs(self, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        self.asked_for.append(len(rows))
        return [self._logprobs(row).tolist() for row in rows]

    def learn(
        self, rows: Sequence[TinkerRow], *, learning_rate: float, beta1: float, beta2: float,
        eps: float, weight_decay: float, grad_clip_norm: float,
    ) -> dict[str, float]:  # fmt: skip
        losses = []
        for row in rows:
            ratios = (self._logprobs(row.tokens) - torch.tensor(row.logprobs)).exp()
            losses.append(-ratios * torch.tensor(row.advantages))
        by_sum = self.reduction == "sum"
        each = [loss.sum() if by_sum else loss.mean() for loss in losses]
        (torch.stack(each).sum() if by_sum else torch.stack(each).mean()).backward()  # type: ignore[no-untyped-call]
        parameters = list(self.policy.trainable.values())
        norm = torch.nn.utils.clip_grad_norm_(parameters, grad_clip_norm)
        if self.adamw is None:
            self.adamw = torch.optim.AdamW(parameters, betas=(beta1, beta2), eps=eps)
        for group in self.adamw.param_groups:
            group["lr"], group["weight_decay"] = learning_rate, weight_decay
        self.adamw.step()
        self.adamw.zero_grad()
        return {"skyrl.ai/grad_norm": float(norm), "skyrl.ai/learning_rate": learning_rate}


def paired(samples: Sequence[Sample]) -> list[Sample]:
    """The samples in groups of two: one has passed, and their rewards differ."""
    return [
        replace(sample, group=str(n // 2), passed=n % 2 == 0, reward=n % 2 + 0.1 * n)
        for n, sample in enumerate(samples)
    ]


def here_and_there(
    folder: Path, table: dict[str, Any], reduction: Reduction
) -> tuple[Learner, Learner, LocalServer]:
    """Two learners of equal weights: of this process, and on a server."""
    adam = {"lr": 1e-2, "eps": 1e-4, "schedule": "linear", "weight_decay": 0.1}
    settings = run_settings(algorithm=table, optimizer=adam | {"max_grad_norm": 0.5})
    torch.manual_seed(0)
    policy = tiny_policy(folder, lora={"rank": 4}, dtype="float32")
    server = LocalServer(deepcopy(policy), reduction)
    on_server: Any = server
    ranks = TinkerRanks(on_server, LearnerSettings(reduction=reduction))
    return (
        Learner(settings, algorithms[table["name"]].build(table), policy, STEPS, 1.0),
        Learner(settings, algorithms[table["name"]].build(table), policy, STEPS, 1.0, ranks),
        server,
    )


@pytest.mark.parametrize(
    ("table", "reduction"),
    [
        ({"name": "sft"}, "sum"),
        ({"name": "sft"}, "sequence_mean"),
        ({"name": "reinforce", "loss_mean": "completions"}, "sequence_mean"),
        ({"name": "grpo", "kl": 0.1, "loss_mean": "prompts"}, "sequence_mean"),
        ({"name": "grpo", "epochs": 2, "minibatches": 2, "kl": 0.1, "kl_in": "reward"}, "sum"),
        ({"name": "cispo"}, "sum"),
        ({"name": "gspo", "epochs": 2}, "sequence_mean"),
        ({"name": "sapo", "epochs": 2}, "sum"),
        ({"name": "dppo"}, "sum"),
        ({"name": "dr_grpo", "loss_mean": "constant"}, "sequence_mean"),
        ({"name": "dpo"}, "sequence_mean"),
        ({"name": "orpo"}, "sum"),
        ({"name": "kto"}, "sequence_mean"),
    ],
    ids=str,
)
def test_losses_gradients_and_weights_are_those_of_our_learner(
    tmp_path: Path, table: dict[str, Any], reduction: Reduction
) -> None:
    here, there, server = here_and_there(tmp_path, table, reduction)
    for step in range(STEPS):
        samples = paired(random_samples(8, seed=step))
        ours, theirs = here.step(samples, step), there.step(samples, step)
        assert theirs["loss"] == pytest.approx(ours["loss"], abs=1e-5)
        assert theirs["learn/grad_norm"] == pytest.approx(ours["learn/grad_norm"], rel=1e-3)
        assert theirs["learn/lr"] == ours["learn/lr"]
    moved = server.policy.trainable
    for name, weight in here.policy.trainable.items():
        torch.testing.assert_close(moved[name], weight, atol=1e-4, rtol=1e-3)


def test_a_server_that_says_no_norm_and_no_entropy_leaves_both_out(tmp_path: Path) -> None:
    _, there, server = here_and_there(tmp_path, {"name": "grpo"}, "sum")
    learn = server.learn
    server.learn = lambda rows, **adam: learn(rows, **adam) and {}  # type: ignore[method-assign]
    metrics = there.step(random_samples(8), 0)
    assert "loss" in metrics
    assert not {"learn/grad_norm", "learn/entropy"} & metrics.keys()


def test_rows_end_with_their_last_predicted_token_and_numbers_go_back_to_their_places() -> None:
    samples = [
        Sample((7, 8, 9, 10), (False, False, True, False)),
        Sample((3, 4), (False, True)),
    ]
    batch = to_batch(samples, 0, torch.device("cpu"))
    assert rows_of(batch) == [[7, 8, 9], [3, 4]]
    numbers = placed([[-1.0, -2.0], [-3.0]], batch)
    assert numbers.tolist() == [[0.0, 0.0, -2.0, 0.0], [0.0, -3.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("reduction", "sent"),
    # Two sequences, of 3 and 1 predicting places: a mean over both of means needs 2 x 3 and 2 x 1.
    [("sum", [[0.0, -0.5, 0.25], [1.5]]), ("sequence_mean", [[0.0, -3.0, 1.5], [3.0]])],
)
def test_the_server_gets_minus_the_derivatives_however_it_adds_up_losses(
    reduction: str, sent: list[list[float]]
) -> None:
    pending = PendingGradients(reduction)
    logprobs = torch.tensor([[0.0, 0.0, -1.0, -2.0], [0.0, -3.0, 0.0, 0.0]], requires_grad=True)
    logprobs.grad = torch.tensor([[0.0, 0.0, 0.5, -0.25], [0.0, -1.5, 0.0, 0.0]])
    pending.add([[7, 8, 9, 10], [3, 4]], logprobs)
    rows = pending.take()
    assert [row.advantages for row in rows] == sent
    assert [row.logprobs for row in rows] == [[0.0, -1.0, -2.0], [-3.0]]
    assert pending.take() == []


def test_each_micro_batch_is_one_request_and_samples_without_gradient_are_not_sent(
    tmp_path: Path,
) -> None:
    _, there, server = here_and_there(tmp_path, {"name": "grpo"}, "sum")
    equal = [replace(sample, reward=1.0, group="equal") for sample in random_samples(4, seed=9)]
    there.step(
        [replace(s, reward=float(n % 2)) for n, s in enumerate(random_samples(4))] + equal, 0
    )
    assert server.asked_for == [4]


def on_server(**changes: Any) -> RunSettings:
    policy = {"lora": {"rank": 4}} | changes.pop("policy", {})
    places = {"learner": {"name": "tinker", "server": "http://localhost:1"}}
    return run_settings(policy=policy, engine={"name": "tinker"}, **places, **changes)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"algorithm": {"name": "ppo"}}, "'ppo'"),
        ({"algorithm": {"name": "opd", "teacher": "big"}}, "'opd'"),
        ({"algorithm": {"name": "grpo", "entropy_bonus": 0.1}}, "algorithm.entropy_bonus"),
        ({"policy": {"lora": None}}, "policy.lora"),
        ({"policy": {"lora": {"alpha": 16}}}, "policy.lora.alpha"),
        ({"policy": {"lora": {"dropout": 0.1}}}, "policy.lora.dropout"),
        ({"policy": {"gradient_checkpointing": True}}, "policy.gradient_checkpointing"),
        ({"rollout": {"temperature": 0.7}}, "rollout.temperature"),
        ({"evaluate": {"tasks": "drills:test", "min_p": 0.1}}, "evaluate.min_p"),
    ],
)
def test_what_a_server_cannot_compute_is_refused_by_name(
    changes: dict[str, Any], named: str
) -> None:
    settings = on_server(**changes)
    algorithm = algorithms[settings.algorithm["name"]].build(settings.algorithm)
    with pytest.raises(SettingsError) as refused:
        require_supported(settings, algorithm, adapted=settings.policy.lora is not None)
    assert named in str(refused.value)


@pytest.mark.skipif(find_spec("tinker") is not None, reason="the package is installed")
def test_without_the_package_the_extra_is_named() -> None:
    settings = on_server()
    with pytest.raises(SettingsError) as refused:
        require_supported(settings, algorithms["grpo"].build({}), adapted=True)
    assert "'.[tinker]'" in str(refused.value)


@pytest.mark.parametrize(
    "tables",
    [
        {"learner": {"name": "tinker", "server": "http://localhost:1"}},
        {"engine": {"name": "tinker"}},
        {"learner": {"name": "tinker"}, "engine": {"name": "tinker"}},
        {"learner": {"server": "http://localhost:1"}},
    ],
    ids=str,
)
def test_learner_engine_and_server_need_each_other(tables: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"learner\.name = 'tinker'"):
        run_settings(**tables)


def test_an_adapter_that_is_not_on_a_server_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as refused:
        saved_state(tmp_path)
    assert str(tmp_path) in str(refused.value)
    (tmp_path / "assay").mkdir()
    (tmp_path / "assay" / "tinker.json").write_text('{"state": "tinker://a/weights/b"}')
    assert saved_state(tmp_path) == "tinker://a/weights/b"


def test_a_server_that_does_not_answer_is_named_before_anything_is_trained() -> None:
    with pytest.raises(SettingsError) as refused:
        RemoteAdapter("http://127.0.0.1:9", "base", rank=4, seed=0)
    assert "http://127.0.0.1:9 does not answer" in str(refused.value)


def test_a_plan_says_that_a_servers_memory_is_not_known(tmp_path: Path) -> None:
    file = tmp_path / "ours.toml"
    server = 'server = "http://127.0.0.1:9"'
    file.write_text(
        f'policy.lora.rank = 4\nlearner.name = "tinker"\nlearner.{server}\nengine.name = "tinker"\n'
        '[stages.sft]\nalgorithm.name = "sft"\ntasks.train = "drills:train"\nsteps = 1\n'
    )
    done = CliRunner().invoke(app, ["plan", str(file), "--gpus", "8xH100"])
    assert isinstance(done.exception, SettingsError)
    assert "memory and time are not known" in str(done.exception)
