"""`assay eval` asks an OpenAI-compatible endpoint, which is a real server here."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay import endpoint as client
from assay.config.evaluation import EvaluationRun
from assay.engines import openai
from assay.errors import MachineError, SettingsError
from assay.evaluate import EvaluationResult, evaluate
from assay.evaluate.report import read_report
from tests.endpoints import Answer, Stub, endpoint, reply

ROWS = [
    {
        "id": name, "prompt": f"Write {name}.\nassert {name}(2) == 3", "entry_point": name,
        "tests": [f"assert {name}(2) == 3"],
    }
    for name in ("f", "g", "h")
]  # fmt: skip
RIGHT = "```python\ndef {}(x):\n    return x + 1\n```"


def right(path: str, body: dict[str, Any]) -> Answer:
    """The right program, but a wrong one for `h`."""
    name = body["messages"][-1]["content"].split("Write ")[1][0]
    return reply(RIGHT.format(name if name != "h" else "hh"))


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(client, "PAUSE", 0.0)
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))


def run(stub: Stub, sampling: dict[str, Any] | None = None, **engine: Any) -> EvaluationResult:
    settings = {
        "policy": {"model": "theirs"},
        "engine": {"name": "openai", "servers": stub.url, **engine},
        "evaluate": {"tasks": "rows.jsonl", "samples": 2, "max_tokens": 64, **(sampling or {})},
    }
    return evaluate(EvaluationRun.model_validate(settings))


def test_a_hosted_model_is_evaluated_and_its_key_is_sent_but_neither_stored_nor_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-key")
    with endpoint(right) as stub:
        done = run(stub, request={"reasoning_effort": "low", "seed": ""})
    (one,) = done.evaluations
    assert {task.id: task.passed for task in one.per_task} == {"f": 2, "g": 2, "h": 0}
    assert (one.mean_length, one.truncated, one.dropped) == (7.0, 0.0, 0)
    path, key, body = stub.asked[0]
    assert (path, key) == ("/v1/chat/completions", "Bearer secret-key")
    assert body.keys() == {
        "model", "messages", "max_tokens", "temperature", "reasoning_effort", "top_p", "top_k",
        "min_p", "repetition_penalty",
    }  # fmt: skip
    assert done.setups[0]["not_sent"] == ["seed"]
    texts = [
        file.read_bytes().decode(errors="replace")
        for file in done.folder.rglob("*") if file.is_file()
    ]  # fmt: skip
    assert not any("secret-key" in text for text in (*texts, *capsys.readouterr()))


def test_plain_text_goes_to_the_completions_and_shows_an_earlier_reply_as_it_came() -> None:
    def answer(path: str, body: dict[str, Any]) -> Answer:
        choice = {"text": "def f(x): return 4\n", "finish_reason": "length"}
        return 200, {"choices": [choice], "usage": {"completion_tokens": 64}}, {}

    with endpoint(answer) as stub:
        settings = {
            "policy": {"model": "theirs", "chat": "text"}, "environment": {"name": "repair"},
            "engine": {"name": "openai", "servers": stub.url},
            "evaluate": {"tasks": "drills:test", "samples": 1, "limit": 1, "top_k": 3},
        }  # fmt: skip
        (one,) = evaluate(EvaluationRun.model_validate(settings)).evaluations
    (path, _, body), (_, _, second), _ = stub.asked
    assert (path, body["top_k"], one.truncated, one.mean_length) == ("/v1/completions", 3, 1, 192)
    assert (body["prompt"][:9], body["stop"]) == ("# f(xs): ", ["\n# f("])
    assert second["prompt"].startswith(body["prompt"] + "def f(x): return 4\n")


def test_an_answer_in_parts_without_what_is_optional_is_read() -> None:
    def answer(path: str, body: dict[str, Any]) -> Answer:
        _, whole, _ = right(path, body)
        code = whole["choices"][0]["message"]["content"]
        parts = [
            {"type": "thinking", "thinking": [{"type": "text", "text": "x"}]},
            *({"type": "text", "text": part} for part in (code[:9], code[9:])),
        ]
        return 200, {"choices": [{"message": {"role": "assistant", "content": parts}}]}, {}

    with endpoint(answer) as stub:
        (one,) = run(stub).evaluations
    assert {task.id: task.passed for task in one.per_task} == {"f": 2, "g": 2, "h": 0}


def test_a_failure_of_the_endpoint_is_asked_again_as_late_as_it_says_and_then_dropped() -> None:
    failures: Iterator[Answer] = iter([(429, {}, {"Retry-After": "0.3"}), (503, {}, {})])
    times: list[float] = []

    def answer(path: str, body: dict[str, Any]) -> Answer:
        times.append(time.monotonic())
        if "Write g." in body["messages"][-1]["content"]:
            return 500, {}, {}
        return next(failures, right(path, body))

    with endpoint(answer) as stub:
        (one,) = run(stub, max_concurrent=1).evaluations
    assert (one.dropped, [task.id for task in one.per_task]) == (2, ["f", "h"])
    assert times[1] - times[0] >= 0.3
    assert len(times) == 2 + 2 + 2 + 2 * 2 * 4, "two rounds of four calls for each lost one"


def test_an_endpoint_that_refuses_ends_the_evaluation_and_one_that_never_answers_does_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-key")
    with (
        endpoint(lambda *_: (401, {"error": "wrong key secret-key"}, {})) as stub,
        pytest.raises(SettingsError, match=r"refuses with 401: .*wrong key \*\*\*"),
    ):
        run(stub)
    with (
        endpoint(lambda *_: (405, {}, {})) as stub,
        pytest.raises(SettingsError, match="refuses with 405"),
    ):
        run(stub)
    monkeypatch.setattr(openai, "MAX_LOST", 3)
    with (
        endpoint(lambda *_: (500, {}, {})) as stub,
        pytest.raises(MachineError, match=r"[3-6] times in a row"),
    ):
        run(stub)
    with (
        endpoint(lambda *_: (200, {"error": "busy"}, {})) as stub,
        pytest.raises(MachineError, match='answers with an error: "busy"'),
    ):
        run(stub)


@pytest.mark.parametrize("url", ["http://127.0.0.1:port/v1", "127.0.0.1:1/v1"])
def test_a_url_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(SettingsError, match=r"engine\.servers, .* is no URL"):
        run(Stub(url))


def test_a_key_with_a_newline_is_sent_without_it_and_one_that_no_header_holds_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-key\n")
    with endpoint(right) as stub:
        run(stub)
        assert stub.asked[0][1] == "Bearer secret-key"
        monkeypatch.setenv("OPENAI_API_KEY", "sécret")
        with pytest.raises(SettingsError, match="OPENAI_API_KEY holds no key"):
            run(stub, {"samples": 1})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"servers": ()}, "needs one URL"),
        ({"servers": "https://me:secret@host/v1"}, "holds a password"),
    ],
)
def test_an_endpoint_without_a_url_or_with_a_secret_in_its_settings_is_refused(
    change: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        run(Stub("http://127.0.0.1:1/v1"), **change)


def test_several_sets_sampled_and_greedy_are_one_report_which_a_second_time_is_only_read() -> None:
    Path("more.jsonl").write_text(json.dumps(ROWS[0]))
    wanted = {"tasks": ("rows.jsonl", "more.jsonl"), "greedy": True}
    with endpoint(right) as stub:
        first = run(stub, wanted)
        asked = len(stub.asked)
        assert run(stub, wanted) == first
        assert len(stub.asked) == asked, "nothing is asked twice"
    shown = [(e.tasks_spec, e.temperature, round(e.pass_at[1], 3)) for e in first.evaluations]
    assert shown == [
        ("rows.jsonl", 1.0, 0.667), ("rows.jsonl", 0.0, 0.667),
        ("more.jsonl", 1.0, 1.0), ("more.jsonl", 0.0, 1.0),
    ]  # fmt: skip
    assert tuple(read_report(first.folder)) == first.evaluations
    assert set(json.loads((first.folder / "report.json").read_text())["setups"]) == {
        "theirs, rows.jsonl", "theirs, rows.jsonl, greedy", "theirs, more.jsonl",
        "theirs, more.jsonl, greedy",
    }  # fmt: skip
    assert "## Protocol of theirs, more.jsonl" in (first.folder / "report.md").read_text()


def test_a_report_from_before_the_last_samples_is_written_again() -> None:
    failing = ["Write g."]

    def answer(path: str, body: dict[str, Any]) -> Answer:
        asks = body["messages"][-1]["content"]
        return (500, {}, {}) if any(one in asks for one in failing) else right(path, body)

    with endpoint(answer) as stub:
        report = run(stub).folder / "report.json"
        stale = report.read_text()
        failing.clear()
        whole = run(stub)
        report.write_text(stale)  # as a kill after the last sample leaves it
        again = run(stub)
    assert json.loads(stale)["evaluations"][0]["dropped"] == 2
    assert [one.per_task for one in again.evaluations] == [
        one.per_task for one in whole.evaluations
    ]
    assert again.evaluations[0].dropped == 0


def test_a_report_is_broken_down_by_difficulty_and_month_and_names_the_window_of_dates() -> None:
    labels = [("hard", "2024-01-31"), ("easy", "2024-01-02T09:00:00"), ("easy", "2024-05-01")]
    rows = [
        {
            **row,
            "difficulty": difficulty,
            "tags": {"date": date, "topic": "sums, loops", "number": row["id"]},
        }
        for row, (difficulty, date) in zip(ROWS, labels, strict=True)
    ]
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with endpoint(right) as stub:
        done = run(stub)
    (one,), (setup,) = done.evaluations, done.setups
    rates = {
        kind: {text: (group.tasks, group.pass_at_1) for text, group in groups.items()}
        for kind, groups in one.groups.items()
    }
    assert rates == {
        "difficulty": {"easy": (2, 0.5), "hard": (1, 1.0)},
        "month": {"2024-01": (2, 1.0), "2024-05": (1, 0.0)},
        "topic": {"sums": (3, 2 / 3), "loops": (3, 2 / 3)},
    }
    assert setup["dates"] == ["2024-01-02", "2024-05-01"]
    assert "| difficulty: hard | 1 | 100.0% |" in (done.folder / "report.md").read_text()
    assert read_report(done.folder) == [one]


@pytest.mark.long
def test_the_command_evaluates_a_hosted_model_where_there_is_no_torch() -> None:
    blocked = "import sys; sys.modules.update(torch=None, transformers=None)"
    code = f"{blocked}\nfrom assay.cli import main\nmain()"
    with endpoint(right) as stub:
        words = ["eval", "--engine", "openai", "--model", "hosts/theirs/one", "--tasks"]
        words += ["rows.jsonl", "--url", stub.url, "--samples", "1", "--json"]
        done = subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
        )
    (one,) = json.loads(done.stdout)["evaluations"]
    assert one["verdicts"] == {"pass": 2, "no_code": 1}


def test_samples_of_the_same_question_in_another_folder_are_used_again(tmp_path: Path) -> None:
    with endpoint(right) as stub:
        first = run(stub)
        asked = len(stub.asked)
        settings: dict[str, Any] = {
            "policy": {"model": "theirs"},
            "engine": {"name": "openai", "servers": stub.url},
            "evaluate": {"tasks": "rows.jsonl", "samples": 2, "max_tokens": 64},
        }
        again = evaluate(EvaluationRun.model_validate(settings), folder=tmp_path / "mine" / "copy")
        assert len(stub.asked) == asked
        warm = settings | {"evaluate": {**settings["evaluate"], "temperature": 0.5}}
        evaluate(EvaluationRun.model_validate(warm), folder=tmp_path / "mine" / "warm")
        assert len(stub.asked) == 2 * asked, "another question"
        (tmp_path / "mine" / "warm" / "report.json").unlink()
        with pytest.raises(SettingsError, match=r"has no report\.json beside it"):
            evaluate(EvaluationRun.model_validate(settings), folder=tmp_path / "mine" / "warm")
    assert again.folder == tmp_path / "mine" / "copy"
    assert again.evaluations == first.evaluations
