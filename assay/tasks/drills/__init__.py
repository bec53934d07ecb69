"""Drills: small generated functions over numbers, words and characters; the task set that needs no
download.

Four splits. `train` holds compositions of one to three stages. `test` holds compositions of a
filter and a map that never occur together in train, though each occurs with others. `longer` has
one more stage than any of train, and `more` others as long as those, to learn from. The
demonstrations of train and more are long and partly wrong, as real data are: reinforcement learning
has something to improve.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import combinations, permutations, product
from typing import Any

from assay.tasks import require_split, task_set
from assay.tasks.drills.composition import (
    STYLES,
    Composition,
    lacking_a_stage,
    near_misses,
    prompt,
    run,
    short,
)
from assay.tasks.drills.operations import FAMILIES
from assay.types import Check, Task

SEED = 2026
DEMONSTRATED = ("train", "more")
WRONG_SHARE = 0.3
"""Of the demonstrations: those with one thing wrong."""
DEMONSTRATIONS = 2
HELD_OUT_SHARE = 0.18
"""Of the pairs of a filter and a map: those kept for `test`."""
DOUBLES, LONGER, MORE = 50, 100, 1000
"""Compositions of two filters, and of two maps, in `train`; compositions in `longer`; at most in
`more`."""
CHECKS, VISIBLE = 5, 2
"""Per task. The model may see how a visible check failed."""
TRIAL_INPUTS = 16


@task_set
def drills(split: str = "train") -> Iterator[Task]:
    """Generated one-function problems, no download needed. Splits: train, test (new pairs), longer,
    more (as long).
    """
    require_split("drills", split, ("train", "test", "longer", "more"))
    for n, drill in enumerate(compositions()[split]):
        draw = random.Random(SEED + n)
        inputs = separating_inputs(drill, draw)
        asserts = [f"assert f({value!r}) == {run(drill, value)!r}" for value in inputs]
        yield Task(
            id=f"drills/{split}/{n}",
            prompt=prompt(drill),
            checks=tuple(Check(code, hidden=at >= VISIBLE) for at, code in enumerate(asserts)),
            entry_point="f",
            reference=short(drill),
            demonstrations=demonstrations(drill, inputs, draw, STYLES)
            if split in DEMONSTRATED
            else (),
            stop=("\n# f(",),
        )


@cache
def compositions() -> dict[str, list[Composition]]:
    """The drills of each split."""
    draw = random.Random(SEED)
    train, test = list[Composition](), list[Composition]()
    for family in FAMILIES:
        keeps, changes = [(stage,) for stage in family.filters], [(stage,) for stage in family.maps]
        pairs = list(product(keeps, changes))
        held_out = draw.sample(pairs, round(HELD_OUT_SHARE * len(pairs)))
        for pair, fold in product(pairs, family.folds):
            (test if pair in held_out else train).append(Composition(family, *pair, fold))
        alone = [((), ()), *product(keeps, [()]), *product([()], changes)]
        train += [Composition(family, *pair, fold) for pair, fold in product(alone, family.folds)]
    numbers = FAMILIES[0]
    two_filters = list(product(combinations(numbers.filters, 2), numbers.folds))
    two_maps = list(product(permutations(numbers.maps, 2), numbers.folds))
    only_filters = [Composition(numbers, pair, (), fold) for pair, fold in two_filters]
    only_maps = [Composition(numbers, (), pair, fold) for pair, fold in two_maps]
    train += _sample(draw, DOUBLES, only_filters) + _sample(draw, DOUBLES, only_maps)
    more_filters = [
        Composition(numbers, pair, (change,), fold)
        for (pair, fold), change in product(two_filters, numbers.maps)
    ]
    more_maps = [
        Composition(numbers, (keep,), pair, fold)
        for (pair, fold), keep in product(two_maps, numbers.filters)
    ]
    longer = _sample(draw, LONGER // 2, more_filters) + _sample(draw, LONGER // 2, more_maps)
    others = _sample(random.Random(SEED), MORE, more_filters + more_maps)
    more = [drill for drill in others if drill not in longer]
    splits = {"train": train, "test": test, "longer": longer, "more": more}
    for drills in splits.values():
        draw.shuffle(drills)
    return {split: list(filter(_is_meaningful, drills)) for split, drills in splits.items()}


def _sample(draw: random.Random, size: int, drills: Iterable[Composition]) -> list[Composition]:
    shuffled = list(drills)
    draw.shuffle(shuffled)
    return [drill for drill in shuffled[: 3 * size] if _is_meaningful(drill)][:size]


def _is_meaningful(drill: Composition) -> bool:
    """Whether every stage matters on some input (absolute values of positive numbers would not),
    and inputs do.
    """
    empty, _, *inputs = _usual_inputs(drill.family.make_input)
    answers = [run(drill, value) for value in inputs]
    return 2 * answers.count(run(drill, empty)) <= len(inputs) and all(
        any(run(miss, value) != answer for value, answer in zip(inputs, answers, strict=True))
        for miss in lacking_a_stage(drill)
    )


@cache
def _usual_inputs(make_input: Callable[..., Any]) -> list[Any]:
    return _trial_inputs(make_input, random.Random(SEED))


def _trial_inputs(make_input: Callable[..., Any], draw: random.Random) -> list[Any]:
    sizes = [0, 1, *(draw.randint(3, 7) for _ in range(TRIAL_INPUTS))]
    return [make_input(draw, size) for size in sizes]


def _differ(drill: Composition, other: Composition, value: Any) -> bool:
    return bool(run(drill, value) != run(other, value))


def separating_inputs(drill: Composition, draw: random.Random) -> list[Any]:
    """The empty input, one element, and the inputs that separate the drill from most of its near
    misses.
    """
    empty, single, *rest = _trial_inputs(drill.family.make_input, draw)
    inputs, alive = [empty, single], list(near_misses(drill))
    while len(inputs) < CHECKS:
        best = max(rest, key=lambda value: sum(_differ(drill, miss, value) for miss in alive))
        rest.remove(best)
        inputs.append(best)
        alive = [miss for miss in alive if not _differ(drill, miss, best)]
    return inputs[2:] + inputs[:2]


def demonstrations(
    drill: Composition,
    inputs: list[Any],
    draw: random.Random,
    styles: Mapping[Callable[[Composition], str], float],
) -> tuple[str, ...]:
    """Programs in styles drawn by their weights; WRONG_SHARE of them are near misses that fail on
    an input.
    """
    wrong = [
        miss for miss in near_misses(drill) if any(_differ(drill, miss, value) for value in inputs)
    ]
    writers = draw.choices(list(styles), list(styles.values()), k=DEMONSTRATIONS)
    return tuple(
        style(draw.choice(wrong) if wrong and draw.random() < WRONG_SHARE else drill)
        for style in writers
    )
