"""Checkpoints on the disk: which ones are whole, and the newest of those."""

import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from assay.errors import DataError, ModelError
from assay.files import by_step, saved_number, saved_table
from assay.registry import one_line

log = logging.getLogger(__name__)
FILES = "assay/files.json"
"""File of a checkpoint that has the size of every other one; it is written last."""
STATE = ("assay/learner.safetensors", "assay/optimizer.safetensors", "assay/source.json")
"""What a checkpoint has beside its model."""


def list_files(checkpoint: Path) -> None:
    """Note the sizes of a checkpoint's files in it, but for a card."""
    files = (path for path in checkpoint.rglob("*") if path.is_file() and path.suffix != ".md")
    sizes = {path.relative_to(checkpoint).as_posix(): path.stat().st_size for path in files}
    (checkpoint / FILES).write_text(json.dumps(sizes))


def checkpoints_of(folder: Path) -> list[Path]:
    """All checkpoints of a run or a stage, the newest last; none of any other folder."""
    stages = [folder, *folder.iterdir()] if folder.is_dir() else []
    by_stage = [list(by_step(stage / "checkpoints").values()) for stage in stages]
    in_order = sorted(filter(None, by_stage), key=lambda each: each[-1].stat().st_mtime)
    return [path for each in in_order for path in each]


def best_of(stage: Path) -> Path | None:
    """The best checkpoint of a stage by `save.best`, if any."""
    step = saved_number(stage / "best.json", "step", -1)
    checkpoints = by_step(stage / "checkpoints").items()
    return next((path for at, path in checkpoints if at == step), None)


def require_whole(checkpoint: Path) -> None:
    """Raises DataError for a checkpoint with a file that is missing or cut off, or a weight that
    is not a finite number.
    """
    if why := _fault(checkpoint):
        raise DataError(f"checkpoint {checkpoint} is broken: {why}")


def newest_whole(checkpoints: Sequence[Path], use: Callable[[Path], None] = require_whole) -> Path:
    """The newest checkpoint that `use` takes; a warning names each newer one.

    Raises DataError if there is none.
    """
    broken: list[str] = []
    for checkpoint in reversed(checkpoints):
        try:
            use(checkpoint)
        except (DataError, ModelError) as error:
            broken.append(str(error))
        else:
            for why in broken:
                log.warning("%s; %s is used in its place", why, checkpoint)
            return checkpoint
    raise DataError(
        f"{broken[0]}; no earlier one is whole: copy it back from elsewhere, or delete"
        f" {checkpoints[-1].parent} and train again"
    )


def _fault(checkpoint: Path) -> str:
    try:
        sizes = saved_table(checkpoint / FILES) or dict.fromkeys(STATE, 1)
        for name, size in sizes.items():
            if not (checkpoint / name).is_file():
                return f"{name} is missing"
            if not os.access(checkpoint / name, os.R_OK):  # safetensors calls it missing
                return f"{name} is not readable for this user"
            if (there := (checkpoint / name).stat().st_size) < size:
                return f"{name} is cut off after {there} of {size} bytes"
        for file in checkpoint.glob("*.safetensors"):
            with safe_open(file, "pt") as weights:
                if name := not_finite(
                    (key, weights.get_tensor(key)) for key in weights.offset_keys()
                ):
                    return f"{name} in {file.name} is not finite"
    except DataError as error:
        return str(error)
    except (OSError, TypeError, ValueError, SafetensorError) as error:
        return one_line(error)
    return ""


def not_finite(tensors: Iterable[tuple[str, Any]]) -> str:
    """The name of the first tensor that holds NaN or an infinity; empty if none does."""
    return next(
        (name for name, tensor in tensors if not math.isfinite(float(tensor.detach().sum()))), ""
    )
