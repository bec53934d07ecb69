"""Rollouts by a scripted engine and a real judge: who is judged, what is scored, what is left
out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from assay import environments, rewards
from assay.algorithms.reward_shaping import drop_zero_variance
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.openai import hosted_chat
from assay.errors import UserError
from assay.judge import Judge
from assay.rewards import Reward, Term
from assay.rollout.attempt import PromptedTask, RolloutContext
from assay.rollout.group import group
from assay.rollout.prompter import Prompter
from assay.rollout.samples import describe, to_samples
from assay.sync import together
from assay.types import Check, Completion, Execution, Rollout, Score, Task, Turn, Verdict
from tests.judge.opened import with_judge
from tests.scripted import ScriptedEngine

ADD = Task("add", "Add.", (Check("assert f(1, 2) == 3"), Check("assert f(1, 1) == 2")), "f")
NEG = Task("neg", "Negate.", (Check("assert f(2) == -2"),), "f")
ANSWERS = {
    (0, 0): "def f(a, b):\n    return a + b\n",
    (0, 1): "def f(a, b):\n    return 3\n",
    (1, 0): "I cannot do that.",
    (1, 1): "def f(x):\n    return -x\n",
}
PROMPTS = {(1, 2): 0, (3,): 1}


def gather(
    script: Callable[[GenerationRequest, int], str], reward: Reward,
    asked: list[PromptedTask] | None = None
) -> list[list[Rollout]]:  # fmt: skip
    """Two rollouts of each task."""

    async def run(judge: Judge) -> list[list[Rollout]]:
        engine = ScriptedEngine(script, lambda text: [ord(letter) for letter in text])
        await engine.load(None, 5)
        talk = environments.build({"name": "single_turn"})
        prompter = Prompter(hosted_chat("auto"))
        context = RolloutContext(engine, judge, prompter, talk, reward, Sampling(1000))
        prompts = asked or [PromptedTask(ADD, (1, 2)), PromptedTask(NEG, (3,))]
        return await together(group(one, 2, context, seed=0) for one in prompts)

    return with_judge(run, stop_early=False)


def answered() -> list[list[Rollout]]:
    reward = rewards.build({"tests": {"mode": "fraction"}, "length": {"alpha": 1.0}})
    return gather(lambda request, member: ANSWERS[PROMPTS[request.prompt], member], reward)


def test_groups_come_in_the_order_of_tasks_with_verdicts_and_scores() -> None:
    made = answered()
    verdicts = [[r.execution.verdict for r in group if r.execution] for group in made]
    assert verdicts == [[Verdict.PASS, Verdict.WRONG], [Verdict.NO_CODE, Verdict.PASS]]
    length = len(ANSWERS[0, 0])
    totals = [r.score.total for group in made for r in group if r.score]
    assert totals == pytest.approx([1 - length / 100, 0.5, 0.0, 1 - len(ANSWERS[1, 1]) / 100])


def test_samples_hold_prompt_and_completion_with_the_mask_on_the_completion() -> None:
    samples = to_samples(answered())
    assert [sample.group for sample in samples] == ["0/add", "0/add", "1/neg", "1/neg"]
    first = samples[0]
    assert list(first.tokens[:2]) == [1, 2]
    assert list(first.mask) == [False, False] + [True] * len(ANSWERS[0, 0])
    assert len(first.logprobs) == len(first.tokens)
    assert first.version == 5


def rollout(
    task: Task, total: float | None, verdict: Verdict = Verdict.WRONG, tokens: int = 4
) -> Rollout:
    completion = Completion(
        "x", (7,) * tokens, (-1.0,) * tokens, "length" if tokens > 4 else "stop", (1,) * tokens
    )
    turn = Turn((1,), completion, "x", Execution(verdict))
    if total is None:
        return Rollout(task, (turn,), None, failure="the machine")
    return Rollout(task, (turn,), Score(total, {"tests": total}))


def test_what_the_machine_failed_is_counted_and_left_out_of_every_mean() -> None:
    groups = [
        [
            rollout(ADD, 1.0, Verdict.PASS),
            rollout(ADD, None, Verdict.INFRA),
            rollout(ADD, 0.0, tokens=10),
        ],
        [rollout(NEG, 0.0), rollout(NEG, 0.0)],
    ]
    assert len(to_samples(groups)) == 4
    assert describe(groups) == pytest.approx(
        {
            "rollout/failed": 1.0, "rollout/unjudged": 0.0,
            "reward/tests": 0.25, "reward/mean": 0.25,
            # rewards 1, 0, 0, 0: the mean of the squares is 1/4, the square of the mean 1/16
            "reward/tests_std": (1 / 4 - 1 / 16) ** 0.5, "reward/std": 3**0.5 / 4,
            "reward/pass_rate": 0.25, "reward/pass@k": 0.5,
            "rollout/length": (4 + 10 + 4 + 4) / 4, "rollout/length_min": 4.0,
            "rollout/length_max": 10.0, "rollout/truncated": 0.25, "rollout/turns": 1.0,
            "rollout/forgeable": 0.0,
            "rollout/zero_variance_groups": 0.5, "rollout/groups": 2.0,
            "rollout/entropy": 1.0,  # every token has the log-probability -1
            "reward/gain_of_passing": 1.0,  # in the first group alone both are there
            "verdict/pass": 0.25, "verdict/wrong": 0.75,
        }
    )  # fmt: skip


def test_a_group_has_zero_variance_below_the_tolerance_for_the_metric_and_for_samples() -> None:
    near, far = ([rollout(ADD, 0.5), rollout(ADD, 0.5 + gap)] for gap in (1e-4, 1e-3))
    # standard deviations of half the gap, around the tolerance of 1e-4
    assert describe([near, far])["rollout/zero_variance_groups"] == 0.5
    assert len(drop_zero_variance(to_samples([near, far]))) == 2


def test_the_gain_of_passing_is_the_mean_over_groups_with_passes_and_failures() -> None:
    def passed(reward: float) -> Rollout:
        return rollout(ADD, reward, Verdict.PASS)

    wrong = [passed(-1.0), passed(-2.0), rollout(ADD, 0.5)]  # -1.5 and 0.5
    right = [passed(1.0), rollout(ADD, 0.0)]
    assert describe([wrong, right])["reward/gain_of_passing"] == pytest.approx((-2 + 1) / 2)
    assert "reward/gain_of_passing" not in describe([[passed(1.0)], [rollout(ADD, 0.0)]])


def test_turns_that_are_scored_are_compared_with_the_same_turn() -> None:
    def scored(*scores: float) -> Rollout:
        turn = rollout(ADD, scores[-1]).turns[0]
        turns = tuple(replace(turn, score=Score(score)) for score in scores)
        return replace(rollout(ADD, scores[-1]), turns=turns)

    equal, other = [scored(0.0, 1.0), scored(0.0, 1.0)], [scored(0.0, 1.0), scored(1.0)]
    assert describe([equal, other])["rollout/zero_variance_groups"] == 0.5


def test_a_step_that_the_machine_failed_altogether_has_no_reward_rather_than_zero() -> None:
    lost = describe([[rollout(ADD, None, Verdict.INFRA)]])
    assert lost == {"rollout/failed": 1.0, "rollout/unjudged": 0.0}


def test_the_same_task_twice_in_a_step_makes_two_groups() -> None:
    groups = [[rollout(ADD, 1.0)], [rollout(replace(ADD), 0.0)]]
    assert [sample.group for sample in to_samples(groups)] == ["0/add", "1/add"]


def test_a_failing_engine_stops_the_collection() -> None:
    def script(request: GenerationRequest, member: int) -> str:
        raise ValueError("no words")

    with pytest.raises(ValueError, match="no words"):
        gather(script, rewards.build({"tests": {}}))


def test_what_a_reward_raises_is_the_users_error_with_its_cause() -> None:
    def refuse(rollout: Rollout) -> float:
        raise ArithmeticError("too many")

    with pytest.raises(UserError, match="'x' raised ArithmeticError: too many") as raised:
        gather(lambda request, member: ANSWERS[0, 0], Reward([Term("x", refuse, 1.0)]))
    assert isinstance(raised.value.__cause__, ArithmeticError), "it holds the plug-in's line"
