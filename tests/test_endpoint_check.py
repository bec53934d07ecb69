"""`assay doctor --endpoint` says of a real server what is wrong with it, and for what it serves."""

from __future__ import annotations

import asyncio
import json
import math
import random
import socket
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from typer.testing import CliRunner

from assay import endpoint as client
from assay.cli import app, explain
from assay.endpoint_check.endpoint_findings import SENTINEL, EndpointFinding
from assay.endpoint_check.examine_endpoint import EndpointExamination, examine_endpoint
from tests.endpoints import Answer, endpoint

WORDS = ("a", "be", "cat", "dog", "elk", "<end>")
END = 5
Change = Callable[[dict[str, Any]], Any]
"""Makes an answer wrong; may return another body."""


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAUSE", 0.0)


def logprobs_after(tokens: Sequence[int], temperature: float) -> list[float]:
    """Log-probabilities of a model that looks at all tokens before."""
    logits = [random.Random(f"{[*tokens]} {token}").gauss(0, 1.5) for token in range(6)]
    scaled = [logit / temperature for logit in logits]
    total = math.log(sum(map(math.exp, scaled)))
    return [value - total for value in scaled]


class Server:
    """An exact vLLM, which `change` makes wrong. With `raw`, log-probabilities ignore the
    temperature; without `follows`, sampling does.
    """

    def __init__(
        self, change: Change | None = None, *, raw: bool = False, follows: bool = True
    ) -> None:
        self.change, self.raw, self.follows = change, raw, follows

    def __call__(self, path: str, body: dict[str, Any]) -> Answer:
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": "elk-7b"}]}, {}
        answer = self.completion(body)
        return 200, (self.change(answer) if self.change else None) or answer, {}

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        temperature = body["temperature"] if self.follows else 1.0
        source = random.Random(body["seed"] if self.follows else None)
        tokens, numbers = list[int](), list[float]()
        while len(tokens) < body["max_tokens"] and END not in tokens:
            values = logprobs_after(tokens, temperature or 1.0)
            token = values.index(max(values))
            if temperature:
                token = source.choices(range(6), [*map(math.exp, values)])[0]
            numbers.append(logprobs_after(tokens, 1.0)[token] if self.raw else values[token])
            tokens.append(token)
        content = [{"token": f"token_id:{token}", "logprob": number}
                   for token, number in zip(tokens, numbers, strict=True)]  # fmt: skip
        choice = {
            "message": {"content": "".join(WORDS[token] for token in tokens if token != END)},
            "finish_reason": "stop" if END in tokens else "length",
            "logprobs": {"content": content}, "token_ids": tokens,
        }  # fmt: skip
        return {
            "choices": [choice], "prompt_token_ids": [1, 2],
            "usage": {"completion_tokens": len(tokens)},
        }  # fmt: skip


def examined(answer: Callable[[str, dict[str, Any]], Answer], model: str = "") -> Any:
    with endpoint(answer) as stub:
        return asyncio.run(examine_endpoint(stub.url, model))


def row(examination: EndpointExamination, name: str) -> EndpointFinding:
    return next(each for each in examination.rows if each.name == name)


def refusals(examination: EndpointExamination) -> list[str]:
    return [each.name for each in examination.rows if each.answer == "no"]


def numbers_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = answer["choices"][0]["logprobs"]["content"]
    return content


def shifted(by: int, filler: float | None) -> Change:
    """Each number stands `by` places later; the free place gets `filler`, or the one that fell out
    at the other end.
    """

    def change(answer: dict[str, Any]) -> None:
        content = numbers_of(answer)
        values = [each["logprob"] for each in content]
        moved = values[-by:] + values[:-by]
        if filler is not None:
            moved[0 if by > 0 else -1] = filler
        for entry, value in zip(content, moved, strict=True):
            entry["logprob"] = value

    return change


def first_number(value: Any) -> Change:
    return lambda answer: numbers_of(answer)[0].update(logprob=value)


def without_ids(answer: dict[str, Any]) -> None:
    del answer["choices"][0]["token_ids"], answer["prompt_token_ids"]
    for entry in numbers_of(answer):
        entry["token"] = WORDS[int(entry["token"].removeprefix("token_id:"))]


def without_token_ids(answer: dict[str, Any]) -> None:
    del answer["choices"][0]["token_ids"], answer["prompt_token_ids"]


def without_names(answer: dict[str, Any]) -> None:
    for entry in numbers_of(answer):
        entry["token"] = WORDS[int(entry["token"].removeprefix("token_id:"))]


def test_an_exact_server_can_train() -> None:
    examination = examined(Server())
    assert examination.can_train
    assert {each.name: each.answer for each in examination.rows} == {
        "models": "ok", "completions": "ok", "log-probabilities": "ok", "token ids": "ok",
        "they belong together": "ok", "processed, not raw": "ok", "seed": "ok", "stop token": "ok",
    }  # fmt: skip
    assert examination.use == "It can be used for training."
    assert examination.model == "elk-7b"


@pytest.mark.parametrize("change", [without_token_ids, without_names])
def test_ids_may_stand_in_the_names_or_in_their_field_alone(change: Change) -> None:
    assert examined(Server(change)).can_train


def test_without_ids_it_serves_evaluation_only() -> None:
    examination = examined(Server(without_ids))
    assert refusals(examination) == ["token ids"]
    assert "evaluation only" in examination.use
    assert "token ids" in examination.use


def test_raw_log_probabilities_are_refused() -> None:
    examination = examined(Server(raw=True))
    assert refusals(examination) == ["processed, not raw"]
    assert "processed_logprobs" in row(examination, "processed, not raw").advice


@pytest.mark.parametrize("by", [1, -1])
@pytest.mark.parametrize("filler", [None, 0.0, -0.5])
@pytest.mark.parametrize("also", [None, without_names, without_ids])
def test_numbers_that_are_shifted_by_one_are_refused(
    by: int, filler: float | None, also: Change | None
) -> None:
    def change(answer: dict[str, Any]) -> None:
        shifted(by, filler)(answer)
        if also:
            also(answer)

    assert "they belong together" in refusals(examined(Server(change)))


def test_ids_that_differ_from_the_names_are_refused() -> None:
    def change(answer: dict[str, Any]) -> None:
        ids = answer["choices"][0]["token_ids"]
        ids[:] = ids[1:] + ids[:1]

    examination = examined(Server(change))
    assert "token ids" in refusals(examination)
    assert not examination.can_train


def test_noise_of_kernels_is_no_shift() -> None:
    def change(answer: dict[str, Any]) -> None:
        for entry in numbers_of(answer):
            entry["logprob"] += random.uniform(-0.02, 0.02)

    assert examined(Server(change)).can_train
    assert refusals(examined(Server(change, raw=True))) == ["processed, not raw"]


@pytest.mark.parametrize("value", [SENTINEL, math.nan, -math.inf, None, "-0.5", True, 3.0])
def test_a_number_that_no_sampled_token_can_have_is_refused(value: Any) -> None:
    examination = examined(Server(first_number(value)))
    assert refusals(examination) == ["log-probabilities"]
    assert "token 0" in row(examination, "log-probabilities").evidence


@pytest.mark.parametrize(
    "logprobs", [None, {}, {"content": None}, {"content": []}, [], "no", {"content": 3}]
)
def test_log_probabilities_that_are_none_or_no_list_are_refused(logprobs: Any) -> None:
    examination = examined(Server(lambda answer: answer["choices"][0].update(logprobs=logprobs)))
    assert "log-probabilities" in refusals(examination)
    assert "evaluation only" in examination.use


def test_fewer_numbers_than_ids_are_refused() -> None:
    def change(answer: dict[str, Any]) -> None:
        if len(numbers_of(answer)) > 1:
            numbers_of(answer).pop()

    examination = examined(Server(change))
    assert refusals(examination)[0] == "log-probabilities"
    assert " tokens" in row(examination, "log-probabilities").evidence


def test_a_server_that_samples_as_it_likes_can_train_at_temperature_1_and_says_so() -> None:
    examination = examined(Server(follows=False))
    assert examination.can_train
    scaling = row(examination, "processed, not raw")
    assert (scaling.answer, row(examination, "seed").answer) == ("?", "no")
    assert scaling.advice in examination.use


def test_a_sure_model_whose_server_follows_no_temperature_is_not_taken_for_a_raw_one() -> None:
    """Six replies at temperature 0 are equal by chance in one of five cases."""
    exact = Server()

    def answer(path: str, body: dict[str, Any]) -> Answer:
        if body.get("temperature") == 0:
            body = body | {"seed": 1}
        return exact(path, body | {"temperature": 1.0, "seed": body.get("seed", 0) % 4 and 1})

    examination = examined(answer)
    assert row(examination, "processed, not raw").answer == "?"


def test_a_stop_token_that_is_cut_off_is_shown_and_does_not_forbid_training() -> None:
    def change(answer: dict[str, Any]) -> None:
        choice = answer["choices"][0]
        if choice["finish_reason"] == "stop" and len(choice["token_ids"]) > 1:
            choice["token_ids"].pop()
            numbers_of(answer).pop()

    examination = examined(Server(change))
    assert row(examination, "stop token").answer == "no"
    assert examination.can_train


def test_parameters_that_a_server_refuses_are_left_out() -> None:
    exact = Server(without_ids)

    def answer(path: str, body: dict[str, Any]) -> Answer:
        if "return_token_ids" in body or "top_k" in body:
            return 400, {"error": {"message": "unknown parameter"}}, {}
        return exact(path, body)

    examination = examined(answer)
    assert refusals(examination) == ["token ids"]
    assert "refused a request with return_token_ids" in row(examination, "token ids").evidence


@pytest.mark.parametrize(
    ("answer", "evidence", "advice"),
    [
        ((401, {"error": {"message": "Incorrect API key"}}, {}), "401", "OPENAI_API_KEY"),
        ((200, b"<html>Welcome</html>", {}), "no JSON: <html>Welcome", "/v1"),
        ((200, {"hello": 1}, {}), "no ", "/v1"),
        ((503, b"", {}), "503", "it runs"),
    ],
)
def test_an_endpoint_without_completions_serves_nothing(
    answer: Answer, evidence: str, advice: str
) -> None:
    for model in ("", "elk-7b"):
        examination = examined(lambda path, body: answer, model)
        assert refusals(examination) == ["models", "completions"]
        assert evidence in row(examination, "models").evidence
        assert advice in row(examination, "models").advice
        assert "for nothing" in examination.use


def test_a_model_that_is_not_listed_is_named() -> None:
    examination = examined(Server(), "mouse-1b")
    assert refusals(examination) == ["models"]
    assert "elk-7b" in row(examination, "models").evidence


def test_the_command_ends_with_0_for_training_1_without_and_2_for_bad_input() -> None:
    def doctor(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["doctor", *words])
        return done.exit_code, done.stdout + str(done.exception or "")

    with endpoint(Server()) as stub:
        code, text = doctor("--endpoint", stub.url)
        assert code == 0
        assert "It can be used for training." in text
        code, text = doctor("--endpoint", stub.url, "--json")
        assert json.loads(text)["can_train"] is True
        assert doctor("--endpoint", stub.url, "--self-test")[0] != 0
    with endpoint(Server(raw=True)) as stub:
        code, text = doctor("--endpoint", stub.url)
        assert code == 1
        assert "evaluation only" in text


def test_a_place_without_a_server_serves_nothing_and_a_text_without_a_scheme_is_no_url() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    done = CliRunner().invoke(app, ["doctor", "--endpoint", f"http://127.0.0.1:{port}/v1"])
    assert done.exit_code == 1
    assert "for nothing" in done.stdout
    for words in (["--endpoint", "no url"], ["--model", "elk-7b"]):
        error = CliRunner().invoke(app, ["doctor", *words]).exception
        assert isinstance(error, Exception)
        assert explain(error)[1] == 2


def test_a_text_of_the_server_is_shown_as_it_is_and_obeyed_by_no_terminal() -> None:
    answer: Answer = 400, b"[bold]no\x1b[31m[/italic]", {}
    with endpoint(lambda path, body: answer) as stub:
        done = CliRunner().invoke(app, ["doctor", "--endpoint", stub.url], terminal_width=300)
    assert done.exit_code == 1
    assert "[bold]no" in " ".join(done.stdout.split())
    assert "\x1b" not in done.stdout
