"""The training loop: publish weights, sample, learn, repeat.

SFT, DPO and RL run this same loop; only the run's algorithm and data source differ.
"""

from assay.train.run import StageRun


async def train(run: StageRun) -> None:
    """Train from the newest checkpoint to the last step, or until the run is asked to stop.

    Raises MachineError when the judge, the disk or the numbers fail; saved checkpoints stay.
    """
    await run.run_missing_evaluation()
    for step in run.remaining_steps():
        await run.source.publish(run.learner, step)
        data = await run.source.next(step)
        learned = await run.learn(data, step)
        run.track(step, data, learned)
        if run.is_due("save", step):
            await run.save(step)
        if run.is_due("evaluate", step):
            await run.evaluate(step)
    await run.save_unsaved_steps()
