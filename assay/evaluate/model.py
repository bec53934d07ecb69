"""Evaluates models: what `assay eval` does."""

import json
from asyncio import CancelledError
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assay import environments, rewards
from assay.config.evaluation import EvaluationRun
from assay.engines.base import Engine, sampling_of
from assay.environments import Environment
from assay.errors import DataError, MachineError, SettingsError
from assay.evaluate.benchmark import (
    axes_of,
    benchmarks_of,
    evaluation_of,
    load_sets,
    run_benchmark,
)
from assay.evaluate.protocol import Setup, folder_name, hash_of, identity, name_of, setup_of
from assay.evaluate.report import Evaluation, read_report, title, write_report
from assay.evaluate.sample_file import LostSample, SampleFile, SampleRow
from assay.evaluate.subject import EvaluatedModel, Subject, models_of, subject_of
from assay.files import write_atomically
from assay.judge import AnyJudge
from assay.judges.open_judge import open_judge
from assay.paths import real_path
from assay.progress import Progress, counted
from assay.prompts import settings_of as prompt_settings
from assay.rollout.attempt import PromptedTask, RolloutContext, make_prompts
from assay.rollout.prompter import Prompter
from assay.sync import run_sync
from assay.trackers.rollouts import VOCABULARY, write_rollouts, write_vocabulary
from assay.types import Task

RUNS, ROLLOUTS = Path("runs"), "evaluations/step_000000.parquet"
WRITTEN = ("report.md", "report.json", VOCABULARY, ROLLOUTS, "samples.jsonl")
"""Files of an evaluation; the samples come last, since they are what another may go on with."""


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """What `evaluate` returns."""

    evaluations: tuple[Evaluation, ...]
    """One for each model, task set and way of sampling."""
    setups: tuple[Setup, ...]
    """How each was made."""
    folder: Path
    """Holds report.json and report.md, and samples.jsonl of an evaluation that is alone."""


@dataclass(frozen=True, slots=True)
class EvaluationRow:
    """One model on one task set: a row of the report, with a folder for its samples."""

    run: EvaluationRun
    model: str
    """Its name."""
    prompts: Sequence[PromptedTask]
    setup: Setup
    folder: Path

    @property
    def completions(self) -> int:
        """When all are sampled."""
        return len(self.prompts) * self.run.evaluate.samples


def evaluate(
    run: EvaluationRun, *, folder: Path | None = None, progress: Progress | None = None
) -> EvaluationResult:
    """Evaluates a model, or several, and writes report.json, report.md, samples.jsonl and rollouts
    (evaluations/step_000000.parquet).

    By default they go to a folder below runs/ with a name that tells evaluations apart. Samples are
    written as they come, so an evaluation that was killed goes on where it was, with the same
    numbers in the end. Samples of the same evaluation in another folder are used again. It works
    inside a running event loop. Raises UserError for tasks or a model that cannot be used, and for
    a folder that holds another evaluation.
    """
    progress = progress or Progress()
    axes_of(run.evaluate)
    environment = environments.build(run.environment, run.judge.servers)
    progress.phase(f"loading {', '.join(run.evaluate.tasks)}")
    sets = load_sets(run.evaluate, environment)
    models = models_of(run)
    alone = len(models) * len(benchmarks_of(run.evaluate)) == 1
    alone &= not folder or "setups" not in _table(folder)
    if folder and not alone:
        _require_table(folder, [model.source.name for model in models])
    rows: dict[str, tuple[Evaluation, Setup, Path]] = {}
    for model in models:
        for row, evaluation in _evaluate(model, sets, environment, folder, alone, progress):
            rows[title(evaluation)] = evaluation, row.setup, row.folder
    evaluations, setups, folders = zip(*rows.values(), strict=True)
    if alone:
        return EvaluationResult(evaluations, setups, folders[0])
    folder = folder or RUNS / f"evals-{hash_of(list(map(identity, setups)))[:8]}"
    older, newer = _table(folder).get("setups", {}), dict(zip(rows, setups, strict=True))
    write_report(folder, [*read_report(folder), *evaluations], setups=older | newer)
    return EvaluationResult(evaluations, setups, folder)


def _evaluate(
    model: EvaluatedModel, sets: Mapping[str, Sequence[Task]], environment: Environment,
    out: Path | None, alone: bool, progress: Progress,
) -> list[tuple[EvaluationRow, Evaluation]]:  # fmt: skip
    """The rows of one model. Its engine starts only where samples are missing."""
    source = model.source
    progress.phase(f"loading model {source.name}")
    subject = subject_of(model, progress)
    run = model.run.model_copy(update={"policy": subject.settings})
    prompt = run.prompt or prompt_settings(source.folder)
    prompter = Prompter(subject.chat, environment, prompt)
    prompts = {spec: make_prompts(tasks, prompter, 0, None) for spec, tasks in sets.items()}
    rows = []
    for settings in benchmarks_of(run.evaluate):
        task_prompts = prompts[settings.tasks[0]]
        capped = _capped(
            run.model_copy(update={"evaluate": settings}), task_prompts, subject, progress
        )
        setup = setup_of(capped, source.name, subject.files, prompter, task_prompts)
        folder = out if out and alone else (out or RUNS) / folder_name(setup)
        _claim(folder, setup, progress)
        rows.append(EvaluationRow(capped, source.name, task_prompts, setup, folder))
    done = [_finished(row, progress) for row in rows]

    async def sample() -> list[Evaluation]:
        progress.phase("starting judge")
        async with open_judge(run.judge) as judge, subject.open(rows[0].folder) as engine:
            return [
                evaluation
                or await _sample(row, subject, prompter, environment, engine, judge, progress)
                for row, evaluation in zip(rows, done, strict=True)
            ]

    evaluations = run_sync(sample()) if None in done else list(filter(None, done))
    rows = [replace(row, setup=_setup_of(row, subject)) for row in rows]
    return list(zip(rows, evaluations, strict=True))


async def _sample(
    row: EvaluationRow, subject: Subject, prompter: Prompter, environment: Environment,
    engine: Engine, judge: AnyJudge, progress: Progress,
) -> Evaluation:  # fmt: skip
    """Samples and judges what is missing, and writes the row's report."""
    settings = row.run.evaluate
    context = RolloutContext(
        engine, judge, prompter, environment, rewards.build({"tests": {}}), sampling_of(settings),
        subject.context,
    )  # fmt: skip
    with SampleFile(row.folder / "samples.jsonl") as file:
        progress.tokens = lambda: engine.tokens_generated
        most = (row.completions - len(file.rows)) * settings.max_tokens
        progress.phase(f"evaluating {settings.tasks[0]}", row.completions, len(file.rows), most)

        def on_row(sample: SampleRow | LostSample) -> None:
            if isinstance(sample, SampleRow):
                file.append(sample)
            progress.advance()

        name = name_of(row.model)
        try:
            evaluation, rollouts = await run_benchmark(
                name, row.prompts, settings, context, row.run.seed, finished=file.rows,
                on_row=on_row,
            )  # fmt: skip
        except CancelledError:  # by Ctrl-C
            progress.say(
                f"stopped: {len(file.rows)} of {counted(row.completions, 'sample')} are kept in"
                f" {row.folder}; the same command makes the others"
            )
            raise
        except MachineError as error:
            if file.rows:
                sofar = evaluation_of(name, row.prompts, settings, file.rows, 0.0, str(error))
                write_report(row.folder, [sofar], _setup_of(row, subject))
            raise
    progress.tokens = int  # else it would keep the engine's model
    write_rollouts(row.folder / ROLLOUTS, 0, rollouts)
    if not row.run.engine.kind.hosted:
        from assay.policy.tokenizer import vocabulary

        write_vocabulary(row.folder, vocabulary(subject.chat.tokenizer))
    write_report(row.folder, [evaluation], _setup_of(row, subject))
    return evaluation


def _setup_of(row: EvaluationRow, subject: Subject) -> Setup:
    """The row's setup, with the parameters that were not sent to an endpoint, now or earlier."""
    stored = _table(row.folder).get("setup", {}).get("not_sent", [])
    return row.setup | {"not_sent": sorted({*row.setup["not_sent"], *stored, *subject.not_sent})}


def _finished(row: EvaluationRow, progress: Progress) -> Evaluation | None:
    """The stored evaluation, where all its samples are there."""
    with SampleFile(row.folder / "samples.jsonl") as file:
        if file.rows:
            progress.say(
                f"{row.folder} has {len(file.rows)} of {counted(row.completions, 'sample')} already"
            )
        stored = read_report(row.folder)
        whole = stored and not stored[0].dropped and len(file.rows) == row.completions
        return stored[0] if whole else None


def _capped(
    run: EvaluationRun, prompts: Sequence[PromptedTask], subject: Subject, progress: Progress
) -> EvaluationRun:
    """The run with `max_tokens` lowered to what the longest prompt leaves of the context."""
    longest, context = max(prompts, key=lambda prompt: len(prompt.prompt)), subject.context
    settings = run.evaluate
    room = context - len(longest.prompt) if context else settings.max_tokens
    if room < 1:
        raise DataError(
            f"task {longest.task.id!r} has a prompt of {len(longest.prompt)} tokens, which is the"
            f" model's whole context of {context}; leave the task out or take a longer context"
        )
    if room >= settings.max_tokens:
        return run
    progress.say(
        f"max_tokens {settings.max_tokens} -> {room}: the model's context is {context}, and the"
        f" longest prompt takes {len(longest.prompt)}"
    )
    return run.model_copy(update={"evaluate": settings.model_copy(update={"max_tokens": room})})


def _claim(folder: Path, setup: Setup, progress: Progress) -> None:
    """Make the folder this evaluation's, with the samples of the same one in another folder.

    Raises SettingsError if it holds another evaluation, or samples that no report explains.
    """
    read_report(folder)  # raises DataError for a file that is not a report
    file, samples = folder / "report.json", folder / "samples.jsonl"
    identifier = identity(setup)
    stored = _table(folder).get("setup", {}) if file.exists() else identifier
    if other := [key for key, value in identifier.items() if stored.get(key) != value]:
        raise SettingsError(
            f"{folder} holds another evaluation (other {', '.join(other)}); choose another --out,"
            " or remove it"
        )
    if file.exists():
        return
    if samples.exists() and samples.stat().st_size:
        raise SettingsError(
            f"{samples} has no report.json beside it; remove it, or choose another --out"
        )
    twin = max(_twins(identifier, folder), key=lambda file: file.stat().st_size, default=None)
    folder.mkdir(parents=True, exist_ok=True)
    if twin and not samples.exists():
        progress.say(f"the samples of {twin.parent} are used again")
        for name in WRITTEN:
            if (other_file := twin.parent / name).exists():
                write_atomically(folder / name, other_file.read_bytes())
    else:
        write_report(folder, [], setup)


def _twins(identifier: Setup, folder: Path) -> Iterator[Path]:
    """The samples of the same evaluation in other folders, below runs/ or beside `folder`."""
    for root in {real_path(RUNS), real_path(folder.parent)}:
        for file in [*root.glob("*/report.json"), *root.glob("*/*/report.json")]:
            setup, samples = _table(file.parent).get("setup"), file.with_name("samples.jsonl")
            if isinstance(setup, dict) and identity(setup) == identifier and samples.exists():
                yield samples


def _require_table(folder: Path, models: Sequence[str]) -> None:
    """Raises SettingsError where rows of these models would replace others in the report."""
    table = _table(folder)
    if (folder / "report.json").exists() and "setups" not in table:
        raise SettingsError(
            f"{folder} holds a single evaluation or a run; choose another --out for several"
        )
    stored = (setup["model"]["model"] for setup in table.get("setups", {}).values())
    names = {name_of(model): model for model in stored}
    for model in models:
        other = names.get(name_of(model), model)
        if real_path(Path(other)) != real_path(Path(model)):
            raise SettingsError(
                f"{folder} has rows of {other}, another {name_of(model)}; choose another --out"
            )


def _table(folder: Path) -> Setup:
    """What report.json holds; empty where there is none, or it is of another program."""
    try:
        report = json.loads((folder / "report.json").read_text())
    except (OSError, ValueError):
        return {}
    return report if isinstance(report, dict) else {}
