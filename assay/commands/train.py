"""assay train: runs the stages of a settings file."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.commands import options
from assay.errors import SettingsError
from assay.progress import Progress, UnfailingStream

if TYPE_CHECKING:
    from assay.config.load import Plan
    from assay.train.learner import OpenLearner
    from assay.train.stages import PlanOutcome


def train(
    context: typer.Context,
    config: Annotated[
        Path, typer.Argument(help="Settings in TOML, or the name of a recipe: mine.toml, demo.")
    ],
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Delete this run's folder and start over.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check all settings and load all tasks; train nothing."),
    ] = False,
    seeds: Annotated[
        str, typer.Option(help="Train once with each seed: 0..4, or 0,3,5. See docs/evaluate.md.")
    ] = "",
    values: Annotated[
        list[str] | None,
        typer.Option("--set", help="Train once with each value: optimizer.lr=1e-6,3e-6. Repeat."),
    ] = None,
) -> None:
    """Train as CONFIG says. Any setting can be changed: --table.key value.

    A run that was stopped continues from its newest checkpoint. With --seeds or --set, runs follow
    one another in folders of their own below RUNS/NAME; a comparison of them ends it.
    """
    members = sweep(seeds, values or ())
    plans, place = _plans(config, context.args, members)
    options.quiet_transformers()
    if os.environ.get("RANK", "0") != "0":
        if not dry_run:
            from assay.distributed.job import follow

            follow(plans[0].stages[0].learner.rank_minutes)
        return
    if dry_run:
        _show_plans(plans)
        return
    sys.stdout, sys.stderr = UnfailingStream(sys.stdout), UnfailingStream(sys.stderr)
    with Progress() as progress, _learners(plans[0]) as make_learner:
        from assay.train.stages import run_plan

        for plan in plans:
            if members:
                progress.say(f"run {plan.stages[0].name}", result=True)
            outcome = run_plan(plan, fresh=fresh, progress=progress, make_learner=make_learner)
            if not outcome.finished:
                break
    if not members or not outcome.finished:
        _show(outcome)
    if members and outcome.evaluations:
        from assay.evaluate.compare import compare

        typer.echo(f"\n{compare([place]).markdown()}")
    if not outcome.finished:
        words = [word for value in values or () for word in ("--set", value)]
        words += ["--seeds", seeds] if seeds else []
        ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
        launch = ["torchrun", "--nproc-per-node", ranks, "--no-python"] if ranks != "1" else []
        command = shlex.join([*launch, "assay", "train", str(config), *context.args, *words])
        typer.echo(f"stopped; continue with: {command}")


def _show_plans(plans: Sequence[Plan]) -> None:
    from assay.train.stages import prepare_all

    for plan in plans:
        for stage in prepare_all(plan, dry_run=True):
            typer.echo(stage.summary)


@contextmanager
def _learners(plan: Plan) -> Iterator[OpenLearner]:
    """Makes the learners of this process, or of all that `torchrun` has started."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from assay.distributed.job import leading

        with leading(plan.stages[0].learner.rank_minutes) as lead:
            yield lead
    else:
        from assay.train.learner import Learner

        yield Learner


def _plans(
    config: Path, words: list[str], members: Mapping[str, list[str]]
) -> tuple[list[Plan], Path]:
    """The plan of each run of a sweep, or the only one; and its folder.

    Raises SettingsError for a sweep below the folder of a run, or a tracker that is not installed.
    """
    from assay.trackers.dashboards import require_package

    plan = options.checked_plan(config, words)
    for settings in plan.stages:
        for tracker in settings.trackers:
            require_package(tracker)
    place = Path(plan.stages[0].folder) / plan.stages[0].name
    if members and any(place.glob("*/config.toml")):
        raise SettingsError(f"{place} holds a single run; choose another --name for several")
    runs = (
        [*words, *more, "--name", name, "--folder", f"{place}"] for name, more in members.items()
    )
    return [options.checked_plan(config, run) for run in runs] or [plan], place


def sweep(seeds: str, values: Sequence[str]) -> dict[str, list[str]]:
    """The runs of a sweep: by their name the words that set it apart; empty without a sweep.

    Raises SettingsError for words of another form.
    """
    axes = []
    for change in values:
        key, equals, choices = change.partition("=")
        if not equals:
            raise SettingsError(f"--set {change}: write a setting and its values, lr=1e-6,3e-6")
        values_of = re.split(r",(?![^\[{]*[\]}])", choices)  # not inside a list or a table
        axes.append([(key.strip(), value.strip()) for value in values_of])
    if seeds:
        if not re.fullmatch(r"\d+\.\.\d+|\d+(,\d+)*", seeds):
            raise SettingsError(f"--seeds {seeds}: write 0..4, or 0,3,5")
        first, dots, last = seeds.partition("..")
        numbers = range(int(first), int(last) + 1) if dots else [*map(int, seeds.split(","))]
        if not numbers:
            raise SettingsError(f"--seeds {seeds}: write the smaller one first, 0..4")
        axes.append([("seed", str(number)) for number in numbers])
    members = dict[str, list[str]]()
    for point in filter(None, product(*axes)):
        name = re.sub(r"[^\w.-]+", "-", "_".join(map("-".join, point)))
        if name in members:
            raise SettingsError(f"two runs of the sweep would be named {name}; train one apart")
        members[name] = [word for key, value in point for word in (f"--{key}", value)]
    return members


def _show(outcome: PlanOutcome) -> None:
    from assay.evaluate.report import table
    from assay.evaluate.run_summary import read_held_out

    if outcome.evaluations:
        options.show("", table(outcome.evaluations))
    typer.echo()
    for row in read_held_out(outcome.folder):
        typer.echo(
            f"{row.stage}: {row.paid:.1%} pass the paid checks of {row.family}, {row.passed:.1%}"
            " those held out too"
        )
    if outcome.model:
        from assay.prompts import transformers_code

        code = transformers_code(outcome.model)
        typer.echo(f"The first task's prompt, with transformers:\n\n{code}\n")
        typer.echo(f"model    {outcome.model}")
    if outcome.best:
        typer.echo(f"best     {outcome.best}")
    for kind, pattern in (("report", "report.md"), ("plot", "*.png")):
        for file in outcome.folder.glob(pattern):
            typer.echo(f"{kind:<8} {file}")
    if outcome.advice:
        typer.echo(f"advice   {outcome.advice}")
