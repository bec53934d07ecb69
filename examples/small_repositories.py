"""Writes small Python packages with tests, into which `assay make-tasks` puts bugs: repositories
that a small model can learn on a laptop.

    python examples/small_repositories.py packages --count 41
    python examples/small_repositories.py held-out --count 16 --split test
    assay make-tasks packages/* --output made --count 8

A package is one module of four functions, each with a line that says what it does, and a file with
one test for each. The functions are drills; those of `test` combine steps that never occur together
in `train`. The same seed writes the same files.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterator
from pathlib import Path

from assay.tasks.drills import Composition, compositions, run, separating_inputs
from assay.tasks.drills.composition import loop, prompt, steps

NOUNS = (
    "prices", "scores", "votes", "levels", "depths", "speeds", "grades", "visits", "orders",
    "sales", "costs", "ages", "weights", "heights", "steps", "tickets", "points", "ranks",
    "laps", "goals", "lots", "notes", "titles", "labels", "colours", "birds", "plants",
    "rivers", "towns", "streets", "codes", "tags", "keys", "lines", "signs", "marks", "rooms",
    "doors", "seats", "boxes", "cards", "coins", "maps", "games", "songs", "films", "books",
    "pages", "plays", "meals", "spices", "fruits", "trees", "stones", "shells", "clouds",
    "winds",
)  # fmt: skip
FUNCTIONS = 4
"""Functions of a package."""
DULL = (
    "keep", "drop", "take", "the", "those", "each", "return", "with", "an", "a", "in", "to",
    "of", "from", "or", "and", "them", "it", "is", "one", "ones", "words", "numbers", "list",
    "string", "add", "longer", "than", "total",
)  # fmt: skip
"""Words of a drill that its function's name leaves out."""


def name_of(drill: Composition) -> str:
    """`even_square_sum` for "keep the even numbers, square each, return the sum"."""
    words = re.findall(r"[a-z0-9]+", prompt(drill).partition(": ")[2])
    return "_".join(["f", *(word for word in words if word not in DULL)][:6]).removeprefix("f_")


def package(noun: str, drills: list[Composition], draw: random.Random) -> dict[str, str]:
    """The files of a package by path."""
    functions, tests, names = [], [], []
    for drill in drills:
        name = re.sub(r"^(?=\d)", "of_", name_of(drill))
        names.append(name)
        says = prompt(drill).partition(": ")[2].strip()
        head, body = draw.choice((steps, loop))(drill).split("\n", 1)
        functions.append(
            f'{head.replace("def f(", f"def {name}(")}\n    """{says.capitalize()}."""\n{body}'
        )
        asserts = [
            f"    assert {name}({value!r}) == {run(drill, value)!r}\n"
            for value in separating_inputs(drill, draw)[:3]
        ]
        tests.append(f"def test_{name}():\n{''.join(asserts)}")
    imports = f"from {noun} import {', '.join(names)}\n"
    return {
        f"{noun}.py": "\n\n".join([f'"""About {noun}."""\n', *functions]),
        f"tests/test_{noun}.py": "\n\n".join([imports, *tests]),
    }


def packages(split: str, count: int, seed: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Names and files of packages, none of which shares a function with another."""
    draw = random.Random(f"{split} {seed}")
    nouns = NOUNS if split == "train" else NOUNS[::-1]
    drills = {name_of(drill): drill for drill in compositions()[split] if len(drill.stages) > 1}
    order = sorted(drills)
    draw.shuffle(order)
    for at, noun in zip(range(0, len(order) - FUNCTIONS, FUNCTIONS), nouns[:count], strict=False):
        yield noun, package(noun, [drills[name] for name in order[at : at + FUNCTIONS]], draw)


def main() -> None:
    """Write the packages that the arguments ask for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path)
    parser.add_argument("--count", type=int, default=41)
    parser.add_argument("--split", choices=("train", "test"), default="train")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for noun, files in packages(arguments.split, arguments.count, arguments.seed):
        for path, text in files.items():
            file = arguments.output / noun / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
