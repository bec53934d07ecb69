"""The command line: assay train, eval, grade, check, doctor, serve, list. Heavy imports wait until
they are needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from assay.errors import AssayError, MachineError, SettingsError, UserError
from assay.files import write_atomically
from assay.openmp import waiting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

app = typer.Typer(
    name="assay",
    help="Make code models better at passing real tests.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first so many tasks.")]
Slots = Annotated[
    int | None, typer.Option(min=1, help="Programs judged at once; default: the processors.")
]
CpuSeconds = Annotated[float, typer.Option(min=0.05, help="CPU time of one program.")]
MemoryMb = Annotated[int, typer.Option(min=32, help="Memory of one program in MiB.")]
AllowWeak = Annotated[
    bool, typer.Option(help="Judge even with weak isolation; see `assay doctor`.")
]
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 a strict check dropped tasks, 2 the user's fault,
    3 the machine's.
    """
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.update(waiting())
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        app()
    except AssayError as error:
        sys.stderr.write(f"assay: {error}\n")
        sys.exit(2 if isinstance(error, UserError) else 3)
    except (FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        sys.stderr.write(f"assay: {error.strerror}: {error.filename}; choose another path\n")
        sys.exit(2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


@app.command(context_settings=PASS_ON)
def train(
    context: typer.Context,
    config: Annotated[Path, typer.Argument(help="Settings in TOML: recipes/demo.toml")],
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Remove what the run's folder holds and start over.")
    ] = False,
) -> None:
    """Train: one stage or a sequence, as CONFIG says; any setting may be given as --table.key
    value.

    A run that was cut off goes on where its newest checkpoint left it.
    """
    from assay.config.load import load_plan

    plan = load_plan(config, context.args)
    _quiet_transformers()
    from assay.train.stages import run_plan

    outcome = run_plan(plan, fresh=fresh, announce=typer.echo)
    if outcome.evaluations:
        from assay.evaluate.report import table

        _show("", table(outcome.evaluations))
    typer.echo(f"\nmodel    {outcome.model}")
    if outcome.best:
        typer.echo(f"best     {outcome.best}")
    for kind, pattern in (("report", "report.md"), ("plot", "*.png")):
        for file in outcome.folder.glob(pattern):
            typer.echo(f"{kind:<8} {file}")
    if not outcome.finished:
        typer.echo(f"stopped as asked; `assay train {config}` goes on")


@app.command("eval")
def evaluate(
    model: Annotated[str, typer.Option(help="A model directory (full or adapter) or a hub name.")],
    tasks: Annotated[
        str, typer.Option(help="A task set: humaneval, mbpp:test, drills:test, a .jsonl file.")
    ],
    samples: Annotated[int, typer.Option(min=1, help="Completions per task.")] = 8,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 1.0,
    top_p: Annotated[
        float, typer.Option(min=0.01, max=1, help="Nucleus sampling; 1 is off.")
    ] = 1.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest completion in tokens.")] = 512,
    environment: Annotated[
        str, typer.Option(help="What follows a reply: single_turn, repair; see list.")
    ] = "single_turn",
    limit: Limit = None,
    seed: Annotated[int, typer.Option(help="Of sampling.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    dtype: Annotated[
        Literal["float32", "bfloat16"], typer.Option(help="Type of the weights.")
    ] = "float32",
    out: Annotated[
        Path | None, typer.Option(help="Folder of the report; default below runs/.")
    ] = None,
    allow_weak: AllowWeak = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Evaluate a model: sample, judge, and report pass@k with intervals, lengths and verdicts."""
    from assay.config.sections import EvaluateSettings, JudgeSettings, PolicySettings

    policy = PolicySettings(model=model, device=device, dtype=dtype)
    settings = EvaluateSettings(
        tasks=tasks,
        limit=limit,
        samples=samples,
        temperature=temperature,
        top_p=top_p,
        max_tokens=max_tokens,
    )
    _quiet_transformers()
    from assay.evaluate.model import measure
    from assay.evaluate.report import table

    name = "/".join([part for part in Path(model).parts if part != "checkpoints"][-2:])
    turns = "" if environment == "single_turn" else environment
    place = re.findall(r"[\w.]+", f"{model.strip('./')} {tasks} t{temperature:g} {turns}")
    folder = out or Path("runs") / "-".join(["eval", *place])
    judge = JudgeSettings(allow_weak_isolation=allow_weak)
    found = measure(name, policy, settings, judge, seed, folder, environment)
    if as_json:
        typer.echo(json.dumps(asdict(found)))
    else:
        _show("", table([found]))
        typer.echo(f"\nreport   {folder / 'report.md'}\nsamples  {folder / 'samples.jsonl'}")


@app.command()
def grade(
    tasks: Annotated[
        str, typer.Option(help="The task set the samples answer: humaneval, mbpp, a .jsonl file.")
    ],
    samples: Annotated[
        Path, typer.Option(help='Rows {"task_id", "completion"} or {"task_id", "solution"}.')
    ],
    slots: Slots = None,
    cpu_seconds: CpuSeconds = 4.0,
    memory_mb: MemoryMb = 512,
    allow_weak: AllowWeak = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Judge completions from a file; writes FILE.verdicts.jsonl beside it."""
    from assay.evaluate import grade as grading
    from assay.sandbox.limits import Limits
    from assay.tasks import load

    limits = Limits(cpu_seconds=cpu_seconds, memory_mb=memory_mb)
    graded = grading.grade(samples, load(tasks), limits=limits, slots=slots, allow_weak=allow_weak)
    if as_json:
        typer.echo(json.dumps(asdict(graded)))
        return
    low, high = graded.interval.low, graded.interval.high
    typer.echo(
        f"pass@1   {graded.pass_at_1:.3f}  [{low:.3f}, {high:.3f}] over {graded.tasks} tasks"
    )
    counts = ", ".join(
        f"{name} {count}"
        for name, count in sorted(graded.verdicts.items(), key=lambda pair: -pair[1])
    )
    typer.echo(f"verdicts {counts}\nrows     {graded.file}")
    if lost := graded.verdicts.get("infra"):
        raise MachineError(
            f"{lost} of {graded.samples} samples were lost to the machine; they are marked infra,"
            " grade them again"
        )


@contextlib.contextmanager
def quietly(name: str) -> Iterator[None]:
    """Keep the warnings of one logger back: of references that fail, a report tells."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@app.command("check")
def check_tasks(
    tasks: Annotated[
        str, typer.Argument(help="A task set: humaneval, mbpp:train, drills:test, a .jsonl file.")
    ],
    output: Annotated[
        Path | None, typer.Option(help="Write the sound tasks to this .jsonl file.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write what was found to this file, as JSON.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Every finding drops a task; exit 1 when one did.")
    ] = False,
    keep: Annotated[
        list[str] | None, typer.Option(help="A finding that drops no task: constant_passes.")
    ] = None,
    limit: Limit = None,
    slots: Slots = None,
    cpu_seconds: CpuSeconds = 4.0,
    memory_mb: MemoryMb = 512,
    allow_weak: AllowWeak = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Prove tasks before training: references pass, and lazy programs and attacks do not."""
    from rich.console import Console
    from rich.progress import Progress

    from assay.check import report as checking
    from assay.check.trial import ProgramRunner
    from assay.sandbox.limits import Limits

    checking.require_writable(tasks, output, report)
    console = Console(stderr=True)
    with (
        quietly("assay.judge"),
        Progress(console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        line = bar.add_task("", total=None)
        runner = ProgramRunner(
            Limits(cpu_seconds=cpu_seconds, memory_mb=memory_mb), slots, allow_weak,
            lambda what, ended, total: bar.update(line, description=what, completed=ended,
            total=total),
        )  # fmt: skip
        reports = checking.check(tasks, limit=limit, keep=keep or (), strict=strict, runner=runner)
    found = checking.as_dict(tasks, reports)
    if report is not None:
        write_atomically(report, json.dumps(found, indent=1) + "\n")
    if output is not None:
        checking.write_tasks(output, reports)
    if as_json:
        typer.echo(json.dumps(found))
    else:
        _show(checking.table(reports))
        typer.echo(f"\nkept {found['kept']} of {len(reports)} tasks")
    if strict and found["kept"] < len(reports):
        raise typer.Exit(1)


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """Show which isolation this machine allows, found by trying; tools, versions and GPU."""
    from assay import doctor as examination

    report = examination.report()
    if as_json:
        typer.echo(json.dumps(examination.as_dict(report)))
    else:
        _show(examination.render(report))


@app.command()
def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than loopback need a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8080,
    token_file: Annotated[
        Path | None, typer.Option(help="Holds the token; default: ASSAY_TOKEN.")
    ] = None,
    slots: Slots = None,
    waiting: Annotated[
        int, typer.Option(min=0, help="Requests that may wait; more are answered 503.")
    ] = 256,
    body_mb: Annotated[
        float, typer.Option(min=0.001, help="Largest body of a request in MiB.")
    ] = 8,
    cpu_seconds: CpuSeconds = 4.0,
    memory_mb: MemoryMb = 1024,
    allow_weak: AllowWeak = False,
) -> None:
    """Serve the judge over HTTP, in assay's shapes and SandboxFusion's, until stopped."""
    from assay.judge import Judge
    from assay.sandbox.limits import Limits

    try:
        from assay.integrations.serve import serve as serving
        from assay.integrations.service import Bounds
    except ImportError as error:
        raise SettingsError(f"{error.name} is not installed; pip install 'assay[serve]'") from error
    limits = Limits(cpu_seconds=cpu_seconds, memory_mb=memory_mb)
    judge = Judge(limits, slots, stop_early=False, allow_weak=allow_weak)
    bounds = Bounds(waiting=waiting, body_mb=body_mb)
    asyncio.run(serving(judge, host, port, token_file, bounds, announce=typer.echo))


@app.command("list")
def list_plugins(
    kind: Annotated[
        str | None, typer.Argument(help="Only algorithms, environments, rewards or tasks.")
    ] = None,
) -> None:
    """List every plug-in with its first line of help."""
    from rich.table import Table

    from assay.algorithms import algorithms
    from assay.environments import environments
    from assay.registry import Registry, suggest
    from assay.rewards import rewards
    from assay.tasks import task_sets

    registries: list[Registry[Any]] = [algorithms, environments, rewards, task_sets]
    kinds = {registry.package.removeprefix("assay."): registry for registry in registries}
    if kind is not None and kind not in kinds:
        raise SettingsError(f"unknown kind {kind!r}; {suggest(kind, list(kinds))}")
    shown = Table("kind", "name", "what it is", box=None, header_style="bold", pad_edge=False)
    for title, registry in kinds.items():
        if kind in (None, title):
            for name in registry:
                shown.add_row(title, name, registry.summary(name))
    _show(shown)


def _show(*shown: RenderableType) -> None:
    from rich.console import Console

    Console().print(*shown)


def _quiet_transformers() -> None:
    import warnings

    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore", module="transformers")


if __name__ == "__main__":
    main()
