"""Before RL, tasks are sampled until they are decided; those that teach nothing are left out."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay import environments, rewards
from assay.engines.base import GenerationRequest, Sampling
from assay.errors import DataError, MachineError, RolloutLostError
from assay.evaluate.counts import TaskResult
from assay.evaluate.screen import ScreenRule, how_often, rounds
from assay.judge import Judge
from assay.policy.load_model import Policy
from assay.policy.source import source_of
from assay.progress import Progress
from assay.rollout.attempt import RolloutContext
from assay.rollout.prompter import Prompter
from assay.train.screening import TrainingTasks, screen_tasks
from assay.train.sources import RolloutSource
from assay.types import Cause, Check, Task
from tests.policies import run_settings, tiny_policy
from tests.scripted import ScriptedEngine

TASKS = [Task(f"f{n}", f"# f{n}\n", (Check(f"assert f{n}() == {n}"),), f"f{n}") for n in range(4)]
PASSES = {"f0": 0, "f1": 16, "f2": 1, "f3": 4}
"""How many of a task's first completions are right."""
ALL = {"f0": 8, "f1": 8, "f2": 4, "f3": 8}
"""Completions that decide: the fifth of f3 is wrong, and it is in the second round."""


def test_a_task_is_decided_as_soon_as_the_rest_of_its_samples_can_change_nothing() -> None:
    rule = ScreenRule(samples=8, at_least=2, at_most=6)
    decided = {(2, 4): True, (1, 4): False, (0, 6): False, (0, 7): True, (7, 7): True, (5, 7): True}
    # 0 of 6 may become 2 of 8, 0 of 7 only 1; 7 of 7 has at most one failure, where two are needed
    assert {
        (passed, of): rule.is_decided(TaskResult("f", passed, of)) for passed, of in decided
    } == decided
    kept = [passed for passed in range(9) if rule.is_kept(TaskResult("f", passed, 8))]
    assert kept == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("passed", range(9))
def test_stopping_early_decides_as_all_samples_would(passed: int) -> None:
    rule = ScreenRule(samples=8, at_least=1, at_most=7)
    whole = rule.is_kept(TaskResult("f", passed, 8))
    for order in (
        [True] * passed + [False] * (8 - passed),
        [False] * (8 - passed) + [True] * passed,
    ):
        results = (TaskResult("f", sum(order[:n]), n) for n in range(9))
        first = next(result for result in results if rule.is_decided(result))
        assert rule.is_kept(first) == whole


def test_each_round_has_twice_the_completions_up_to_all() -> None:
    assert list(rounds(4, 16)) == [4, 8, 16]
    assert list(rounds(4, 10)) == [4, 8, 10]
    assert list(rounds(20, 10)) == [10]


def test_tasks_are_counted_by_how_often_they_are_solved() -> None:
    results = [TaskResult("a", 0, 4), TaskResult("b", 4, 4), TaskResult("c", 1, 4)]
    assert how_often(results) == {"never": 1, "sometimes": 1, "always": 1}


class Screening:
    """Screens in one folder, with an engine that counts what it is asked."""

    def __init__(self, folder: Path, passes: dict[str, int] | None = None) -> None:
        self.folder, self.policy = folder, tiny_policy(folder)
        self.passes = PASSES if passes is None else passes
        self.asked = Counter[str]()
        self.limit = 10**6
        """Completions after which the engine fails."""

    def write(self, request: GenerationRequest, member: int) -> str:
        if sum(self.asked.values()) >= self.limit:
            raise MachineError("the engine is gone")
        text = self.policy.chat.text(request.prompt)
        name = next(task.id for task in TASKS if f"# {task.id}\n" in text)
        self.asked[name] += 1
        right = self.asked[name] <= self.passes[name]
        return f"def {name}():\n    return {name[1:] if right else -1}\n"

    def __call__(
        self, tasks: Sequence[Task] = TASKS, use: Callable[..., Any] | None = None, **screen: Any
    ) -> TrainingTasks:
        training = {"screen": {"samples": 8, "first": 4} | screen, "train": "drills:train"}
        settings = run_settings(tasks=training, rollout={"max_tokens": 60})

        async def run() -> TrainingTasks:
            async with Judge() as judge:
                engine = ScriptedEngine(self.write, lambda text: [ord(letter) for letter in text])
                context = RolloutContext(
                    engine, judge, Prompter(self.policy.chat),
                    environments.build({"name": "single_turn"}), rewards.build({"tests": {}}),
                    Sampling(60), self.policy.context,
                )  # fmt: skip
                source = source_of(settings.policy.model_copy(update={"model": self.model}))
                training = await screen_tasks(
                    settings, tasks, source, {}, self.policy, context, self.folder, Progress()
                )
                return use(settings, training, context) if use else training

        return asyncio.run(run())

    @property
    def model(self) -> str:
        return str(self.folder / "tiny")


def test_only_undecided_tasks_are_sampled_further_and_flat_ones_are_left_out(
    tmp_path: Path,
) -> None:
    screen = Screening(tmp_path)
    training = screen()
    assert screen.asked == ALL
    assert [task.id for task in training.tasks] == ["f2", "f3"]
    assert training.results == [TaskResult("f2", 1, 4), TaskResult("f3", 4, 8)]
    stored = json.loads((tmp_path / "screen/screen.json").read_text())
    assert stored["solved"] == {"never": 1, "sometimes": 2, "always": 1}
    assert stored["kept"] == ["f2", "f3"]


def test_a_finished_screen_asks_nothing_again_and_another_key_starts_anew(tmp_path: Path) -> None:
    screen = Screening(tmp_path)
    first = screen()
    (tmp_path / "screen/samples.jsonl").unlink()
    assert screen() == first, "by its result alone"
    assert screen.asked == ALL
    screen.asked.clear()
    assert [task.id for task in screen(TASKS[2:]).tasks] == ["f2", "f3"], "other tasks"
    assert screen.asked == {"f2": 4, "f3": 8}
    screen.asked.clear()
    screen(TASKS[2:], samples=16)
    assert screen.asked == {"f2": 4, "f3": 8}, "other settings"
    screen.asked.clear()
    (tmp_path / "tiny/added").touch()
    screen(TASKS[2:], samples=16)
    assert screen.asked == {"f2": 4, "f3": 8}, "another model"


def test_once_a_stage_has_learned_its_tasks_stay_as_they_are(tmp_path: Path) -> None:
    screen = Screening(tmp_path)
    first = screen()
    screen.asked.clear()
    (tmp_path / "checkpoints" / "step_000001").mkdir(parents=True)
    (tmp_path / "tiny/added").touch()  # another model, as far as the key knows
    assert screen() == first
    assert not screen.asked


def test_a_completion_that_is_lost_in_one_round_and_there_in_the_next_is_not_lost(
    tmp_path: Path,
) -> None:
    screen = Screening(tmp_path, passes=dict.fromkeys(PASSES, 0))
    wrong, fails = screen.write, iter([False, True, False, False, True])

    def write(request: GenerationRequest, member: int) -> str:
        if next(fails, False):  # the second completion, and when it is tried again
            raise RolloutLostError("the engine was gone", Cause.MACHINE)
        return wrong(request, member)

    screen.write = write  # type: ignore[method-assign]
    with pytest.raises(DataError, match="keeps none of drills:train: 8 completions"):
        screen(TASKS[:1])


@pytest.mark.parametrize("limit", [3, 16, 21])
def test_a_screen_that_was_cut_short_samples_only_what_is_missing(
    tmp_path: Path, limit: int
) -> None:
    screen = Screening(tmp_path)
    screen.limit = limit
    with pytest.raises((MachineError, BaseExceptionGroup)):
        screen()
    rows = (tmp_path / "screen/samples.jsonl").read_text().splitlines()
    assert "results" not in json.loads((tmp_path / "screen/screen.json").read_text())
    assert len(rows) >= (16 if limit > 16 else 0), "the first round was whole"
    screen.limit = 10**6
    screen.asked = Counter(json.loads(row)["task_id"] for row in rows)
    assert [task.id for task in screen().tasks] == ["f2", "f3"]
    assert screen.asked == ALL


def test_a_screen_that_keeps_nothing_is_an_error_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"keeps none of drills:train: 8 completions of 1 task \(1"):
        Screening(tmp_path)(TASKS[:1])


def test_the_screen_is_the_first_visit_of_each_task_that_it_keeps(tmp_path: Path) -> None:
    def rates(settings: Any, training: TrainingTasks, context: RolloutContext) -> Any:
        policy: Policy = Screening(tmp_path).policy
        source = RolloutSource(settings, training.tasks, policy, context, screened=training.results)
        return source.rates.by_task

    by_task: Any = Screening(tmp_path)(use=rates)
    assert {id: (it.visits, it.taught, it.rate) for id, it in by_task.items()} == {
        "f2": (1, 1, 0.25), "f3": (1, 1, 0.5),
    }  # fmt: skip
