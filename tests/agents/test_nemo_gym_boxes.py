"""Boxes as sandboxes of the real NeMo Gym, found by the entry point of our package."""

from __future__ import annotations

import json
import socket
import subprocess
import tomllib
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from assay.sandbox.isolation import probe_isolation
from tests.agents.outside import ROOT
from tests.agents.test_nemo_gym_judge import environment

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif("namespaces" not in probe_isolation().walls, reason="needs namespaces"),
]
GROUP = "nemo_gym.sandbox_providers"
HEAD = """
import asyncio, json, logging
from dataclasses import asdict
from pathlib import Path
from nemo_gym.sandbox import AsyncSandbox, Sandbox, SandboxCreateError, SandboxSpec, list_providers

def shown(result):
    print(json.dumps(asdict(result)))

async def failure(work):
    try:
        await work
        print(json.dumps("done"))
    except Exception as error:
        print(json.dumps([type(error).__name__, str(error)]))

async def main():
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has NeMo Gym, and assay with what its pyproject.toml says of entry points."""
    folder = tmp_path_factory.mktemp("environment")
    python = environment(folder, ROOT)
    (packages,) = folder.glob("lib/python3*/site-packages")
    installed = packages / "assay-0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: assay\nVersion: 0\n")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [f"{name} = {value}\n" for name, value in project["entry-points"][GROUP].items()]
    (installed / "entry_points.txt").write_text(f"[{GROUP}]\n" + "".join(lines))
    return python


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "of_tree.txt").write_text("tree\n")
    return folder


def printed(python: Path, folder: Path, body: str) -> list[Any]:
    """What a program prints that works with NeMo Gym's sandboxes, as values of JSON."""
    source = HEAD + indent(dedent(body), "    ") + "\nasyncio.run(main())\n"
    (folder / "main.py").write_text(source)
    command = [str(python), str(folder / "main.py")]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert not ended.returncode, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_a_sandbox_has_the_files_and_variables_of_its_spec_and_its_commands_their_own(
    python: Path, tree: Path
) -> None:
    providers, first, second, left = printed(
        python,
        tree.parent,
        """
        print(json.dumps("assay" in list_providers()))
        spec = SandboxSpec(
            workdir="/workspace", env={"WORD": "cat"}, files={"deep/own.txt": "own"},
            provider_options={"tree": "tree"},
        )
        async with AsyncSandbox({"assay": {}}, spec) as sandbox:
            await sandbox.start()
            shown(await sandbox.exec("cat of_tree.txt deep/own.txt; echo $WORD >&2; pwd; exit 3"))
            shown(await sandbox.exec("pwd; echo $WORD; rm /workspace/of_tree.txt",
                                     cwd="/workspace/deep", env={"WORD": "dog"}))
        print(json.dumps(Path("tree/of_tree.txt").exists()))
    """,
    )
    assert providers is True
    assert first == {"stdout": "tree\nown/workspace\n", "stderr": "cat\n", "return_code": 3,
                     "error_type": None}  # fmt: skip
    assert second["stdout"] == "/workspace/deep\ndog\n"
    assert left is True


def test_files_go_in_and_out_as_they_are(python: Path, tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(b"#!/bin/sh\nprintf '\\377\\000' > out.bin\n")
    (tmp_path / "program").chmod(0o755)
    ran, absent = printed(
        python,
        tmp_path,
        """
        async with AsyncSandbox({"assay": {}}, SandboxSpec()) as sandbox:
            await sandbox.start()
            await sandbox.upload("program", "bin/program")
            shown(await sandbox.exec("bin/program"))
            await sandbox.download("out.bin", "made/out.bin")
            await failure(sandbox.download("nowhere", "made/none"))
    """,
    )
    assert ran["return_code"] == 0, ran
    assert (tmp_path / "made" / "out.bin").read_bytes() == b"\xff\x00"
    assert absent[0] == "FileNotFoundError"


def test_commands_see_no_file_and_no_server_of_the_machine(python: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        (read,) = printed(
            python,
            tmp_path,
            f"""
        async with AsyncSandbox({{"assay": {{}}}}, SandboxSpec()) as sandbox:
            await sandbox.start()
            shown(await sandbox.exec("cat {tmp_path}/secret; echo > /dev/tcp/127.0.0.1/{port}"))
    """,
        )
    assert read["stdout"] == ""
    assert "No such file" in read["stderr"]
    assert "Connection refused" in read["stderr"]


def test_a_command_without_a_status_of_its_own_says_why(python: Path, tmp_path: Path) -> None:
    late, large, killed, absent, next_one, user = printed(
        python,
        tmp_path,
        """
        spec = SandboxSpec(resources={"memory_mib": 200})
        async with AsyncSandbox({"assay": {}}, spec) as sandbox:
            await sandbox.start()
            shown(await sandbox.exec("echo begun; sleep 60", timeout_s=1))
            hog = "python3 -c 'x = [bytes([1]) * 10_000_000 for _ in range(90)]'"
            shown(await sandbox.exec(f"{hog} & {hog} & {hog} & wait", timeout_s=20))
            shown(await sandbox.exec("kill -9 $$"))
            shown(await sandbox.exec("true", cwd="/nowhere"))
            shown(await sandbox.exec("echo next"))
            await failure(sandbox.exec("true", user="root"))
    """,
    )
    assert (late["stdout"], late["error_type"]) == ("begun\n", "timeout")
    assert large["error_type"] == "memory"
    assert (killed["return_code"], killed["error_type"]) == (137, "killed")
    assert (absent["return_code"], absent["error_type"]) == (127, "not started")
    assert "No such file" in absent["stderr"]
    assert (next_one["stdout"], next_one["error_type"]) == ("next\n", None)
    assert user[0] == "ValueError"


def test_a_box_that_was_closed_is_stopped_and_runs_nothing(python: Path, tmp_path: Path) -> None:
    statuses = printed(
        python,
        tmp_path,
        """
        from assay.integrations.nemo_gym_boxes import BoxProvider

        provider = BoxProvider()
        handle = await provider.create(SandboxSpec())
        print(json.dumps(await provider.status(handle)))
        await provider.close(handle)
        shown(await provider.exec(handle, "true"))
        print(json.dumps(await provider.status(handle)))
    """,
    )
    running, refused, stopped = statuses
    assert (running, stopped) == ("running", "stopped")
    assert refused["error_type"] == "sandbox"


def test_sandboxes_of_threads_outlive_each_other(python: Path, tmp_path: Path) -> None:
    first, second = printed(
        python,
        tmp_path,
        """
        def use():
            one, two = Sandbox({"assay": {}}), Sandbox({"assay": {}})
            one.start(SandboxSpec())
            two.start(SandboxSpec())
            shown(one.exec("echo one"))
            one.stop()
            shown(two.exec("echo two"))
            two.stop()
        await asyncio.to_thread(use)
    """,
    )
    assert (first["stdout"], second["stdout"]) == ("one\n", "two\n")


def test_what_no_box_can_be_is_refused_when_it_is_to_be_made(python: Path, tmp_path: Path) -> None:
    refused = printed(
        python,
        tmp_path,
        """
        for spec in (
            SandboxSpec(entrypoint=["serve"]),
            SandboxSpec(resources={"gpu": 1}),
            SandboxSpec(image="nowhere/at-all:1"),
            SandboxSpec(workdir="/etc"),
            SandboxSpec(provider_options={"tree": "nowhere"}),
            SandboxSpec(provider_options={"binds": "/:/host"}),
        ):
            await failure(AsyncSandbox({"assay": {}}, spec).start())
    """,
    )
    words = ["entrypoint", "GPU", "nowhere/at-all", "/etc", "nowhere", "binds"]
    for (kind, text), word in zip(refused, words, strict=True):
        assert kind == "SandboxCreateError"
        assert word in text
