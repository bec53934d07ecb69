"""`assay serve-policy`: a model folder behind an endpoint, through the torch engine."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from assay.endpoint_check.examine_endpoint import examine_endpoint
from tests.policies import checkpoint

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
MARKS = ("<|user|>", "<|assistant|>", "<|system|>", "<|end|>")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """The URL and the keys."""
    model = checkpoint(tmp_path_factory.mktemp("model"), "llama", TEMPLATE, special=MARKS)
    weights = load_file(model / "model.safetensors")
    weights["model.norm.weight"] *= 20  # so sure that replies begin alike
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    words = [sys.executable, "-m", "assay", "serve-policy", str(model), "--port", "0"]
    process = subprocess.Popen(
        [*words, "--keys", "2", "--max-tokens", "12", "--device", "cpu"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout
    url, *keys = [process.stdout.readline().strip().partition("=")[2] for _ in range(3)]
    yield url, keys
    process.send_signal(signal.SIGTERM)
    assert process.wait() in (0, -signal.SIGTERM, 130, 143)


def post(url: str, key: str, *messages: Any, **body: Any) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{url}/chat/completions", json.dumps({"messages": messages, **body}).encode(),
        {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )  # fmt: skip
    answer: dict[str, Any] = json.load(urllib.request.urlopen(request))
    return answer


def test_a_second_prompt_begins_with_the_ids_that_the_engine_sampled(
    served: tuple[str, list[str]],
) -> None:
    url, keys = served
    user = {"role": "user", "content": "Hello"}
    wants = {"return_token_ids": True, "logprobs": True}
    first = post(url, keys[0], user, **wants)
    choice = first["choices"][0]
    numbers = [each["logprob"] for each in choice["logprobs"]["content"]]
    assert 0 < len(choice["token_ids"]) == len(numbers) <= 12
    assert all(number < 0 for number in numbers)
    second = post(url, keys[0], user, choice["message"], user, **wants)
    before = first["prompt_token_ids"] + choice["token_ids"]
    assert second["prompt_token_ids"][: len(before)] == before


def test_without_a_key_nothing_is_served(served: tuple[str, list[str]]) -> None:
    url, _ = served
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(url, "guess", {"role": "user", "content": "Hello"})
    assert refused.value.code == 401


def test_tools_that_the_chat_template_cannot_show_are_refused_by_name(
    served: tuple[str, list[str]],
) -> None:
    url, keys = served
    tools = [{"type": "function", "function": {"name": "bash"}}]
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(url, keys[0], {"role": "user", "content": "Hello"}, tools=tools)
    error = json.load(refused.value)["error"]
    assert (refused.value.code, error["param"]) == (400, "tools")


def test_it_can_serve_training_as_the_doctor_finds(
    served: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, keys = served
    monkeypatch.setenv("OPENAI_API_KEY", keys[1])
    examination = asyncio.run(examine_endpoint(url))
    answers = {row.name: row.answer for row in examination.rows}
    assert examination.can_train
    assert answers["log-probabilities"] == answers["token ids"] == "ok"
    assert answers["they belong together"] == "ok"
    assert answers["processed, not raw"] == "?", "it samples at a temperature of its own"
    monkeypatch.setenv("OPENAI_API_KEY", "guess")
    assert not asyncio.run(examine_endpoint(url)).answers
