"""assay eval: samples from a model, judges and reports."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from assay.commands import options
from assay.progress import Progress

Model = Annotated[
    str, typer.Option(help="A model directory (full or adapter) or a Hugging Face name.")
]
TopP = Annotated[float, typer.Option(min=0.01, max=1, help="Nucleus sampling; 1 turns it off.")]
Environment = Annotated[
    str, typer.Option(help="What follows a completion: single_turn, repair; see `assay list`.")
]
Axis = Annotated[
    list[str] | None,
    typer.Option(help="A reward whose pass@k is reported too: compiles. Repeat for more."),
]


def evaluate(
    model: Model,
    tasks: options.Tasks,
    samples: Annotated[int, typer.Option(min=1, help="Completions per task.")] = 8,
    temperature: Annotated[float, typer.Option(min=0, max=100, help="0 is greedy decoding.")] = 1.0,
    top_p: TopP = 1.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest completion in tokens.")] = 512,
    environment: Environment = "single_turn",
    axis: Axis = None,
    limit: options.Limit = None,
    seed: Annotated[int, typer.Option(help="Seed of sampling.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    dtype: Annotated[
        Literal["float32", "bfloat16"], typer.Option(help="Data type of the weights.")
    ] = "float32",
    out: Annotated[
        Path | None, typer.Option(help="Folder of the report; default: its own, below runs/.")
    ] = None,
    plugins: options.Plugins = None,
    allow_weak: options.AllowWeak = False,
    as_json: options.Json = False,
) -> None:
    """Evaluate a model: sample, judge, and report pass@k with intervals, lengths and verdicts.

    An evaluation that was killed goes on where it was when the same command runs again.
    """
    from assay import environments
    from assay.config.sections import EvaluateSettings, JudgeSettings, PolicySettings
    from assay.tasks import load

    with options.quietly("assay.tasks"):
        load(tasks, limit=1)  # typos are answered before torch is imported
    environments.build({"name": environment})
    policy = PolicySettings(model=model, device=device, dtype=dtype)
    settings = EvaluateSettings(
        tasks=tasks, limit=limit, samples=samples, temperature=temperature, top_p=top_p,
        max_tokens=max_tokens, axes=tuple(axis or ()),
    )  # fmt: skip
    judge = JudgeSettings(allow_weak_isolation=allow_weak)
    options.quiet_transformers()
    with Progress() as progress:
        from assay.evaluate import evaluate as run
        from assay.evaluate.report import axis_lines, table

        done = run(
            policy, settings, judge=judge, environment=environment, seed=seed, folder=out,
            progress=progress,
        )  # fmt: skip
    trust = options.on_trust(done.evaluation.on_trust)
    files = (
        f"{trust}\nreport   {done.folder / 'report.md'}\nsamples  {done.folder / 'samples.jsonl'}"
    )
    options.print_result(
        asdict(done.evaluation),
        as_json,
        ["", table([done.evaluation]), *axis_lines(done.evaluation)],
        files,
    )
