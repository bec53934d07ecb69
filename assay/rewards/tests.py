"""Whether the program passes its tests: the reward that the others only shape."""

from typing import Literal

from assay.rewards import reward
from assay.types import Execution, Rollout, Verdict

SOME_FIXES = 0.2
"""As in NeMo Gym's swerl_gen."""


@reward
def tests(
    rollout: Rollout,
    *,
    mode: Literal["all", "fraction", "fixes"] = "all",  # noqa: PT028  # a reward, not a test
    perfect_bonus: float = 0.0,  # noqa: PT028
) -> float:
    """1 if the last program passes every test, else 0; with `mode = "fraction"`, the share passed;
    with `mode = "fixes"`, 0.2 for a change of a repository that repairs some tests and breaks none.
    Where its agent reported a reward, that reward as it is.

    `perfect_bonus` is added if all pass. Raises ValueError for a rollout that was not judged.
    """
    if rollout.reported is not None:
        return rollout.reported
    execution = rollout.execution
    value = score_execution(execution, fraction=mode == "fraction")
    if mode == "fixes" and value == 0 and execution and score_execution(execution, fraction=True):
        value = SOME_FIXES if repairs_some(execution) else 0.0
    if value is None:
        raise ValueError(f"{rollout.task.id}: it was not judged; leave this rollout out")
    bonus = perfect_bonus if rollout.passed else 0.0
    return value + bonus


def repairs_some(execution: Execution) -> bool:
    """Whether some of the tests that a right change repairs pass, and all others."""
    fixed = [test.holds for test in execution.tests if test.is_fix]
    return any(fixed) and all(test.holds for test in execution.tests if not test.is_fix)


def score_execution(execution: Execution | None, *, fraction: bool = False) -> float | None:
    """1 if every check passes, else 0; with `fraction`, the share of checks that pass.

    A program that broke the sandbox's rules scores 0, and so does one that could have forged its
    result. None if the machine failed or the task cannot be judged: then there is no score.
    """
    if execution is None:
        return 0.0
    if not execution.is_judged:
        return None
    if execution.verdict is Verdict.PASS:
        return float(execution.proven)
    unpaid = execution.verdict is Verdict.FORBIDDEN or execution.forgeable
    if not fraction or unpaid or not execution.total:
        return 0.0
    return execution.passed / execution.total
