"""The real Harbor runs tasks in boxes of assay, and its rewards are those of assay's own judge."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from assay.judge import Job
from assay.tasks import load
from assay.types import Cause, Verdict
from tests.agents.outside import ENVIRONMENTS
from tests.harbor_folders import harbor_folder
from tests.judge.opened import judge_all

pytestmark = pytest.mark.agents

TRIAL = """
import asyncio, json, sys
from harbor.models.trial.config import TrialConfig
from harbor.trial.trial import Trial

async def main(task, agent):
    config = TrialConfig.model_validate({
        "task": {"path": task}, "trials_dir": "trials", "agent": agent,
        "environment": {"import_path": "assay.integrations.harbor:AssayEnvironment"},
    })
    result = await (await Trial.create(config)).run()
    rewards = result.verifier_result and result.verifier_result.rewards
    error = result.exception_info
    why = error and [error.exception_type, error.exception_message]
    print(json.dumps([rewards, why]))

try:
    asyncio.run(main(*json.loads(sys.argv[1])))
except ValueError as error:
    print(json.dumps([None, ["ValueError", str(error)]]))
"""
AGENT = """
import json
from pathlib import Path
from harbor.agents.base import BaseAgent

class Scripted(BaseAgent):
    @staticmethod
    def name(): return "scripted"
    def version(self): return "1"
    async def setup(self, environment): pass
    async def run(self, instruction, environment, context):
        shown = []
        for command in json.loads(Path("commands.json").read_text()):
            try:
                done = await environment.exec(command, timeout_sec=2, env={"SAID": "hi"})
                shown.append([done.return_code, done.stdout, done.stderr])
            except RuntimeError as error:
                shown.append(str(error))
        home = Path("home").resolve()
        await environment.upload_dir(home, "/app/up")
        await environment.download_dir("/app", home.parent / "down")
        Path("shown.json").write_text(json.dumps([instruction, shown]))
"""


def tried(task: Path, folder: Path, **agent: str) -> Any:
    """The rewards that Harbor has of a trial, and its error."""
    python = ENVIRONMENTS / "harbor" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"there is no {python}: make test-agents builds it, with Python 3.12 or newer")
    quiet = {"HARBOR_TELEMETRY": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run(
        [python, "-c", TRIAL, json.dumps([str(task), agent])],
        capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, **quiet},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


SCRIPTS = {
    "a sum": None,
    "a share": 'test -e sum.txt && echo 0.5 > /logs/verifier/reward.txt || echo "-2" > '
    "/logs/verifier/reward.txt",
    "a table": "echo '{\"reward\": '$(cat sum.txt || echo 0)', \"b\": true}' > "
    "/logs/verifier/reward.json; echo 0 > /logs/verifier/reward.txt; exit 1",
    "where it runs": "#!/usr/bin/env python3\nimport os\n"
    "os.write(os.open('/logs/verifier/reward.txt', 65), b'%d' % (os.getcwd() == '/app'))\n",
}


@pytest.mark.parametrize("what", SCRIPTS)
def test_its_rewards_are_those_of_our_judge(what: str, tmp_path: Path) -> None:
    script = SCRIPTS[what]
    home = harbor_folder(tmp_path / "sum", **({"tests/test.sh": script} if script else {}))
    (task,) = load(f"harbor:{home}")
    ours = judge_all([Job(task, task.reference), Job(task, "")], stop_early=False)
    for name, execution in zip(("oracle", "nop"), ours, strict=True):
        rewards, error = tried(home, tmp_path, name=name)
        assert error is None
        shown = {test.name: f"{float(rewards[test.name]):g}" for test in execution.tests}
        assert shown == {test.name: test.detail for test in execution.tests}
        assert len(rewards) == len(execution.tests)
        assert (execution.verdict is Verdict.PASS) == (rewards["reward"] >= 1)


BROKEN = {
    "true": "RewardFileNotFoundError",
    "> /logs/verifier/reward.txt": "RewardFileEmptyError",
    "echo nan > /logs/verifier/reward.txt": "VerifierOutputParseError",
    "cd /logs/verifier; echo x > reward.json; echo 1 > reward.txt": "VerifierOutputParseError",
}


@pytest.mark.parametrize("script", BROKEN)
def test_where_it_finds_no_reward_neither_do_we(script: str, tmp_path: Path) -> None:
    home = harbor_folder(tmp_path / "sum", **{"tests/test.sh": script})
    (task,) = load(f"harbor:{home}")
    (execution,) = judge_all([Job(task, task.reference)])
    assert (execution.verdict, execution.cause) == (Verdict.UNJUDGED, Cause.TASK)
    rewards, error = tried(home, tmp_path, name="oracle")
    assert (rewards, error[0]) == (None, BROKEN[script])


def test_an_agent_of_its_own_works_in_the_box(tmp_path: Path) -> None:
    home = harbor_folder(tmp_path / "sum")
    (tmp_path / "scripted.py").write_text(AGENT)
    (tmp_path / "home" / "empty").mkdir(parents=True)
    (tmp_path / "home" / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "home" / "tool").chmod(0o755)
    commands = [
        "pwd; ls; echo $SAID; echo odd >&2; exit 3",
        "sleep 60",
        "sleep 60 & echo 6 > sum.txt",
        "pgrep sleep; ls /tests /solution; ln -s /etc/passwd link; mkfifo pipe",
        "kill -9 $$",
    ]
    (tmp_path / "commands.json").write_text(json.dumps(commands))
    rewards, error = tried(home, tmp_path, import_path="scripted:Scripted")
    assert (rewards, error) == ({"reward": 1.0}, None)
    instruction, (first, late, _, left, killed) = json.loads((tmp_path / "shown.json").read_text())
    assert instruction == (home / "instruction.md").read_text()
    assert first == [3, "/app\nDockerfile\nnumbers.txt\nhi\n", "odd\n"]
    assert late == "Command timed out after 2 seconds"
    assert left[1] == "/solution:\n\n/tests:\n"
    assert killed[0] == 128 + 9
    down = {
        file.relative_to(tmp_path / "down").as_posix() for file in (tmp_path / "down").rglob("*")
    }
    assert down == {"Dockerfile", "numbers.txt", "sum.txt", "up", "up/tool"}


def test_a_task_that_needs_more_than_files_is_refused_by_name(tmp_path: Path) -> None:
    files = {"environment/Dockerfile": "FROM ubuntu\nRUN apt-get update\n"}
    rewards, error = tried(harbor_folder(tmp_path / "sum", **files), tmp_path, name="oracle")
    assert rewards is None
    assert "assay's box: the task needs an image that line 2" in error[1]
