"""The loop: publish, sample, learn, repeat. SFT and RL differ only in the run's algorithm and
source.
"""

from __future__ import annotations

from assay.train.run import Run


async def train(run: Run) -> None:
    """Take the run from where it stands to its last step, or to the end of the step in which it is
    asked to stop.

    Raises MachineError when the judge or the numbers give out; what was saved stays.
    """
    await run.catch_up()
    for step in run.remaining_steps():
        await run.source.publish(run.learner.policy, step)
        seen = await run.source.next(step)
        run.record(step, seen)
        learned = await run.learn(seen.samples, step)
        run.track(step, seen, learned)
        if run.is_due("save", step):
            run.save(step)
        if run.is_due("evaluate", step):
            await run.evaluate(step)
    run.save_what_is_left()
