"""The drills over numbers and words, in JavaScript: calls of a function, judged by node."""

from __future__ import annotations

import random
from collections.abc import Iterator

from assay.judge.codec import Packer
from assay.tasks import require_split, task_set
from assay.tasks.drills import SEED, VISIBLE, compositions, demonstrations, separating_inputs
from assay.tasks.drills.composition import Composition, prompt, run
from assay.tasks.drills.operations import Operation
from assay.types import Call, Task

TESTED = 64
"""Tasks of `test`."""
STAGES = {
    "1 <= {0} <= 6": "1 <= {0} && {0} <= 6", "1 <= {0} < 6": "1 <= {0} && {0} < 6",
    "{0} % 2 == 1": "{0} % 2 != 0", "{0} % 5": "({0} % 5 + 5) % 5",
    "{0} // 5": "Math.floor({0} / 5)", "abs({0})": "Math.abs({0})",
    "len({0}) > 3": "{0}.length > 3", "len({0}) >= 3": "{0}.length >= 3",
    "len({0}) < 5": "{0}.length < 5", "len({0}) <= 5": "{0}.length <= 5",
    '"e" in {0}': '{0}.includes("e")', '"e" not in {0}': '!{0}.includes("e")',
    '"a" in {0}': '{0}.includes("a")', '"a" not in {0}': '!{0}.includes("a")',
    '{0}[-1] == "t"': '{0}.at(-1) == "t"', "{0}[-1]": "{0}.at(-1)",
    "{0}.upper()": "{0}.toUpperCase()", "{0}.title()": "{0}.toLowerCase()",
    "{0}[::-1]": '[...{0}].reverse().join("")', "{0}[1:]": "{0}.slice(1)",
}  # fmt: skip
"""Python of filters and maps, in JavaScript; what is not here is the same."""
WORDS = {"{0} * 2": "{0}.repeat(2)", "{0} * 3": "{0}.repeat(3)"}
FOLDS = {
    "sum({0})": "{0}.reduce((a, b) => a + b, 0)", "sum({0}, 1)": "{0}.reduce((a, b) => a + b, 1)",
    "len(set({0}))": "new Set({0}).size", "len({0})": "{0}.length", "{0}": "{0}",
    "{0}[::-1]": "[...{0}].reverse()", "{0}[::2]": "{0}.filter((_, n) => n % 2 == 0)",
    "{0}[1::2]": "{0}.filter((_, n) => n % 2 == 1)", '"-".join({0})': '{0}.join("-")',
    '"".join({0})': '{0}.join("")', 'len("".join({0}))': '{0}.join("").length',
}  # fmt: skip
SORTED = {
    "xs": {"sorted({0})": "[...{0}].sort((a, b) => a - b)",
           "sorted({0})[::-1]": "[...{0}].sort((a, b) => b - a)"},
    "ws": {"sorted({0})": "[...{0}].sort()", "sorted({0})[::-1]": "[...{0}].sort().reverse()"},
}  # fmt: skip


@task_set
def drills_javascript(split: str = "train") -> Iterator[Task]:
    """The drills over numbers and words in JavaScript, no download needed. Splits: train, test."""
    require_split("drills_javascript", split, ("train", "test"))
    translated = [drill for drill in compositions()[split] if _fold(drill, "") is not None]
    for n, drill in enumerate(translated[:TESTED] if split == "test" else translated):
        draw = random.Random(SEED + n)
        inputs = separating_inputs(drill, draw)
        texts = [(Packer().text([value]), Packer().text(run(drill, value))) for value in inputs]
        yield Task(
            id=f"drills_javascript/{split}/{n}",
            prompt=f"//{prompt(drill).removeprefix('#')}",
            checks=tuple(Call(*text, hidden=at >= VISIBLE) for at, text in enumerate(texts)),
            entry_point="f",
            language="javascript",
            reference=short(drill),
            demonstrations=demonstrations(drill, inputs, draw, {short: 0.5, steps: 0.5})
            if split == "train"
            else (),
            stop=("\n// f(",),
        )


def short(drill: Composition) -> str:
    """One chain of calls."""
    chain = "".join(_call(drill, stage) for stage in _stages(drill))
    argument = drill.family.argument
    return f"const f = ({argument}) => {_fold(drill, argument + chain)};\n"


def steps(drill: Composition) -> str:
    """A variable and a comment for every stage."""
    lines, last = [], drill.family.argument
    for name, stage in zip("abcd", _stages(drill), strict=False):
        lines += [f"// {stage.phrase}", f"const {name} = {last}{_call(drill, stage)};"]
        last = name
    lines += [f"// {drill.fold.phrase}", f"return {_fold(drill, last)};"]
    body = "".join(f"  {line}\n" for line in lines)
    return f"const f = ({drill.family.argument}) => {{\n{body}}};\n"


def _stages(drill: Composition) -> tuple[Operation, ...]:
    return drill.maps + drill.filters if drill.maps_first else drill.filters + drill.maps


def _call(drill: Composition, stage: Operation) -> str:
    """A stage as a method: `.filter((x) => x > 0)`."""
    method = "filter" if stage in drill.filters else "map"
    word_stages = WORDS if drill.family.argument == "ws" else {}
    code = {**STAGES, **word_stages}.get(stage.code, stage.code).format(drill.family.element)
    return f".{method}(({drill.family.element}) => {code})"


def _fold(drill: Composition, of: str) -> str | None:
    """The result in JavaScript; None where that is not known."""
    code = {**FOLDS, **SORTED.get(drill.family.argument, {})}.get(drill.fold.code)
    return code and code.format(of) if drill.family.argument in SORTED else None
