"""The real client of swe-rex works with our server as it does with its own: sessions, interrupts,
programs that ask, files, folders, and its own errors.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agents.outside import ENVIRONMENTS, ROOT

pytestmark = pytest.mark.agents
CLIENT = """
import asyncio, json, logging, sys
from swerex.deployment.remote import RemoteDeployment
from swerex.runtime.abstract import (
    BashAction, BashInterruptAction, CloseBashSessionRequest, Command, CreateBashSessionRequest,
    ReadFileRequest, UploadRequest, WriteFileRequest)

port, key, folder = sys.argv[1:]
seen = {}

async def main():
    deployment = RemoteDeployment(host="http://127.0.0.1", port=int(port), auth_token=key)
    await deployment.start()
    runtime = deployment.runtime
    await runtime.wait_until_alive(timeout=60)

    async def note(name, work):
        try:
            seen[name] = (await work).model_dump()
        except Exception as error:
            seen[name] = [type(error).__name__, sorted(getattr(error, "extra_info", {}) or {})]

    def bash(command, **fields):
        return runtime.run_in_session(BashAction(command=command, **fields))

    file = WriteFileRequest(path="/root/rc", content="X=5; echo rc")
    await note("write", runtime.write_file(file))
    await note("create", runtime.create_session(
        CreateBashSessionRequest(startup_source=["/root/rc"], startup_timeout=10)))
    await note("again", runtime.create_session(CreateBashSessionRequest()))
    await note("state", bash("cd /tmp && echo $X; pwd"))
    await note("raise", bash("false"))
    await note("silent", bash("false", check="silent"))
    await note("ignore", bash("false", check="ignore"))
    await note("syntax", bash("if"))
    await note("late", bash("sleep 60", timeout=0.5))
    await note("interrupt", runtime.run_in_session(BashInterruptAction()))
    asks = dict(is_interactive_command=True, expect=[">>> "], timeout=30)
    await note("python", bash("python3 -i -q", **asks))
    await note("product", bash("6 * 7", **asks))
    await note("quit", bash("quit()", is_interactive_quit=True, timeout=30))
    await note("after", bash("echo $X"))
    await note("execute", runtime.execute(Command(command="echo $((1 + 1))", shell=True, cwd="/")))
    await note("absent", runtime.execute(Command(command=["no-such"])))
    await note("check", runtime.execute(Command(command="false", check=True)))
    await note("read", runtime.read_file(ReadFileRequest(path="/root/rc")))
    await note("unread", runtime.read_file(ReadFileRequest(path="/no-such")))
    await note("upload", runtime.upload(
        UploadRequest(source_path=folder, target_path="/root/tools/mine")))
    await note("file", runtime.upload(
        UploadRequest(source_path=folder + "/bin/run", target_path="/tmp/run")))
    await note("tools", bash("cat /root/tools/mine/bin/run; cmp /tmp/run /root/tools/mine/bin/run"))
    await note("close", runtime.close_session(CloseBashSessionRequest()))
    await note("closed", bash("true"))
    await deployment.stop()

asyncio.run(main())
print(json.dumps(seen))
"""
EXPECTED = {
    "write": {},
    "create": {"output": "rc\n", "session_type": "bash"},
    "again": ["SessionExistsError", []],
    "state": "5\n/tmp\n",
    "raise": ["NonZeroExitCodeError", []],
    "syntax": ["BashIncorrectSyntaxError", ["bash_stderr", "bash_stdout"]],
    "late": ["CommandTimeoutError", []],
    "product": "42\n",
    "quit": "",
    "after": "5\n",
    "execute": {"stdout": "2\n", "stderr": "", "exit_code": 0},
    "absent": ["FileNotFoundError", []],
    "check": ["NonZeroExitCodeError", []],
    "read": {"content": "X=5; echo rc"},
    "unread": ["FileNotFoundError", []],
    "upload": {},
    "file": {},
    "tools": "echo ran\n",
    "close": {"session_type": "bash"},
    "closed": ["SessionDoesNotExistError", []],
}


def test_the_client_of_swe_rex_works_with_a_box_as_with_its_own_server(tmp_path: Path) -> None:
    python = ENVIRONMENTS / "swe-rex" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"there is no {python}: make test-agents builds it")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "run").write_text("echo ran\n")
    command = [sys.executable, "-m", "assay.integrations.swe_rex", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        try:
            assert server.stdout is not None
            said = re.fullmatch(r"a box .*:(\d+) with the key (\S+)\n", server.stdout.readline())
            assert said is not None
            done = subprocess.run(
                [python, "-c", CLIENT, said[1], said[2], os.fspath(tmp_path)],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        finally:
            server.terminate()
            server.wait(60)
    assert done.returncode == 0, done.stderr[-4000:]
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    shown = {
        name: each["output"] if isinstance(each, dict) and "exit_code" in each and "output" in each
        else each for name, each in seen.items()
    }  # fmt: skip
    assert {name: shown[name] for name in EXPECTED} == EXPECTED
    codes = {name: seen[name]["exit_code"] for name in ("state", "silent", "ignore", "interrupt")}
    assert codes == {"state": 0, "silent": 1, "ignore": None, "interrupt": 0}
    assert seen["python"]["expect_string"] == ">>> "
