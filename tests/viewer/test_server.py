"""The page over HTTP: what it refuses, its headers, and the exported file."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import re
import socket
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Thread
from typing import Any
from urllib.request import urlopen

import pytest
import uvicorn
from starlette.testclient import TestClient

from assay.commands.view import WINDOWS
from assay.viewer.folders import RunsFolder
from assay.viewer.page_server import PAGE, build
from assay.viewer.single_page import export_page
from tests.end_to_end.recipes import command
from tests.viewer.made import HOSTILE, made_rollout, make_run

OWN = [file for file in PAGE.iterdir() if file.is_file()]
VENDORED = [file for file in (PAGE / "vendor").iterdir() if file.suffix in (".js", ".css")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> RunsFolder:
    folder = tmp_path_factory.mktemp("runs")
    hostile = made_rollout("set/<b>", HOSTILE, output="</script><!--" + HOSTILE)
    make_run(folder / "made", extra=[hostile])
    return RunsFolder(folder)


@pytest.fixture(scope="module")
def client(runs: RunsFolder) -> TestClient:
    return TestClient(build(runs), base_url="http://127.0.0.1:8642", raise_server_exceptions=False)


def test_every_answer_forbids_what_the_page_does_not_need(client: TestClient) -> None:
    for path in ("/", "/app.js", "/api/runs", "/nowhere", "/api/rollout?run=none"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers


def test_no_browser_is_started_in_a_terminal_without_windows(
    runs: RunsFolder, tmp_path: Path
) -> None:
    """It would take the terminal, and wait for the server, which waited for it."""
    browser = tmp_path / "w3m"
    browser.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    browser.chmod(0o755)
    windows = dict.fromkeys(WINDOWS, "")
    environment = {**os.environ, **windows, "PATH": f"{tmp_path}:/usr/bin:/bin", "TERM": "xterm"}
    words = command("view", runs.root, "--port", "0")
    with Popen(words, stdout=PIPE, text=True, env=environment) as server:
        assert server.stdout
        address = server.stdout.readline().split(" on ")[1].split(";")[0]
        with urlopen(f"{address}/api/runs") as answer:
            assert answer.status == 200
        server.terminate()
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_reading_is_allowed(client: TestClient, method: str) -> None:
    assert client.request(method, "/api/runs").status_code == 405


@pytest.mark.parametrize("parser", ["h11", "httptools"])
def test_a_request_with_two_lengths_is_refused_and_what_follows_it_is_not_read(
    runs: RunsFolder, parser: Any
) -> None:
    if find_spec(parser) is None:
        pytest.skip(f"needs {parser}")
    inner = b"GET /api/runs HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = (b"GET /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n") % len(inner)  # fmt: skip
    server = uvicorn.Server(
        uvicorn.Config(build(runs), lifespan="off", http=parser, log_level="critical")
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        with socket.create_connection(listener.getsockname(), 60) as client:
            client.sendall(head + inner)
            text = client.makefile("rb").read()
        server.should_exit = True
        thread.join()
    assert text.startswith(b"HTTP/1.1 400 ")
    assert text.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:8642", 200), ("localhost", 200), ("localhost:99", 200), ("evil.example", 403),
     ("evil.example:8642", 403), ("127.0.0.1.evil.example", 403), ("", 403)],
)  # fmt: skip
def test_only_names_of_this_machine_are_answered(
    client: TestClient, host: str, status: int
) -> None:
    assert client.get("/api/runs", headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    "path",
    ["/../pyproject.toml", "/%2e%2e/server.py", "/vendor/../../server.py", "/vendor/README.md",
     "//etc/passwd", "/vendor/%00", "/api/", "/api/run/made"],
)  # fmt: skip
def test_no_path_leads_to_a_file_that_is_not_the_pages(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    ("path", "status"),
    [("/api/run?run=../made", 404), ("/api/run", 400), ("/api/rollouts?run=made", 400),
     ("/api/rollouts?run=made&stage=grpo&kind=rollouts&step=x", 400),
     ("/api/rollout?run=made&stage=grpo&kind=rollouts&step=99&group=0&index=0", 404)],
)  # fmt: skip
def test_a_bad_question_is_one_line(client: TestClient, path: str, status: int) -> None:
    answer = client.get(path)
    assert answer.status_code == status
    assert "\n" not in answer.json()["error"]


def test_hostile_text_is_json_and_nothing_else(client: TestClient) -> None:
    files = "run=made&stage=grpo&kind=rollouts"
    answer = client.get(f"/api/rollout?{files}&step=3&group=2&index=0")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["turns"][0]["output"]["text"].startswith("</script><!--<script>")


def test_an_exported_page_runs_only_the_script_that_its_policy_names(
    runs: RunsFolder, tmp_path: Path
) -> None:
    assert "1 runs" in export_page(runs, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    script = page.split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in page
    data = page.split('id="data">')[1].split("</script>")[0]
    assert "<" not in data
    rollout = json.loads(data)["rollouts"]["made|grpo|rollouts|3|2|0"]
    assert rollout["turns"][0]["output"]["text"].startswith("</script><!--<script>")
    assert page.count("<script") == 2
    assert re.findall(r"(?:src|href)=\"(.*?)\"", page.replace(script, "")) == ["data:,"]
    assert not re.search(r"^import |^export ", script, re.MULTILINE)


def test_the_pages_own_code_makes_no_html_of_text() -> None:
    for file in OWN:
        made = re.findall(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", file.read_text()
        )
        assert made == [], file.name


def test_the_pages_scripts_stay_within_their_budget() -> None:
    lines = [line.strip() for file in OWN if file.suffix == ".js"
             for line in file.read_text().splitlines()]  # fmt: skip
    assert len([one for one in lines if one and not one.startswith(("//", "/*", "*"))]) <= 2_000


def test_the_pages_own_files_are_of_a_size_to_read() -> None:
    for file in OWN:
        lines = file.read_text().splitlines()
        assert len(lines) <= 400, file.name
        assert all(len(line) <= 100 for line in lines), file.name


def test_vendored_files_are_those_of_the_table_and_small() -> None:
    table = (PAGE / "vendor" / "README.md").read_text()
    rows = dict(re.findall(r"^\| `(\S+)` \|.*\| `([0-9a-f]{64})` \|$", table, re.MULTILINE))
    made = {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in VENDORED}
    assert made == rows
    assert sum(file.stat().st_size for file in VENDORED) < 150_000
