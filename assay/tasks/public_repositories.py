"""Repositories of public sets. Their rows name an image that holds the repository, which Docker or
Podman have; or a task's tree is a folder or tar file that the user unpacked from one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from assay.errors import DataError
from assay.judge.images import is_here
from assay.judge.patches import PatchError, apply, parse, reverse
from assay.judge.repository_tree import reader
from assay.tasks.repository import PREFIXES
from assay.tasks.rows import LeftOutError, Row, usable_tasks
from assay.types import Message, RepositoryTests, Task

TREES = "ASSAY_TREES"
"""The environment variable with the folder of trees."""
ARCHIVES = ("", ".tar", ".tar.gz", ".tgz")
SECONDS = 1800.0
LONGEST = 200
"""Characters of an id that is a file's name."""


@dataclass(frozen=True, slots=True)
class PublicRepository:
    """What a row of a public set says."""

    id: str
    statement: str
    fix: str
    """The right change, as a diff; empty where the set has none."""
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    image: str
    """The image that upstream runs it in."""
    test_patch: str = ""
    language: str = "python"
    messages: tuple[Message, ...] = ()
    """The prompt, where the set has one."""
    seconds: float = SECONDS
    folder: str = "/testbed"
    """Where the image has the repository."""
    roots: tuple[str, ...] = PREFIXES
    """Where it may have the interpreter."""
    bug: str = ""
    """A diff that is put into the image's repository first."""


Reader = Callable[[Row], PublicRepository]
"""Raises LeftOutError for a row that is no change to make, DataError for a malformed one."""


class AbsentError(LeftOutError):
    """Raised for a row that needs what is not here."""

    def __init__(self, needs: str, reason: str = "that need an image") -> None:
        super().__init__(reason)
        self.needs = needs
        """What that is, and what to do, in words."""


def tasks_of(name: str, rows: Iterable[Row], read: Reader) -> Iterator[Task]:
    """The tasks of rows. Raises DataError where none has its tree; where some have, one
    warning counts the others.
    """
    return present_tasks(name, map(plain, rows), lambda row: task_of(row, read(row)))


def present_tasks(name: str, rows: Iterable[Row], make: Callable[[Row], Task]) -> Iterator[Task]:
    """The tasks of rows that have all that they need; one warning counts the others. Raises
    DataError where all lack something.
    """
    absent, count = list[str](), 0

    def task_or_reason(row: Row) -> Task:
        try:
            return make(row)
        except AbsentError as error:
            absent.append(error.needs)
            raise

    for task in usable_tasks(rows, task_or_reason):
        count += 1
        yield task
    if absent and not count:
        raise DataError(f"{name}: {' '.join(absent[0].split())}")


def task_of(row: Row, public: PublicRepository) -> Task:
    """The task of a row. Raises AbsentError where its repository is not here, LeftOutError for one
    whose tests pytest does not run.
    """
    _require_pytest(public)
    tree = tree_of(public.id)
    if not (public.fail_to_pass and (tree or is_here(public.image))):
        raise AbsentError(needs(public))
    return _task(row, public, tree)


def plain(row: Row) -> Row:
    """A row; that of the metadata, where it is one of NeMo Gym's agents. Raises DataError."""
    if "patch" in row.fields:
        return row
    metadata = row.table("responses_create_params").table("metadata")
    inside = metadata.table("instance_dict").fields
    return Row(inside, row.where) if inside else row


def needs(public: PublicRepository) -> str:
    """What a task needs that is not there, and what to do."""
    if not public.fail_to_pass:
        return (
            f"{public.id} is judged by a script in the image {public.image}, which assay does not"
            " run; take tasks that name the tests to pass"
        )
    own_tree = (
        f"unpack its repository to ${TREES}/{public.id} and, if it needs packages, make a virtual"
        f" environment with them and pytest at ${TREES}/{public.id}.venv"
    )
    if public.image.startswith("/"):
        return (
            f"{public.id} needs the image {public.image}, and there is no such file or folder: put"
            f" it there (`apptainer build`); or {own_tree}"
        )
    return (
        f"{public.id} needs the image {public.image}, which is not here, and assay pulls none:"
        f" `podman pull {public.image}` (or docker); or {own_tree}"
    )


def tree_of(id: str) -> Path | None:
    """The tree of a task, if it is there."""
    if (
        not (folder := os.environ.get(TREES))
        or "/" in id
        or id.startswith(".")
        or len(id) > LONGEST
    ):
        return None
    paths = (Path(folder) / f"{id}{ending}" for ending in ARCHIVES)
    return next((path.absolute() for path in paths if path.exists()), None)


def environment_of(id: str, tree: Path) -> tuple[str, ...]:
    """The virtual environment beside the tree of a task, if there is one."""
    environment = tree.parent / f"{id}.venv"
    return (str(environment),) if environment.is_dir() else ()


def _require_pytest(public: PublicRepository) -> None:
    """Raises LeftOutError for a row that says nothing, or whose tests pytest does not run. That
    comes before what it needs: nobody is to pull an image for it.
    """
    if not public.statement.strip() and not public.messages:
        raise LeftOutError("without a statement")
    if public.language.lower() not in ("python", "py"):
        raise LeftOutError(f"in {public.language}, whose tests pytest does not run")
    if not all("::" in test for test in public.fail_to_pass):
        raise LeftOutError("with tests that are no ids of pytest")


def _task(row: Row, public: PublicRepository, tree: Path | None) -> Task:
    """The task; without a tree, in its image. Raises DataError where its fix does not fit the
    tree.
    """
    check = RepositoryTests(
        public.folder, public.fail_to_pass, public.pass_to_pass, test_patch=public.test_patch,
        roots=public.roots, seconds=public.seconds, image=public.image, bug=public.bug,
    )  # fmt: skip
    if tree:
        roots = environment_of(public.id, tree)
        check = replace(check, tree=str(tree), roots=roots, image="", bug="")
        if public.fix:
            require_fit(row, check, public.fix)
    return Task(
        public.id, public.statement, (check,), "", language="diff", reference=public.fix or None,
        messages=public.messages,
    )  # fmt: skip


def require_fit(row: Row, check: RepositoryTests, fix: str) -> None:
    """Raises DataError where a fix does not apply to the tree; where it is there already, with what
    to do about that.
    """
    read = reader(check)
    try:
        changes = parse(fix)
        try:
            apply(changes, read)
        except PatchError as error:
            apply(reverse(changes), read)
            raise row.wrong(
                f"{check.tree} holds the fix already ({error}): take the repository as it is with"
                " the bug (a SWE-smith row's `patch` makes the bug: `git apply` it there)"
            ) from None
    except PatchError as error:
        raise row.wrong(f"the fix does not fit {check.tree}: {error}") from None
