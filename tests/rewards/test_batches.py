"""Rewards that score a batch at once, that open something first, and that ask a server."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from assay.config.load_settings import load_plan
from assay.errors import RolloutLostError, UserError
from assay.judge import AnyJudge, Judge
from assay.rewards import BatchFunction, build, rewards
from assay.train.stages import run_plan
from assay.types import Rollout
from tests.rewards.test_rewards import EMPTY, HALF, RIGHT, scored

ROOT = Path(__file__).parent.parent.parent
PLAN = """
plugins = ["preferred.py"]
trackers = ["jsonl"]
steps = 2
policy.model = "tiny"
policy.tiny = { vocabulary = 300, width = 32, layers = 1, heads = 2, context = 192 }
tasks = { train = "drills:train", limit = 8 }
judge.allow_weak_isolation = true
rollout = { tasks_per_step = 2, group_size = 4, max_tokens = 12 }
rewards = { preferred = { url = "URL", weight = 0.5 }, length = { on_failure = true } }
[stages.sft]
algorithm.name = "sft"
[stages.grpo]
algorithm.name = "grpo"
"""


class Server(ThreadingHTTPServer):
    """Scores a text by its length. It hangs up three times on the first group that asks, and once
    on the second.
    """

    opened = connected = 0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.batches: list[list[str]] = []
        self.asked: Counter[tuple[str, ...]] = Counter()

    def hangs_up(self, texts: tuple[str, ...]) -> bool:
        self.asked[texts] += 1
        place = list(self.asked).index(texts)
        return self.asked[texts] <= {0: 3, 1: 1}.get(place, 0)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        super().setup()
        self.server.connected += 1

    def finish(self) -> None:
        super().finish()
        self.server.connected -= 1

    def log_message(self, *_: Any) -> None:
        """Not shown."""

    def do_GET(self) -> None:
        self.server.opened += 1
        self.answer({})

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["texts"]
        self.server.batches.append(texts)
        if self.server.hangs_up(tuple(texts)):
            self.close_connection = True
        else:
            self.answer({"scores": [len(text) / 10 for text in texts]})

    def answer(self, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.long
def test_a_stage_opens_a_reward_once_asks_a_server_for_each_group_at_once_and_closes_it(
    tmp_path: Path,
) -> None:
    (source,) = re.findall(
        r"^```python preferred.py\n(.*?)^```$", (ROOT / "docs/rewards.md").read_text(), re.M | re.S
    )
    (tmp_path / "preferred.py").write_text(source)
    with serving() as server:
        (tmp_path / "run.toml").write_text(
            PLAN.replace("URL", f"http://127.0.0.1:{server.server_port}")
        )
        words = ["--folder", str(tmp_path / "runs"), "--name", "short"]
        run_plan(load_plan(tmp_path / "run.toml", words))
    assert server.opened == 1, "SFT does not open it"
    assert server.connected == 0
    assert {len(texts) for texts in server.batches} == {4}
    assert list(server.asked.values()) == [3, 2, 1, 1], "three tries, and no request too many"
    rows = [
        json.loads(line)
        for line in (tmp_path / "runs/short/grpo/metrics.jsonl").read_text().splitlines()
    ]
    assert [row["rollout/failed"] for row in rows] == [4.0, 0.0]
    texts = [text for batch in server.batches[-2:] for text in batch]
    mean = sum(len(text) for text in texts) / 8
    assert rows[1]["reward/preferred"] == pytest.approx(0.5 * mean / 10)


def term(monkeypatch: pytest.MonkeyPatch, **functions: Any) -> dict[str, dict[str, Any]]:
    for name, function in functions.items():
        monkeypatch.setitem(rewards._items, name, function)
    return {name: {} for name in functions}


def test_an_async_function_compares_the_rollouts_of_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def share(rollouts: Sequence[Rollout], *, of: float = 1.0) -> list[float]:
        await asyncio.sleep(0)
        return [of * rollout.passed / len(rollouts) for rollout in rollouts]

    term(monkeypatch, share=share)
    settings = {"share": {"of": 6, "weight": 0.5}, "tests": {}}
    found = [one.score for one in scored(settings, RIGHT, HALF, EMPTY)]
    assert [one.parts for one in found if one] == [
        {"share": 1.0, "tests": 1.0}, {"share": 0.0, "tests": 0.0}, {"share": 0.0, "tests": 0.0},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("result", "message"),
    [([1.0], "ValueError: 1 numbers for 2 rollouts"), (1.0, "TypeError: 'float' object")],
)
def test_a_batch_that_is_not_one_number_for_each_rollout_is_the_users_error(
    result: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def short(rollouts: Sequence[Rollout]) -> Any:
        return result

    with pytest.raises(UserError, match=f"reward 'short' raised {message}"):
        scored(term(monkeypatch, short=short), RIGHT, HALF)


def test_a_rollout_that_a_reward_loses_is_dropped_and_the_others_are_scored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def one(rollout: Rollout) -> float:
        if rollout is HALF:
            raise RolloutLostError("no answer")
        return 1.0

    async def some(rollouts: Sequence[Rollout]) -> list[float | RolloutLostError]:
        return [RolloutLostError("no answer") if rollout is HALF else 1.0 for rollout in rollouts]

    async def batch(rollouts: Sequence[Rollout]) -> list[float]:
        raise RolloutLostError("no answer")

    for function in (one, some):
        right, half = scored(term(monkeypatch, lost=function) | {"tests": {}}, RIGHT, HALF)
        assert right.score is not None
        assert right.score.total == 2.0
        assert (half.score, half.failure) == (None, "no answer")
    for lost in scored(term(monkeypatch, lost=batch), RIGHT, HALF):
        assert (lost.score, lost.failure) == (None, "no answer")


def test_what_was_opened_is_closed_when_another_cannot_open_and_when_scoring_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = []

    async def steady(_: AnyJudge, *, name: str = "a") -> AsyncIterator[BatchFunction]:
        events.append(f"open {name}")
        try:
            yield lambda rollouts: asyncio.sleep(0, [1.0 for _ in rollouts])
        finally:
            events.append(f"close {name}")

    async def closed(_: AnyJudge, *, url: str = "") -> AsyncIterator[BatchFunction]:
        if not url:
            raise ConnectionError("nobody listens")
        yield lambda rollouts: asyncio.sleep(0, [])

    def raising(rollout: Rollout) -> float:
        raise LookupError("no key")

    async def open_and_score(settings: dict[str, dict[str, Any]]) -> None:
        reward = build(settings)
        async with reward.open(Judge()):
            await reward([RIGHT])

    term(monkeypatch, steady=steady, closed=closed, raising=raising)
    for other, error in (("closed", ConnectionError), ("raising", UserError)):
        with pytest.raises(error):
            asyncio.run(open_and_score({"steady": {"name": other}, other: {}}))
        assert events[-2:] == [f"open {other}", f"close {other}"]
