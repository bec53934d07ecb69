"""Makes the tasks of some packages: reads them, tries bugs, and writes what is kept at once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from assay.errors import SettingsError
from assay.judge import Judge
from assay.make_tasks.maker import Maker
from assay.make_tasks.sources import name_of, read_tree
from assay.make_tasks.statement import Reword
from assay.progress import Progress
from assay.types import RepositoryTests


async def make_tasks(
    packages: Sequence[str], makers: list[Maker], progress: Progress, judge: Judge,
    wording: AbstractAsyncContextManager[Reword], *, output: Path, count: int, seed: int,
    seconds: float, environment: Path | None,
) -> None:  # fmt: skip
    """Write `count` tasks of each package to tasks.jsonl in the new folder `output`, beside their
    trees; `makers` says what is done, also where this is cancelled. The tests of a package may take
    `seconds`; they run in a virtual environment, or with assay's own pytest.

    Raises SettingsError, and DataError for packages that no tasks can be made of, before any is
    made; SandboxError.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise SettingsError(f"--output {output} exists and is no empty folder; choose another path")
    names = {name_of(package): package for package in packages}
    if len(names) < len(packages):
        raise SettingsError("two packages have one name; give each of them once")
    home, roots = output.resolve(), (str(environment.absolute()),) if environment else ()
    progress.phase("reading packages", 2 * len(names))
    try:
        async with judge, wording as reword:
            for name, package in names.items():
                read_tree(package, home / "trees" / name)
                progress.advance()
            for name in names:
                tree = str(home / "trees" / name)
                base = RepositoryTests(tree, (), (), roots=roots, seconds=seconds)
                makers.append(Maker(judge, home, base, seed, reword))
                await makers[-1].start()
                progress.advance()
            for maker in makers:
                progress.phase(maker.name, count)
                async for row in maker.rows(count):
                    with (home / "tasks.jsonl").open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
                    progress.advance()
    finally:
        if not (home / "tasks.jsonl").exists():
            shutil.rmtree(home / "trees", ignore_errors=True)
