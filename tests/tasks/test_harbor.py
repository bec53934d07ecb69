"""Folders of Harbor's tasks: which are judged by their script, and what the others need."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.checks import TestScript
from assay.errors import DataError
from assay.judge.dockerfiles import is_plain, made_tree, recipe_of
from assay.judge.kinds.find import demonstration_of
from assay.judge.kinds.test_script import files_beside, tree_of_script
from assay.tasks import load
from assay.types import Task
from tests.harbor_folders import FILES, TASK, harbor_folder, harbor_task


def check_of(task: Task) -> TestScript:
    (check,) = task.checks
    assert isinstance(check, TestScript)
    return check


def texts_of(tree: Path) -> dict[str, str]:
    return {
        path.relative_to(tree).as_posix(): path.read_text()
        for path in sorted(tree.rglob("*"))
        if path.is_file()
    }


def test_a_folder_is_a_task_with_its_times_and_its_solution(tmp_path: Path) -> None:
    task = harbor_task(tmp_path / "sum", **{"task.toml": TASK.replace("30.0", "45")})
    check = check_of(task)
    assert (task.id, task.prompt, task.language) == ("sum", FILES["instruction.md"], "shell_script")
    assert check.solution == str(tmp_path / "sum" / "solution" / "solve.sh")
    assert (check.seconds, check.script_seconds, check.folder) == (45.0, 45.0, "/app")
    assert texts_of(tree_of_script(check))["numbers.txt"] == "1\n2\n3\n"


def test_a_solution_that_uses_files_beside_it_is_no_demonstration(tmp_path: Path) -> None:
    """No program has these files, and none that is judged guesses the reference."""
    task = harbor_task(tmp_path / "sum")
    assert FILES["solution/right.txt"] not in (task.reference or "").splitlines(keepends=True)
    assert demonstration_of(task) is None
    other = harbor_task(tmp_path / "other" / "sum", **{"solution/right.txt": "7\n"})
    assert other.reference != task.reference
    assert harbor_task(tmp_path / "sum").reference == task.reference
    none: dict[str, str | None] = {"solution/right.txt": None}
    (alone,) = load(f"harbor:{harbor_folder(tmp_path / 'alone', **none)}")
    assert demonstration_of(alone) == alone.reference == FILES["solution/solve.sh"]
    assert check_of(alone).solution == ""
    variables = '[solution.env]\nRIGHT = "6"\n'
    own = harbor_folder(tmp_path / "with", **none, **{"task.toml": variables})
    assert demonstration_of(*load(f"harbor:{own}")) is None


def test_folders_that_need_more_are_counted_and_the_others_are_tasks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    harbor_folder(tmp_path / "sum")
    harbor_folder(tmp_path / "net", **{"tests/test.sh": "curl x\n"})
    assert [task.id for task in load(f"harbor:{tmp_path}")] == ["sum"]
    assert "left out 1 of 2 rows: 1 that need more than their files" in caplog.text


REFUSED: dict[str, tuple[dict[str, str | None], str]] = {
    "a build": (
        {"environment/Dockerfile": "FROM ubuntu\n# x\nRUN apt-get \\\n  update\nWORKDIR /app\n"},
        "that line 3 of .*Dockerfile makes: RUN apt-get update",
    ),
    "another base": ({"environment/Dockerfile": "FROM nginx\nWORKDIR /app"}, "FROM nginx"),
    "two stages": (
        {"environment/Dockerfile": "FROM debian\nFROM ubuntu\nWORKDIR /app"}, "FROM ubuntu"
    ),
    "files of a stage": (
        {"environment/Dockerfile": "FROM debian\nWORKDIR /app\nCOPY --from=x a b"}, "COPY --from=x"
    ),
    "a variable": ({"environment/Dockerfile": "FROM debian\nWORKDIR $HOME"}, r"WORKDIR \$HOME"),
    "files elsewhere": (
        {"environment/Dockerfile": "FROM debian\nWORKDIR /app\nCOPY numbers.txt /data/"},
        "files at /data/, beside its work folder /app",
    ),
    "no work folder": ({"environment/Dockerfile": "FROM debian\n"}, "its work folder is '/'"),
    "the system's folder": ({"environment/Dockerfile": "FROM debian\nWORKDIR /usr/lib/x\n"},
                            "the work folder /usr/lib/x, which is the system's"),
    "the folder of tests": (
        {"environment/Dockerfile": "FROM debian\nWORKDIR /tests\n"}, "the work folder /tests, which"
    ),
    "the folder of rewards": (
        {"environment/Dockerfile": "FROM debian\nWORKDIR /logs/x\n"}, "the work folder /logs/x"
    ),
    "left out files": ({"environment/.dockerignore": "*.md\n"}, ".dockerignore, which assay does"),
    "an image": (
        {"environment/Dockerfile": None, "task.toml": '[environment]\ndocker_image = "own/tb:1"\n'},
        "the image own/tb:1;",
    ),
    "services": ({"environment/docker-compose.yaml": "services: {}\n"}, "the services of"),
    "a network": ({"tests/test.sh": "curl -L x | sh\n"}, "a network: tests/test.sh calls curl"),
    "a package": ({"tests/test.sh": "cd x && pip3  install y\n"}, "test.sh calls pip3 install"),
    "a clone": ({"tests/test.sh": "git clone x\n"}, "a network: tests/test.sh calls git clone"),
    "no script": ({"tests/test.sh": None}, "a script tests/test.sh, and has none"),
    "steps": ({"task.toml": '[[steps]]\nname = "a"\n'}, "several steps"),
    "another box": (
        {"task.toml": '[verifier]\nenvironment_mode = "separate"\n'}, "environment of the verifier"
    ),
    "collected files": (
        {"task.toml": '[[verifier.collect]]\ncommand = "ls"\n'}, "commands that collect files"
    ),
    "GPUs": ({"task.toml": "[environment]\ngpus = 1\n"}, "GPUs"),
    "tools": (
        {"task.toml": '[[environment.mcp_servers]]\nname = "a"\nurl = "x"\n'}, "servers of tools"
    ),
    "Windows": ({"task.toml": '[environment]\nos = "Windows"\n'}, "another system than Linux"),
    "a variable of ours": (
        {"task.toml": '[verifier.env]\nKEY = "${KEY}"\n'}, "the variable KEY of the machine"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_folder_that_needs_more_than_files_says_what(what: str, tmp_path: Path) -> None:
    files, why = REFUSED[what]
    with pytest.raises(DataError, match=f"harbor: sum needs .*{why}") as caught:
        load(f"harbor:{harbor_folder(tmp_path / 'sum', **files)}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "# no pip install is needed", "curl -s http://localhost:8000/", "wget http://127.0.0.1/x",
        "./curl x", "git status", "apt --version", "my-wget x", "echo uvxy",
    ],
)  # fmt: skip
def test_a_script_that_needs_no_network_is_taken(line: str, tmp_path: Path) -> None:
    files = {"tests/test.sh": f"{line}\necho 1 > /logs/verifier/reward.txt\n"}
    assert len(load(f"harbor:{harbor_folder(tmp_path / 'sum', **files)}")) == 1


WRONG = {
    "time": ('[verifier]\ntimeout_sec = "9"\n', "'timeout_sec' is '9'; make it a number"),
    "endless time": ("[verifier]\ntimeout_sec = inf\n", "'timeout_sec' is inf; make it a number"),
    "a long time": (f"[agent]\ntimeout_sec = 1{'0' * 400}\n", "up to 86400"),
    "no time": ("[agent]\ntimeout_sec = 0\n", "'timeout_sec' is 0"),
    "variables": ("[verifier.env]\nA = 1\n", "'env' has A = 1; make it a text"),
    "a table": ('verifier = "x"\n', "'verifier' is a str"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_malformed_task_is_named(what: str, tmp_path: Path) -> None:
    text, why = WRONG[what]
    with pytest.raises(DataError, match=why):
        load(f"harbor:{harbor_folder(tmp_path / 'sum', **{'task.toml': text})}")


def test_an_unpacked_work_folder_stands_for_an_image_with_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = tmp_path / "trees"
    (trees / "sum.venv" / "bin").mkdir(parents=True)
    (trees / "sum").mkdir()
    (trees / "sum" / "Dockerfile").write_text("FROM x\n")
    monkeypatch.setenv("ASSAY_TREES", str(trees))
    files = {"environment/Dockerfile": "FROM own/image\nRUN x\nWORKDIR /work\nWORKDIR own\n"}
    check = check_of(harbor_task(tmp_path / "sum", **files))
    assert check.roots == (str(trees / "sum.venv"),)
    assert check.folder == "/work/own"
    assert texts_of(tree_of_script(check)) == {"Dockerfile": "FROM x\n"}


def test_without_a_dockerfile_the_environments_files_are_the_work_folder(tmp_path: Path) -> None:
    settings = '[environment]\ndocker_image = "python:3.11-slim"\nworkdir = "/work"\n'
    files: dict[str, str | None] = {"environment/Dockerfile": None, "task.toml": settings}
    (task,) = load(f"harbor:{harbor_folder(tmp_path / 'sum', **files)}")
    check = check_of(task)
    assert check.folder == "/work"
    assert texts_of(tree_of_script(check)) == {"numbers.txt": "1\n2\n3\n"}


COPIES = {
    'EXPOSE 80\nLABEL a="b"\nCMD ["bash"]\nCOPY a.txt .': ["a.txt"],
    "COPY . .": ["Dockerfile", "a.txt", "b.txt", "d/c.txt", "d/e/f.txt"],
    "COPY a.txt b.txt x/": ["x/a.txt", "x/b.txt"],
    "COPY a.txt x": ["x"],
    "COPY a.txt /app": ["a.txt"],
    "COPY a.txt ./": ["a.txt"],
    "COPY *.txt /app/x/": ["x/a.txt", "x/b.txt"],
    "COPY *.txt /app/x": None,
    "COPY d x": ["x/c.txt", "x/e/f.txt"],
    "COPY d a.txt x/": ["x/a.txt", "x/c.txt", "x/e/f.txt"],
    "WORKDIR sub\nCOPY a.txt b.txt ./\nWORKDIR /app": ["sub/a.txt", "sub/b.txt"],
    "WORKDIR sub\nWORKDIR ..\nCOPY a.txt sub": None,
    "COPY ../a.txt .": None,
    "COPY nothing .": None,
    "COPY a.txt": None,
    'COPY ["a.txt", "b"]': None,
    "COPY <<E x\nE": None,
}
"""What lies in the work folder after these lines; None where they are refused."""


@pytest.mark.parametrize("lines", COPIES)
def test_files_are_copied_as_docker_does(lines: str, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    for path in ("a.txt", "b.txt", "d/c.txt", "d/e/f.txt"):
        (environment / path).parent.mkdir(parents=True, exist_ok=True)
        (environment / path).write_text(path)
    (environment / "Dockerfile").write_text(f"FROM debian:12\nWORKDIR /app\n{lines}\n")
    expected = COPIES[lines]
    if expected is None:
        with pytest.raises(DataError):
            made_tree(environment, recipe_of(environment))
        return
    tree = made_tree(environment, recipe_of(environment))
    assert sorted(texts_of(tree)) == expected


def test_nothing_outside_of_the_folder_is_copied(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    environment = tmp_path / "environment"
    environment.mkdir()
    (environment / "link").symlink_to(tmp_path / "secret")
    (environment / "Dockerfile").write_text("FROM debian\nWORKDIR /app\nCOPY link /app/x\n")
    with pytest.raises(DataError, match="leads out of the folder"):
        made_tree(environment, recipe_of(environment))
    (environment / "Dockerfile").write_text("FROM debian\nWORKDIR /app\nCOPY . /app/\n")
    assert (made_tree(environment, recipe_of(environment)) / "link").is_symlink()


WRITTEN_THROUGH = {
    "a link to a file": "COPY . /app\nCOPY a.txt /app/file\n",
    "a link to a folder": "COPY . /app\nCOPY a.txt /app/folder/\n",
    "a link on the way": "COPY . /app\nCOPY a.txt /app/folder/more/b.txt\n",
    "a folder that is made": "COPY . /app\nWORKDIR /app/folder/made\n",
    "a folder that is merged": "COPY . /app\nCOPY merged /app\n",
    "a dead link": "COPY . /app\nCOPY a.txt /app/dead\n",
}


@pytest.mark.parametrize("what", WRITTEN_THROUGH)
def test_nothing_is_written_through_a_link(what: str, tmp_path: Path) -> None:
    """The tree is laid out by this process, which may write anywhere."""
    host = tmp_path / "host"
    host.mkdir()
    (host / "keys").write_text("mine\n")
    environment = tmp_path / "environment"
    (environment / "merged" / "folder").mkdir(parents=True)
    (environment / "a.txt").write_text("theirs\n")
    (environment / "merged" / "folder" / "keys").write_text("theirs\n")
    for name, target in (("file", host / "keys"), ("folder", host), ("dead", host / "new")):
        (environment / name).symlink_to(target)
    lines = f"FROM debian\nWORKDIR /app\n{WRITTEN_THROUGH[what]}"
    (environment / "Dockerfile").write_text(lines)
    with pytest.raises(DataError, match="is a link, to be written through"):
        made_tree(environment, recipe_of(environment, "/app"))
    assert texts_of(host) == {"keys": "mine\n"}
    assert [path.name for path in host.rglob("*")] == ["keys"]


@pytest.mark.parametrize(
    "part", ["environment", "tests", "solution", "task.toml", "instruction.md", "tests/test.sh",
             "solution/solve.sh", "environment/Dockerfile"],
)  # fmt: skip
def test_a_task_has_no_part_outside_of_its_folder(part: str, tmp_path: Path) -> None:
    home = harbor_folder(tmp_path / "sum")
    (home / part).rename(tmp_path / "other")
    (home / part).symlink_to(tmp_path / "other")
    with pytest.raises(DataError, match=f"{part} leads out of the task's folder"):
        load(f"harbor:{home}")


def test_a_link_among_the_tests_is_refused(tmp_path: Path) -> None:
    home = harbor_folder(tmp_path / "sum")
    (home / "tests" / "more").symlink_to("/etc/passwd")
    with pytest.raises(DataError, match="more is no file of"):
        files_beside(home / "tests" / "test.sh")


@pytest.mark.parametrize(
    ("image", "expected"),
    [("ubuntu", True), ("docker.io/library/debian:12", True), ("python:3.13-slim", True),
     ("ubuntu@sha256:0", True), ("own/ubuntu", False), ("ubuntu AS base", False),
     ("python:2.7", False), ("ghcr.io/x/python:3", False), ("alpine", False)],
)  # fmt: skip
def test_plain_images_are_known_by_name(image: str, expected: bool) -> None:
    assert is_plain(image) is expected
