"""Journeys are tests: how many visits to files `prepare` makes may only fall."""

import json
from pathlib import Path

from assay.policy.source import source_of
from assay.train.stages import prepare
from tests.policies import checkpoint, run_settings
from tests.stays import stays_of

PREPARE, WITH_TASKS, SOURCE = 26, 115, 8
"""Stays of `prepare` where the loading of tasks is one, with those inside it, and of `source_of`;
they may only fall."""
TASKS = "train/stage_tasks.py"


def test_preparing_a_stage_makes_no_more_stays_in_files_than_it_did(tmp_path: Path) -> None:
    row = {"id": "one", "prompt": "def add(a, b):\n", "tests": ["assert add(1, 2) == 3"],
           "reference": "def add(a, b):\n    return a + b\n"}  # fmt: skip
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    settings = run_settings(
        folder=str(tmp_path), algorithm={"name": "sft"}, dataset={"batch_size": 1},
        tasks={"train": str(tmp_path / "rows.jsonl")},
        policy={"model": str(checkpoint(tmp_path, "llama"))},
    )  # fmt: skip
    prepare(settings, source_of(settings.policy), adapted=False)  # imports and registries
    assert len(stays_of(lambda: source_of(settings.policy))) <= SOURCE
    model = source_of(settings.policy)
    walk = stays_of(lambda: prepare(settings, model, adapted=False), closed=[TASKS])
    assert walk.count(TASKS) == 1
    assert len(walk) <= PREPARE, walk
    model = source_of(settings.policy)
    walk = stays_of(lambda: prepare(settings, model, adapted=False))
    assert len(walk) <= WITH_TASKS, walk
