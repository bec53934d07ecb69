"""The tasks of calculations.py as rows of NeMo Gym for calculator_gym.py."""

import json
from collections.abc import Iterator
from dataclasses import replace

from assay.tasks import load, task_set
from assay.types import Reported, Task


@task_set
def calculations_gym(split: str = "train") -> Iterator[Task]:
    """Generated calculations whose answer a server of NeMo Gym's knows. Splits: train, test."""
    for task in load(f"calculations:{split}"):
        request = {"input": task.prompt + "\n"}
        row = {"responses_create_params": request, "expected_answer": task.reference}
        yield replace(task, checks=(Reported(json.dumps(row)),), entry_point="", reference=None)
