"""The parts of the vLLM engine that need no vLLM: partial completions, the weight probe, the client
and the reaper of a server's processes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pydantic import ValidationError

from assay.config.generation import EngineSettings
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.completions import PendingCompletion, StopChecker
from assay.engines.vllm.client import Chunk, Client, GoneError
from assay.engines.vllm.engine import extended
from assay.engines.vllm.server import ServerProcess
from assay.engines.vllm.weight_probe import WeightProbe
from assay.errors import MachineError
from tests.endpoints import endpoint
from tests.policies import tiny_policy

T = TypeVar("T")


def test_a_stop_string_across_two_chunks_ends_the_completion_at_its_last_token(
    tmp_path: Path,
) -> None:
    chat = tiny_policy(tmp_path).chat
    tokens = [
        chat.tokenizer(letter, add_special_tokens=False)["input_ids"][0] for letter in "abXYcd"
    ]
    row = PendingCompletion(GenerationRequest((5,), 0, ("XY", "d")), Sampling(9))
    first = Chunk(tokens[:3], [-1.0, -2.0, -3.0], ["w"] * 3, "abort")
    second = Chunk(tokens[3:], [-4.0, -5.0, -6.0], ["w"] * 3, "stop")
    assert extended(row, first, [1, 1, 1], StopChecker(chat)) is None
    completion = extended(row, second, [2, 2, 2], StopChecker(chat))
    assert completion
    assert completion.text == "ab"
    assert completion.tokens == tuple(tokens[:4])
    assert completion.logprobs == (-1.0, -2.0, -3.0, -4.0)
    assert completion.versions == (1, 1, 1, 2)
    assert completion.ended == "stop"


def test_a_chunk_that_was_interrupted_at_the_limit_is_complete(tmp_path: Path) -> None:
    row = PendingCompletion(GenerationRequest((5,), 0), Sampling(2))
    stop_checker = StopChecker(tiny_policy(tmp_path).chat)
    assert extended(row, Chunk([], [], [], "abort"), [], stop_checker) is None
    chunk = Chunk([70, 71], [-1.0, -1.0], ["w"] * 2, "abort")
    completion = extended(row, chunk, [3, 3], stop_checker)
    assert completion
    assert (completion.ended, completion.versions) == ("length", (3, 3))


@pytest.mark.parametrize("ended", ["abort", "error"])
def test_what_a_server_has_failed_or_interrupted_is_no_whole_completion(
    tmp_path: Path, ended: str
) -> None:
    row = PendingCompletion(GenerationRequest((5,), 0), Sampling(9))
    chunk = Chunk([70, 71], [-1.0, -1.0], ["w"] * 2, ended)
    assert extended(row, chunk, [3, 3], StopChecker(tiny_policy(tmp_path).chat)) is None
    assert (row.prompt, row.tokens_left) == ((5, 70, 71), 7)


def test_a_probe_allows_rounding_and_no_more() -> None:
    old, new = (
        WeightProbe((5, 6, 7), (1, 2), (-1.0, -2.0)),
        WeightProbe((5, 6, 7), (1, 2), (-1.0, -2.0005)),
    )
    assert new.check([-1.0, -2.0001], (old, [-1.0, -2.0]), "float32") == pytest.approx(4e-4)
    for found in ([-1.0, -2.002], [-1.0, float("nan")]):
        with pytest.raises(MachineError, match="other weights"):
            new.check(found, None, "float32")
    with pytest.raises(MachineError, match=r"the policy.s log-probabilities changed"):
        new.check([-1.0, -2.0], (old, [-1.0, -2.0]), "float32")
    assert new.check([-1.0, -2.0], (old, [-1.0, -2.0]), "bfloat16") == pytest.approx(5e-4), (
        "it may round to the same"
    )


def test_each_server_sees_its_own_gpus_and_has_its_own_log(tmp_path: Path) -> None:
    server = ServerProcess(("vllm",), {"A": "1"}, tmp_path, tmp_path / "vllm.log")
    first, second = server.numbered(0, (4, 5)), server.numbered(1, (6, 7))
    assert first.environment == {"A": "1", "CUDA_VISIBLE_DEVICES": "4,5"}
    assert second.environment["CUDA_VISIBLE_DEVICES"] == "6,7"
    assert (first.log.name, second.log.name) == ("vllm.log", "vllm-1.log")
    assert server.numbered(0, ()) == server, "without a list every server sees all GPUs"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data_parallel": 2, "gpus": (1,)}, "names 1 GPUs, and 2 servers of 1 need 2"),
        ({"tensor_parallel": 2, "gpus": (1, 1)}, "names 1 GPUs, and 1 servers of 2 need 2"),
        ({"data_parallel": 2, "servers": ("http://a",)}, "those in `servers` run already"),
    ],
)
def test_servers_that_do_not_fit_their_gpus_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        EngineSettings(name="vllm", **settings)


STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
open(f"{sys.argv[1]}/{os.getpid()}", "w").close()
time.sleep(60)
"""
REAPER = """
import os, sys
from assay.engines.vllm import reaper
reaper.PATIENCE = 0.2
reaper.supervise(int(sys.argv[1]) or os.getppid(), sys.argv[2], sys.argv[3:])
"""
OWNER = """
import os, signal, subprocess, sys, time
# A shell starts a background job with SIGINT ignored, and this process would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
reaper, stubborn, pids, folder = sys.argv[1:]
server = [sys.executable, "-c", stubborn, pids]
both = [[sys.executable, "-c", reaper, *owner] for owner in ([str(os.getpid()), folder], ["0", ""])]
command = [*both[0], *both[1], *server]
print(subprocess.Popen(command, start_new_session=True).pid, flush=True)
time.sleep(60)
"""
LIMIT = 30.0
"""Seconds that any wait in these tests takes at most."""


@pytest.mark.parametrize(
    "what",
    [
        "the owner is killed",
        "the owner is interrupted",
        "it gets SIGTERM",
        "it is killed",
        "the inner one is killed",
        "the server dies",
    ],
)
def test_all_processes_of_a_server_end(tmp_path: Path, what: str) -> None:
    here, folder = tmp_path / "pids", tmp_path / "folder"
    here.mkdir()
    folder.mkdir()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, REAPER, STUBBORN, str(here), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout
    reaper = int(owner.stdout.readline())
    wait_for(lambda: len(list(here.iterdir())) == 4)
    pids = [int(file.name) for file in here.iterdir()]
    if what.startswith("the owner"):
        owner.send_signal(signal.SIGKILL if what.endswith("killed") else signal.SIGINT)
        owner.wait(LIMIT)
    elif what.startswith("it "):
        os.kill(reaper, signal.SIGKILL if what.endswith("killed") else signal.SIGTERM)
    else:
        inner = child_of(reaper)
        os.kill(inner if what.startswith("the inner") else child_of(inner), signal.SIGKILL)
    wait_for(lambda: not any(is_alive(pid) for pid in pids))
    if what.startswith("the owner"):
        wait_for(lambda: not folder.exists())
    else:
        assert folder.exists(), "the owner needs it to start another"
        owner.kill()
        owner.wait(LIMIT)


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return ") Z" not in stat.read_text()
    except OSError:
        return False


def wait_for(what: Callable[[], T]) -> T:
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


def test_a_connection_that_the_server_has_hung_up_on_is_replaced_by_another(tmp_path: Path) -> None:
    """As happens when this process was busy for longer than the server keeps one."""
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
    served = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        await reader.readuntil(b"\r\n\r\n")
        served += 1
        if served != 2:
            writer.write(answer)
        writer.close()

    async def test() -> None:
        async with await asyncio.start_unix_server(serve, tmp_path / "socket"):
            client = Client("http://vllm", str(tmp_path / "socket"))
            assert await client.call("/pause") == {}
            assert await client.call("/pause") == {}
            await client.close()

    asyncio.run(asyncio.wait_for(test(), LIMIT))
    assert served == 3


@pytest.mark.parametrize(
    "body",
    [
        b"[]", b"null", b"{}", b'{"choices": null}', b'{"choices": []}', b'{"choices": [null]}',
        b'{"choices": [{"token_ids": null, "logprobs": null}]}', b'{"error": "busy"}', b"",
        b"<html>",
        b'{"choices": [{"token_ids": [1], "logprobs": {"content": [{}]}, "weight_versions": []}]}',
    ],
)  # fmt: skip
def test_an_answer_of_a_server_without_a_completion_is_named_and_the_server_given_up(
    body: bytes,
) -> None:
    async def call() -> None:
        client = Client(stub.url.removesuffix("/v1"))
        try:
            await client.generate(None, (1, 2), Sampling(4), (), ())
        finally:
            await client.close()

    headers = {"Content-Type": "application/json"}
    with endpoint(lambda *_: (200, body, headers)) as stub, pytest.raises(GoneError) as raised:
        asyncio.run(call())
    assert body.decode()[:9] in str(raised.value)
    assert "\n" not in str(raised.value)
