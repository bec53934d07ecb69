"""An outside agent whose commands run in a box: what they can do there, and what is judged."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.errors import SettingsError
from assay.rollout.samples import to_samples
from assay.types import Rollout, Task, Verdict
from tests.environments.repositories import repository
from tests.environments.test_program import ASK
from tests.environments.test_shell import EDIT
from tests.rollout.talks import ADD, RIGHT, talk

RUN = (
    ASK
    + """
import subprocess
def box(*words, **more):
    done = subprocess.run([os.environ["ASSAY_BOX"], *words], capture_output=True, text=True, **more)
    return done.returncode, done.stdout, done.stderr
def docker(*words, **more):
    words = [os.environ["ASSAY_DOCKER"], *words]
    done = subprocess.run(words, capture_output=True, text=True, **more)
    return done.returncode, done.stdout, done.stderr
"""
)
SHELL = (
    RUN
    + """
messages = [task]
for turn in range(3):
    reply = ask(*messages)
    status, out, err = box("-c", reply["content"])
    messages += [reply, {"role": "user", "content": f"{status} {out}{err}"}]
"""
)


def act(tmp_path: Path, code: str, *lines: str, task: Task = ADD, **settings: Any) -> Rollout:
    """The rollout of an agent's code, of which the model says these lines."""
    file = tmp_path / "agent.py"
    file.write_text(code)
    environment = {"name": "program_with_box", "command": [sys.executable, str(file)], **settings}
    rollout, _ = talk(*lines, task=task, environment=environment)
    return rollout


def verdict(rollout: Rollout) -> Verdict:
    assert rollout.execution is not None
    return rollout.execution.verdict


def answers(tmp_path: Path, *lines: str, **settings: Any) -> list[Any]:
    """The values of expressions in an agent's code."""
    kept = tmp_path / "kept.json"
    values = ", ".join(lines)
    code = f"{RUN}\nask(task)\nopen({str(kept)!r}, 'w').write(json.dumps([{values}]))\n"
    act(tmp_path, code, RIGHT, **settings)
    return list(json.loads(kept.read_text()))


def test_commands_work_in_a_box_with_the_repository_and_its_change_is_judged(
    tmp_path: Path,
) -> None:
    task = repository(tmp_path)
    rollout = act(tmp_path, SHELL, "cat calc.py", EDIT, "git status --short", task=task)
    assert verdict(rollout) is Verdict.PASS
    assert rollout.turns[-1].program is not None
    assert "+    return a + b" in rollout.turns[-1].program
    (sample,) = to_samples([[rollout]])
    assert sample.trained_tokens == rollout.length
    idle = act(tmp_path, SHELL, *["ls"] * 3, task=repository(tmp_path / "other"))
    assert verdict(idle) is not Verdict.PASS


def test_a_command_sees_neither_the_agents_keys_nor_the_endpoint(tmp_path: Path) -> None:
    look = (
        "box('-c', 'env; cat /proc/[0-9]*/environ; ls -d /tmp/assay-agent-*')",
        "box('python3', '-c', 'import socket, sys; socket.create_connection((\"127.0.0.1\","
        " int(sys.argv[1])), 5)', os.environ['OPENAI_BASE_URL'].split(':')[2].split('/')[0])",
        "os.environ['OPENAI_API_KEY']",
    )
    (_, out, _), (status, _, error), key = answers(tmp_path, *look)
    assert "PATH=" in out
    assert key not in out
    assert "OPENAI" not in out
    assert "assay-agent" not in out
    assert status
    assert "Error" in error


def test_commands_keep_their_status_output_input_and_folder(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        "box('-c', 'echo out; echo err >&2; exit 3')",
        "box('-c', 'cat > sent; wc -c < sent', input='four')",
        "box('cat', 'sent')",
        "box('sh', '-c', 'kill -9 $$')[0]",
        "box('absent')[0]",
        "docker('exec', '-w', '/', 'any', 'pwd')",
        "box('pwd')[1].strip() == os.environ['ASSAY_FOLDER']",
        "box()",
    )
    assert found[:3] == [[3, "out\n", "err\n"], [0, "4\n", ""], [0, "four", ""]]
    assert found[3] in (137, -9)
    assert found[4] in (126, 127)
    assert found[5] == [0, "/\n", ""]
    assert found[6] is True
    assert found[7][0] == 125
    assert "name a command" in found[7][2]


def test_a_command_that_takes_too_long_is_ended_and_the_next_one_runs(tmp_path: Path) -> None:
    found = answers(tmp_path, "box('sleep', '60')", "box('echo', 'on')", command_seconds=0.5)
    assert found[0] == [124, "", "assay's box: the command timed out after 0.5 seconds\n"]
    assert found[1] == [0, "on\n", ""]


def test_what_agents_say_to_docker_is_understood(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        "docker('run', '-d', '--name', 'x', '-w', '/testbed', '--rm', 'image:1', 'sleep', '2h')",
        "docker('exec', '-i', '-w', '/tmp', '-e', 'A=1', '--env=B=2', 'x', 'bash', '-lc',"
        " 'echo $A$B; cat', input='in')",
        "docker('exec', 'x', 'printf', '%s ', '-e', 'A=1')",
        "docker('stop', 'x')",
        "docker('rm', '-f', 'x')",
        "docker('run', '--rm', 'image', 'ls')",
        "docker('pull', 'image')",
        "docker('exec', 'x')",
        "docker()",
    )
    assert found[0] == [0, "assay-box\n", ""]
    assert found[1] == [0, "12\nin", ""]
    assert found[2] == [0, "-e A=1 ", ""]
    assert found[3] == found[4] == [0, "", ""]
    assert [status for status, _, _ in found[5:]] == [125] * 4
    assert "needs -d" in found[5][2]
    assert "not pull" in found[6][2]


def test_the_file_that_commands_leave_in_the_box_is_judged(tmp_path: Path) -> None:
    code = RUN + "box('-c', 'cat > answer.py', input=ask(task)['content'])\n"
    assert act(tmp_path, code, RIGHT, answer="answer.py").passed
    missing = act(tmp_path, code, RIGHT, answer="other.py")
    assert verdict(missing) is Verdict.NO_CODE
    prints = RUN + "print(ask(task)['content'])\n"
    assert act(tmp_path, prints, RIGHT).passed


def test_an_agent_that_gives_up_a_command_leaves_a_box_that_works(tmp_path: Path) -> None:
    give_up = (
        "subprocess.call([os.environ['ASSAY_BOX'], 'sh', '-c', 'sleep 1; echo done > late'],"
        " timeout=0.3)"
    )
    code = f"""{RUN}
ask(task)
try:
    {give_up}
except subprocess.TimeoutExpired:
    pass
print(box("cat", "late")[1])
"""
    rollout = act(tmp_path, code, RIGHT)
    assert rollout.turns


def test_an_agent_whose_command_runs_when_it_ends_is_judged(tmp_path: Path) -> None:
    task = repository(tmp_path)
    code = f"""{RUN}
ask(task)
box("-c", {EDIT!r})
subprocess.Popen([os.environ["ASSAY_BOX"], "sleep", "1"])
import time; time.sleep(0.5)
"""
    assert verdict(act(tmp_path, code, RIGHT, task=task)) is Verdict.PASS


def test_an_environment_without_a_command_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"environment.command' is missing"):
        act(tmp_path, RUN, RIGHT, command=[])
