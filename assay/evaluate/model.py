"""Evaluates a model from disk or from the hub: what `assay eval` does."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay import environments, extract, rewards
from assay.config.sections import EngineSettings, EvaluateSettings, JudgeSettings, PolicySettings
from assay.engines.base import sampling_of
from assay.engines.open import open_engine
from assay.errors import DataError, SettingsError
from assay.evaluate.benchmark import axes_of, run_benchmark
from assay.evaluate.report import Evaluation, read_report, write_report
from assay.evaluate.samples import SampleFile, SampleRow
from assay.judge.judge import open_judge
from assay.judge.prepared_task import TASK_SEEDS
from assay.progress import Progress
from assay.prompts import settings_of as prompt_settings
from assay.rollout.attempt import PromptedTask, RolloutContext, make_prompts
from assay.rollout.prompter import Prompter
from assay.sync import run_sync
from assay.tasks import load
from assay.tasks.exact import row_of

if TYPE_CHECKING:
    from assay.policy.load import Policy


Setup = dict[str, Any]
"""Everything that an evaluation's numbers depend on; docs/evaluate.md explains each key."""


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """What `evaluate` returns."""

    evaluation: Evaluation
    setup: Setup
    folder: Path
    """Holds report.json, report.md and samples.jsonl."""


def evaluate(
    model: PolicySettings, settings: EvaluateSettings, *, judge: JudgeSettings | None = None,
    environment: str = "single_turn", seed: int = 0, folder: Path | None = None,
    progress: Progress | None = None,
) -> EvaluationResult:  # fmt: skip
    """Evaluate a model and write samples.jsonl, report.json and report.md to `folder`.

    By default the folder is below runs/ and has a name that tells evaluations apart. Samples are
    written as they come: an evaluation that was killed goes on where it was, with the same numbers
    in the end. Works inside a running event loop. Raises UserError for tasks or a model that cannot
    be used, and for a folder that holds another evaluation.
    """
    from assay.policy.load import load_policy

    shown, limits = progress or Progress(), judge or JudgeSettings()
    axes_of(settings)
    shown.phase(f"loading {settings.tasks}")
    tasks = load(settings.tasks, limit=settings.limit)
    surroundings = environments.build({"name": environment})
    environments.require_fit(surroundings, tasks, settings.tasks)
    shown.phase(f"loading model {model.model}")
    policy = load_policy(model)
    prompter = Prompter(policy.chat, surroundings.instructions, prompt_settings(model.model))
    prompts = make_prompts(tasks, prompter, 0, None)
    settings = _capped(settings, prompts, policy.context, shown)
    setup = _setup(model, policy, settings, limits, environment, seed, prompter, prompts)
    folder = folder or _folder(setup)
    _claim(folder, setup)

    async def run(file: SampleFile) -> Evaluation:
        shown.phase("starting judge")
        async with open_judge(limits) as judging, open_engine(policy, EngineSettings()) as engine:
            reward, sampling = rewards.build({"tests": {}}), sampling_of(settings)
            context = RolloutContext(
                engine, judging, prompter, surroundings, reward, sampling, policy.context
            )
            shown.phase("evaluating", len(prompts) * settings.samples, len(file.rows))

            def on_row(row: SampleRow | None) -> None:
                if row is not None:
                    file.append(row)
                shown.advance()

            name = name_of(model.model)
            evaluation, _ = await run_benchmark(
                name, prompts, settings, context, seed, finished=file.rows, on_row=on_row
            )
            return evaluation

    with SampleFile(folder / "samples.jsonl") as file:
        known, wanted = read_report(folder), len(prompts) * settings.samples
        if file.rows:
            shown.say(f"{folder} has {len(file.rows)} of {wanted} samples already")
        if known and len(file.rows) == wanted:
            return EvaluationResult(known[0], setup, folder)
        evaluation = run_sync(run(file))
    write_report(folder, [evaluation], setup)
    return EvaluationResult(evaluation, setup, folder)


def name_of(model: str) -> str:
    """A model's short name: the last two parts of its path, `checkpoints` left out."""
    path = Path(model) if Path(model).name not in ("", "..") else Path(model).resolve()
    return "/".join([part for part in path.parts if part != "checkpoints"][-2:])


def _capped(
    settings: EvaluateSettings,
    prompts: Sequence[PromptedTask],
    context: int | None,
    shown: Progress,
) -> EvaluateSettings:
    """The settings with `max_tokens` lowered to what the longest prompt leaves of the context."""
    longest = max(prompts, key=lambda one: len(one.prompt))
    room = context - len(longest.prompt) if context else settings.max_tokens
    if room < 1:
        raise DataError(
            f"task {longest.task.id!r} has a prompt of {len(longest.prompt)} tokens, which is the"
            f" model's whole context of {context}; leave the task out or take a longer context"
        )
    if room >= settings.max_tokens:
        return settings
    shown.say(
        f"max_tokens {settings.max_tokens} -> {room}: the model's context is {context}, and the"
        f" longest prompt takes {len(longest.prompt)}"
    )
    return settings.model_copy(update={"max_tokens": room})


def _claim(folder: Path, setup: Setup) -> None:
    """Make the folder this evaluation's. Raises SettingsError if it holds another one."""
    read_report(folder)  # raises DataError for a file that is not a report
    file = folder / "report.json"
    stored = json.loads(file.read_text()).get("setup", {}) if file.exists() else _identity(setup)
    if other := [key for key, value in _identity(setup).items() if stored.get(key) != value]:
        raise SettingsError(
            f"{folder} holds another evaluation (other {', '.join(other)}); choose another --out,"
            " or remove it"
        )
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_report(folder, [], setup)


def _identity(setup: Setup) -> Setup:
    """The part that two evaluations must share to be one: all but the versions."""
    return {key: value for key, value in setup.items() if key != "versions"}


def _folder(setup: Setup) -> Path:
    """A folder that no other evaluation has: the main settings, and a hash of all."""
    words = name_of(setup["model"]["model"])[-40:], setup["tasks"][-40:], f"n{setup['samples']}"
    slug = "-".join(re.findall(r"[\w.]+", " ".join(words)))
    temperature, seed = setup["sampling"]["temperature"], setup["seed"]
    name = f"eval-{slug}-t{temperature:g}-seed{seed}-{_hash(_identity(setup))[:8]}"
    return Path("runs") / name


def _setup(
    model: PolicySettings, policy: Policy, settings: EvaluateSettings, judge: JudgeSettings,
    environment: str, seed: int, prompter: Prompter, prompts: Sequence[PromptedTask],
) -> Setup:  # fmt: skip
    commit = getattr(policy.model.config, "_commit_hash", None)
    versions = {name: version(name) for name in ("assay", "torch", "transformers")}
    return {
        "model": model.model_dump(exclude_defaults=True, exclude={"device"})
        | {"model": model.model},
        "model_files": str(commit or _files_hash(Path(model.model))),
        "tasks": settings.tasks,
        "task_count": len(prompts),
        "tasks_sha256": _hash([row_of(one.task) for one in prompts]),
        "environment": environment,
        "samples": settings.samples,
        "axes": list(settings.axes),
        "seed": seed,
        "sampling": asdict(sampling_of(settings)),
        "judge": judge.model_dump(include={"cpu_seconds", "wall_seconds", "memory_mb"})
        | {"hash_seeds": TASK_SEEDS},
        "prompt": json.loads(prompter.card(prompts[0].task)),
        "prompts_sha256": _hash([one.prompt for one in prompts]),
        "stop": sorted({word for one in prompts for word in one.stop}),
        "cut": " ".join((extract.program.__doc__ or "").split()),
        "versions": versions | {"python": platform.python_version()},
    }


def _files_hash(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return _hash([(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files])


def _hash(data: object) -> str:
    return sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
