"""A reward in parts for agents that repair repositories: first steps pay before a test passes."""

import json

from pydantic import NonNegativeFloat

from assay.judge.patches import FileChange, PatchError, parse
from assay.rewards import reward
from assay.rewards.tests import score_execution
from assay.types import Execution, RepositoryTests, Rollout, ToolCall, Verdict


@reward
def milestones(
    rollout: Rollout,
    *,
    call: NonNegativeFloat = 0.05,
    file: NonNegativeFloat = 0.1,
    fixes: NonNegativeFloat = 0.25,
    passes: NonNegativeFloat = 0.6,
) -> float:
    """Parts of the repair of a repository, each paid once: `call` if a call of a tool has run,
    `file` times how well the changed files agree with those of the reference, `fixes` times the
    share of the tests to repair that pass, `passes` if all tests pass. `file` and `fixes` pay only
    for a change that breaks no test, and nothing pays where no test has run.

    Raises ValueError for a task that is no repository and for a rollout that was not judged.
    """
    execution, task = rollout.execution, rollout.task
    if not any(isinstance(check, RepositoryTests) for check in task.checks):
        raise ValueError(f"{task.id} is no repository; take the reward `tests`")
    if score_execution(execution) is None:
        raise ValueError(f"{task.id}: it was not judged; leave this rollout out")
    if execution is None or execution.verdict is Verdict.FORBIDDEN or execution.forgeable:
        return 0.0
    if not execution.tests:  # its change does not apply
        return 0.0
    value = call * has_called(rollout) + passes * rollout.passed
    if breaks_nothing(execution):
        submitted = rollout.turns[-1].program or ""
        value += file * agreement(changed_files(submitted), changed_files(task.reference or ""))
        value += fixes * share_fixed(execution)
    return value


def has_called(rollout: Rollout) -> bool:
    """Whether the environment has run a call of a tool."""
    return any(can_run(call) for turn in rollout.turns if turn.results for call in turn.calls)


def can_run(call: ToolCall) -> bool:
    """Whether a call can be run: no program gets an argument with NUL."""
    return call.status == "ok" and not any(
        isinstance(value, str) and "\0" in value for value in call.arguments.values()
    )


def breaks_nothing(execution: Execution) -> bool:
    """Whether all tests but those to repair pass."""
    return all(test.holds for test in execution.tests if not test.is_fix)


def share_fixed(execution: Execution) -> float:
    """The share of the tests to repair that pass."""
    repairs = [test.holds for test in execution.tests if test.is_fix]
    return sum(repairs) / len(repairs) if repairs else 0.0


def changed_files(program: str) -> frozenset[str]:
    """The paths that a program changes, of a diff or a JSON object of files; none of any other. A
    file of which a diff only shows lines is not changed.
    """
    try:
        if program.lstrip().startswith("{"):
            return frozenset(json.loads(program))
        changes = parse(program)
    except (PatchError, ValueError, RecursionError):
        return frozenset()
    paths = ((each.old, each.new) for each in changes if alters(each))
    return frozenset(path for pair in paths for path in pair if path)


def alters(change: FileChange) -> bool:
    """Whether a change of a file adds, removes or renames it, or changes lines."""
    return change.old != change.new or any(hunk.old != hunk.new for hunk in change.hunks)


def agreement(paths: frozenset[str], others: frozenset[str]) -> float:
    """The share of the files in both of those in either (Jaccard's index); 0 of no files."""
    return len(paths & others) / len(paths | others) if paths and others else 0.0
