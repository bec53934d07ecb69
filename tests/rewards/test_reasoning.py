"""A model behind an endpoint scores reasoning; the endpoint is a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from assay import endpoint as client
from assay.errors import UserError
from assay.judge import Judge
from assay.rewards import build
from assay.rewards.reasoning import parsed
from assay.types import Rollout
from tests.rewards.test_rewards import rollout

GOOD = rollout(text="<reason>it adds</reason>\n```verilog\nx\n```")
BARE, EMPTY = rollout(text="no tags"), rollout(text="<think>a</think>", program=None)


class Handler(BaseHTTPRequestHandler):
    """Answers with the next of the server's answers: a status and a text."""

    def do_POST(self) -> None:
        server: Any = self.server
        size = int(self.headers["Content-Length"])
        server.asked.append((self.path, self.headers["Authorization"], self.rfile.read(size)))
        status, text = server.answers.pop(0)
        body = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing is logged."""


@contextmanager
def endpoint(*answers: tuple[int, str]) -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.answers, server.asked = list(answers), []
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def scored(server: Any, *rollouts: Rollout) -> list[Rollout]:
    url = f"http://127.0.0.1:{server.server_address[1]}/v1/"

    async def run() -> list[Rollout]:
        reward = build({"reasoning": {"url": url, "model": "m"}})
        async with reward.open(Judge()):
            return await reward(rollouts)

    return asyncio.run(run())


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAUSE", 0.0)


def test_equal_reasoning_is_scored_once_and_none_is_worth_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with endpoint((200, 'I think {"score": 0.1} no, {"score": 0.75}')) as server:
        found = scored(server, GOOD, GOOD, BARE, EMPTY)
    assert [one.score and one.score.total for one in found] == [0.75, 0.75, 0, 0]
    ((path, key, body),) = server.asked
    assert (path, key) == ("/v1/chat/completions", "Bearer secret")
    question = json.loads(json.loads(body)["messages"][1]["content"])
    assert question == {"task": "p", "reasoning": "it adds", "code": "def f(n): return n"}


def test_a_server_that_fails_is_asked_again_and_then_the_rollout_is_lost_not_scored() -> None:
    with endpoint((500, ""), (200, "no score"), (200, '{"score": 1}')) as server:
        (found,) = scored(server, GOOD)
    assert found.score is not None
    assert found.score.total == 1
    with endpoint(*[(500, "")] * 4) as server:
        (lost,) = scored(server, GOOD)
    assert (lost.score, len(server.asked)) == (None, 4)
    url = f"http://127.0.0.1:{server.server_port}/v1"
    assert f"the endpoint of rewards.reasoning, {url}, failed" in str(lost.failure)


def test_an_endpoint_that_refuses_ends_the_run_with_what_it_said() -> None:
    with endpoint((401, "wrong key")) as server, pytest.raises(UserError, match="refuses with 401"):
        scored(server, GOOD)
    assert len(server.asked) == 1


@pytest.mark.parametrize("answer", ['{"score": 2}', '{"score": true}', '{"score": "1"}', "1", ""])
def test_a_score_that_is_no_number_from_0_to_1_is_refused(answer: str) -> None:
    with pytest.raises(ValueError, match="no score from 0 to 1"):
        parsed(answer)
