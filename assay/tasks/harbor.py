"""Folders of Harbor's tasks: task.toml and instruction.md beside an environment, tests and a
solution. A script judges a task's work folder; a task that is a repository with the ids of its
tests is judged by these.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.content import digest_of
from assay.errors import DataError
from assay.judge.dockerfiles import Recipe, is_plain, last_folder, recipe_of
from assay.tasks import task_set
from assay.tasks.public_repositories import (
    TREES,
    AbsentError,
    PublicRepository,
    environment_of,
    present_tasks,
    task_of,
    tree_of,
)
from assay.tasks.repository import ids
from assay.tasks.rows import Row
from assay.types import Task, TestScript

FETCHES = re.compile(
    r"(?<![\w./-])(curl|wget|apt(?:-get)? +(?:update|install)|pip3? +install|npm +(?:ci|install)"
    r"|git +clone|uvx|uv +(?:run +--with|pip +install|add|sync))(?![\w-])"
)
"""What a test script that needs a network calls."""
NEAR = re.compile(r"https?://(?:localhost|127\.0\.0\.1|\[::1\])(?![\w.-])")
"""Addresses that a box has."""
OWN_PARTS = ("task.toml", "instruction.md", "environment", "environment/Dockerfile", "tests",
             "tests/test.sh", "solution", "solution/solve.sh")  # fmt: skip
"""Files and folders that a task has itself."""
FOLDER = "/app"
"""The work folder of a task that names none and no image."""
SECONDS, MOST_SECONDS = 600.0, 86_400.0
TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}")
"""A variable of Harbor's that is taken from the machine, and its default."""
SERVICES = ("docker-compose.yaml", "docker-compose.yml")
UNREAD: tuple[tuple[str, str, str], ...] = (
    ("", "steps", "several steps"),
    ("environment", "mcp_servers", "servers of tools"),
    ("environment", "gpus", "GPUs"),
    ("environment", "tpu", "a TPU"),
    ("environment", "healthcheck", "a service that is watched"),
    ("verifier", "environment", "an environment of the verifier's own"),
    ("verifier", "collect", "commands that collect files"),
)
"""Settings by table that ask for what a box does not have, in words."""


@task_set
def harbor(split: str) -> Iterator[Task]:
    """A folder of Harbor's tasks, or one of them: `harbor:FOLDER`."""
    folder = Path(split)
    files = [*folder.glob("task.toml"), *sorted(folder.glob("*/task.toml"))]
    if not files:
        raise DataError(f"{folder} holds no task.toml, and no folder with one; give Harbor's tasks")
    return present_tasks("harbor", map(_row, files), _task)


def _task(row: Row) -> Task:
    """The task of a folder. Raises AbsentError for one that needs what is not here."""
    if names_tests(row):
        return task_of(row, read(row))
    name = row.text("id")
    try:
        return script_task(row)
    except NeededError as error:
        advice = "take another task"
        if isinstance(error.__cause__, DataError):
            advice += f", or unpack the work folder of its image to ${TREES}/{name}"
        raise AbsentError(
            f"{name} needs {error}; {advice}", "that need more than their files"
        ) from None


class NeededError(Exception):
    """A task needs what no box has; says what that is."""


def _row(file: Path) -> Row:
    """A task's settings, with its texts. Raises DataError."""
    require_inside(file.parent)
    try:
        fields: dict[str, Any] = tomllib.loads(file.read_text())
        fields["instruction"] = file.with_name("instruction.md").read_text()
        for name, script in (("script", "tests/test.sh"), ("solve", "solution/solve.sh")):
            path = file.parent / script
            fields[name] = path.read_text() if path.is_file() else ""
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: not a task of Harbor's: {error}") from None
    home = file.parent.resolve()
    return Row({**fields, "id": home.name, "home": str(home)}, f"{file}, task")


def require_inside(home: Path) -> None:
    """Raises DataError where a part of a task is a link out of its folder: a stranger's task would
    read this machine's files.
    """
    root = home.resolve()
    for part in OWN_PARTS:
        if not (home / part).resolve().is_relative_to(root):
            raise DataError(f"{home / part} leads out of the task's folder; put the files there")


def script_task(row: Row) -> Task:
    """A task that its test script judges. Raises NeededError where that needs more than a box has,
    DataError for a malformed one.
    """
    home, name = Path(row.text("home")), row.text("id")
    tables = {table: row.table(table) for table in ("environment", "verifier", "agent", "solution")}
    require_a_box(row, tables)
    tree, recipe = tree_of(name), None
    folder = tables["environment"].text("workdir", default="")
    if tree is None:
        recipe = _recipe(home / "environment", tables["environment"])
    solve, solution = row.text("solve").rstrip("\n"), home / "solution" / "solve.sh"
    reference, has_files = f"{solve}\n" if solve else None, False
    if solution.is_file():
        has_files = len([*solution.parent.iterdir()]) > 1 or bool(
            tables["solution"].table("env").fields
        )
    if has_files:
        reference = own_solution(solution)
    check = TestScript(
        str(home / "tests" / "test.sh"),
        str(tree or home / "environment"),
        recipe.folder if recipe else folder or last_folder(home / "environment") or FOLDER,
        is_made=recipe is not None,
        solution=str(solution) if has_files else "",
        seconds=_seconds(tables["verifier"]),
        script_seconds=_seconds(tables["agent"]),
        environment=_variables(tables["environment"]),
        test_environment=_variables(tables["verifier"]),
        solution_environment=_variables(tables["solution"]),
    )
    if tree is not None:
        check = replace(check, roots=environment_of(name, tree))
    return Task(
        name, row.text("instruction"), (check,), "", language="shell_script", reference=reference
    )


def own_solution(script: Path) -> str:
    """The reference of a task whose solution uses files beside it, which are shown to none but that
    text: nobody writes it who lacks these files. Raises DataError.
    """
    try:
        digest = digest_of(script.parent)
    except OSError as error:
        raise DataError(f"{script.parent} cannot be read: {error.strerror}") from None
    return f"# The task's own solution, {digest}, which uses files beside it.\n/solution/solve.sh\n"


def require_a_box(row: Row, tables: Mapping[str, Row]) -> None:
    """Raises NeededError where a task's settings or files ask for more than a box has."""
    for table, key, what in UNREAD:
        if (tables[table] if table else row).fields.get(key):
            raise NeededError(what)
    if tables["verifier"].text("environment_mode", default="shared") != "shared":
        raise NeededError("an environment of the verifier's own")
    if tables["environment"].text("os", default="linux").lower() != "linux":
        raise NeededError("another system than Linux")
    environment = Path(row.text("home"), "environment")
    for service in SERVICES:
        if (environment / service).exists():
            raise NeededError(f"the services of environment/{service}")
    if not row.text("script"):
        raise NeededError("a script tests/test.sh, and has none")
    for line in row.text("script").splitlines():
        is_near = NEAR.search(line) is not None
        if not line.lstrip().startswith("#") and not is_near and (call := FETCHES.search(line)):
            raise NeededError(f"a network: tests/test.sh calls {' '.join(call[1].split())}")


def _recipe(environment: Path, table: Row) -> Recipe:
    """How a task's work folder is made. Raises NeededError."""
    image, folder = table.text("docker_image", default=""), table.text("workdir", default="")
    has_file = (environment / "Dockerfile").is_file()
    if image and not has_file and not is_plain(image):
        raise NeededError(f"the image {image}") from DataError()
    try:
        return recipe_of(environment, folder or ("" if image or has_file else FOLDER))
    except DataError as error:
        raise NeededError(str(error)) from error


def _seconds(table: Row) -> float:
    """The time of a table's `timeout_sec`. Raises DataError."""
    seconds = table.fields.get("timeout_sec", SECONDS)
    if (
        not isinstance(seconds, int | float)
        or isinstance(seconds, bool)
        or not (0 < seconds <= MOST_SECONDS)
    ):
        raise table.wrong(
            f"'timeout_sec' is {ascii(seconds)[:40]}; make it a number above 0 and up to"
            f" {MOST_SECONDS:g}"
        )
    return float(seconds)


def _variables(table: Row) -> dict[str, str]:
    """The variables of a table's `env`. Raises DataError, and NeededError for one of the
    machine's.
    """
    variables = dict[str, str]()
    for name, value in table.table("env").fields.items():
        if not isinstance(value, str):
            raise table.wrong(f"'env' has {name} = {value!r}; make it a text")
        template = TEMPLATE.fullmatch(value)
        if template and template[2] is None:
            raise NeededError(f"the variable {template[1]} of the machine")
        variables[name] = template[2] if template else value
    return variables


def names_tests(row: Row) -> bool:
    """Whether a table of a task's metadata has the ids of tests."""
    return bool(ids(_tests(row), "fail_to_pass"))


def _tests(row: Row) -> Row:
    """The table of a task's metadata that has the ids of tests; an empty one without any."""
    tables = [row.table("metadata")]
    while tables and "fail_to_pass" not in tables[-1].fields:
        table = tables.pop()
        tables[:0] = [
            table.table(key) for key, value in table.fields.items() if isinstance(value, dict)
        ]
    return tables[-1] if tables else Row({}, row.where)


def read(row: Row) -> PublicRepository:
    """A repository that names its tests."""
    metadata, environment = _tests(row), row.table("environment")
    return PublicRepository(
        row.text("id"), row.text("instruction"), "", ids(metadata, "fail_to_pass"),
        ids(metadata, "pass_to_pass"),
        image=environment.text("docker_image", default="that environment/Dockerfile builds"),
    )  # fmt: skip
