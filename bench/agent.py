"""A few GRPO steps of a model that works in `shell`: seconds of a step and its parts, turns, and
the share of rollouts that repair the repository.

    python -m bench.agent [--model FOLDER] [--steps 3] [--tasks 4] [--group 8] [--tokens 256]

The repositories are made here: a module of two functions, of which one has a bug, and its tests.
A pass of a repository's own tests is forgeable, so the settings allow that.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

from assay.judge.patches import unified
from bench.figures import Figure, add_json, write_figures
from bench.recipe import seconds_of_steps, step_rows, train

BUGS = {
    "add": ("a - b", "a + b", (2, 3, 5)),
    "product": ("a + b", "a * b", (2, 3, 6)),
    "larger": ("min(a, b)", "max(a, b)", (2, 3, 3)),
    "difference": ("b - a", "a - b", (5, 3, 2)),
}
"""By the name of a function: its wrong and its right result, and two arguments with what must come
of them."""
TOML = """
name = "agent"
stage = "grpo"
steps = {steps}
algorithm.name = "grpo"
tasks.train = "tasks.jsonl"
judge.allow_forgeable = true
rollout = {{ tasks_per_step = {tasks}, group_size = {group}, max_tokens = {tokens} }}
[environment]
name = "shell"
turns = {turns}
tool_calls = "text"
[rewards]
tests = {{}}
length = {{ alpha = 0.3, on_failure = true }}
[policy]
model = "{model}"
"""
MEANS = {
    "time/generate": ("generating", "s"),
    "time/judge": ("judging", "s"),
    "time/learn": ("learning", "s"),
    "rollout/turns": ("turns of a rollout", ""),
    "rollout/failed": ("rollouts that the machine failed", ""),
    "reward/pass_rate": ("rollouts that pass", ""),
}


def repository(folder: Path, name: str) -> str:
    """A tree with one bug, and the row of its task."""
    wrong, right, (first, second, result) = BUGS[name]
    twice = "\n\ndef twice(a):\n    return 2 * a\n"
    source, fixed = (f"def {name}(a, b):\n    return {body}\n{twice}" for body in (wrong, right))
    tests = (
        f"from calc import {name}, twice\n\n\ndef test_{name}():\n"
        f"    assert {name}({first}, {second}) == {result}\n\n\n"
        "def test_twice():\n    assert twice(2) == 4\n"
    )
    tree = folder / name
    (tree / "tests").mkdir(parents=True)
    (tree / "calc.py").write_text(source)
    (tree / "tests/test_calc.py").write_text(tests)
    row = {
        "id": name, "prompt": f"{name}({first}, {second}) in calc.py must be {result}.",
        "tree": name, "reference": unified({"calc.py": source}, {"calc.py": fixed}),
        "fail_to_pass": [f"tests/test_calc.py::test_{name}"],
        "pass_to_pass": ["tests/test_calc.py::test_twice"],
    }  # fmt: skip
    return json.dumps(row)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    for name, default in (("steps", 3), ("tasks", 4), ("group", 8), ("tokens", 256), ("turns", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    add_json(parser)
    # Any other option is a setting of the run.
    arguments, more = parser.parse_known_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        rows = [repository(folder, bug) for bug in BUGS]
        (folder / "tasks.jsonl").write_text("\n".join(rows))
        (folder / "agent.toml").write_text(TOML.format(**vars(arguments)))
        steps = step_rows(train(folder / "agent.toml", folder / "runs", more), "grpo")
    step = statistics.median(seconds_of_steps(steps))
    completions = arguments.tasks * arguments.group
    figures = [
        Figure("a step", step, "s"),
        Figure("samples", completions / step, "samples/s"),
        *(
            Figure(label, statistics.mean(row[metric] for row in steps), unit)
            for metric, (label, unit) in MEANS.items()
            if all(metric in row for row in steps)
        ),
    ]
    write_figures(arguments.json, figures)
    for figure in figures:
        print(f"{figure.name}: {figure}")


if __name__ == "__main__":
    main()
