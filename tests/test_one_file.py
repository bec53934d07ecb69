"""The cost of a change: each kind of plug-in is one file outside the package.

A row is what a user writes into an empty folder, and the commands that show it at work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest

from assay.registry import KINDS
from tests.end_to_end.recipes import assay

RUN = """
name = "own"
plugins = ["own.py"]
trackers = ["jsonl", "rollouts"]
policy.tiny = { vocabulary = 300, width = 32, layers = 1, heads = 2, context = 192 }
tasks = { train = "drills:train", limit = 2 }
judge = { slots = 1, allow_weak_isolation = true }
algorithm.name = "grpo"
rollout = { tasks_per_step = 1, group_size = 2, max_tokens = 4 }
steps = 1
"""
TRAIN = "train run.toml"


class Plugin(NamedTuple):
    """A plug-in, and how a user sees that it works."""

    source: str
    command: str
    shows: str
    """A part of what the command prints, or of the run's rollouts."""
    files: Mapping[str, str] = MappingProxyType({})


PLUGINS = {
    "languages": Plugin(
        '''
"""Perl."""
from assay.languages import Language, language

language("perl", Language(
    title="Perl", source="main.pl", package="perl", run=("perl", "main.pl"),
    hello='print "hello\\n";', lazy={"empty": ""},
))
''',
        "grade --samples answers.jsonl --tasks tasks.jsonl --plugins own.py --json", '"pass": 1',
        {"tasks.jsonl": json.dumps({
            "id": "double", "prompt": "Double it.", "language": "perl",
            "exchanges": [{"stdin": "21\n", "stdout": "42\n"}],
         }),
         "answers.jsonl": json.dumps(
             {"task_id": "double", "solution": "print 2 * <STDIN>;"}
         )},
    ),
    "tasks": Plugin(
        '''
"""One task."""
from assay.checks import Check
from assay.tasks import task_set
from assay.types import Task


@task_set
def singleton(split: str = "test"):
    """One task."""
    yield Task("own/0", "Write f, which adds one.", (Check("assert f(1) == 2"),), "f",
               reference="def f(x):\\n    return x + 1")
''',
        "check singleton --plugins own.py", "1 task",
    ),
    "rewards": Plugin(
        '''
"""A reward."""
from assay.rewards import reward
from assay.types import Rollout


@reward
def always(rollout: Rollout) -> float:
    """Always 1."""
    return 1.0
''',
        f"{TRAIN} --rewards.always.weight 0.5", '"always"',
    ),
    "environments": Plugin(
        '''
"""An environment."""
from assay.environments import Conversation, environment


@environment
async def twice(conversation: Conversation) -> None:
    """Asks twice."""
    await conversation.reply()
    conversation.show("And now?")
    await conversation.reply()
    await conversation.check()
''',
        f"{TRAIN} --environment.name twice", '"turn": 1',
    ),
    "algorithms": Plugin(
        '''
"""An algorithm."""
from assay.algorithms.base import Algorithm, AlgorithmSettings, algorithm


def loss(output, batch):
    """The negative log-likelihood."""
    return -output.logprobs, {"mine": output.logprobs.detach() ** 2}


@algorithm(AlgorithmSettings)
def plain(settings: AlgorithmSettings) -> Algorithm:
    """Learns from demonstrations."""
    return Algorithm(loss=loss, learns_from="dialogues")
''',
        f"{TRAIN} --algorithm.name plain", '"learn/mine"',
    ),
    "engines": Plugin(
        '''
"""An engine that always generates one token."""
from assay.engines.base import Opening, engine
from assay.types import Completion


class Constant:
    max_concurrent = 8
    tokens_generated = 0
    metrics = {}

    async def load(self, policy, version):
        self.version = version

    async def generate(self, request, sampling):
        return Completion("x = 1", (7,), (-1.0,), "length", (self.version,))


@engine
async def constant(opening: Opening):
    """Always one token."""
    yield Constant()
''',
        f"{TRAIN} --engine.name constant", '"x = 1"',
    ),
    "callbacks": Plugin(
        '''
"""A callback."""
from assay.callbacks import StageHistory, callback


@callback
def enough(history: StageHistory, *, steps: int) -> str:
    """Ends a stage after so many steps."""
    return "it is enough" if len(history.steps) >= steps else ""
''',
        f"{TRAIN} --steps 3 --callbacks.enough.steps 1", "ends after step 1: enough: it is enough",
    ),
    "choices": Plugin(
        '''
"""A choice of tasks."""
from assay.choices import TaskPool, choice


@choice
def one(pool: TaskPool, *, place: int):
    """Takes one task alone."""
    return lambda task, number: float(task == place)
''',
        f"{TRAIN} --tasks.choice.name one --tasks.choice.place 1", '"drills/train/1"',
    ),
}  # fmt: skip
"""By the folder of those that come with assay. A kind of test has its own row in tests/judge."""


def test_every_kind_of_plug_in_has_a_row() -> None:
    assert PLUGINS.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.long if plugin.command.startswith(TRAIN) else ())
    for kind, plugin in PLUGINS.items()
])  # fmt: skip
def test_a_plug_in_is_one_file_outside_the_package(kind: str, tmp_path: Path) -> None:
    plugin = PLUGINS[kind]
    for name, text in {"own.py": plugin.source, "run.toml": RUN, **plugin.files}.items():
        (tmp_path / name).write_text(text)
    done = assay(*plugin.command.split(), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert plugin.shows in done.stdout + what_the_run_left(tmp_path / "runs")


def what_the_run_left(folder: Path) -> str:
    """Its metrics and rollouts as JSON."""
    from pyarrow import parquet

    metrics = "".join(file.read_text() for file in folder.rglob("metrics.jsonl"))
    rows = [
        row for file in folder.rglob("rollouts/*.parquet")
        for row in parquet.read_table(file).to_pylist()
    ]  # fmt: skip
    return metrics + json.dumps(rows, default=str)
