"""The judge as a resources server of the real NeMo Gym: its process, its HTTP, its classes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL
from typing import Any

import httpx2
import pytest

from assay.types import Cause
from tests.agents.outside import ENVIRONMENTS, EXAMPLES, ROOT, OutsideAgent, in_characters, play
from tests.agents.test_outside_nemo_gym import NEMO_GYM, require_lost, task, total

pytestmark = pytest.mark.agents
SERVER = OutsideAgent("nemo-gym", ("nemo_gym_server.py",))
PROGRAM = {"unit_tests": {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]}}
FUNCTION = {"unit_tests": {"inputs": ["1\n2", "0\n4"], "outputs": ["3", "4"], "fn_name": "add"}}
OWN = {"tests": ["assert add(1, 2) == 3", "assert add(0, 4) == 4"], "entry_point": "add"}
LIBRARIES = {
    "task_id": "b/1", "entry_point": "add", "code_prompt": "def add(a, b):\n",
    "test": "import unittest\nclass TestCases(unittest.TestCase):\n"
            "    def test_1(self):\n        self.assertEqual(add(1, 2), 3)\n",
}  # fmt: skip
REPOSITORY = {
    "tree": "/etc", "language": "diff", "fail_to_pass": ["test_a.py::test"], "pass_to_pass": [],
    "test_files": ["test_a.py"],
    "test_patch": "--- /dev/null\n+++ b/test_a.py\n@@ -0,0 +1 @@\n+def test(): pass\n",
}  # fmt: skip
READS = "a, b = map(int, input().split())\nprint(a + b)\n"
ADDS = "def add(a, b):\n    return a + b\n"


def environment(folder: Path, *packages: Path) -> Path:
    """The Python of a new environment that has NeMo Gym, and packages below these folders."""
    SERVER.command()
    outside = ENVIRONMENTS / "nemo-gym"
    python = outside / "bin" / "python"
    subprocess.run([str(python), "-m", "venv", "--without-pip", str(folder)], check=True)
    (theirs,) = outside.glob("lib/python3*/site-packages")
    (ours,) = folder.glob("lib/python3*/site-packages")
    lines = [f"{path.resolve()}\n" for path in (theirs, *packages)]
    (ours / "outside.pth").write_text("".join(lines))
    return folder / "bin" / "python"


@contextmanager
def served(
    python: Path, *fields: str, module: str = "assay.integrations.nemo_gym",
    folder: Path | None = None, **variables: str,
) -> Iterator[tuple[str, int]]:  # fmt: skip
    """The URL of the judge, which NeMo Gym's own classes serve, and its process."""
    command = [str(python), str(EXAMPLES / SERVER.words[0]), module, *fields]
    with subprocess.Popen(
        command, cwd=folder, env=os.environ | variables, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("environment"), ROOT)


@pytest.fixture(scope="module")
def server(python: Path) -> Iterator[tuple[str, int]]:
    with served(python) as url_and_pid:
        yield url_and_pid


def row_of(metadata: Any) -> dict[str, Any]:
    """A row as NeMo Gym has it, with a field of its own that the judge's answer has too."""
    return {"responses_create_params": {"input": "Add."}, "verifier_metadata": metadata,
            "detail": "of the row"}  # fmt: skip


def verify(url: str, metadata: Any, *replies: str) -> httpx2.Response:
    """What `verify` answers for a row and the messages of a rollout."""
    output = [
        {"id": "m", "type": "message", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": reply, "annotations": []}]}
        for reply in replies
    ]  # fmt: skip
    response = {
        "id": "r", "created_at": 1, "model": "policy", "object": "response", "output": output,
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    body = row_of(metadata) | {"response": response}
    return httpx2.post(f"{url}/verify", json=body, timeout=120)


WITH_MASKS = """
import nemo_gym.base_resources_server as base


class Answer(base.BaseVerifyResponse):
    mask_sample: bool = False
    failure_kind: str | None = None
    failure_reason: str | None = None


base.BaseVerifyResponse = Answer
from assay.integrations.nemo_gym import CodeJudge


class Judge(CodeJudge):
    pass
"""
"""The judge where NeMo Gym's answers have the fields that those of 0.7 have."""


def fenced(program: str) -> str:
    return f"So:\n```python\n{program}```"


@pytest.mark.parametrize(
    ("metadata", "program"),
    [(PROGRAM, READS), (FUNCTION, ADDS), (OWN, ADDS), (LIBRARIES, ADDS)],
    ids=["program", "function", "own", "libraries"],
)
def test_a_program_that_passes_the_tests_of_its_row_pays_1_and_another_0(
    server: tuple[str, int], metadata: Any, program: str
) -> None:
    for text, reward in ((program, 1.0), (program.replace("+", "-"), 0.0)):
        answer = verify(server[0], metadata, fenced(text))
        assert answer.status_code == 200
        fields = answer.json()
        assert fields["reward"] == reward
        assert (fields["verdict"] == "pass") == bool(reward)
        assert fields["detail"] != "of the row"


@pytest.mark.parametrize("replies", [(), ("Never.",), (fenced(ADDS), "Never mind.")])
def test_a_rollout_without_a_program_in_its_last_message_pays_0(
    server: tuple[str, int], replies: tuple[str, ...]
) -> None:
    answer = verify(server[0], OWN, *replies)
    assert answer.status_code == 200
    assert answer.json()["reward"] == 0.0


def test_a_program_that_runs_into_a_limit_pays_0_and_says_so(server: tuple[str, int]) -> None:
    answer = verify(
        server[0], OWN, fenced("def add(a, b):\n    while True:\n        pass\n")
    ).json()
    assert (answer["reward"], answer["verdict"]) == (0.0, "timeout")


def test_the_share_of_tests_is_a_field_of_the_servers_configuration(python: Path) -> None:
    with served(python, "fraction=true", "slots=1") as (url, _):
        answer = verify(url, OWN, fenced("def add(a, b):\n    return 4\n")).json()
    assert answer["reward"] == 0.5


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        (None, "verifier_metadata"),
        ({"tests": ["assert add("], "entry_point": "add"}, "'tests'"),
        ({"unit_tests": {"inputs": ["1"], "outputs": []}}, "unit_tests"),
        (OWN | {"setup": "1 / 0"}, "ZeroDivisionError"),
        (REPOSITORY, "a folder here, which no client may name"),
    ],
)
def test_a_row_that_cannot_be_judged_is_refused_and_not_scored(
    server: tuple[str, int], metadata: Any, says: str
) -> None:
    answer = verify(server[0], metadata, fenced(ADDS))
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(Cause.TASK)
    assert says in answer.json()["detail"]


def test_a_row_may_name_a_folder_only_where_the_configuration_says_so(
    python: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    with served(python, "folders=true", "slots=1") as (url, _):
        answer = verify(url, REPOSITORY | {"tree": str(tmp_path)}, "Never.")
    assert "a folder here" not in answer.text
    assert answer.status_code == 200, answer.text


def test_a_judge_that_died_is_an_error_and_no_zero(python: Path) -> None:
    with served(python) as (url, pid):
        assert verify(url, OWN, fenced(ADDS)).json()["reward"] == 1.0
        children = Path(f"/proc/{pid}/task").glob("*/children")
        for child in " ".join(file.read_text() for file in children).split():
            os.kill(int(child), SIGKILL)
        answer = verify(url, PROGRAM, fenced(READS))
    assert answer.status_code == 503
    assert answer.json()["detail"].startswith(Cause.MACHINE)


def test_a_release_that_masks_samples_gets_a_mask_and_loses_the_rollout(
    python: Path, tmp_path: Path
) -> None:
    (tmp_path / "with_masks.py").write_text(WITH_MASKS)
    with served(python, module="with_masks", folder=tmp_path) as (url, _):
        answer = verify(url, OWN | {"setup": "1 / 0"}, fenced(ADDS))
        assert answer.status_code == 200
        fields = answer.json()
        assert (fields["mask_sample"], fields["failure_kind"]) == (True, "assay:task")
        assert "ZeroDivisionError" in fields["failure_reason"]
        assert verify(url, OWN, fenced(ADDS)).json()["mask_sample"] is False
        broken = task(row_of(OWN | {"setup": "1 / 0"}))
        result = play(NEMO_GYM.command("play", url), in_characters(fenced(ADDS)), task=broken)
    require_lost(result, "assay:task: ")


def test_a_rollout_is_lost_where_the_judge_has_no_sandbox(tmp_path: Path) -> None:
    python = environment(tmp_path)  # assay is on the path, which its sandbox does not look at
    with served(python, PYTHONPATH=str(ROOT)) as (url, _):
        command = NEMO_GYM.command("play", url)
        result = play(command, in_characters(fenced(ADDS)), task=task(row_of(OWN)))
    require_lost(result, "isolation")


@pytest.mark.parametrize(("program", "reward"), [(READS, 1.0), ("print(3)\n", 0.0)])
def test_a_rollout_with_our_judge_as_its_server_is_learned_with_its_reward(
    server: tuple[str, int], program: str, reward: float
) -> None:
    command = NEMO_GYM.command("play", server[0])
    result = play(command, in_characters(fenced(program)), task=task(row_of(PROGRAM)))
    assert total(result) == reward
