"""The real Tinker server of SkyRL, on JAX: its losses are those of our learner."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import torch

from assay.algorithms import algorithms
from assay.config.generation import EngineSettings
from assay.config.sections import RunSettings, TinySettings
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.tinker import TinkerEngine
from assay.policy.forward import forward
from assay.policy.load_model import load_policy
from assay.policy.source import source_of
from assay.policy.tinker import load_tinker_policy
from assay.policy.tiny import make_tiny
from assay.train.batch import to_batch
from assay.train.learner import Learner
from assay.train.open_learner import load_learning_policy, open_learner
from assay.types import Message, Sample
from tests.agents.outside import ENVIRONMENTS, ROOT
from tests.distributed.launch import free_port
from tests.policies import TASKS, random_samples, run_settings

pytestmark = pytest.mark.agents
STEPS = 10


@dataclass(frozen=True)
class SkyRL:
    url: str
    model: Path
    environment: dict[str, str]
    """In which assay finds Tinker's client."""

    def settings(self, **changes: Any) -> RunSettings:
        return run_settings(
            policy={"model": str(self.model), "dtype": "float32", "lora": {"rank": 4}},
            learner={"name": "tinker", "server": self.url, "reduction": "sequence_mean"},
            engine={"name": "tinker"},
            optimizer={"lr": 1e-2, "eps": 1e-3, "max_grad_norm": 1e6, "schedule": "linear"},
            **changes,
        )


@pytest.fixture(scope="module")
def skyrl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SkyRL]:
    python = ENVIRONMENTS / "skyrl" / "bin" / "python"
    client = next(ENVIRONMENTS.glob("tinker/lib/python*/site-packages"), None)
    if not python.exists() or client is None:
        pytest.skip(f"{ENVIRONMENTS} lacks skyrl or tinker: make test-agents builds them")
    folder, port = tmp_path_factory.mktemp("skyrl"), free_port()
    shape = TinySettings(vocabulary=300, width=64, layers=2, heads=2, context=256)
    model = make_tiny(folder / "model", TASKS, shape, seed=0)
    words = [python, Path(__file__).with_name("skyrl_server.py"), model, port, folder]
    url = f"http://127.0.0.1:{port}"
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [*map(str, words)], stdout=log, stderr=log, start_new_session=True,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
        )  # fmt: skip
    sys.path.append(str(client))
    try:
        _wait_for(server, url, folder / "log")
        yield SkyRL(url, model, os.environ | {"PYTHONPATH": f"{ROOT}:{client}"})
    finally:
        sys.path.remove(str(client))
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _wait_for(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    while server.poll() is None:
        try:
            if httpx2.get(f"{url}/api/v1/healthz").is_success:
                return
        except httpx2.HTTPError:
            time.sleep(0.5)
    pytest.fail(log.read_text()[-2000:])


@pytest.mark.parametrize(
    "table",
    [
        {"name": "sft"},
        {"name": "reinforce"},
        {"name": "grpo", "kl": 0.1, "loss_mean": "completions"},
        {"name": "cispo", "epochs": 2},
    ],
    ids=str,
)
def test_ten_steps_have_the_losses_of_our_learner_over_a_restart(
    skyrl: SkyRL, tmp_path: Path, table: dict[str, Any]
) -> None:
    settings = skyrl.settings(algorithm=table)
    policy = load_learning_policy(settings, source_of(settings.policy))
    start, saved, end = (tmp_path / name for name in ("start", "saved", "end"))
    for path in (start, saved, end):
        path.mkdir()
    policy.save(start)
    here = settings.policy.model_copy(update={"model": str(start), "lora": None})
    ours = _learner_here(settings, here)
    theirs = open_learner(settings, ours.algorithm, policy, STEPS, 1.0)
    for step in range(STEPS):
        if step == STEPS // 2:
            (saved / "assay").mkdir()
            theirs.save(saved)
            policy = load_learning_policy(settings, source_of(settings.policy))
            theirs = open_learner(settings, ours.algorithm, policy, STEPS, 1.0)
            theirs.restore(saved)
        samples = random_samples(16, seed=step)
        wanted, told = ours.step(samples, step), theirs.step(samples, step)
        assert told["loss"] == pytest.approx(wanted["loss"], rel=1e-3, abs=1e-5)
    policy.save(end)
    learned = load_policy(here.model_copy(update={"model": str(end)})).trainable
    for name, weight in ours.policy.trainable.items():
        torch.testing.assert_close(learned[name], weight, atol=5e-3, rtol=0.0)


def _learner_here(settings: RunSettings, policy: Any) -> Learner:
    algorithm = algorithms[settings.algorithm["name"]].build(settings.algorithm)
    here = settings.model_copy(update={"policy": policy})
    return Learner(here, algorithm, load_policy(policy), STEPS, 1.0)


def test_its_samples_have_the_probabilities_of_our_model_and_end_as_asked(skyrl: SkyRL) -> None:
    settings = skyrl.settings()
    policy = load_tinker_policy(settings, source_of(settings.policy))
    prompt = policy.chat.encode_prompt((Message("user", TASKS[0].prompt),), {})

    async def generate() -> Any:
        engine = TinkerEngine(policy, EngineSettings(name="tinker"))
        await engine.load(policy, 3)
        request = GenerationRequest(prompt, seed=1)
        return await engine.generate(request, Sampling(max_tokens=24))

    completion = asyncio.run(generate())
    assert 0 < len(completion.tokens) <= 24
    assert set(completion.versions) == {3}
    here = load_policy(settings.policy.model_copy(update={"lora": None}))
    mask = (False,) * len(prompt) + (True,) * len(completion.tokens)
    sample = Sample((*prompt, *completion.tokens), mask)
    batch = to_batch([sample], 0, here.device)
    with torch.no_grad():
        logprobs = forward(here.model, batch).logprobs[0, len(prompt) :]
    assert completion.logprobs == pytest.approx(logprobs.tolist(), abs=1e-4)


def test_the_configuration_of_the_page_trains_and_evaluates_its_checkpoint(
    skyrl: SkyRL, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "tinker.md").read_text()
    block = re.search(r"```toml[^\n]*\n(.*?)```", page, re.DOTALL)
    assert block
    (tmp_path / "run.toml").write_text(block[1])
    words = [
        "train", "run.toml", "--learner.server", skyrl.url, "--policy.model", str(skyrl.model),
        "--steps", "2", "--rollout.tasks_per_step", "1", "--rollout.max_tokens", "16",
        "--rollout.group_size", "4", "--evaluate.limit", "2", "--evaluate.samples", "2",
        "--evaluate.max_tokens", "16", "--learner.reduction", "sequence_mean",
    ]  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-m", "assay", *words], cwd=tmp_path, env=skyrl.environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-2000:]
    (report,) = tmp_path.glob("runs/*/report.md")
    assert "pass@1" in report.read_text()
    (newest,) = tmp_path.glob("runs/*/*/checkpoints/step_000002")
    adapter = skyrl.settings().policy.model_copy(update={"model": str(newest), "lora": None})
    assert load_policy(adapter).trainable


def test_a_server_that_refuses_is_the_users_fault_in_one_line(skyrl: SkyRL, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        f"steps = 1\nalgorithm.name = 'sft'\ntasks.train = 'drills:train'\ntasks.limit = 4\n"
        f"policy = {{model = '{skyrl.model}', lora = {{rank = 64}}}}\nengine.name = 'tinker'\n"
        f"learner = {{name = 'tinker', server = '{skyrl.url}'}}\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "assay", "train", "run.toml"], cwd=tmp_path,
        env=skyrl.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 2, ended.stderr[-2000:]
    assert f"the Tinker server {skyrl.url}" in ended.stderr
    assert "Traceback" not in ended.stderr
