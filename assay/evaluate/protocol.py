"""The protocol of an evaluation: everything that its numbers depend on."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay import extract
from assay.config.evaluation import EvaluationRun
from assay.engines.base import sampling_of
from assay.evaluate.run_summary import versions
from assay.judge.edition import edition
from assay.tasks.exact import row_of

if TYPE_CHECKING:
    from assay.rollout.attempt import PromptedTask
    from assay.rollout.prompter import Prompter

Setup = dict[str, Any]
"""Everything that an evaluation's numbers depend on; docs/evaluate.md explains each key."""


def setup_of(
    run: EvaluationRun,
    model: str,
    model_files: str,
    prompter: Prompter,
    prompts: Sequence[PromptedTask],
) -> Setup:
    """The setup of an evaluation on one task set. `model` is the model's name, and
    `model_files` identifies its weights.
    """
    settings, judge = run.evaluate, run.judge
    dates = sorted(prompt.task.tags["date"] for prompt in prompts if prompt.task.tags.get("date"))
    return {
        "model": run.policy.model_dump(exclude_defaults=True, exclude={"device"})
        | {"model": model},
        "model_files": model_files,
        "engine": run.engine.model_dump(mode="json", include=run.engine.kind.decisive),
        "tasks": settings.tasks[0],
        "task_count": len(prompts),
        "tasks_sha256": hash_of([row_of(prompt.task) for prompt in prompts]),
        "dates": [dates[0], dates[-1]] if dates else [],
        "environment": run.environment,
        "samples": settings.samples,
        "axes": list(settings.axes),
        "seed": run.seed,
        "sampling": asdict(sampling_of(settings)),
        "not_sent": list(run.engine.left_out),
        "judge": judge.model_dump(include={"cpu_seconds", "wall_seconds", "memory_mb"})
        | {"edition": edition().hex()},
        "prompt": json.loads(prompter.card(prompts[0].task)),
        "prompts_sha256": hash_of([prompt.prompt for prompt in prompts]),
        "stop": sorted({word for prompt in prompts for word in prompt.stop}),
        "cut": " ".join((extract.program.__doc__ or "").split()),
        "versions": versions(
            "assay", *(() if run.engine.kind.hosted else ("torch", "transformers"))
        ),
    }


def protocol(setup: Mapping[str, Any]) -> list[str]:
    """The setup in lines for people: `seed: 0`."""
    texts = (value if isinstance(value, str) else json.dumps(value) for value in setup.values())
    return [f"{name}: {text}" for name, text in zip(setup, texts, strict=True)]


def identity(setup: Setup) -> Setup:
    """The part that two evaluations must share to be one: all but the versions, and what only the
    endpoint's answers show.
    """
    return {key: value for key, value in setup.items() if key not in ("versions", "not_sent")}


def folder_name(setup: Setup) -> str:
    """A name that no other evaluation has: the main settings, and a hash of all."""
    words = name_of(setup["model"]["model"])[-40:], setup["tasks"][-40:], f"n{setup['samples']}"
    slug = "-".join(re.findall(r"[\w.]+", " ".join(words)))
    temperature, seed = setup["sampling"]["temperature"], setup["seed"]
    return f"eval-{slug}-t{temperature:g}-seed{seed}-{hash_of(identity(setup))[:8]}"


def name_of(model: str) -> str:
    """A model's short name: the last two parts of its path, `checkpoints` left out."""
    path = Path(model) if Path(model).name not in ("", "..") else Path(model).resolve()
    return "/".join([part for part in path.parts if part != "checkpoints"][-2:])


def files_hash(folder: Path) -> str:
    """A hash of the names, sizes and times of a folder's files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return hash_of([(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files])


def hash_of(data: object) -> str:
    """SHA-256 of data as JSON."""
    return sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
