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
    from assay.config.load_settings import Plan
    from assay.evaluate.report import Evaluation
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
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes",
            help="Continue although tasks, plug-ins or the model on disk have changed.",
        ),
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
        typer.Option("--set", help="Train with each value: optimizer.lr=1e-6,3e-6. Repeatable."),
    ] = None,
) -> None:
    """Train a model as the file CONFIG says. Any setting can be changed: --table.key value.

    A run that was stopped continues from its newest checkpoint. With --seeds or --set, it
    trains several runs one after another, in folders below RUNS/NAME, and compares them at the end.
    """
    members = sweep(seeds, values or ())
    plans, place = _plans(context, config, members)
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
    outcome, evaluations = _run(plans, bool(members), fresh=fresh, allow_changes=allow_changes)
    if not members or not outcome.finished:
        _show(outcome)
    if members and outcome.evaluations:
        from assay.commands.compare import show_comparison
        from assay.evaluate.compare import compare

        show_comparison(compare([place]))
    if not outcome.finished:
        words = [word for value in values or () for word in ("--set", value)]
        words += ["--seeds", seeds] if seeds else []
        _say_how_to_continue([str(config), *context.args, *words])
    _require_few_lost(evaluations, plans)


def _say_how_to_continue(words: Sequence[str]) -> None:
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    launch = ["torchrun", "--nproc-per-node", ranks, "--no-python"] if ranks != "1" else []
    options.echo(f"stopped; continue with: {shlex.join([*launch, 'assay', 'train', *words])}")


def _require_few_lost(evaluations: Sequence[Evaluation], plans: Sequence[Plan]) -> None:
    """Raises MachineError where the stages' evaluations allow fewer lost completions."""
    from assay.evaluate.report import require_few_lost

    allowed = [stage.evaluate.max_lost for plan in plans for stage in plan.stages if stage.evaluate]
    require_few_lost(evaluations, min(allowed, default=1.0))


def _run(
    plans: Sequence[Plan], is_sweep: bool, *, fresh: bool, allow_changes: bool
) -> tuple[PlanOutcome, list[Evaluation]]:
    """Train the runs one after another, until one is stopped; the last one's result, and the
    evaluations of all.
    """
    evaluations: list[Evaluation] = []
    with Progress() as progress, _learners(plans[0]) as make_learner:
        from assay.train.stages import run_plan

        for plan in plans:
            if is_sweep:
                progress.say(f"run {plan.stages[0].name}", result=True)
            outcome = run_plan(
                plan, fresh=fresh, allow_changes=allow_changes, progress=progress,
                make_learner=make_learner,
            )  # fmt: skip
            evaluations += outcome.evaluations
            if not outcome.finished:
                break
    return outcome, evaluations


def _show_plans(plans: Sequence[Plan]) -> None:
    from assay.train.stages import prepare_all

    for plan in plans:
        for stage in prepare_all(plan, dry_run=True):
            options.echo(stage.summary)


@contextmanager
def _learners(plan: Plan) -> Iterator[OpenLearner]:
    """Makes the learners of this process, or of all that `torchrun` has started."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from assay.distributed.job import leading

        with leading(plan.stages[0].learner.rank_minutes) as lead:
            yield lead
    else:
        from assay.train.open_learner import open_learner

        yield open_learner


def _plans(
    context: typer.Context, config: Path, members: Mapping[str, list[str]]
) -> tuple[list[Plan], Path]:
    """The plan of each run of a sweep, or the only one; and its folder.

    Raises SettingsError for a sweep below the folder of a run, or a tracker that is not installed.
    """
    from assay.trackers.dashboards import require_package

    plan = options.checked_plan(context, config)
    for settings in plan.stages:
        for tracker in settings.trackers:
            require_package(tracker)
    place = Path(plan.stages[0].folder) / plan.stages[0].name
    if members and any(place.glob("*/config.toml")):
        raise SettingsError(f"{place} holds a single run; choose another --name for several")
    runs = ([*more, "--name", name, "--folder", f"{place}"] for name, more in members.items())
    return [options.checked_plan(context, config, run) for run in runs] or [plan], place


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
    options.echo()
    for row in read_held_out(outcome.folder):
        options.print_lines(
            f"{row.stage}: {row.paid:.1%} pass the paid checks of {row.family}, {row.passed:.1%}"
            f" those held out too" + f"; {row.lost} lost to the machine" * bool(row.lost)
        )
    if outcome.model:
        from assay.prompts import transformers_code

        code = transformers_code(outcome.model)
        options.echo(f"The first task's prompt, with transformers:\n\n{code}\n")
        options.echo(f"model    {outcome.model}")
    if outcome.best:
        options.echo(f"best     {outcome.best}")
    for kind, pattern in (("report", "report.md"), ("plot", "*.png")):
        for file in outcome.folder.glob(pattern):
            options.echo(f"{kind:<8} {file}")
    if outcome.advice:
        options.print_lines(f"advice   {outcome.advice}")
