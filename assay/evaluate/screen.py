"""Screens tasks: samples each only until it is decided whether RL can learn from it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from assay.config.sections import EvaluateSettings
from assay.evaluate.benchmark import run_benchmark
from assay.evaluate.counts import TaskResult, by_task
from assay.evaluate.sample_file import LostSample, SampleFile, SampleRow
from assay.progress import Progress
from assay.rollout.attempt import PromptedTask, RolloutContext
from assay.types import Verdict


@dataclass(frozen=True, slots=True)
class ScreenRule:
    """Keeps the tasks that pass from `at_least` to `at_most` times of `samples` completions."""

    samples: int
    at_least: int
    at_most: int

    def is_kept(self, result: TaskResult) -> bool:
        """Whether the judged completions prove that the task is between the bounds."""
        failed = result.samples - result.passed
        return result.passed >= self.at_least and failed >= self.samples - self.at_most

    def is_decided(self, result: TaskResult) -> bool:
        """Whether completions that are still to come, up to `samples`, can change nothing."""
        left = self.samples - result.samples
        failed = result.samples - result.passed
        too_few_pass = result.passed + left < self.at_least
        too_few_fail = failed + left < self.samples - self.at_most
        return self.is_kept(result) or too_few_pass or too_few_fail


def how_often(results: Sequence[TaskResult]) -> dict[str, int]:
    """How many tasks are solved never, sometimes and always."""
    often = {"never": 0, "sometimes": 0, "always": 0}
    for result in results:
        failed = result.samples - result.passed
        often["always" if not failed else "sometimes" if result.passed else "never"] += 1
    return often


def rounds(first: int, samples: int) -> Iterator[int]:
    """How many completions a task has after each round: `first`, then twice as many each time."""
    while first < samples:
        yield first
        first *= 2
    yield samples


async def sample_until_decided(
    prompts: Sequence[PromptedTask], rule: ScreenRule, first: int, settings: EvaluateSettings,
    context: RolloutContext, seed: int, file: SampleFile, progress: Progress,
) -> tuple[list[TaskResult], list[LostSample]]:  # fmt: skip
    """The results of the tasks that have a judged completion, and what the machine lost.

    A task is sampled in rounds until it is decided. Rows that are in `file` are not sampled again,
    and new ones are appended to it, so a screen that was killed goes on where it was.
    """
    results: dict[str, TaskResult] = {}
    lost: dict[tuple[str, int], LostSample] = {}
    undecided = list(prompts)

    def keep(row: SampleRow | LostSample) -> None:
        if isinstance(row, SampleRow):
            lost.pop((row.task_id, row.sample), None)  # as it was in an earlier round
            file.append(row)
        else:
            lost[row.task_id, row.sample] = row
        progress.advance()

    for count in rounds(first, rule.samples):
        ids = {prompt.task.id for prompt in undecided}
        finished = [row for row in file.rows if row.task_id in ids and row.sample < count]
        total = len(undecided) * count
        most_tokens = (total - len(finished)) * settings.max_tokens
        progress.phase("screening tasks", total, len(finished), most_tokens)
        benchmark = settings.model_copy(update={"samples": count})
        await run_benchmark(
            "screen", undecided, benchmark, context, seed, finished=finished, on_row=keep
        )
        judged = [row for row in file.rows if row.task_id in ids and row.sample < count]
        new = by_task((row.task_id, row.verdict == Verdict.PASS) for row in judged)
        results |= {result.id: result for result in new}
        unjudged = {row.task_id for row in lost.values() if row.unjudged}
        undecided = [
            prompt
            for prompt in undecided
            if (id := prompt.task.id) not in unjudged
            and not rule.is_decided(results.get(id, TaskResult(id, 0, 0)))
        ]
        if not undecided:
            break
    in_order = [results[prompt.task.id] for prompt in prompts if prompt.task.id in results]
    return in_order, [row for row in lost.values() if not row.unjudged]
