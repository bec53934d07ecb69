"""A drill is a composition of operations: what it says, what it does, how it is written, how it
goes wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from assay.tasks.drills.operations import Family, Operation


@dataclass(frozen=True, slots=True)
class Composition:
    """Filters, then maps, then one fold."""

    family: Family
    filters: tuple[Operation, ...]
    maps: tuple[Operation, ...]
    fold: Operation
    maps_first: bool = False
    """The swapped order: a way to go wrong."""

    @property
    def stages(self) -> tuple[Operation, ...]:
        """All operations, in the prompt's order."""
        return (*self.filters, *self.maps, self.fold)


def prompt(drill: Composition) -> str:
    """`# f(xs): keep the even numbers, square each, return the sum`, with a line end."""
    return f"# f({drill.family.argument}): {', '.join(stage.phrase for stage in drill.stages)}\n"


def run(drill: Composition, value: Any) -> Any:
    """What the drill's function returns for `value`."""
    items = list(value)
    if drill.maps_first:
        items = _mapped(drill, items)
    items = [item for item in items if all(keep.run(item) for keep in drill.filters)]
    return drill.fold.run(items if drill.maps_first else _mapped(drill, items))


def _mapped(drill: Composition, items: list[Any]) -> list[Any]:
    for change in drill.maps:
        items = [change.run(item) for item in items]
    return items


def near_misses(drill: Composition) -> Iterator[Composition]:
    """The drill with one thing wrong: a slip in a stage, a stage left out, or the order swapped."""
    yield from (replace(drill, filters=stages) for stages in _one_wrong(drill.filters))
    yield from (replace(drill, maps=stages) for stages in _one_wrong(drill.maps))
    yield from (replace(drill, fold=fold) for fold in _slips(drill.fold))
    if drill.filters and drill.maps:
        yield replace(drill, maps_first=True)


def _one_wrong(stages: tuple[Operation, ...]) -> Iterator[tuple[Operation, ...]]:
    for n, stage in enumerate(stages):
        yield (*stages[:n], *_slips(stage), *stages[n + 1 :])
        yield (*stages[:n], *stages[n + 1 :])


def lacking_a_stage(drill: Composition) -> Iterator[Composition]:
    """The drill without one filter or map, for each of them."""
    size = len(drill.stages)
    return (miss for miss in near_misses(drill) if len(miss.stages) < size)


def _slips(stage: Operation) -> tuple[Operation, ...]:
    return (stage.slip,) if stage.slip else ()


def short(drill: Composition) -> str:
    """One comprehension inside the fold: the reference's style."""
    x, source = drill.family.element, drill.family.argument
    if drill.maps_first:
        core = f"{x} for {x} in [{_changed(drill, x)} for {x} in {source}] if {_condition(drill)}"
    else:
        condition = f" if {_condition(drill)}" if drill.filters else ""
        core = f"{_changed(drill, x)} for {x} in {source}{condition}"
    takes_generator = "({0})" in drill.fold.code and "len({0})" not in drill.fold.code
    return _function(
        drill, f"return {drill.fold.code.format(core if takes_generator else f'[{core}]')}"
    )


def steps(drill: Composition, *, comments: bool = False) -> str:
    """A variable for every stage; with `comments`, one of them above each."""
    x = drill.family.element
    keep = drill.filters, "kept", f"{x} for {x} in {{0}} if {_condition(drill)}"
    change = drill.maps, "changed", f"{_changed(drill, x)} for {x} in {{0}}"
    lines, last = list[str](), drill.family.argument
    for stages, name, core in (change, keep) if drill.maps_first else (keep, change):
        if stages:
            lines += [f"# {', '.join(stage.phrase for stage in stages)}"] if comments else []
            lines.append(f"{name} = [{core.format(last)}]")
            last = name
    result = drill.fold.code.format(last)
    if not comments:
        return _function(drill, *lines, f"return {result}")
    return _function(drill, *lines, f"# {drill.fold.phrase}", f"result = {result}", "return result")


def commented(drill: Composition) -> str:
    """A variable and a comment for every stage, the result included."""
    return steps(drill, comments=True)


def loop(drill: Composition) -> str:
    """A loop that fills a list."""
    x = drill.family.element
    change = [f"{x} = {_changed(drill, x)}"] if drill.maps else []
    inside = [f"out.append({x})"]
    if drill.filters:
        inner = inside if drill.maps_first else change + inside
        inside = [f"if {_condition(drill)}:", *(f"    {line}" for line in inner)]
    if drill.maps_first or not drill.filters:
        inside = change + inside
    head = ["out = []", f"for {x} in {drill.family.argument}:"]
    return _function(
        drill, *head, *(f"    {line}" for line in inside), f"return {drill.fold.code.format('out')}"
    )


STYLES: dict[Callable[[Composition], str], float] = {
    short: 0.35,
    steps: 0.15,
    loop: 0.15,
    commented: 0.35,
}
"""How a drill may be written, and how often each is drawn for demonstrations."""


def _function(drill: Composition, *lines: str) -> str:
    return f"def f({drill.family.argument}):\n" + "".join(f"    {line}\n" for line in lines)


def _condition(drill: Composition) -> str:
    return " and ".join(keep.code.format(drill.family.element) for keep in drill.filters)


def _changed(drill: Composition, element: str) -> str:
    for change in drill.maps:
        stands_alone = element.isidentifier() or "({0})" in change.code
        element = change.code.format(element if stands_alone else f"({element})")
    return element
