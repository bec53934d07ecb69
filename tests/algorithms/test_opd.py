"""On-policy distillation draws the policy to its teacher at the tokens that it samples."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.algorithms import algorithms
from assay.config.sections import PolicySettings, TinySettings
from assay.errors import SettingsError
from assay.maths.divergences import reverse_kl
from assay.policy.forward import ModelOutput, forward
from assay.policy.load_model import Policy
from assay.policy.teacher import load_teacher
from assay.policy.tiny import make_tiny
from assay.train.batch import to_batch
from assay.types import Sample
from tests.algorithms.test_losses import batch
from tests.distributed.learn import lengthwise_teacher
from tests.policies import TASKS, random_samples, tiny_policy
from tests.train.test_learner import make

CPU = torch.device("cpu")


def teacher_folder(folder: Path, tasks: Any = TASKS) -> str:
    """A model of another shape, with the policy's tokenizer if its tasks are the policy's."""
    shape = TinySettings(vocabulary=300, width=32, layers=1, heads=2, context=256)
    return str(make_tiny(folder / "teacher", tasks, shape, seed=5))


def teacher_of(policy: Policy, folder: Path) -> Any:
    """That model, sure of what it says, and with more rows in its head than it has tokens."""
    settings = PolicySettings(device="cpu")
    model = load_teacher(teacher_folder(folder), policy, settings)
    model.resize_token_embeddings(policy.model.config.vocab_size + 11)
    with torch.no_grad():
        model.lm_head.weight.mul_(20)
    return model


def test_the_reverse_kl_is_a_sum_over_the_vocabulary() -> None:
    policy = torch.tensor([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]]).clamp(min=1e-30).log()
    teacher = torch.tensor([[0.25, 0.25, 0.5], [0.5, 0.25, 0.25]]).log()
    # 0.5 log 2 - 0.25 log 2, and log 2
    assert reverse_kl(policy, teacher).tolist() == pytest.approx([math.log(2) / 4, math.log(2)])


def test_the_full_loss_is_the_kl_and_the_sampled_one_has_a_detached_advantage() -> None:
    logprobs = torch.tensor([[0.0, -1.0, -2.0], [0.0, -1.0, 0.0]])
    engine = logprobs - torch.tensor([[0.0, math.log(4), 0.0], [0.0, math.log(0.5), 0.0]])
    numbers = {"teacher_kl": logprobs + 9, "teacher_logprobs": logprobs + 0.5}
    output, given = ModelOutput(logprobs, torch.ones(2, 3), **numbers), batch(logprobs=engine)
    found = {}
    for kl in ("full", "sampled"):
        algorithm = algorithms["opd"].build({"name": "opd", "teacher": "t", "kl": kl})
        losses, more = algorithm.loss(output, given)
        found[kl] = losses[given.mask].tolist()
        assert more["teacher_kl"][given.mask].tolist() == [8, 7, 8]
    assert found["full"] == [8, 7, 8]
    # weights 4 (truncated at 2), 1 and 0.5; an advantage of 0.5 each
    assert found["sampled"] == pytest.approx([2 * 0.5 * 1, 0.5 * 2, 0.5 * 0.5 * 1])


def test_in_expectation_the_sampled_gradient_is_that_of_the_kl() -> None:
    """Of a vocabulary of three, each token drawn as often as an older policy says."""
    draw = torch.Generator().manual_seed(1)
    logits, teacher, engine = torch.randn(3, 3, generator=draw, dtype=torch.float64)
    logits.requires_grad_()
    policy, teacher = torch.log_softmax(logits, -1), torch.log_softmax(teacher, -1)
    engine = torch.log_softmax(logits.detach() + 0.3 * engine, -1)
    (expected,) = torch.autograd.grad(reverse_kl(policy, teacher), logits, retain_graph=True)
    row, seen = policy.unsqueeze(0), torch.ones(1, 3, dtype=torch.bool)
    output = ModelOutput(row, row, None, torch.zeros(1, 3), teacher.unsqueeze(0))
    settings = {"name": "opd", "teacher": "t", "kl": "sampled"}
    given = batch(mask=seen, logprobs=engine.unsqueeze(0))
    losses, _ = algorithms["opd"].build(settings).loss(output, given)
    (found,) = torch.autograd.grad((losses * engine.exp()).sum(), logits)
    assert torch.allclose(found, expected)


@pytest.mark.parametrize("layout", ["packed", "plain"])
def test_the_kl_and_its_gradient_are_those_of_whole_logits(tmp_path: Path, layout: str) -> None:
    policy = tiny_policy(tmp_path)
    teacher = teacher_of(policy, tmp_path)
    if layout == "plain":
        policy.model.config.logit_scale = teacher.config.logit_scale = 2.0
    given = to_batch(random_samples(6), 0, CPU)
    weights = list(policy.trainable.values())
    output = forward(policy.model, given, 0.7, teacher=teacher)
    assert output.teacher_kl is not None
    found = torch.autograd.grad(output.teacher_kl[given.mask].sum(), weights)

    inputs = {"input_ids": given.tokens, "attention_mask": given.attention.long()}
    size = policy.model.config.vocab_size
    logits = policy.model(**inputs).logits / 0.7
    with torch.no_grad():
        theirs = torch.log_softmax(teacher(**inputs).logits[..., :size] / 0.7, -1)
    ours = torch.log_softmax(logits, -1)
    whole = torch.nn.functional.kl_div(theirs, ours, reduction="none", log_target=True).sum(-1)
    kl = torch.nn.functional.pad(whole[:, :-1], (1, 0))
    assert torch.allclose(output.teacher_kl[given.mask], kl[given.mask], atol=1e-4)
    expected = torch.autograd.grad(kl[given.mask].sum(), weights)
    for mine, reference in zip(found, expected, strict=True):
        assert torch.allclose(mine, reference, atol=1e-3 * float(reference.abs().max()) + 1e-5)
    said = theirs[:, :-1].gather(-1, given.tokens[:, 1:, None]).squeeze(-1)
    said = torch.nn.functional.pad(said, (1, 0))
    assert output.teacher_logprobs is not None
    assert torch.allclose(output.teacher_logprobs[given.mask], said[given.mask], atol=1e-4)


def test_a_teacher_that_reads_sequences_one_by_one_costs_the_policy_one_pass(
    tmp_path: Path,
) -> None:
    policy = tiny_policy(tmp_path)
    folder = lengthwise_teacher(tmp_path / "teacher")
    teacher = load_teacher(folder, policy, PolicySettings(device="cpu"))
    samples = random_samples(6)
    lengths = [len(sample.tokens) for sample in samples]
    assert sum(length >= 16 for length in lengths) > 1
    assert len(set(lengths)) > 3
    alone = [forward(policy.model, to_batch([one], 0, CPU), teacher=teacher) for one in samples]
    passes = []
    policy.model.model.register_forward_hook(lambda *_: passes.append(1))
    together = forward(policy.model, to_batch(samples, 0, CPU), teacher=teacher)
    assert len(passes) == 1
    assert together.teacher_kl is not None
    for row, output in enumerate(alone):
        assert output.teacher_kl is not None
        kl = together.teacher_kl[row, : lengths[row]]
        assert torch.allclose(kl, output.teacher_kl[0], atol=1e-4)


def rollouts(policy: Policy, seed: int, count: int = 16, length: int = 8) -> list[Sample]:
    """Completions of one prompt, sampled from the policy."""
    draw = torch.Generator().manual_seed(seed)
    tokens = torch.tensor([[5, 6, 7]]).expand(count, 3)
    with torch.no_grad():
        for _ in range(length):
            chances = policy.model(tokens).logits[:, -1].softmax(-1)
            tokens = torch.cat([tokens, torch.multinomial(chances, 1, generator=draw)], 1)
    mask = (False,) * 3 + (True,) * length
    samples = [Sample(tuple(row), mask, group="a") for row in tokens.tolist()]
    seen = forward(policy.model, to_batch(samples, 0, CPU)).logprobs.detach()
    rows = zip(samples, seen.tolist(), strict=True)
    return [replace(sample, logprobs=tuple(row)) for sample, row in rows]


def test_the_learner_comes_nearer_to_its_teacher_whose_weights_stay(tmp_path: Path) -> None:
    table = {"name": "opd", "teacher": teacher_folder(tmp_path)}
    learner = make(tmp_path, algorithms["opd"].build(table), optimizer={"lr": 1e-2})
    assert learner.teacher is not None
    head = learner.teacher.lm_head.weight
    with torch.no_grad():
        head.mul_(10)
    before = head.clone()
    distances = [
        learner.step(rollouts(learner.policy, step), step)["learn/teacher_kl"] for step in range(12)
    ]
    assert distances[-1] < 0.9 * distances[0], distances
    assert torch.equal(head, before)


def test_a_teacher_with_another_tokenizer_of_the_same_size_is_refused(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    others = [replace(task, prompt=task.prompt[::-1], reference="zq = wxyz\n") for task in TASKS]
    folder = teacher_folder(tmp_path, others)
    with pytest.raises(SettingsError, match=r"algorithm\.teacher.*another tokenizer"):
        load_teacher(folder, policy, PolicySettings(device="cpu"))


def test_without_a_teacher_there_is_one_line() -> None:
    with pytest.raises(SettingsError, match=r"algorithm\.teacher is missing"):
        algorithms["opd"].build({"name": "opd"})
