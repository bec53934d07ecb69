"""Writes tasks of packages, each made by the source of bugs that is chosen, beside their trees."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from functools import partial
from pathlib import Path

from assay.errors import DataError, SettingsError
from assay.judge import Judge
from assay.make_tasks.asking import Ask
from assay.make_tasks.bugs import BugSource, Operators
from assay.make_tasks.history import CommitHistory
from assay.make_tasks.maker import Maker
from assay.make_tasks.model_bugs import EDIT, REWRITE, ModelBugs
from assay.make_tasks.settings import MakeSettings
from assay.make_tasks.statement import IssueWording
from assay.make_tasks.trees import name_of, read_tree
from assay.paths import real_path
from assay.progress import Progress, counted
from assay.types import RepositoryTests


async def make_tasks(
    packages: Sequence[str], makers: list[Maker | CommitHistory], refused: dict[str, str],
    progress: Progress, judge: Judge, asking: AbstractAsyncContextManager[Ask | None],
    settings: MakeSettings,
) -> None:  # fmt: skip
    """Write tasks of each package to tasks.jsonl in a new folder, beside their trees; `makers` says
    what is done, also where this is cancelled, and `refused` of which packages nothing can be made,
    and why.

    Raises SettingsError; SandboxError.
    """
    output = settings.output
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise SettingsError(f"--output {output} exists and is no empty folder; choose another path")
    names = {name_of(package): package for package in packages}
    if len(names) < len(packages):
        raise SettingsError("two packages have one name; give each of them once")
    is_new, written = not output.exists(), set[str]()
    home = real_path(output)
    try:
        async with judge, asking as ask:
            for name, package in names.items():
                progress.phase(f"running the tests of {name}")
                with _refusing(name, refused):
                    makers.append(await _started(judge, home, name, package, ask, settings))
            for maker in makers:
                progress.phase(f"tasks of {maker.name}", settings.count)
                say = partial(_say_tried, progress, maker.name)
                with _refusing(maker.name, refused):
                    async with aclosing(maker.rows(settings.count, say)) as rows:
                        async for row in rows:
                            with (home / "tasks.jsonl").open("a", encoding="utf-8") as file:
                                file.write(json.dumps(row) + "\n")
                            written.add(maker.name)
                            progress.advance()
    finally:
        if not (home / "tasks.jsonl").exists():
            shutil.rmtree(home if is_new else home / "trees", ignore_errors=True)
        for name in refused.keys() - written:
            shutil.rmtree(home / "trees" / name, ignore_errors=True)


async def _started(
    judge: Judge, home: Path, name: str, package: str, ask: Ask | None, settings: MakeSettings
) -> Maker | CommitHistory:
    """What makes the tasks of a package. Raises DataError where nothing can be made of it."""
    tree = home / "trees" / name
    base = RepositoryTests(
        str(tree), (), (), seconds=settings.seconds, pytest_arguments=settings.pytest_arguments,
        roots=(str(settings.environment.absolute()),) if settings.environment else (),
    )  # fmt: skip
    wording_ask = ask if settings.reword else None
    if settings.bugs == "commits":
        history = CommitHistory(
            judge, home, base, settings.seed, wording_ask, settings.regression_tests, name, package,
            settings.reference_runs,
        )  # fmt: skip
        history.start()
        return history
    read_tree(package, tree)
    maker = Maker(
        judge, home, base, settings.seed, IssueWording(wording_ask), source=_source(settings, ask),
        most_tests=settings.regression_tests,
    )  # fmt: skip
    await maker.start(settings.reference_runs)
    return maker


def _source(settings: MakeSettings, ask: Ask | None) -> BugSource:
    if settings.bugs == "operators" or ask is None:
        return Operators()
    return ModelBugs(ask, EDIT if settings.bugs == "edits" else REWRITE)


def _say_tried(progress: Progress, name: str, tried: int) -> None:
    progress.rename(f"{counted(tried, 'bug')} of {name} tried, tasks")


@contextmanager
def _refusing(name: str, refused: dict[str, str]) -> Iterator[None]:
    """Note why a package is refused, so that the others go on."""
    try:
        yield
    except DataError as error:
        refused[name] = str(error)
