"""Checks held out of the reward: which they are, and how many programs pass only without them."""

import ast
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean

from assay.errors import DataError
from assay.judge import Job
from assay.judge.kinds.find import kind_of
from assay.maths.seeds import derive
from assay.rollout.attempt import RolloutContext
from assay.task_specs import split_spec
from assay.types import AnyCheck, Metrics, Rollout, Task


def hold_out(
    tasks: Sequence[Task], count: int, seed: int, spec: str
) -> tuple[list[Task], dict[str, Task]]:
    """The tasks with the checks that are paid, and by its id each task with those held out.

    Up to `count` checks of a task are held out, drawn by `seed` and the task's id among those that
    the model never sees; one check at least is paid. Raises DataError if no task of `spec` has one
    to spare.
    """
    paid, held_out = list(tasks), {}
    for place, task in enumerate(tasks if count else ()):
        hidden = [n for n, check in enumerate(task.checks) if check.hidden]
        most = min(count, len(hidden), len(task.checks) - 1)
        if most > 0 and all(map(_stands_alone, task.checks)):
            numbers = random.Random(derive(seed, task.id)).sample(hidden, most)
            rest = [check for n, check in enumerate(task.checks) if n not in numbers]
            paid[place] = replace(task, checks=tuple(rest))
            held_out[task.id] = replace(task, checks=tuple(task.checks[n] for n in sorted(numbers)))
    if count and not held_out:
        raise DataError(
            f"tasks.held_out = {count}, but no task of {spec!r} has a check to spare: a task needs"
            " two or more independent checks, one of them hidden; take another set, or leave the"
            " setting out"
        )
    return paid, held_out


def _stands_alone(check: AnyCheck) -> bool:
    """Whether no other check can build on it: it has no code, or asserts alone."""
    try:
        trees = [ast.parse(source) for source in kind_of(check).code(check)]
    except SyntaxError:  # a doctest
        return False
    return all(isinstance(node, ast.Assert) for tree in trees for node in tree.body)


async def with_held_out(rollout: Rollout, context: RolloutContext) -> Rollout:
    """A scored rollout, with the verdict on the held-out checks if its program passed the others.

    Raises SandboxError when the judge gives up.
    """
    task = context.held_out.get(rollout.task.id)
    if task is None or rollout.score is None or not rollout.passed:
        return rollout
    with context.judging:
        execution = await context.judge.run_or_refuse(Job(task, rollout.turns[-1].program))
    return replace(rollout, held_out=execution)


def describe_held_out(
    groups: Sequence[Sequence[Rollout]], held_out: Mapping[str, Task], sets: Mapping[str, str]
) -> Metrics:
    """Metrics of the rollouts whose tasks have held-out checks, by family: the task set and the
    language. `sets` has the set of each task by its id. Rollouts that the machine lost, themselves
    or their verdict on the held-out checks, are in no rate and counted beside it.
    """
    families: defaultdict[str, list[Rollout]] = defaultdict(list)
    metrics: Metrics = {}
    for rollout in chain.from_iterable(groups):
        if rollout.task.id not in held_out:
            continue
        task_set, _ = split_spec(sets[rollout.task.id])
        family = f"{task_set}/{rollout.task.language}"
        is_judged = rollout.held_out is None or rollout.held_out.is_judged
        lost = rollout.score is None or not is_judged
        metrics[f"held_out/lost/{family}"] = metrics.get(f"held_out/lost/{family}", 0.0) + lost
        if not lost:
            families[family].append(rollout)
    for family, rollouts in families.items():
        paid = fmean(rollout.passed for rollout in rollouts)
        both = fmean(bool(rollout.held_out and rollout.held_out.proven) for rollout in rollouts)
        metrics |= {
            f"held_out/rollouts/{family}": float(len(rollouts)),
            f"held_out/paid_pass_rate/{family}": paid,
            f"held_out/pass_rate/{family}": both,
            f"held_out/gap/{family}": paid - both,
        }
    return metrics
