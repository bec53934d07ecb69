"""assay eval: samples from models, judges and reports."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.commands import options
from assay.errors import SettingsError
from assay.progress import Progress

if TYPE_CHECKING:
    from assay.config.evaluation import EvaluationRun

FLAGS: dict[str, tuple[str, Any, str]] = {
    "model": ("policy.model", str,
              "A model directory (full or adapter), the folder of a run or stage (its newest"
              " checkpoint), a GGUF file, smollm2, a Hugging Face name, a name at the endpoint."),
    "tasks": ("evaluate.tasks", list[str],
              "A task set: humaneval, mbpp:test, a .jsonl file. Repeat for more."),
    "samples": ("evaluate.samples", str, "Completions per task; default: 8."),
    "temperature": ("evaluate.temperature", str, "0 is greedy decoding; default: 1."),
    "greedy": ("evaluate.greedy", bool, "Evaluate greedy decoding too."),
    "top_p": ("evaluate.top_p", str, "Nucleus sampling; default: 1, which turns it off."),
    "max_tokens": ("evaluate.max_tokens", str, "Longest completion in tokens; default: 512."),
    "environment": ("environment.name", str,
                    "Environment between completions: single_turn, repair; see `assay list`."),
    "axis": ("evaluate.axes", list[str],
             "Also report pass@k of this reward, such as compiles. Repeat for more."),
    "max_lost": ("evaluate.max_lost", str,
                 "Exit with 3 if a larger share of completions is lost; default: 0.01."),
    "limit": ("evaluate.limit", str, "Use only the first tasks of each set, up to this number."),
    "seed": ("seed", str, "Seed of sampling; default: 0."),
    "every_checkpoint": ("every_checkpoint", bool, "Evaluate all checkpoints of a run or stage."),
    "engine": ("engine.name", str, "torch, vllm, or openai for any OpenAI-compatible endpoint."),
    "url": ("engine.servers", str, "URL of the endpoint; it ends in /v1."),
    "device": ("policy.device", str, "auto, cpu or cuda."),
    "dtype": ("policy.dtype", str, "Data type of the weights: float32 or bfloat16."),
    "plugins": ("plugins", list[str], "A Python file with your plug-ins. Repeat for more."),
    "allow_weak": ("judge.allow_weak_isolation", bool,
                   "Judge even with weak isolation; see `assay doctor`."),
}  # fmt: skip
"""Short names on the command line: the setting that each is, its kind, and its help."""


def evaluate(
    context: typer.Context,
    config: Annotated[
        str | None, typer.Argument(help="Settings in TOML, of an evaluation or of training.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the report; default: its own, below runs/.")
    ] = None,
    as_json: options.Json = False,
    **flags: Any,
) -> None:
    """Evaluate a model: sample, judge, and report pass@k with intervals, lengths and verdicts.

    Any setting can be changed: --table.key value. To resume an evaluation that was
    killed, run the same command again.
    """
    run = run_of(context, config, flags)
    options.quiet_transformers()
    with Progress() as progress:
        from assay.evaluate import evaluate as evaluate_run
        from assay.evaluate.report import (
            axis_lines,
            group_lines,
            lost_lines,
            require_few_lost,
            table,
            title,
        )

        done = evaluate_run(run, folder=out, progress=progress)
    lines = list[str]()
    for evaluation in done.evaluations:
        details = [*axis_lines(evaluation), *group_lines(evaluation)]
        lines += ["", title(evaluation), *details] if details else []
    lines += [f"\n{line}" for line in lost_lines(done.evaluations)]
    if not_sent := sorted({name for setup in done.setups for name in setup["not_sent"]}):
        lines += ["", f"not sent: {', '.join(not_sent)}; the endpoint's own values hold"]
    forgeable = options.tell_forgeable(sum(evaluation.forgeable for evaluation in done.evaluations))
    end = "\n".join(["", *lines]) + f"{forgeable}\nreport   {done.folder / 'report.md'}"
    result = {
        "evaluations": [asdict(evaluation) for evaluation in done.evaluations],
        "setups": done.setups,
    }
    options.print_result(result, as_json, ["", table(done.evaluations)], end)
    require_few_lost(done.evaluations, run.evaluate.max_lost)


def run_of(context: typer.Context, config: str | None, flags: Mapping[str, Any]) -> EvaluationRun:
    """The settings of an evaluation, of its file, other words and FLAGS on the command line.

    Raises SettingsError where neither a file nor the command line names the model and the tasks.
    """
    from assay.config.evaluation import EvaluationRun
    from assay.config.load_settings import load_evaluation, merge, parse_overrides
    from assay.config.toml_files import has
    from assay.policy.source import require_model

    words, others = context.args, options.flags_of(context)
    if config and config.startswith("--"):  # there is no file: an unknown option was taken for it
        words, config = [config, *words], None
    for name, value in flags.items():
        if value:
            typed = value[0] if isinstance(value, list) and len(value) == 1 else value
            word = typed if isinstance(typed, str) else json.dumps(typed)
            words = [*words, f"--{name.replace('_', '-')}", word]
    short = {name.replace("_", "-"): path for name, (path, _, _) in FLAGS.items()}
    if not config:
        changes = [each.table for each in parse_overrides(words, short, EvaluationRun, others)]
        needed = {name: tuple(short[name].split(".")) for name in ("model", "tasks")}
        absent = [f"--{name}" for name, place in needed.items() if not has(merge(*changes), place)]
        if absent:
            raise SettingsError(
                f"{', '.join(absent)} {'are' if len(absent) > 1 else 'is'} missing;"
                f" {options.example(context)}"
            )
    run = load_evaluation(Path(config) if config else None, words, short, others)
    if run.engine.name != "openai":  # whose names of models look like paths
        require_model(run.policy)
    return run


def with_flags(command: Any, names: Iterable[str] = FLAGS) -> None:
    """Give a command an option for each of these FLAGS."""
    parameters = signature(command, eval_str=True).parameters.values()
    options_of_flags = [
        Parameter(
            name, Parameter.KEYWORD_ONLY, default=False if kind is bool else None,
            annotation=Annotated[
                kind if kind is bool else kind | None,
                typer.Option(f"--{name.replace('_', '-')}", help=text),
            ],
        )
        for name, (_, kind, text) in FLAGS.items() if name in names
    ]  # fmt: skip
    explicit = [each for each in parameters if each.kind is not Parameter.VAR_KEYWORD]
    vars(command)["__signature__"] = Signature([*explicit, *options_of_flags])


with_flags(evaluate)
