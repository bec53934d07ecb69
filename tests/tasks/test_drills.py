"""Drills: right references, demonstrations wrong at the intended rate, splits that hold out what
they say.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from random import Random

import pytest

from assay.judge import Job
from assay.tasks import drills as drills_set
from assay.tasks import load
from assay.tasks.drills import composition
from assay.tasks.drills.operations import (
    FAMILIES,
    LETTER_FILTERS,
    LETTER_FOLDS,
    LETTER_MAPS,
    NUMBER_FILTERS,
    NUMBER_FOLDS,
    NUMBER_MAPS,
)
from assay.types import Task
from tests.judge.opened import judge_all
from tests.tasks import sources

SPLITS = ("train", "test", "longer")


@cache
def tasks(split: str) -> list[Task]:
    return load(f"drills:{split}")


def passes(task: Task, program: str) -> bool:
    """Whether the generator's own program passes the generator's own checks."""
    names: dict[str, object] = {}
    exec(program, names)
    try:
        for source in sources(task):
            exec(source, names)
    except AssertionError:
        return False
    return True


def drill(filters: tuple[int, ...], maps: tuple[int, ...], fold: int) -> composition.Composition:
    return composition.Composition(
        FAMILIES[0],
        tuple(NUMBER_FILTERS[n] for n in filters),
        tuple(NUMBER_MAPS[n] for n in maps),
        NUMBER_FOLDS[fold],
    )


EVEN_SQUARES_SUM = drill((0,), (0,), 0)


@pytest.mark.long
def test_the_splits_have_their_sizes() -> None:
    assert {split: len(tasks(split)) for split in SPLITS} == {
        "train": 1105,
        "test": 165,
        "longer": 100,
    }


def test_a_drill_by_hand() -> None:
    assert (
        composition.prompt(EVEN_SQUARES_SUM)
        == "# f(xs): keep the even numbers, square each, return the sum\n"
    )
    assert composition.run(EVEN_SQUARES_SUM, [3, -2, 4]) == 4 + 16
    assert (
        composition.short(EVEN_SQUARES_SUM)
        == "def f(xs):\n    return sum(x * x for x in xs if x % 2 == 0)\n"
    )
    assert (
        composition.commented(EVEN_SQUARES_SUM) == "def f(xs):\n"
        "    # keep the even numbers\n"
        "    kept = [x for x in xs if x % 2 == 0]\n"
        "    # square each\n"
        "    changed = [x * x for x in kept]\n"
        "    # return the sum\n"
        "    result = sum(changed)\n"
        "    return result\n"
    )
    assert (
        composition.loop(EVEN_SQUARES_SUM)
        == "def f(xs):\n    out = []\n    for x in xs:\n        if x % 2 == 0:\n"
        "            x = x * x\n            out.append(x)\n    return sum(out)\n"
    )


def test_a_drill_goes_wrong_by_a_slip_a_missing_stage_or_the_swapped_order() -> None:
    above_double = drill((4,), (1,), 0)  # above 3, double each, sum
    results = [composition.run(miss, [3, 2, 5]) for miss in composition.near_misses(above_double)]
    assert composition.run(above_double, [3, 2, 5]) == 10
    assert results == [3 * 2 + 5 * 2, (3 + 2 + 5) * 2, 5 + 2, 5, 10 + 1, 6 + 4 + 10]


def test_stages_compose_with_parentheses_only_where_needed() -> None:
    assert "(x * x) * 2 for x in xs" in composition.short(drill((), (0, 1), 0))
    assert "abs(x * 2) for x in xs" in composition.short(drill((), (1, 7), 0))
    assert "if x % 2 == 0 and x > 3" in composition.short(drill((0, 4), (), 0))


@pytest.mark.parametrize(
    "split", [pytest.param(one, marks=[pytest.mark.long] * (one != "longer")) for one in SPLITS]
)
def test_every_reference_passes_its_checks(split: str) -> None:
    assert [task.id for task in tasks(split) if not passes(task, str(task.reference))] == []


def test_references_pass_before_the_judge() -> None:
    some = [task for split in SPLITS for task in tasks(split)[:100:3]]
    executions = judge_all([Job(task, task.reference) for task in some])
    assert [
        (task.id, done.detail)
        for task, done in zip(some, executions, strict=True)
        if done.verdict != "pass"
    ] == []
    assert {done.passed for done in executions} == {5}


@pytest.mark.parametrize("style", list(composition.STYLES), ids=lambda style: style.__name__)
def test_every_style_of_every_drill_does_what_the_drill_does(
    style: Callable[[composition.Composition], str],
) -> None:
    for split in SPLITS:
        for task, drill in zip(tasks(split), drills_set.compositions()[split], strict=True):
            assert passes(task, style(drill)), style(drill)


def test_a_program_with_one_thing_wrong_behaves_as_computed_in_every_style() -> None:
    for style in composition.STYLES:
        for drill in drills_set.compositions()["train"][:300]:
            for miss in composition.near_misses(drill):
                names: dict[str, object] = {}
                exec(style(miss), names)
                given = drill.family.make_input(Random(7), 6)
                assert names["f"](given) == composition.run(miss, given), style(miss)  # type: ignore[operator]


def test_the_checks_tell_a_drill_from_what_is_nearly_it() -> None:
    draw, escaped, wrong = Random(1), 0, 0
    for task, drill in zip(tasks("train"), drills_set.compositions()["train"], strict=True):
        inputs = [drill.family.make_input(draw, size) for size in [3, 5, 7] * 30]
        for miss in composition.near_misses(drill):
            if any(
                composition.run(miss, given) != composition.run(drill, given) for given in inputs
            ):
                wrong += 1
                escaped += passes(task, composition.short(miss))
    assert wrong > 5000
    assert escaped / wrong < 0.01


def test_checks_cover_the_empty_input_and_a_single_element() -> None:
    for split in SPLITS:
        for task in tasks(split):
            assert len(task.checks) == 5
            assert [check.hidden for check in task.checks] == [False, False, True, True, True]
            assert sources(task)[3].startswith(("assert f([]) ==", "assert f('') =="))


def test_demonstrations_are_wrong_at_about_the_intended_rate() -> None:
    verdicts = [passes(task, text) for task in tasks("train") for text in task.demonstrations]
    assert len(verdicts) == 2 * len(tasks("train"))
    assert abs(verdicts.count(False) / len(verdicts) - drills_set.WRONG_SHARE) < 0.03
    assert 0.25 <= verdicts.count(False) / len(verdicts) <= 0.35
    assert not any(task.demonstrations for split in ("test", "longer") for task in tasks(split))


def test_demonstrations_are_wordier_than_the_references_and_all_is_short() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    train = tasks("train")
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=512, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    bpe.train_from_iterator(
        (task.prompt + text for task in train for text in task.demonstrations), trainer
    )

    def tokens(text: str | None) -> int:
        return len(bpe.encode(str(text)).ids)

    reference = sum(tokens(task.reference) for task in train) / len(train)
    wordy = sum(tokens(text) for task in train for text in task.demonstrations) / (2 * len(train))
    assert 1.5 <= wordy / reference <= 2.2
    assert 20 <= reference <= 30
    assert max(tokens(task.prompt) for split in SPLITS for task in tasks(split)) <= 40
    assert max(tokens(text) for task in train for text in task.demonstrations) <= 96
    assert all(text.isascii() for task in train for text in (task.prompt, *task.demonstrations))


def test_no_prompt_occurs_twice() -> None:
    prompts = [task.prompt for split in SPLITS for task in tasks(split)]
    assert len(set(prompts)) == len(prompts)


def test_test_combines_what_train_never_combines_but_knows() -> None:
    splits = drills_set.compositions()

    def pairs(split: str) -> set[tuple[str, str, str]]:
        return {
            (drill.family.argument, keep.phrase, change.phrase)
            for drill in splits[split]
            for keep in drill.filters
            for change in drill.maps
        }

    def stages(split: str) -> set[tuple[str, str]]:
        return {
            (drill.family.argument, stage.phrase)
            for drill in splits[split]
            for stage in drill.stages
        }

    assert pairs("test")
    assert not pairs("test") & pairs("train")
    assert stages("test") <= stages("train")
    assert stages("longer") <= stages("train")
    assert max(len(drill.stages) for drill in splits["train"]) == 3
    assert {len(drill.stages) for drill in splits["longer"]} == {4}


def test_no_drill_gives_the_same_for_nearly_every_input() -> None:
    above_and_negative = drill((3, 4), (), 0)
    assert not drills_set._is_meaningful(above_and_negative)
    assert drills_set._is_meaningful(EVEN_SQUARES_SUM)


def test_every_stage_matters() -> None:
    idle = composition.Composition(
        FAMILIES[0], (NUMBER_FILTERS[2],), (NUMBER_MAPS[7],), NUMBER_FOLDS[0]
    )
    assert "positive" in composition.prompt(idle)
    assert "absolute" in composition.prompt(idle)
    assert composition.prompt(idle) not in {
        task.prompt for split in SPLITS for task in tasks(split)
    }
    capitals = composition.Composition(
        FAMILIES[2], (LETTER_FILTERS[4],), (LETTER_MAPS[0],), LETTER_FOLDS[0]
    )
    assert composition.prompt(capitals) not in {
        task.prompt for split in SPLITS for task in tasks(split)
    }


@pytest.mark.long
def test_drills_are_the_same_in_every_process() -> None:
    code = (
        "import hashlib; from assay.tasks import load;"
        " print(hashlib.md5(repr(load('drills')).encode()).hexdigest())"
    )
    run = [sys.executable, "-c", code]
    found = {
        subprocess.run(
            run, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {hashlib.md5(repr(tasks("train")).encode()).hexdigest()}
