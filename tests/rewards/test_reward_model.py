"""A reward model scores rollouts in a process of its own; the model is a small random one."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from assay.errors import ModelError, RolloutLostError
from assay.judge import Judge
from assay.prompts import messages
from assay.rewards import Reward, build
from assay.rewards.reward_model import Scorer
from assay.types import Message, Rollout, Verdict, as_dicts
from tests.policies import checkpoint
from tests.policy.test_chat import CHATML
from tests.rewards.test_rewards import rollout

pytestmark = pytest.mark.long
REPLIES = [rollout(text=text) for text in ("def f(): ...", "short", "x = 1\n" * 40)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random classifier with one output, whose head is far from zero."""
    folder = checkpoint(tmp_path_factory.mktemp("classifier"), "qwen2", CHATML)
    config: Any = transformers.AutoConfig.from_pretrained(folder, num_labels=1)
    torch.manual_seed(1)
    classifier = transformers.Qwen2ForSequenceClassification(config)
    classifier.score.weight.data.mul_(20)
    classifier.save_pretrained(folder)
    return folder


def score_alone(model: Path, one: Rollout) -> float:
    """What the model says of a conversation that is scored alone."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    asked = [*messages(one.task), Message("assistant", one.turns[-1].completion.text)]
    text = tokenizer.apply_chat_template(as_dicts(asked), tokenize=False)
    classifier = transformers.Qwen2ForSequenceClassification.from_pretrained(model)
    with torch.inference_mode():
        return float(classifier(**tokenizer(text, return_tensors="pt")).logits[0, 0])


def settings(model: Path, **more: Any) -> dict[str, Any]:
    return {"model": str(model), "device": "cpu", "dtype": "float32", "batch_size": 2, **more}


def scored(reward: Reward, *batches: list[Rollout]) -> list[list[Rollout]]:
    async def run() -> list[list[Rollout]]:
        async with reward.open(Judge()):
            return list(await asyncio.gather(*map(reward, batches)))

    return asyncio.run(run())


def test_a_conversation_has_the_same_score_alone_and_in_a_batch(model: Path) -> None:
    reward = build({"reward_model": settings(model, shift=0.5, scale=2.0)})
    wanted = [1 / (1 + math.exp((0.5 - score_alone(model, one)) / 2)) for one in REPLIES]
    assert max(wanted) - min(wanted) > 0.1
    for batch in scored(reward, REPLIES, REPLIES[::-1]):
        found = {one.turns[-1].completion.text: one.score.total for one in batch if one.score}
        assert [found[one.turns[-1].completion.text] for one in REPLIES] == pytest.approx(wanted)


def test_a_gated_model_pays_nothing_for_a_failure_and_its_weight_mixes_it(model: Path) -> None:
    terms = {"tests": {"weight": 0.5}, "reward_model": settings(model, weight=0.5, gated=True)}
    wrong = rollout(Verdict.WRONG)
    ((right, failed),) = scored(build(terms), [REPLIES[0], wrong])
    assert right.score
    assert failed.score
    said = 1 / (1 + math.exp(-score_alone(model, REPLIES[0])))
    assert right.score.parts == pytest.approx({"tests": 0.5, "reward_model": 0.5 * said})
    assert failed.score.parts == {"tests": 0.0, "reward_model": 0.0}


def test_a_process_that_dies_is_replaced_and_a_batch_is_lost_where_none_lives(model: Path) -> None:
    async def run() -> None:
        text = json.dumps({**settings(model), "max_tokens": 64})
        scorer = Scorer(text, seconds=60)
        asked = [[{"role": "user", "content": "hello"}]]
        try:
            first, before = await scorer.scores(asked), (await scorer.start()).pid
            os.kill(before, signal.SIGKILL)
            assert await scorer.scores(asked) == first
            process = await scorer.start()
            assert process.pid != before
            scorer._seconds = 0.0  # a real limit may be met in time
            with pytest.raises(RolloutLostError, match=r"the reward model took over 0 s"):
                await scorer.scores(asked)
        finally:
            await scorer.end()
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)

    asyncio.run(run())


def test_a_model_without_a_trained_output_is_refused_when_the_stage_starts(tmp_path: Path) -> None:
    language_model = checkpoint(tmp_path, "qwen2", CHATML)
    why = "is no reward model: it needs a trained head with one output; fix rewards.reward_model"
    with pytest.raises(ModelError, match=why):
        scored(build({"reward_model": settings(language_model)}), REPLIES)


def children() -> list[int]:
    """The pids of our processes that hold a reward model."""
    tree = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    lines = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in tree}
    return [pid for pid, line in lines.items() if b"assay.policy.classifier" in line]


def test_a_batch_that_the_machine_loses_is_dropped_and_not_scored(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> list[Rollout]:
        reward = build({"reward_model": settings(model)})
        async with reward.open(Judge()):
            (pid,) = children()
            os.kill(pid, signal.SIGKILL)
            monkeypatch.setattr("assay.rewards.reward_model.PROGRAM", "this")  # it never answers
            return await reward(REPLIES)

    for one in asyncio.run(run()):
        assert (one.score, one.failure) == (None, "the reward model's process ended")
    assert children() == []


def test_what_a_dying_process_wrote_last_is_told() -> None:
    async def run() -> None:
        scorer = Scorer("{}", seconds=60)
        try:
            await scorer.start()
        finally:
            await scorer.end()

    with pytest.raises(RolloutLostError, match=r"process ended: .*: KeyError: 'batch_size'"):
        asyncio.run(run())
