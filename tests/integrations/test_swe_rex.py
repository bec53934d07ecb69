"""The server for clients of swe-rex, asked by plain HTTP: who may ask, what an answer that is an
error holds, and that no archive and no form reaches beyond the box.
"""

from __future__ import annotations

import asyncio
import io
import json
import stat
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from assay.errors import SandboxError
from assay.integrations import swe_rex
from assay.integrations.lent_box import LentBox
from assay.integrations.swe_rex import RuntimeServer, build
from tests.integrations.test_lent_box import none_stays
from tests.sandbox.test_box import needs_namespaces

__all__ = ["none_stays"]

pytestmark = needs_namespaces
KEY = {"X-API-Key": "the key"}


async def open_box() -> LentBox:
    return await LentBox.open(writable=["/root"])


@pytest.fixture
def client() -> Iterator[TestClient]:
    with TestClient(build(RuntimeServer(open_box), "the key"), headers=KEY) as client:
        yield client
        client.post("/close")


def asked(client: TestClient, call: str, **fields: Any) -> Any:
    answer = client.post(f"/{call}", json=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def error_of(client: TestClient, call: str, **fields: Any) -> str:
    answer = client.post(f"/{call}", json=fields)
    assert answer.status_code == 511, answer.text
    return str(answer.json()["swerexception"]["class_path"])


def uploaded(client: TestClient, data: bytes, target: str, unzip: bool, field: str = "file") -> Any:
    form = b"".join(
        b'--xyz\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' % part
        for part in [
            (field.encode(), b'; filename="a"', data),
            (b"target_path", b"", target.encode()),
            (b"unzip", b"", str(unzip).lower().encode()),
        ]
    )
    kind = {"Content-Type": "multipart/form-data; boundary=xyz"}
    return client.post("/upload", content=form + b"--xyz--\r\n", headers=kind)


def archive(files: dict[str, bytes]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o755 if name.endswith("run") else 0o644) << 16
            made.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return held.getvalue()


@pytest.mark.parametrize("sent", [{}, {b"X-API-Key": b"another"}, {b"X-API-Key": b"\xe9"}])
def test_who_lacks_the_key_gets_nothing(sent: dict[bytes, bytes]) -> None:
    with TestClient(build(RuntimeServer(open_box), "the key")) as client:
        assert client.get("/is_alive", headers=sent).status_code == 401
        body = {"command": ["touch", "made"]}
        assert client.post("/execute", json=body, headers=sent).status_code == 401


def test_a_box_ends_with_close_and_the_next_call_opens_another(client: TestClient) -> None:
    asked(client, "create_session")
    asked(client, "run_in_session", action_type="bash", command="echo x > made")
    assert asked(client, "execute", command=["ls"])["stdout"] == "made\n"
    asked(client, "close")
    assert asked(client, "execute", command=["ls"])["stdout"] == ""
    asked(client, "create_session")


ERRORS: dict[str, tuple[str, dict[str, Any], str]] = {
    "an absent program": ("execute", {"command": "no-such"}, "builtins.FileNotFoundError"),
    "an absent file": ("read_file", {"path": "no-such"}, "builtins.FileNotFoundError"),
    "a folder": ("read_file", {"path": "/tmp"}, "builtins.IsADirectoryError"),
    "a file of the system": ("write_file", {"path": "/etc/x", "content": ""}, "builtins.OSError"),
    "an unknown encoding": ("read_file", {"path": "/etc/passwd", "encoding": "no-such"},
                            "builtins.LookupError"),
    "a command that is late": ("execute", {"command": ["sleep", "60"], "timeout": 0.2},
                               "swerex.exceptions.CommandTimeoutError"),
    "a command that fails": ("execute", {"command": ["false"], "check": True},
                             "swerex.exceptions.NonZeroExitCodeError"),
    "a time without an end": ("execute", {"command": ["true"], "timeout": -1},
                              "swerex.exceptions.SwerexException"),
    "an absent session": ("run_in_session", {"action_type": "bash", "command": "true"},
                          "swerex.exceptions.SessionDoesNotExistError"),
}  # fmt: skip


@pytest.mark.parametrize("what", ERRORS)
def test_an_error_is_one_that_the_client_knows(what: str, client: TestClient) -> None:
    call, fields, place = ERRORS[what]
    assert error_of(client, call, **fields).startswith(place)


@pytest.mark.parametrize("call", ["execute", "run_in_session", "read_file", "upload"])
def test_what_is_no_call_is_refused(call: str, client: TestClient) -> None:
    for body in (b"", b"[]", b"{", b'{"command": 3}', b'{"path": "\\ud800"}', b"\xff"):
        status = client.post(f"/{call}", content=body).status_code
        assert status in (422, 511)
    assert client.post("/other").status_code == 404


def test_a_body_that_is_too_large_is_refused(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swe_rex, "BODY_BYTES", 1000)
    assert client.post("/execute", content=b"x" * 1001).status_code == 413


def test_a_file_arrives_byte_for_byte(client: TestClient) -> None:
    data = bytes(range(256)) * 99 + b"\r\n\r\n--xy\r\n"
    assert uploaded(client, data, "/root/deep/it", False).status_code == 200
    hexed = asked(client, "execute", command="xxd -p /root/deep/it | tr -d '\\n'", shell=True)
    assert bytes.fromhex(hexed["stdout"]) == data


def test_an_archive_arrives_with_its_folders_and_rights(client: TestClient) -> None:
    files = {"bin/run": b"#!/bin/sh\necho ran\n", "a.txt": b"a", "empty/": b""}
    assert uploaded(client, archive(files), "/root/tools", True).status_code == 200
    shown = asked(client, "execute", command="cd /root/tools; bin/run; ls -d *", shell=True)
    assert shown["stdout"] == "ran\na.txt\nbin\nempty\n"


def test_no_archive_and_no_form_leads_out_of_the_box(client: TestClient, tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as made:
        made.writestr(link, str(tmp_path))
        made.writestr("link/made", b"x")
    tmp_path.chmod(0o777)
    away = archive({f"../../../../../..{tmp_path}/made": b"x", f"{tmp_path}/made": b"x"})
    uploaded(client, away, "/root/tools", True)
    uploaded(client, held.getvalue(), "/root/more", True)
    uploaded(client, b"x", f"{tmp_path}/made", False)
    uploaded(client, b"x", f"../../../../../..{tmp_path}/made", False)
    assert not [*tmp_path.iterdir()]


def test_an_archive_that_grows_too_much_and_what_is_none_are_refused(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swe_rex, "UNPACKED_BYTES", 10_000)
    bomb = uploaded(client, archive({"a": bytes(20_000)}), "/root/a", True)
    none = uploaded(client, b"no archive", "/root/a", True)
    part = uploaded(client, b"", "/root/a", False, field="other")
    assert (bomb.status_code, none.status_code, part.status_code) == (511, 511, 422)
    assert asked(client, "execute", command=["ls", "/root"])["stdout"] == ""


def test_an_archive_whose_file_cannot_be_read_is_refused(client: TestClient) -> None:
    whole = archive({"a": b"x" * 1000})
    start = 30 + len("a")
    for at, value in ((start + 1, 0xFF), (6, 1), (8, 99)):  # its data, that it is secret, its kind
        broken = bytearray(whole)
        broken[at] = value
        place = whole.index(b"PK\x01\x02")
        if at < start:  # also in the list of files
            broken[place + at + 2] = value
        answer = uploaded(client, bytes(broken), "/root/a", True)
        assert answer.status_code == 511, answer.text
        assert answer.json()["swerexception"]["class_path"] == "builtins.ValueError"


def in_threads(client: TestClient, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """The answers to calls that begin one after another and wait for each other."""
    answers: dict[int, Any] = {}

    def ask(at: int, call: str, fields: dict[str, Any]) -> None:
        answers[at] = client.post(f"/{call}", json=fields)

    threads = [threading.Thread(target=ask, args=(at, *call)) for at, call in enumerate(calls)]
    for thread in threads:
        thread.start()
        time.sleep(0.5)
    for thread in threads:
        thread.join()
    return [answers[at] for at in range(len(calls))]


def place_of(answer: Any) -> str:
    return str(answer.json()["swerexception"]["class_path"]).rpartition(".")[2]


def test_a_call_that_waits_for_a_session_that_ends_gets_an_error_of_the_client(
    client: TestClient,
) -> None:
    true: tuple[str, dict[str, Any]] = "run_in_session", {"action_type": "bash", "command": "true"}
    ends: tuple[str, dict[str, Any]] = (
        "run_in_session",
        {"action_type": "bash", "command": "sleep 1; exit 3"},
    )
    runs: tuple[str, dict[str, Any]] = (
        "run_in_session",
        {"action_type": "bash", "command": "sleep 1.5"},
    )
    for calls in ([ends, true], [runs, ("close_session", {}), true]):
        asked(client, "create_session")
        *_, last = in_threads(client, *calls)
        assert place_of(last) == "SessionDoesNotExistError"


def test_close_ends_the_command_that_runs_and_is_no_failure_of_the_machine(
    client: TestClient,
) -> None:
    running, closed = in_threads(client, ("execute", {"command": ["sleep", "600"]}), ("close", {}))
    assert (running.status_code, closed.status_code) == (511, 200)
    assert client.get("/is_alive").json()["is_alive"]
    assert asked(client, "execute", command=["echo", "on"])["stdout"] == "on\n"


def test_a_command_after_a_late_one_shows_its_own_output(client: TestClient) -> None:
    asked(client, "create_session")
    late = {"action_type": "bash", "command": "sleep 1; echo slow", "timeout": 0.3}
    assert error_of(client, "run_in_session", **late).endswith("CommandTimeoutError")
    for text in ("a", "b"):
        fields = {"action_type": "bash", "command": f"echo {text}", "timeout": 30}
        assert asked(client, "run_in_session", **fields)["output"] == f"{text}\n"


@pytest.mark.parametrize("call", ["execute", "run_in_session"])
def test_a_client_that_goes_holds_no_box(call: str) -> None:
    async def run() -> None:
        runtime = RuntimeServer(open_box)
        app = build(runtime, "the key")

        async def post(name: str, fields: dict[str, Any], stays: float) -> int:
            events: list[Any] = [{"type": "http.request", "body": json.dumps(fields).encode()}]
            statuses = list[int]()

            async def receive() -> Any:
                if events:
                    return events.pop()
                await asyncio.sleep(stays)
                return {"type": "http.disconnect"}

            async def send(event: Any) -> None:
                statuses.append(event.get("status", 0))

            scope = {
                "type": "http", "method": "POST", "path": f"/{name}", "query_string": b"",
                "headers": [(b"x-api-key", b"the key")],
            }  # fmt: skip
            await app(scope, receive, send)
            return statuses[0]

        try:
            assert await post("create_session", {}, 60) == 200
            sleeps: dict[str, Any] = {"command": ["sleep", "98765"]}
            if call == "run_in_session":
                sleeps = {"action_type": "bash", "command": "sleep 98765"}
            assert await post(call, sleeps, 0.5) == swe_rex.CLIENT_GONE
            assert await post("execute", {"command": ["true"]}, 60) == 200
            if call == "run_in_session":
                interrupt = {"action_type": "bash_interrupt", "timeout": 30}
                assert await post(call, interrupt, 60) == 200
            after = {"action_type": "bash", "command": "test $(pgrep -c sleep) = 0"}
            assert await post("run_in_session", after, 60) == 200
        finally:
            await runtime.close()

    asyncio.run(run())


def test_a_machine_that_fails_is_not_alive_until_the_box_is_closed() -> None:
    boxes: list[LentBox] = []

    async def opened() -> LentBox:
        boxes.append(await open_box())
        return boxes[-1]

    with TestClient(build(RuntimeServer(opened), "the key"), headers=KEY) as client:
        asked(client, "execute", command=["true"])
        assert client.portal is not None
        client.portal.call(boxes[0].close)
        place = error_of(client, "execute", command=["true"])
        assert place == "swerex.exceptions.SwerexException"
        assert not client.get("/is_alive").json()["is_alive"]
        asked(client, "close")
        assert asked(client, "execute", command=["true"])["exit_code"] == 0
        assert client.get("/is_alive").json()["is_alive"]
        asked(client, "close")


def test_the_command_refuses_a_tree_that_is_none_in_a_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "assay.integrations.swe_rex", "--port", "0"]
    command += ["--tree", str(tmp_path / "absent")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"a box needs a folder, and {tmp_path / 'absent'} is none\n"


def test_other_machines_may_ask_only_where_there_is_a_key(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "assay.integrations.swe_rex", "--host", "0.0.0.0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--token-file" in done.stderr


def test_a_box_that_cannot_be_opened_is_an_error_of_the_client() -> None:
    async def none() -> LentBox:
        raise SandboxError("no box here")

    with TestClient(build(RuntimeServer(none), "the key"), headers=KEY) as client:
        assert error_of(client, "create_session") == "swerex.exceptions.SwerexException"
