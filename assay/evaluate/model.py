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
from assay.engines.base import Sampling
from assay.engines.open import open_engine
from assay.errors import DataError, SettingsError
from assay.evaluate.benchmark import run_benchmark, sampling_of
from assay.evaluate.report import Evaluation, read_report, read_setup, write_report
from assay.evaluate.samples import SampleFile, SampleRow
from assay.judge.open import open_judge
from assay.progress import Progress
from assay.prompts import settings_of as prompt_settings
from assay.rollout.attempt import PromptedTask, RolloutContext, make_prompts
from assay.rollout.prompter import Prompter
from assay.sync import run_sync
from assay.tasks import load
from assay.tasks.exact import row_of

if TYPE_CHECKING:
    from assay.policy.load import Policy


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything that an evaluation's numbers depend on; report.json holds it as `setup`."""

    model: dict[str, Any]
    """The model's settings that are not the default: its name, `dtype`, ..."""
    model_files: str
    """Hash of the names, sizes and times of the model directory's files; the commit on the hub."""
    tasks: str
    """The task set and split."""
    task_count: int
    tasks_sha256: str
    """Hash of the tasks' content."""
    environment: str
    samples: int
    """Completions per task."""
    seed: int
    sampling: Sampling
    judge: dict[str, Any]
    """Limits of a judged program."""
    prompt: dict[str, Any]
    """The prompt settings, whether they go through a chat template, and the first task's messages:
    the same as a checkpoint's prompt.json."""
    prompts_sha256: str
    """Hash of all prompts' tokens."""
    stop: list[str]
    """Strings that end a completion, besides the end token."""
    cut: str
    """How the program is cut from a completion."""
    versions: dict[str, str]

    @property
    def identity(self) -> dict[str, Any]:
        """The fields that two evaluations must share to be one: all but the versions."""
        found: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return {name: value for name, value in found.items() if name != "versions"}

    @property
    def folder(self) -> str:
        """A folder name that no other evaluation has: the main settings, and a hash of all."""
        model = name_of(str(self.model["model"]))
        words = (model[-40:], self.tasks[-40:], f"t{self.sampling.temperature:g}")
        slug = "-".join(re.findall(r"[\w.]+", "-".join((*words, f"n{self.samples}"))))
        return f"eval-{slug}-seed{self.seed}-{_hash(self.identity)[:8]}"


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What `evaluate` returns."""

    evaluation: Evaluation
    setup: Setup
    folder: Path
    """Holds report.json, report.md and samples.jsonl."""


def evaluate(
    model: PolicySettings,
    settings: EvaluateSettings,
    *,
    judge: JudgeSettings | None = None,
    environment: str = "single_turn",
    seed: int = 0,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Evaluated:
    """Evaluate a model and write samples.jsonl, report.json and report.md to `folder`.

    By default the folder is below runs/ and has a name that tells evaluations apart. Samples are
    written as they come: an evaluation that was killed goes on where it was, with the same numbers
    in the end. Works inside a running event loop. Raises UserError for tasks or a model that cannot
    be used, and for a folder that holds another evaluation.
    """
    from assay.policy.load import load_policy

    shown = progress or Progress()
    shown.phase(f"loading {settings.tasks}")
    tasks = load(settings.tasks, limit=settings.limit)
    talk = environments.build({"name": environment})
    environments.require_fit(talk, tasks, settings.tasks)
    shown.phase(f"loading model {model.model}")
    policy = load_policy(model)
    prompter = Prompter(policy.chat, talk.instructions, prompt_settings(model.model))
    prompts = make_prompts(tasks, prompter, 0, None)
    settings = _capped(settings, prompts, policy.context, shown)
    limits = judge or JudgeSettings()
    setup = _setup(model, policy, settings, limits, environment, seed, prompter, prompts)
    folder = folder or Path("runs") / setup.folder
    _claim(folder, setup)

    async def run(file: SampleFile) -> Evaluation:
        shown.phase("starting judge")
        async with open_judge(limits) as judging, open_engine(policy, EngineSettings()) as engine:
            context = RolloutContext(
                engine, judging, prompter, talk, rewards.build({"tests": {}}),
                setup.sampling, policy.context,
            )  # fmt: skip
            shown.phase("evaluating", len(prompts) * settings.samples, len(file.rows))

            def on_row(row: SampleRow | None) -> None:
                if row is not None:
                    file.append(row)
                shown.advance()

            name = name_of(model.model)
            found, _ = await run_benchmark(
                name, prompts, settings, context, seed, finished=file.rows, on_row=on_row
            )
            return found

    with SampleFile(folder / "samples.jsonl") as file:
        known, wanted = read_report(folder), len(prompts) * settings.samples
        if file.rows:
            shown.say(f"{folder} has {len(file.rows)} of {wanted} samples already")
        if known and len(file.rows) == wanted:
            return Evaluated(known[0], setup, folder)
        found = run_sync(run(file))
    write_report(folder, [found], asdict(setup))
    return Evaluated(found, setup, folder)


def name_of(model: str) -> str:
    """A model's short name: the last two parts of its path, `checkpoints` left out."""
    return "/".join([part for part in Path(model).parts if part != "checkpoints"][-2:])


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
    stored = read_setup(folder)
    if stored is None:
        folder.mkdir(parents=True, exist_ok=True)
        write_report(folder, [], asdict(setup))
        return
    other = [name for name, value in setup.identity.items() if stored.get(name) != value]
    if other:
        raise SettingsError(
            f"{folder} holds another evaluation (other {', '.join(other)}); choose another --out,"
            " or remove it"
        )


def _setup(
    model: PolicySettings, policy: Policy, settings: EvaluateSettings, judge: JudgeSettings,
    environment: str, seed: int, prompter: Prompter, prompts: Sequence[PromptedTask],
) -> Setup:  # fmt: skip
    commit = getattr(policy.model.config, "_commit_hash", None)
    return Setup(
        model=model.model_dump(exclude_defaults=True, exclude={"device"}) | {"model": model.model},
        model_files=str(commit or _files_hash(Path(model.model))),
        tasks=settings.tasks,
        task_count=len(prompts),
        tasks_sha256=_hash([row_of(one.task) for one in prompts]),
        environment=environment,
        samples=settings.samples,
        seed=seed,
        sampling=sampling_of(settings),
        judge=judge.model_dump(include={"cpu_seconds", "wall_seconds", "memory_mb"}),
        prompt=json.loads(prompter.card(prompts[0].task)),
        prompts_sha256=_hash([one.prompt for one in prompts]),
        stop=sorted({word for one in prompts for word in one.stop}),
        cut=" ".join((extract.program.__doc__ or "").split()),
        versions={name: version(name) for name in ("assay", "torch", "transformers")}
        | {"python": platform.python_version()},
    )


def _files_hash(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return _hash([(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files])


def _hash(data: object) -> str:
    return sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
