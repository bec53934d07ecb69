"""Rollouts of several turns: seeds, room, stop strings, machine failures, scores, and the samples
they become.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from assay.algorithms import algorithms
from assay.engines.base import GenerationRequest, Sampling
from assay.environments import Conversation, environment
from assay.errors import MachineError, RolloutLostError, SandboxError, UserError
from assay.rewards import rewards
from assay.rollout.samples import describe, to_samples
from assay.train.batch import with_weights
from assay.types import Completion, Execution, Rollout, Score, Task, Turn, Verdict
from tests.rollout.talks import ADD, FLAT, RIGHT, WRONG, Overflowing, Writer, plain, talk


@environment
async def calculator(conversation: Conversation) -> None:
    """Reads up to an equals sign, and says what is right of it."""
    said = await conversation.reply(stop=("=",))
    conversation.show(f"{len(said)}")
    await conversation.reply()


@environment
async def lossy(conversation: Conversation) -> None:
    """The machine fails it after a reply."""
    await conversation.reply()
    raise RolloutLostError("the interpreter was lost")


def test_every_turn_has_a_seed_of_its_own_and_the_turns_own_stop_strings() -> None:
    task = replace(ADD, stop=("\n# f(",))
    _, asked = talk("1 + 1", RIGHT, task=task, environment={"name": "calculator"})
    assert [request.stop for request in asked] == [("\n# f(", "="), ("\n# f(",)]
    assert asked[0].seed != asked[1].seed


@pytest.mark.parametrize(
    ("environment", "more_turns"),
    [
        ({"name": "repair"}, [True, True, False]),
        ({"name": "repair", "turns": 1}, [False]),
        ({"name": "single_turn"}, [False]),
    ],
)
def test_the_engine_is_told_whether_a_turn_may_be_the_last(
    environment: dict[str, object], more_turns: list[bool]
) -> None:
    _, asked = talk(WRONG, WRONG, WRONG, environment=environment)
    assert [request.more_turns for request in asked] == more_turns
    assert len({request.rollout for request in asked}) == 1


@pytest.mark.parametrize(
    ("task", "environment"),
    [
        (replace(ADD, setup="1 / 0"), "repair"),
        (replace(ADD, setup="1 / 0"), "single_turn"),
        (ADD, "lossy"),
    ],
)
def test_what_the_machine_fails_on_any_turn_is_dropped_and_counted(
    task: Task, environment: str
) -> None:
    rollout, asked = talk(WRONG, RIGHT, task=task, environment={"name": environment})
    assert len(asked) == 1
    assert rollout.failure
    assert rollout.score is None
    assert to_samples([[rollout]]) == []
    assert describe([[rollout]]) == {
        "rollout/failed": float(environment == "lossy"),
        "rollout/unjudged": float(environment != "lossy"),
    }


@environment
async def silent(conversation: Conversation) -> None:
    """Asks for nothing."""


def test_an_environment_that_asks_for_no_reply_is_named() -> None:
    with pytest.raises(UserError, match=r"environment 'silent' asked for no reply \(task add\)"):
        talk(RIGHT, environment={"name": "silent"})


@environment
async def broken(conversation: Conversation) -> None:
    """The judge gives up."""
    await conversation.reply()
    raise SandboxError("21 of the last 200 programs failed on this machine")


def test_a_judge_that_gives_up_ends_the_run_and_not_one_rollout_after_another() -> None:
    with pytest.raises(SandboxError, match="21 of the last 200"):
        talk(RIGHT, environment={"name": "broken"})


def test_a_log_probability_that_is_no_number_ends_the_run_and_names_the_engine() -> None:
    with pytest.raises(MachineError, match=r"the engine \(Overflowing\) gave .*task add") as caught:
        talk(RIGHT, engine=Overflowing)
    assert "optimizer.lr" not in str(caught.value)
    assert not isinstance(caught.value, RolloutLostError), "others would be lost as well"


def test_a_context_without_room_for_a_reply_ends_the_rollout_with_the_reply_before() -> None:
    first, second = (len(request.prompt) for request in talk(WRONG, RIGHT)[1])
    assert second > first
    rollout, asked = talk(WRONG, RIGHT, context_length=second)
    assert len(asked) == 1
    assert rollout.execution
    assert rollout.execution.verdict is Verdict.WRONG


def test_a_reply_has_the_room_that_is_left() -> None:
    _, second = (len(request.prompt) for request in talk(WRONG, RIGHT)[1])
    rollout, _ = talk(WRONG, RIGHT, context_length=second + 3)
    assert [turn.completion.ended for turn in rollout.turns] == ["stop", "length"]
    assert rollout.turns[1].completion.tokens == plain().encode_reply(RIGHT)[:3]


def test_turns_are_scored_under_all_checks_where_the_settings_ask_for_it() -> None:
    rollout, _ = talk(WRONG, FLAT, rewards={"tests": {"mode": "fraction"}}, scores_turns=True)
    assert [turn.score.total for turn in rollout.turns if turn.score] == [0.0, 0.5]
    assert rollout.score == rollout.turns[-1].score
    (first, second) = to_samples([[rollout]])
    assert [first.reward, second.reward] == pytest.approx([0.0 + 0.4 * 0.5, 0.5])


def test_all_turns_of_a_group_are_scored_in_one_batch_with_the_turns_before_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = []

    async def turns(rollouts: Sequence[Rollout]) -> list[float]:
        batches.append([len(rollout.turns) for rollout in rollouts])
        return [float(len(rollout.turns)) for rollout in rollouts]

    monkeypatch.setitem(rewards._items, "turns", turns)
    rollout, _ = talk(WRONG, WRONG, RIGHT, rewards={"turns": {}}, scores_turns=True)
    assert batches == [[1, 2, 3]]
    assert [turn.score.total for turn in rollout.turns if turn.score] == [1.0, 2.0, 3.0]
    assert rollout.score == Score(3.0, {"turns": 3.0})


def turn(
    prompt: tuple[int, ...], tokens: tuple[int, ...], score: float | None = None, version: int = 1
) -> Turn:
    completion = Completion("x", tokens, (-0.5,) * len(tokens), "stop", (version,) * len(tokens))
    return Turn(
        prompt,
        completion,
        "x",
        Execution(Verdict.WRONG),
        score=None if score is None else Score(score),
    )


def rolled(*turns: Turn, total: float = 1.0) -> Rollout:
    return Rollout(ADD, turns, Score(total))


def test_turns_that_read_on_are_one_sample_with_the_mask_on_what_the_policy_wrote() -> None:
    (sample,) = to_samples(
        [[rolled(turn((1, 2), (3, 4), version=2), turn((1, 2, 3, 4, 9, 9), (5,)))]], limit=8
    )
    assert list(sample.tokens) == [1, 2, 3, 4, 9, 9, 5]
    assert list(sample.mask) == [False, False, True, True, False, False, True]
    assert list(sample.logprobs) == [0, 0, -0.5, -0.5, 0, 0, -0.5]
    assert [sample.version, sample.limit, sample.rollout] == [1, 16, None]


def test_a_conversation_that_was_rendered_otherwise_goes_on_in_a_sample_of_its_own() -> None:
    dialogue = rolled(
        turn((1, 2), (3, 4)), turn((1, 2, 7, 9), (5,)), turn((1, 2, 7, 9, 5, 9), (6,))
    )
    first, second = to_samples([[rolled(turn((1,), (2,)), total=0.0), dialogue]])[1:]
    assert list(zip(first.tokens, first.mask, strict=True)) == [(1, 0), (2, 0), (3, 1), (4, 1)]
    assert list(second.tokens) == [1, 2, 7, 9, 5, 9, 6]
    assert list(second.mask) == [False] * 4 + [True, False, True]
    assert first.rollout == second.rollout == 1


def test_parts_of_a_rollout_count_once_in_the_baseline_of_their_group() -> None:
    split = rolled(turn((1, 2), (3, 4)), turn((1, 2, 7, 9), (5,)), total=1.0)
    whole = [rolled(turn((1, 2), (3,)), total=0.0) for _ in range(3)]
    samples = (
        algorithms["grpo"]
        .build({"name": "grpo", "scale": "none"})
        .compute_advantages(to_samples([[split, *whole]]))
    )
    assert [sample.advantages[-1] for sample in samples] == [0.75, 0.75, -0.25, -0.25, -0.25]


def test_no_detour_is_worth_more_than_the_right_answer_at_once() -> None:
    near = rolled(turn((1,), (2,), 0.8), turn((1, 2, 3), (4,), 0.8), turn((1, 2, 3, 4), (5,), 1.0))
    assert [sample.reward for sample in to_samples([[near]])] == [0.8, 0.8, 1.0]


def test_the_token_limit_of_a_sample_is_that_of_all_its_turns() -> None:
    many = rolled(turn((1,), (2,)), turn((1, 2, 3), (4,)), turn((1, 2, 3, 4, 5), (6,)))
    samples = to_samples([[many, rolled(turn((1,), (2,)))]], limit=8)
    assert [sample.limit for sample in samples] == [24, 8]


def test_the_constant_of_dr_grpo_does_not_depend_on_the_number_of_turns() -> None:
    one = rolled(turn((1,), (2,)))
    three = rolled(turn((1,), (2,)), turn((1, 2, 3), (4,)), turn((1, 2, 3, 4, 5), (6,)))
    for groups in ([[one, one]], [[one, three]], [[three, three]]):
        samples = to_samples(groups, limit=8)
        # two completions, each divided by the limit of 8 tokens
        assert [s.weight for s in with_weights(samples, "constant", 8)] == [1 / 16] * 2


def test_parts_of_a_rollout_weigh_as_much_as_a_whole_one() -> None:
    split = rolled(turn((1, 2), (3, 4)), turn((1, 2, 7, 9), (5,)))
    samples = to_samples([[split, rolled(turn((1,), (2,)))]], limit=2)
    assert [s.weight for s in with_weights(samples, "completions", 2)] == pytest.approx(
        [1 / 6, 1 / 6, 1 / 2]
    )
    assert [s.weight for s in with_weights(samples, "constant", 2)] == [1 / 4] * 3, (
        "two rollouts, each divided by two tokens"
    )
    assert [s.weight for s in with_weights(samples, "tokens", 2)] == [1 / 4] * 3


def test_a_scored_turn_is_worth_the_most_of_its_own_score_and_the_later_ones_discounted() -> None:
    dialogue = rolled(
        turn((1,), (2,), 0.5), turn((1, 2, 3), (4,), 0.0), turn((1, 2, 3, 4), (5,), 1.0)
    )
    samples = to_samples([[dialogue]])
    assert [sample.reward for sample in samples] == pytest.approx([0.5, 0.4, 1.0])
    assert [tuple(sample.tokens) for sample in samples] == [(1, 2), (1, 2, 3, 4), (1, 2, 3, 4, 5)]
    assert [sum(sample.mask) for sample in samples] == [1, 1, 1]
    assert [sample.group for sample in samples] == ["0/add/0", "0/add/1", "0/add/2"]
    unscored = rolled(turn((1,), (2,)), turn((1, 2, 3), (4,), 1.0))
    assert [sample.reward for sample in to_samples([[unscored]])] == [0.4, 1.0]


def test_scored_turns_compete_with_the_same_turn_of_the_other_rollouts() -> None:
    passed = rolled(turn((1,), (2,), 1.0))
    mended = rolled(turn((1,), (3,), 0.0), turn((1, 3, 9), (4,), 1.0))
    failed = rolled(turn((1,), (5,), 0.0), turn((1, 5, 9), (6,), 0.0))
    samples = to_samples([[passed, mended, failed]])
    estimated = (
        algorithms["grpo"].build({"name": "grpo", "scale": "none"}).compute_advantages(samples)
    )
    advantages = {sample.tokens[-1]: sample.advantages[-1] for sample in estimated}
    assert advantages == pytest.approx({2: 8 / 15, 3: -1 / 15, 5: -7 / 15, 4: 0.5, 6: -0.5}), (
        "means over each turn: of 1, 0.4, 0 and of 1, 0"
    )


def test_the_tokens_of_a_real_dialogue_are_one_sample() -> None:
    rollout, asked = talk(WRONG, RIGHT, sampling=Sampling(60))
    (sample,) = to_samples([[rollout]], limit=60)
    wrong, right = plain().encode_reply(WRONG), plain().encode_reply(RIGHT)
    assert tuple(sample.tokens) == asked[1].prompt + right
    learned = tuple(token for token, own in zip(sample.tokens, sample.mask, strict=True) if own)
    assert learned == wrong + right
    assert describe([[rollout]])["rollout/turns"] == 2.0


class Slow(Writer):
    """Takes a tenth of a second for each reply."""

    async def generate(self, request: GenerationRequest, sampling: Sampling) -> Completion:
        await asyncio.sleep(0.1)
        completion: Completion = await super().generate(request, sampling)
        return completion


def test_the_time_of_a_rollout_holds_all_its_turns_and_makes_no_rollout_another() -> None:
    rollout, asked = talk(WRONG, RIGHT, engine=Slow)
    assert len(asked) == 2
    assert rollout.seconds >= 0.2
    assert replace(rollout, seconds=0.0) == rollout
