"""What a report says of the run that made its models: stages, settings, versions, times."""

import platform
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from assay.errors import DataError
from assay.evaluate.grid import grid
from assay.files import json_lines

STAGES = ["stage", "algorithm", "model", "tasks", "seed", "steps", "learning rate", "taught",
          "visits", "first step", "last step"]  # fmt: skip

HELD_OUT_NOTE = (
    "Rollouts of training, over the last 8 steps of a stage. The gap is the share of programs that"
    " pass all checks that are paid, and fail one that is not."
)
COUNT, STEPS = "held_out/rollouts/", 8
"""How the metric of a family's rollouts begins, and the steps that are summed up."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How many rollouts of a family pass the paid checks, and how many those held out too."""

    stage: str
    family: str
    """The task set and the language: `drills/python`."""
    rollouts: int
    """Of the stage's last STEPS steps; the shares are of these."""
    paid: float
    """Share that passes the checks that the reward sees."""
    passed: float
    """Share that also passes the checks held out of it."""
    lost: int = 0
    """Rollouts of these steps that the machine lost; no share counts them."""


def versions(*packages: str) -> dict[str, str]:
    """The versions of these packages, and of Python."""
    return {name: version(name) for name in packages} | {"python": platform.python_version()}


def run_summary(folder: Path) -> Iterator[str]:
    """The run in `folder` as parts in Markdown; none for a folder that is no run's."""
    files = sorted(folder.glob("*/config.toml"), key=lambda file: file.stat().st_mtime)
    if not files:
        return
    texts = {file.parent.name: file.read_text(encoding="utf-8") for file in files}
    yield "## Run"
    yield grid([STAGES, *(_stage(folder / name, text) for name, text in texts.items())])
    packages = ", ".join(map(" ".join, versions("assay", "torch", "transformers").items()))
    yield f"Times are in UTC. Versions: {packages}, on {platform.system()} {platform.machine()}."
    yield from (f"![{file.stem}]({file.name})" for file in sorted(folder.glob("*.png")))
    for name, text in texts.items():
        yield f"### Settings of {name}"
        yield f"```toml\n{text}```"


def _stage(stage: Path, text: str) -> list[str]:
    settings, file = tomllib.loads(text), stage / "metrics.jsonl"
    rows, lr = metrics_rows(file) if file.is_file() else [], settings["optimizer"].get("lr", 0)
    times = [datetime.fromtimestamp(row["time"], UTC) for row in rows if "time" in row]
    ends = [f"{time:%Y-%m-%d %H:%M:%S}" for time in times[:1] + times[-1:]] or ["", ""]
    return [
        stage.name, settings["algorithm"]["name"], settings["policy"]["model"],
        ", ".join(settings["tasks"]["train"]), str(settings["seed"]),
        str(max((row["step"] for row in rows), default=0)), f"{lr:g}",
        _last(rows, "rollout/taught_so_far", "{:.1%}"), _last(rows, "rollout/visits", "{:.1f}"),
        *ends,
    ]  # fmt: skip


def _last(rows: Sequence[Mapping[str, float]], name: str, shape: str) -> str:
    """The last value of a metric in words; empty where no row has it."""
    values = [row[name] for row in rows if name in row]
    return shape.format(values[-1]) if values else ""


def metrics_rows(path: Path) -> list[dict[str, float]]:
    """The rows of a metrics.jsonl; half a line at the end, of a run in progress, is left out.
    Raises DataError.
    """
    try:
        return json_lines(path)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} is not a metrics.jsonl ({error}); name a run that assay wrote"
        ) from error


def read_held_out(folder: Path) -> list[HeldOut]:
    """What the last steps of the run in `folder` say of checks held out of the reward, for each
    stage that tracks them in its metrics.jsonl.
    """
    summaries: list[HeldOut] = []
    for file in sorted(folder.glob("*/metrics.jsonl"), key=lambda path: path.stat().st_mtime):
        rows = metrics_rows(file)
        names = dict.fromkeys(name for row in rows for name in row if name.startswith(COUNT))
        for family in [name.removeprefix(COUNT) for name in names]:
            last = [row for row in rows if COUNT + family in row][-STEPS:]
            total = sum(row[COUNT + family] for row in last)
            paid, passed = (
                sum(row[COUNT + family] * row[f"held_out/{rate}/{family}"] for row in last) / total
                for rate in ("paid_pass_rate", "pass_rate")
            )
            lost = round(sum(row.get(f"held_out/lost/{family}", 0.0) for row in last))
            summary = HeldOut(file.parent.name, family, round(total), paid, passed, lost)
            summaries.append(summary)
    return summaries


def held_out_table(held_out: Sequence[HeldOut]) -> list[list[str]]:
    """Header and rows: how many rollouts pass with and without the held-out checks."""
    header = [
        "stage",
        "family",
        "rollouts",
        "lost",
        "pass paid checks",
        "and held-out checks",
        "gap",
    ]
    return [header] + [
        [row.stage, row.family, str(row.rollouts), str(row.lost)]
        + [f"{share:.1%}" for share in (row.paid, row.passed, row.paid - row.passed)]
        for row in held_out
    ]
