"""An evaluation says the same however it is made: through an endpoint, and after kills."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from assay.config.evaluation import EvaluationRun
from assay.config.load_settings import load_plan
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.torch import TorchEngine
from assay.evaluate import evaluate
from assay.evaluate.report import Evaluation, read_report
from assay.policy.load_model import load_policy
from assay.progress import Progress
from assay.train.stages import run_plan
from tests.end_to_end.recipes import command
from tests.endpoints import Answer, Stub, endpoint, reply

KILLS = 10
ROWS = [
    {"id": f"t{n}", "prompt": f"# f(x): add {n} to x\n", "entry_point": "f",
     "tests": [f"assert f(1) == {1 + n}"], "reference": f"def f(x):\n    return x + {n}\n"}
    for n in range(6)
]  # fmt: skip
TRAINING = """
name = "small"
[policy]
model = "tiny"
device = "cpu"
tiny = { vocabulary = 300, width = 64, layers = 2, heads = 2, context = 128 }
[tasks]
train = "rows.jsonl"
[stages.sft]
steps = 60
algorithm.name = "sft"
dataset.batch_size = 6
"""


@pytest.fixture(autouse=True)
def _rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))


@contextmanager
def served(model: str) -> Iterator[Stub]:
    """The model behind plain completions, in a thread of this process."""
    policy = load_policy(evaluation(model).policy)
    engine, chat = TorchEngine(policy), policy.chat
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def answer(path: str, body: dict[str, Any]) -> Answer:
        assert path == "/v1/completions"
        prompt = tuple(chat.tokenizer(body["prompt"])["input_ids"])
        request = GenerationRequest(prompt, body["seed"], tuple(body.get("stop", ())))
        sampling = Sampling(body["max_tokens"], body["temperature"])
        made = asyncio.run_coroutine_threadsafe(engine.generate(request, sampling), loop).result()
        choice = {"text": made.text, "finish_reason": made.ended}
        return 200, {"choices": [choice], "usage": {"completion_tokens": len(made.tokens)}}, {}

    try:
        with endpoint(answer) as stub:
            yield stub
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def evaluation(model: str, **engine: Any) -> EvaluationRun:
    return EvaluationRun.model_validate(
        {
            "policy": {"model": model, "device": "cpu", "chat": "text"}, "engine": engine,
            "evaluate": {"tasks": "rows.jsonl", "samples": 16, "max_tokens": 48, "greedy": True},
        }
    )  # fmt: skip


@pytest.mark.long
def test_a_server_with_the_same_model_agrees_with_in_process_within_the_interval() -> None:
    Path("small.toml").write_text(TRAINING)
    run_plan(load_plan(Path("small.toml")), progress=Progress())
    inside, greedy = evaluate(evaluation("runs/small")).evaluations
    model = "runs/small/sft/checkpoints/step_000060"
    with served(model) as stub:
        run = evaluation(model, name="openai", servers=stub.url)
        outside, greedy_outside = evaluate(run).evaluations
    assert 0.05 < inside.pass_at[1] < 0.95, "all or nothing would agree with anything"
    assert inside.interval.low <= outside.pass_at[1] <= inside.interval.high
    assert outside.interval.low <= inside.pass_at[1] <= outside.interval.high
    assert outside.mean_length == pytest.approx(inside.mean_length, rel=0.2)
    assert (greedy.per_task, greedy.verdicts) == (greedy_outside.per_task, greedy_outside.verdicts)
    assert greedy.mean_length == greedy_outside.mean_length


def numbers(folder: Path) -> list[dict[str, Any]]:
    """The report without the time it took."""
    made: list[dict[str, Any]] = json.loads((folder / "report.json").read_text())["evaluations"]
    return [{key: value for key, value in one.items() if key != "seconds"} for one in made]


def written() -> int:
    """Samples that a killed evaluation has written so far."""
    files = Path("cut").rglob("samples.jsonl")
    return sum(len(file.read_text().splitlines()) for file in files)


@pytest.mark.long
def test_kills_at_ten_random_moments_and_another_start_give_the_report_of_no_kill() -> None:
    def answer(path: str, body: dict[str, Any]) -> Answer:
        """One answer for each seed, right for some, after a while."""
        draw = random.Random(f"{body['seed']}{body['messages']}")
        time.sleep(0.05)
        program = f"```python\ndef f(x):\n    return x + {draw.randrange(3)}\n```"
        return reply(program, draw.randrange(9, 30), draw.choice(["stop", "stop", "length"]))

    moments = random.Random(13)
    with endpoint(answer) as stub:
        words = ["eval", "--engine", "openai", "--url", stub.url, "--model", "theirs"]
        words = command(*words, "--tasks", "rows.jsonl", "--samples", "100", "--greedy", "--out")
        subprocess.run([*words, "whole/out"], check=True, capture_output=True)
        asked, made = len(stub.asked), [0]
        for kill in range(KILLS):
            running = subprocess.Popen([*words, "cut/out"], stdout=-3, stderr=-3)
            early = kill % 3 == 0  # while it starts; else while it samples
            while not early and running.poll() is None and written() == made[-1]:
                time.sleep(0.005)
            time.sleep(moments.uniform(0, 1.5 if early else 0.1))
            running.send_signal(signal.SIGKILL)
            running.wait()
            made.append(written())
        subprocess.run([*words, "cut/out"], check=True, capture_output=True)
    assert made == sorted(made), "no sample is lost"
    assert 0 < made[5] < made[-1] < asked, "the kills came in the middle"
    assert numbers(Path("cut/out")) == numbers(Path("whole/out"))
    kept: list[Evaluation] = read_report(Path("cut/out"))
    assert [len(one.per_task) for one in kept] == [6, 6]
