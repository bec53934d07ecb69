"""An outside agent whose commands run in a box: what they can do there, and what is judged."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from assay.environments import LocalConversation
from assay.environments.program_with_box import opened_box
from assay.errors import SandboxError, SettingsError
from assay.rollout.samples import to_samples
from assay.sandbox.box import Box
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


def answers(tmp_path: Path, *lines: str, before: str = "", **settings: Any) -> list[Any]:
    """The values of expressions in an agent's code, which follow other lines."""
    kept = tmp_path / "kept.json"
    values = ", ".join(lines)
    code = f"{RUN}\nask(task)\n{before}\nopen({str(kept)!r}, 'w').write(json.dumps([{values}]))\n"
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
    assert found[3:5] == [137, 127]
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


def test_options_are_read_as_docker_reads_them(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        "docker('run', '-td', '-e', 'A=1', '-w/tmp', '--rm', 'image', 'cut', '-d', ',')",
        "docker('exec', '-eB=2', '--env', 'C=3', 'x', 'sh', '-c', 'echo $A$B$C; pwd')",
        "docker('exec', '-itw', '/', '--interactive=false', 'x', 'pwd', stdin=None)",
        "docker('run', '--rm', 'image', 'base64', '-d')",
        *(f"docker('exec', {words}, 'x', 'pwd')" for words in (
            "'--bogus'", "'-dt'", "'--env-file', 'f'", "'-'",
        )),
        "docker('run', '-d', '-v', '/:/host', 'image')",
        "docker('exec', '-w')",
    )  # fmt: skip
    assert found[0] == [0, "assay-box\n", ""]
    assert found[1] == [0, "123\n/tmp\n", ""]
    assert found[2] == [0, "/\n", ""]
    assert [status for status, _, _ in found[3:7]] == [125] * 4
    assert found[7][0] == 127, "a container may be called so"
    assert [status for status, _, _ in found[8:]] == [125] * 2
    assert "no option -v" in found[8][2]


def test_the_order_of_output_and_errors_stays_where_both_go_to_one_file(tmp_path: Path) -> None:
    command = "echo e1 >&2; echo o1; echo e2 >&2; echo o2"
    call = "subprocess.run([os.environ['ASSAY_BOX'], '-c', %r], stdout=-1, stderr=-2, text=True)"
    (text,) = answers(tmp_path, (call % command) + ".stdout")
    assert text == "e1\no1\ne2\no2\n"


def test_input_that_does_not_end_closed_files_and_bytes_are_handled(tmp_path: Path) -> None:
    open_pipe = "subprocess.run([os.environ['ASSAY_BOX'], 'ls'], stdin=os.pipe()[0],"
    found = answers(
        tmp_path,
        f"{open_pipe} stderr=-1, text=True).stderr",
        "subprocess.run(['sh', '-c', '$ASSAY_BOX echo on <&-'], stdout=-1, text=True).stdout",
        "subprocess.run(['sh', '-c', '$ASSAY_BOX sleep 0 >&- 2>&-']).returncode",
        "len(box('cat', input='x' * (17 << 20))[2]) > 0",
        r"list(subprocess.check_output([os.environ['ASSAY_BOX'], 'printf', b'a\xe9']))",
        command_seconds=2,
    )
    assert "not closed within 2 seconds" in found[0]
    assert found[1:] == ["on\n", 0, True, [0x61, 0xE9]]


GIVES_UP = """
def give_up(*words):
    try:
        subprocess.call([os.environ["ASSAY_BOX"], *words], timeout=0.5)
    except subprocess.TimeoutExpired:
        pass
"""


def test_a_command_that_an_agent_gives_up_is_ended_and_the_next_one_runs(tmp_path: Path) -> None:
    code = f"{GIVES_UP}\ngive_up('sh', '-c', 'echo > begun; sleep 98765; echo > late')"
    found = answers(tmp_path, "box('ls')[1]", "box('pgrep', 'sleep')", before=code)
    assert found == ["begun\n", [1, "", ""]]


def test_of_an_agent_that_ends_no_command_goes_on(tmp_path: Path) -> None:
    task = repository(tmp_path)
    code = f"""{RUN}{GIVES_UP}
ask(task)
box("-c", {EDIT!r})
for _ in range(3):
    subprocess.Popen([os.environ["ASSAY_BOX"], "-c", "echo > ran; sleep 98765; git checkout ."])
import time; time.sleep(1)
"""
    rollout = act(tmp_path, code, RIGHT, task=task)
    assert verdict(rollout) is Verdict.PASS
    assert "b/ran" in str(rollout.turns[-1].program)


def test_what_is_no_request_is_refused_and_hundreds_of_connections_are_hung_up_on(
    tmp_path: Path,
) -> None:
    floods = """
import socket, struct
def connection():
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(os.path.join(os.path.dirname(os.environ["ASSAY_BOX"]), "box.sock"))
    return sock
refusals = []
BODIES = (
    b"[]", b"{", b'[["ls"], "", {}, 3, 0]', b'[["ls"], 1, {}, {"": 0}, 0]',
    b'[["a\\u0000"], "", {}, {"": 0}, 0]',
)
for body in BODIES:
    sock = connection()
    sock.sendall(struct.pack("!I", len(body)) + body)
    refusals.append(b"no command" in sock.recv(1000))
idle = [connection() for _ in range(300)]
import time; time.sleep(1)
busy = box("ls")[0]
for sock in idle:
    sock.close()
time.sleep(1)
"""
    found = answers(tmp_path, "refusals", "busy", "box('echo', 'on')[1]", before=floods)
    assert found == [[True] * 5, 125, "on\n"]


def test_an_agent_ends_where_the_machine_fails_its_box(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*arguments: object, **more: object) -> None:
        raise SandboxError("the box has ended")

    monkeypatch.setattr(Box, "run", fails)
    code = f"{RUN}\nask(task)\nbox('ls')\nimport time; time.sleep(600)\n"
    assert "the box has ended" in str(act(tmp_path, code, RIGHT).failure)


def test_the_time_of_an_agent_begins_when_its_box_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def late(conversation: LocalConversation) -> AsyncIterator[Box]:
        await asyncio.sleep(3)
        async with opened_box(conversation) as box:
            yield box

    module = import_module("assay.environments.program_with_box")
    monkeypatch.setattr(module, "opened_box", late)
    assert act(tmp_path, RUN + "print(ask(task)['content'])", RIGHT, seconds=2.5).passed


def test_the_patch_that_an_agent_leaves_is_judged_where_it_is_named(tmp_path: Path) -> None:
    code = RUN + f"ask(task)\nbox('-c', {EDIT!r} + '; git diff > patch.txt; git checkout .')\n"
    tasks = [repository(tmp_path / name) for name in ("named", "tree")]
    named = act(tmp_path, code, RIGHT, task=tasks[0], answer="patch.txt")
    assert verdict(named) is Verdict.PASS
    assert verdict(act(tmp_path, code, RIGHT, task=tasks[1])) is not Verdict.PASS


def test_a_folder_whose_path_is_too_long_for_a_socket_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("long" * 20)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(SettingsError, match="set TMPDIR to a folder with a shorter one"):
        act(tmp_path, RUN, RIGHT)


def test_an_environment_without_a_command_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"environment.command' is missing"):
        act(tmp_path, RUN, RIGHT, command=[])
