"""What a step draws follows from its number alone."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay import environments, rewards
from assay.engines.base import GenerationRequest, Sampling
from assay.errors import DataError
from assay.judge import Judge
from assay.policy.load_model import Policy
from assay.policy.source import source_of
from assay.rollout.attempt import RolloutContext, make_prompts
from assay.rollout.labels import read_labels, tasks_of_labels
from assay.rollout.pairs import read_pairs
from assay.rollout.prompter import Prompter
from assay.train.sources import DatasetSource, RolloutSource, StepData
from assay.train.stages import prepare
from assay.train.task_order import draw
from assay.types import Check, Message, Sample, Task
from tests.policies import TASKS, run_settings, tiny_policy
from tests.policy.test_chat import CHATML, chat_of
from tests.scripted import ScriptedEngine


def demonstrations(policy: Policy, shown: Sequence[Task], **changes: Any) -> DatasetSource:
    rows = [[sample] for task in shown for sample in Prompter(policy.chat).samples(task)]
    return DatasetSource(run_settings(**changes), rows, policy)


def test_the_longest_rows_fill_a_micro_batch_as_far_as_a_batch_goes(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    source = demonstrations(policy, TASKS, dataset={"batch_size": 3})
    lengths = sorted((len(row[0].tokens) for row in source.rows), reverse=True)
    longest = [len(sample.tokens) for sample in source.longest(lengths[0] + 1)]
    assert longest == lengths[:2]
    assert len(source.longest(10**6)) == min(3, len(lengths))


def test_an_epoch_serves_every_item_once_before_any_comes_again() -> None:
    served = [item for step in range(6) for item in draw(range(9), 3, step, seed=1)]
    assert sorted(served[:9]) == sorted(served[9:]) == list(range(9))
    assert served[:9] != served[9:], "each epoch has its own order"


def test_a_batch_may_cross_the_end_of_an_epoch_without_a_gap() -> None:
    served = [item for step in range(5) for item in draw(range(4), 6, step, seed=3)]
    assert sorted(served[:28]) == sorted([*range(4)] * 7)
    assert sorted(served.count(item) for item in range(4)) == [7, 7, 8, 8]


def test_a_step_draws_the_same_however_it_is_reached() -> None:
    assert draw(range(50), 8, 11, seed=2) == draw(range(50), 8, 11, seed=2)
    assert draw(range(50), 8, 11, seed=2) != draw(range(50), 8, 11, seed=4)


def test_a_batch_larger_than_the_data_takes_items_again() -> None:
    assert sorted(draw([1, 2], 4, 0, seed=0)) == [1, 1, 2, 2]


def test_demonstrations_come_in_batches_of_dialogues(tmp_path: Path) -> None:
    source = demonstrations(tiny_policy(tmp_path), TASKS, dataset={"batch_size": 5})
    seen = asyncio.run(source.next(0))
    assert len(seen.samples) == 5
    assert source.steps_per_epoch == len(TASKS) / 5
    assert all(any(sample.mask) for sample in seen.samples)


def test_tasks_without_anything_to_learn_from_are_refused(tmp_path: Path) -> None:
    bare = [Task("x", "p", (Check("assert f() == 1"),), "f")]
    with pytest.raises(DataError, match="neither demonstrations nor references"):
        demonstrations(tiny_policy(tmp_path), bare)


def test_what_does_not_fit_into_the_models_context_is_refused_by_name(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    long = replace(TASKS[3], reference="x = 1\n" * 200)
    with pytest.raises(
        DataError, match=r"task 't/3' has \d+ tokens to learn from.* context of 256; .*too_long"
    ):
        demonstrations(policy, [*TASKS[:3], long])
    assert len(make_prompts(TASKS, Prompter(policy.chat), 200, policy.context)) == len(TASKS)
    with pytest.raises(DataError, match=r"max_tokens = 250, .* context of 256"):
        make_prompts(TASKS, Prompter(policy.chat), 250, policy.context)


def test_what_does_not_fit_is_left_out_and_counted_where_the_settings_say_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = tiny_policy(tmp_path)
    drop = {"tasks": {"train": "drills:train", "too_long": "drop"}}
    long = [replace(task, reference="x = 1\n" * 200) for task in TASKS[3:5]]
    source = demonstrations(policy, [*TASKS[:3], *long], dataset={"batch_size": 3}, **drop)
    assert source.steps_per_epoch == 1
    assert {one.group for row in source.rows for one in row} == {"t/0", "t/1", "t/2"}
    (warning,) = [line for line in caplog.messages if "'t/3'" in line]
    assert "2 of 5" in warning
    pair = [[*source.rows[0], *demonstrations(policy, [TASKS[1]]).rows[0]]]
    whole = replace(pair[0][1], tokens=(1,) * 300)
    pairs = DatasetSource(run_settings(**drop), [*pair, [pair[0][0], whole]], policy)
    assert pairs.rows == pair, "a pair is left out whole"
    with pytest.raises(DataError, match="context of 256"):
        demonstrations(policy, long, **drop)


def test_a_prompt_without_room_for_its_completion_is_left_out_of_rollouts_as_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = tiny_policy(tmp_path)
    long = replace(TASKS[3], prompt="# f(xs): add\n" * 60)
    settings = run_settings(
        tasks={"train": "drills:train", "too_long": "drop"},
        rollout={"tasks_per_step": 3, "max_tokens": 100},
    )
    context: Any = SimpleNamespace(prompter=Prompter(policy.chat), generation=SimpleNamespace())
    source = RolloutSource(settings, [*TASKS[:3], long], policy, context)
    assert [one.task.id for one in source.tasks] == ["t/0", "t/1", "t/2"]
    assert source.steps_per_epoch == 1
    (warning,) = [line for line in caplog.messages if "'t/3'" in line]
    assert "1 of 4" in warning


def rolled(
    policy: Policy, answers: Iterator[tuple[str, str]], tasks_per_step: int, max_resamples: int
) -> StepData:
    """A step whose groups of two are written by `answers`, one after another, and judged."""

    def script(request: GenerationRequest, member: int) -> str:
        if member % 2 == 0:
            group.clear()
            group.extend(next(answers))
        return group[member % 2]

    async def run() -> StepData:
        async with Judge() as judge:
            engine = ScriptedEngine(script, lambda text: [ord(letter) for letter in text])
            settings = run_settings(
                rollout={"tasks_per_step": tasks_per_step, "group_size": 2, "max_tokens": 60}
            )
            reward = rewards.build({"tests": {}})
            sampling, talk = Sampling(60), environments.build({"name": "single_turn"})
            context = RolloutContext(
                engine, judge, Prompter(policy.chat), talk, reward, sampling, policy.context
            )
            return await RolloutSource(settings, ANY, policy, context, max_resamples).next(0)

    group: list[str] = []
    return asyncio.run(run())


ANY = [Task(f"any/{n}", "# f\n", (Check("assert f() == 1"),), "f") for n in range(9)]
RIGHT, WRONG = "def f():\n    return 1\n", "def f():\n    return 2\n"


def test_groups_of_equal_rewards_are_replaced_whole_until_enough_of_them_differ(
    tmp_path: Path,
) -> None:
    policy = tiny_policy(tmp_path)
    answers = iter([(WRONG, WRONG), (RIGHT, WRONG), (WRONG, WRONG), (WRONG, RIGHT), (WRONG, WRONG)])
    seen = rolled(policy, answers, tasks_per_step=2, max_resamples=5)
    assert next(answers) == (WRONG, WRONG), "nothing is sampled once there are enough"
    assert [sample.reward for sample in seen.samples] == [1, 0, 0, 1]
    assert len({sample.group for sample in seen.samples}) == 2
    assert {sample.limit for sample in seen.samples} == {60}
    assert (seen.metrics["rollout/rounds"], len(seen.groups)) == (3.0, 4)
    assert seen.metrics["reward/pass_rate"] == 0.25, "of all that was sampled: 2 of 8"


def test_a_refill_asks_the_next_tasks_and_none_again_before_all_were_asked(tmp_path: Path) -> None:
    answers = iter([(WRONG, WRONG)] * 99)
    seen = rolled(tiny_policy(tmp_path), answers, tasks_per_step=3, max_resamples=2)
    asked = [group[0].task.id for group in seen.groups]
    assert sorted(asked) == [f"any/{n}" for n in range(9)]


def test_refilling_ends_and_the_step_goes_without_what_is_missing(tmp_path: Path) -> None:
    answers = iter([(RIGHT, WRONG), *[(WRONG, WRONG)] * 9])
    seen = rolled(tiny_policy(tmp_path), answers, tasks_per_step=2, max_resamples=2)
    assert [sample.reward for sample in seen.samples] == [1, 0]
    assert seen.metrics["rollout/rounds"] == 3.0


def test_without_resampling_zero_variance_groups_stay(tmp_path: Path) -> None:
    seen = rolled(
        tiny_policy(tmp_path),
        iter([(RIGHT, RIGHT), (RIGHT, WRONG)]),
        tasks_per_step=2,
        max_resamples=0,
    )
    assert [sample.reward for sample in seen.samples] == [1, 1, 1, 0]
    assert [sample.passed for sample in seen.samples] == [True, True, True, False]


def write_rows(folder: Path, *rows: Mapping[str, object]) -> Path:
    file = folder / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_pairs_come_from_a_file_by_task_or_by_prompt(tmp_path: Path) -> None:
    chat = tiny_policy(tmp_path).chat
    file = write_rows(
        tmp_path,
        {"task_id": "t/3", "chosen": RIGHT, "rejected": WRONG},
        {"prompt": "# g\n", "chosen": "a\n", "rejected": "b\n"},
        {"task_id": "t/3", "chosen": WRONG, "rejected": "c\n"},
    )
    first, second, third = read_pairs(file, TASKS, Prompter(chat))
    assert [sample.passed for sample in first] == [True, False]
    assert [chat.text(sample.tokens) for sample in first] == [
        TASKS[3].prompt + RIGHT,
        TASKS[3].prompt + WRONG,
    ]
    assert [chat.text(sample.tokens) for sample in second] == ["# g\na\n", "# g\nb\n"]
    assert len({sample.group for sample in (*first, *second, *third)}) == 3, (
        "a row is a group by itself"
    )


USER, YES, NO = (
    {"role": role, "content": text}
    for role, text in (("user", "# g\n"), ("assistant", "a\n"), ("assistant", "b\n"))
)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": [USER], "chosen": [YES], "rejected": [NO]},
        {"prompt": [USER], "chosen": "a\n", "rejected": "b\n"},
        {"prompt": "# g\n", "chosen": [YES], "rejected": [NO]},
        {"prompt": "# g\n", "chosen": [YES], "rejected": "b\n"},
        {"chosen": [USER, YES], "rejected": [USER, NO]},
        {"prompt": "again", "chosen": [USER, YES], "rejected": [USER, NO], "score_chosen": 9.5},
    ],
)
def test_a_pair_of_messages_is_what_its_texts_would_be(
    tmp_path: Path, row: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    texts: dict[str, object] = {"prompt": "# g\n", "chosen": "a\n", "rejected": "b\n"}
    prompter = Prompter(chat_of(tmp_path, "auto", CHATML))
    (expected,), (group,) = (
        read_pairs(write_rows(tmp_path, fields), [], prompter) for fields in (texts, row)
    )
    assert [(one.tokens, one.mask, one.passed) for one in group] == [
        (one.tokens, one.mask, one.passed) for one in expected
    ]
    assert ("'score_chosen'" in caplog.text) == ("score_chosen" in row)


def labelled(folder: Path, *rows: Mapping[str, object]) -> list[list[tuple[str, str, bool]]]:
    """The text and the learned text of each sample of each row, and whether it is good."""
    chat = chat_of(folder, "auto", CHATML)

    def learned(sample: Sample) -> str:
        kept = zip(sample.tokens, sample.mask, strict=True)
        return chat.text([token for token, own in kept if own])

    return [
        [(chat.text(one.tokens), learned(one), one.passed) for one in group]
        for group in read_labels(write_rows(folder, *rows), TASKS, Prompter(chat))
    ]


def test_labels_of_messages_are_what_their_texts_would_be(tmp_path: Path) -> None:
    other = {"prompt": "longer", "completion": "c", "label": False}
    texts = labelled(tmp_path, {"prompt": "# g\n", "completion": "a\n", "label": True}, other)
    assert [[good for *_, good in group] for group in texts] == [[True, True], [False, False]]
    talk = {"prompt": [USER], "completion": [YES], "label": "True", "tools": []}
    assert labelled(tmp_path, talk, other) == texts


def test_a_labelled_completion_stands_behind_another_prompt_of_about_its_length_too(
    tmp_path: Path,
) -> None:
    prompts = ("aaa", "b", "aaa", "ccccccc", "dd")
    rows = [{"prompt": p, "completion": str(n), "label": n > 2} for n, p in enumerate(prompts)]
    groups = labelled(tmp_path, *rows)
    assert [own[0].count(p) for (own, _), p in zip(groups, prompts, strict=True)] == [1] * 5
    others = ("dd", "dd", "dd", "aaa", "b")  # the next shorter prompt; the shortest has none
    for n, ((own, other), prompt) in enumerate(zip(groups, others, strict=True)):
        assert other[0] == own[0].replace(prompts[n], prompt)
        assert own[1] == other[1] == f"{n}\n"


def test_labels_come_by_task_and_from_an_evaluation_too(tmp_path: Path) -> None:
    chat = tiny_policy(tmp_path).chat
    file = write_rows(
        tmp_path,
        {"task_id": "t/3", "completion": RIGHT, "label": True},
        {"task_id": "t/2", "reply": WRONG, "verdict": "wrong_answer"},
        {"task_id": "t/1", "reply": RIGHT, "verdict": "pass"},
        {"task_id": "t/0", "reply": RIGHT, "verdict": "pass", "forgeable": True},
    )
    groups = read_labels(file, TASKS, Prompter(chat))
    assert [group[0].passed for group in groups] == [True, False, True, False]
    assert chat.text(groups[0][0].tokens) == TASKS[3].prompt + RIGHT


def test_labels_need_no_training_tasks(tmp_path: Path) -> None:
    rows = [{"prompt": text, "completion": "a", "label": text == "x"} for text in ("x", "y")]
    labels = {"name": "kto", "labels": str(write_rows(tmp_path, *rows))}
    settings = run_settings(tasks={}, algorithm=labels)
    stage = prepare(settings, source_of(settings.policy), adapted=False)
    assert [task.prompt for task in stage.tasks] == ["x", "y"]
    assert stage.summary.endswith(f", 2 rows of {labels['labels']}")


@pytest.mark.parametrize(
    ("label", "says"),
    [(True, "good, .* add some that are bad, or .*'sft'"), (False, "bad, .* some that are good$")],
)
def test_labels_that_are_all_the_same_are_refused_before_a_model_is_loaded(
    tmp_path: Path, label: bool, says: str
) -> None:
    rows = [{"prompt": text, "completion": "a", "label": label} for text in ("x", "y")]
    file = write_rows(tmp_path, *rows)
    with pytest.raises(DataError, match=f"every completion of {file} is {says}"):
        tasks_of_labels(file)
    with pytest.raises(DataError, match=says):
        read_labels(file, [], Prompter(tiny_policy(tmp_path).chat))


def test_a_labelled_completion_begins_on_a_new_line_unless_it_begins_with_a_space(
    tmp_path: Path,
) -> None:
    chat = tiny_policy(tmp_path).chat
    file = write_rows(
        tmp_path,
        {"prompt": "# a", "completion": "x = 1\n", "label": True},
        {"prompt": "# b\n", "completion": "x = 1\n", "label": True},
        {"prompt": "x =", "completion": " 1\n", "label": False},
    )
    texts = [chat.text(own.tokens) for own, _ in read_labels(file, [], Prompter(chat))]
    assert texts == ["# a\nx = 1\n", "# b\nx = 1\n", "x = 1\n"]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"prompt": "p", "completion": "a"}, "'label' is missing"),
        ({"completion": "a", "label": True}, "'prompt' is missing"),
        ({"prompt": "p", "answer": "a", "label": True}, "'completion' is missing"),
        ({"prompt": "p", "completion": "a", "label": 1}, "'label' is '1'; make it true or false"),
        ({"prompt": "p", "completion": "a", "label": "good"}, "'label' is 'good'"),
        ({"prompt": "p", "chosen": "a", "rejected": "b"}, "algorithm.name = 'dpo'"),
        ({"prompt": [USER], "completion": [USER], "label": True}, "no answer of the assistant"),
        ({"prompt": "p", "completion": "", "label": True}, "nothing to learn from"),
        ({"task_id": "none", "completion": "a", "label": True}, "'none'"),
    ],
)
def test_a_row_without_a_labelled_completion_is_refused_with_its_line(
    tmp_path: Path, row: dict[str, object], says: str
) -> None:
    good = {"prompt": "p", "completion": "a", "label": True}
    with pytest.raises(DataError, match=f"pairs.jsonl, line 2: .*{says}") as why:
        read_labels(write_rows(tmp_path, good, row), [], Prompter(tiny_policy(tmp_path).chat))
    assert "\n" not in str(why.value)


def test_labels_of_one_prompt_are_refused(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "completion": text, "label": text == "a"} for text in "ab"]
    with pytest.raises(DataError, match="fewer than two prompts"):
        read_labels(write_rows(tmp_path, *rows), [], Prompter(tiny_policy(tmp_path).chat))


def test_pairs_that_answer_no_task_need_no_training_tasks(tmp_path: Path) -> None:
    def of_row(row: dict[str, object]) -> tuple[str, ...]:
        pairs = {"name": "dpo", "pairs": str(write_rows(tmp_path, row))}
        settings = run_settings(tasks={}, algorithm=pairs)
        stage = prepare(settings, source_of(settings.policy), adapted=False)
        return tuple(task.prompt for task in stage.tasks)

    assert of_row({"prompt": "# g\n", "chosen": "a", "rejected": "b"}) == ("# g\n",)
    assert of_row({"chosen": [USER, YES], "rejected": [USER, NO]}) == ("# g\n",)
    with pytest.raises(DataError, match="'t/1'"):
        of_row({"task_id": "t/1", "chosen": "a", "rejected": "b"})


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"chosen": [YES], "rejected": [NO]}, "'prompt' is missing"),
        ({"prompt": [USER], "chosen": [YES], "rejected": []}, "'rejected' 1 holds {}"),
        ({"prompt": [USER], "chosen": [YES]}, "'rejected' is missing"),
        ({"prompt": [USER], "chosen": [USER], "rejected": [NO]}, "no answer of the assistant"),
    ],
)
def test_a_pair_without_a_question_or_an_answer_is_refused_with_its_line(
    tmp_path: Path, row: dict[str, object], says: str
) -> None:
    with pytest.raises(DataError, match=f"pairs.jsonl, line 1: .*{says}"):
        read_pairs(write_rows(tmp_path, row), [], Prompter(tiny_policy(tmp_path).chat))


def test_a_pair_of_a_conversation_that_the_template_renders_again_has_the_answer_alone(
    tmp_path: Path,
) -> None:
    forgetful = CHATML.replace("{{ m.content }}", "{{ m.content if loop.last else 'x' }}")
    talk = tuple(Message(role, role[:1]) for role in ("user", "assistant", "user"))
    task = Task("talk", "u", (), "", messages=talk)
    file = write_rows(tmp_path, {"task_id": "talk", "chosen": "yes", "rejected": "no"})
    chat = chat_of(tmp_path, "auto", forgetful)
    (group,) = read_pairs(file, [task], Prompter(chat))
    learned = [
        chat.text([token for token, own in zip(one.tokens, one.mask, strict=True) if own])
        for one in group
    ]
    assert learned == ["yes", "no"]


def test_a_pass_that_a_program_could_have_forged_is_not_chosen(tmp_path: Path) -> None:
    rows = [{"task_id": "t/1", "reply": reply, "verdict": "pass"} for reply in (WRONG, RIGHT)]
    file = write_rows(tmp_path, {**rows[0], "forgeable": True}, {**rows[1], "forgeable": False})
    ((forged, right),) = read_pairs(file, TASKS, Prompter(tiny_policy(tmp_path).chat))
    assert (forged.passed, right.passed) == (False, True)


def test_pairs_come_from_the_samples_of_an_evaluation_where_a_task_has_both(tmp_path: Path) -> None:
    file = write_rows(
        tmp_path,
        {"task_id": "t/1", "reply": WRONG, "verdict": "wrong"},
        {"task_id": "t/2", "reply": RIGHT, "verdict": "pass"},
        {"task_id": "t/1", "reply": RIGHT, "verdict": "pass"},
    )
    (group,) = read_pairs(file, TASKS, Prompter(tiny_policy(tmp_path).chat))
    assert [(sample.group, sample.passed) for sample in group] == [("t/1", False), ("t/1", True)]


def test_a_pair_of_a_task_that_is_not_trained_on_and_a_file_without_pairs_are_refused(
    tmp_path: Path,
) -> None:
    chat = tiny_policy(tmp_path).chat
    with pytest.raises(DataError, match=r"line 1: .*'t/99'"):
        read_pairs(
            write_rows(tmp_path, {"task_id": "t/99", "chosen": "a", "rejected": "b"}),
            TASKS,
            Prompter(chat),
        )
    with pytest.raises(
        DataError, match="no task with a completion that passed and one that failed"
    ):
        read_pairs(
            write_rows(tmp_path, {"task_id": "t/1", "reply": RIGHT, "verdict": "pass"}),
            TASKS,
            Prompter(chat),
        )


def test_a_pair_drawn_twice_in_a_step_makes_two_groups(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    rows = read_pairs(
        write_rows(tmp_path, {"prompt": "p", "chosen": "a", "rejected": "b"}),
        [],
        Prompter(policy.chat),
    )
    samples = asyncio.run(
        DatasetSource(run_settings(dataset={"batch_size": 2}), rows, policy).next(0)
    ).samples
    assert [sample.group[0] for sample in samples] == ["0", "0", "1", "1"]


def test_a_set_has_its_share_of_the_draws_and_no_task_is_left_out(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    sets = {"t/0": "large", "t/1": "large", "t/2": "large", "t/3": "small"}
    context: Any = SimpleNamespace(prompter=Prompter(policy.chat), generation=SimpleNamespace())
    settings = run_settings(
        tasks={"train": ["large", "small"], "weights": [1, 3]}, rollout={"max_tokens": 8}
    )
    source = RolloutSource(settings, TASKS[:4], policy, context, sets=sets)
    counts = Counter(one.task.id for one in source.tasks)
    assert counts == {"t/0": 1, "t/1": 1, "t/2": 1, "t/3": 9}, "3 of 12 draws, and 9 of 12"
    drawn = Counter(one.task.id for one in draw(source.tasks, 12, 0, seed=5))
    assert drawn == counts


def test_demonstrations_of_a_set_have_its_share_too(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    rows = [[one] for task in TASKS[:3] for one in Prompter(policy.chat).samples(task)]
    sets = {"t/0": "large", "t/1": "large", "t/2": "small"}
    settings = run_settings(tasks={"train": ["large", "small"], "weights": [1, 1.5]})
    source = DatasetSource(settings, rows, policy, sets)
    counts = Counter(row[0].group for row in source.rows)
    assert counts == {"t/0": 1, "t/1": 1, "t/2": 3}
