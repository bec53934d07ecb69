"""Digests of what a stage reads beside its settings: tasks, plug-ins, pairs and a model on disk. A
resumed run notices by them that one has changed.
"""

import importlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from hashlib import sha256
from itertools import chain
from pathlib import Path

from assay.config.sections import ROW_FILE_SETTINGS, RunSettings
from assay.content import digest_of
from assay.imported_files import imported_files
from assay.paths import real_path
from assay.policy.source import ModelSource, source_of
from assay.registry import KINDS_OF_TESTS, Installed, installed
from assay.train.stage_tasks import StageTasks
from assay.types import Task

Digests = Mapping[str, str]
"""By what was read, in words that name the setting, a digest of its content."""


def inputs_of(settings: RunSettings, model: ModelSource, tasks: StageTasks) -> dict[str, str]:
    """The digests of what a stage reads. Tasks count by their content, wherever they come from: a
    file that was only formatted anew is the same.
    """
    digests = {
        f"tasks.train {spec}": _of_tasks(
            task for task in tasks.whole if tasks.sets.get(task.id) == spec
        )
        for spec in settings.tasks.train
    }
    limit = settings.evaluate.limit if settings.evaluate else None
    first = f" (limit {limit})" if limit else ""
    for spec, bench in tasks.evaluation.items():
        digests[f"evaluate.tasks {spec}{first}"] = _of_tasks(bench)
    for plugin in (real_path(Path(name)) for name in settings.plugins):
        for path in imported_files(plugin.stem, plugin, packages=True).values():
            digests[f"plug-in {path}"] = digest_of(path)
    for name, used in _installed_plugins(settings, tasks).items():
        digests[f"plug-in {name} of the package {used.package}"] = _of_module(used.module)
    for name in ROW_FILE_SETTINGS:
        file = settings.algorithm.get(name)
        if file and real_path(Path(file)).exists():
            path = real_path(Path(file))
            digests[f"algorithm.{name} {path}"] = digest_of(path, as_tree=False)
    if model_name := settings.algorithm.get("teacher"):
        teacher = source_of(settings.policy.model_copy(update={"model": model_name}))
        digests |= {f"algorithm.teacher {path}": teacher.digest for path in [teacher.path] if path}
    run = real_path(Path(settings.folder) / settings.name)
    folder = model.path
    if folder and not folder.is_relative_to(run):  # an earlier stage makes that one
        digests[f"policy.model {folder}"] = model.digest
    return digests


def _installed_plugins(settings: RunSettings, tasks: StageTasks) -> dict[str, Installed]:
    """The plug-ins of installed packages that the stage uses, by folder and name. Task sets are not
    among them: what they gave counts.
    """
    every = [*tasks.whole, *chain.from_iterable(tasks.evaluation.values())]
    names = {
        "algorithms": {settings.algorithm["name"]},
        "engines": {settings.engine.name},
        "environments": {settings.environment["name"]},
        "languages": {task.language for task in every},
        "rewards": {*settings.rewards, *(settings.evaluate.axes if settings.evaluate else ())},
    }
    used = {
        f"{folder}.{name}": plugin
        for folder, of_stage in names.items()
        for name, plugin in installed(folder).items()
        if name in of_stage
    }
    packages = {type(check).__module__.partition(".")[0] for task in every for check in task.checks}
    return used | {
        f"{KINDS_OF_TESTS}.{name}": plugin
        for name, plugin in installed(KINDS_OF_TESTS).items()
        if plugin.module.partition(".")[0] in packages
    }


def _of_module(module: str) -> str:
    """The digest of an installed module's file and of those that it imports from its package."""
    file = Path(importlib.import_module(module).__file__ or "")
    digest = sha256()
    for name, path in sorted(imported_files(module, file).items()):
        if path.is_file():  # not in an archive
            digest.update(f"{name} {digest_of(path)}\n".encode())
    return digest.hexdigest()


def changed_inputs(before: Digests, now: Digests) -> list[str]:
    """The names of those in both whose content differs."""
    return sorted(name for name in before.keys() & now.keys() if before[name] != now[name])


def _of_tasks(tasks: Iterable[Task]) -> str:
    digest = sha256()
    for task in tasks:
        digest.update(json.dumps(asdict(task), sort_keys=True, default=repr).encode() + b"\n")
    return digest.hexdigest()
