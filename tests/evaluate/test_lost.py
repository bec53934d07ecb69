"""Completions that an endpoint or the judge loses: they are retried, counted beside every rate, and
above a bound the command ends with 3 after all is saved.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from assay import endpoint as client
from assay.cli import app, explain
from assay.endpoint_answers import parse_answer
from assay.engines import openai
from assay.errors import MachineError
from assay.evaluate.compare import compare
from assay.evaluate.report import Evaluation, read_report
from assay.evaluate.sample_file import LostSample, row_of
from assay.judge import Job, Judge
from assay.tasks import task_from_dict
from assay.types import Completion, Execution, Rollout, Turn, Verdict
from tests.endpoints import Answer, Stub, endpoint, reply

ROWS = [
    {"id": name, "prompt": f"Write {name}.", "entry_point": name,
     "tests": [f"assert {name}(2) == 3"], "tags": {"topic": "first" if name < "e" else "last"}}
    for name in "abcdefgh"
]  # fmt: skip
RIGHT, WRONG = "def {}(x):\n    return x + 1", "def {}(x):\n    return x"
Serves = Callable[[str, int], Answer]
"""The answer to the request of that number, from 0, for the task of that name."""


@pytest.fixture(autouse=True)
def _in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(client, "PAUSE", 0.0)
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))


def right(name: str, number: int = 0) -> Answer:
    return reply(f"```python\n{RIGHT.format(name)}\n```")


def serving(serves: Serves) -> Callable[[str, dict[str, Any]], Answer]:
    """Answers a request by the task that it asks for."""
    asked = Counter[str]()

    def answer(path: str, body: dict[str, Any]) -> Answer:
        name = body["messages"][-1]["content"].split("Write ")[1][0]
        asked[name] += 1
        return serves(name, asked[name] - 1)

    return answer


def seven_lost(name: str, number: int) -> Answer:
    """Of 16 completions, loses both of a, b and c, and one of d; the others pass."""
    lost = name in "abc" or (name == "d" and number > 0)
    return (500, {"error": "busy"}, {}) if lost else right(name)


def assay(command: str, *words: str) -> Result:
    return CliRunner().invoke(app, [command, *words])


def evaluate(stub: Stub, *words: str, out: str = "out") -> Result:
    fixed = ("--engine", "openai", "--url", stub.url, "--model", "theirs", "--tasks", "rows.jsonl")
    return assay("eval", *fixed, "--samples", "2", "--max-tokens", "64", "--out", out, *words)


def evaluation(out: str = "out") -> Evaluation:
    (result,) = read_report(Path(out))
    return result


def line_of(done: Result) -> tuple[str, int]:
    """What the terminal shows of how the command ended."""
    assert isinstance(done.exception, Exception)
    return explain(done.exception)


def test_lost_completions_stand_beside_the_rate_and_the_command_ends_with_3_after_saving() -> None:
    with endpoint(serving(seven_lost)) as stub:
        done = evaluate(stub, "--evaluate.axes", '["compiles"]')
        line, code = line_of(done)
        asked = len(stub.asked)
        again = evaluate(stub, "--evaluate.axes", '["compiles"]')
    assert code == 3
    assert "7 of 16 completions" in line
    assert all(fact in line for fact in (stub.url, "4 times", "500"))
    assert asked == 9 + 7 * 2 * 4, "each lost one is asked for in two rounds of four calls"
    assert line_of(again)[1] == 3
    assert len(stub.asked) == asked + 7 * 2 * 4, "only the lost ones are asked for again"
    one = evaluation()
    assert (one.pass_at[1], one.dropped, one.completions) == (1.0, 7, 16)
    assert one.lost_by_task == {"a": 2, "b": 2, "c": 2, "d": 1}
    assert one.bounds is not None
    assert (one.bounds.low, one.bounds.high) == (9 / 16, 1.0)
    assert one.groups["topic"]["first"].lost == 7
    assert one.groups["topic"]["last"].lost == 0
    rows = [line for line in done.output.splitlines() if "100.0%" in line]
    assert all("7 of 16" in row or "7 lost" in row for row in rows), "beside each rate"
    report = Path("out/report.md").read_text()
    assert "| 7 of 16 |" in report
    assert re.search(r"pass@1 is 56\.2%.* 100\.0%", report)
    assert len(Path("out/samples.jsonl").read_text().splitlines()) == 9
    whole = json.loads(Path("out/report.json").read_text())["evaluations"][0]
    assert (whole["dropped"], whole["bounds"]["low"]) == (7, 9 / 16)


@pytest.mark.parametrize(("bound", "code"), [("0.5", 0), ("0.4375", 0), ("0.43", 3), ("0", 3)])
def test_the_bound_on_what_may_be_lost_is_a_flag(bound: str, code: int) -> None:
    with endpoint(serving(seven_lost)) as stub:
        done = evaluate(stub, "--max-lost", bound, "--json")
    assert json.loads(done.stdout)["evaluations"][0]["dropped"] == 7
    assert (line_of(done)[1] if done.exception else 0) == code


def test_show_and_compare_say_what_was_lost_beside_each_rate() -> None:
    with endpoint(serving(seven_lost)) as stub:
        evaluate(stub)
    shown, compared = assay("show", "out"), assay("compare", "out")
    for done in (shown, compared):
        (row,) = [
            line for line in done.output.splitlines() if "100.0%" in line and "theirs" in line
        ]
        assert "7 of 16" in row
    assert shown.exit_code == 0
    assert line_of(compared)[1] == 3
    assert "7 of 16" in line_of(compared)[0]
    assert assay("compare", "out", "--max-lost", "0.5").exit_code == 0
    (state,) = json.loads(assay("show", "out", "--json").stdout)["runs"]
    assert state["evaluations"][0]["dropped"] == 7
    (row,) = json.loads(assay("compare", "out", "--json").stdout)["rows"]
    assert (row["lost"], row["completions"], row["lost_tasks"]) == (7, 16, list("abcd"))


def test_a_comparison_says_which_tasks_it_pairs_unequally_because_of_losses() -> None:
    with endpoint(serving(lambda name, _: right(name))) as stub:
        evaluate(stub, out="whole")
    with endpoint(serving(seven_lost)) as stub:
        evaluate(stub, "--seed", "1", out="part")
    found = compare([Path("whole"), Path("part")])
    (pair,) = found.comparisons
    assert (pair.paired.tasks, pair.tasks_apart, pair.tasks_lost, pair.tasks_unequal) == (
        5,
        3,
        3,
        1,
    )
    assert any("7 of 16" in note for note in found.notes)
    assert [row.lost for row in found.rows] == [0, 7]
    whole, part = (row.judged_samples for row in found.rows)
    assert (whole, round(part, 3)) == (2.0, round(5 / (4 / 2 + 1), 3)), "d has one"


def test_other_tasks_of_the_same_names_are_refused_although_one_lost_a_whole_task() -> None:
    with endpoint(serving(seven_lost)) as stub:
        evaluate(stub, out="part")
        rows = [{**row, "tests": [f"assert {row['id']}(3) == 4"]} for row in ROWS]
        Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with endpoint(serving(lambda name, _: right(name))) as stub:
        evaluate(stub, out="whole")
    assert "other content" in line_of(assay("compare", "part", "whole"))[0]


def screened(stub: Stub, *words: str) -> Result:
    fixed = ("--engine", "openai", "--url", stub.url, "--samples", "2", "--max-tokens", "64")
    return assay("screen", "theirs", "rows.jsonl", "--output", "kept.jsonl", *fixed, *words)


def test_screening_says_how_many_tasks_it_judged_on_fewer_completions_and_ends_with_3() -> None:
    with endpoint(serving(seven_lost)) as stub:
        done = screened(stub, "--at-most", "2")
        assert line_of(done)[1] == 3
        assert re.search(r"7 of 16 .* lost.*\b1\b.*\b3\b", done.output)
        assert len(Path("kept.jsonl").read_text().splitlines()) == 5, "all is saved"
        Path("kept.jsonl").unlink()
        assert "7 of 16" in line_of(screened(stub))[0], "that none is kept may be for want of them"
        assert screened(stub, "--at-most", "2", "--max-lost", "0.5").exit_code == 0


def busy_once(answer: Callable[[], Answer]) -> Serves:
    """Fails the first request of each task in one way, and answers all others."""
    return lambda name, number: right(name) if number else answer()


def reset() -> Answer:
    raise ConnectionResetError


def stall() -> Answer:
    time.sleep(0.6)
    return reply("too late")


def drip() -> Answer:
    """A byte at a time, for longer than an answer may take."""

    def bytes_of_it() -> Iterator[bytes]:
        for _ in range(60):
            yield b" "
            time.sleep(0.01)
        yield b'{"choices": [{"text": "too late"}]}'

    return 200, bytes_of_it(), {}


@pytest.mark.parametrize(
    "fault",
    [
        lambda: (500, {}, {}), lambda: (503, b"", {}), lambda: (408, {}, {}),
        lambda: (429, {}, {"Retry-After": "0.05"}), lambda: (429, {}, {"Retry-After": "soon"}),
        lambda: (503, {}, {"Retry-After": formatdate(time.time() - 9, usegmt=True)}),
        lambda: (429, {}, {"Retry-After": "nan"}), reset, stall, drip,
        lambda: (200, b'{"choices": [{"mess', {}),
        lambda: (200, b"x", {"Content-Encoding": "gzip"}),
    ],
    ids=["500", "503", "408", "429", "soon", "date", "nan", "reset", "stall", "drip", "half",
         "gzip"],
)  # fmt: skip
def test_what_fails_once_is_asked_again_and_nothing_is_lost(fault: Callable[[], Answer]) -> None:
    with endpoint(serving(busy_once(fault))) as stub:
        done = evaluate(stub, "--engine.timeout_seconds", "0.25", "--limit", "2", "--samples", "1")
    assert done.exit_code == 0, done.exception
    assert (evaluation().dropped, evaluation().pass_at[1]) == (0, 1.0)
    assert len(stub.asked) == 4


def test_the_pause_is_what_the_endpoint_asks_for_in_seconds_or_by_a_date() -> None:
    assert client.seconds_until("7.5") == 7.5
    soon = client.seconds_until(formatdate(time.time() + 60, usegmt=True))
    assert 50 < soon < 61
    assert [client.seconds_until(word) for word in ("", "soon", "-3", "nan", "inf")] == [0.0] * 5


UNUSABLE = {
    "empty": b"", "blank": b" \n", "html": b"<html><body>Bad gateway</body></html>",
    "stream": b'data: {"choices": []}\n\ndata: [DONE]\n', "binary": b"\xff\xfe\x00",
    "deep": b"[" * 100_000, "null": b"null", "list": b"[]", "text": b'"choices"', "number": b"3",
    "object": b"{}", "error": b'{"error": {"message": "overloaded"}}',
    "error beside": b'{"choices": null, "error": "overloaded"}',
    "choices null": b'{"choices": null}', "none": b'{"choices": []}',
    "choices object": b'{"choices": {"text": "x"}}', "choice null": b'{"choices": [null]}',
    "choice text": b'{"choices": ["x"]}', "choice empty": b'{"choices": [{}]}',
    "message null": b'{"choices": [{"message": null}]}',
    "message text": b'{"choices": [{"message": "x"}]}',
    "content number": b'{"choices": [{"message": {"content": 7}}]}',
    "content object": b'{"choices": [{"message": {"content": {"text": "x"}}}]}',
    "parts": b'{"choices": [{"message": {"content": [1]}}]}',
    "text null": b'{"choices": [{"text": null}]}',
    "calls": b'{"choices": [{"message": {"content": "x", "tool_calls": {"function": 1}}}]}',
    "call": b'{"choices": [{"message": {"content": "x", "tool_calls": [{"function": null}]}}]}',
    "usage": b'{"choices": [{"text": "x"}], "usage": [7]}',
    "tokens": b'{"choices": [{"text": "x"}], "usage": {"completion_tokens": -1}}',
    "ended": b'{"choices": [{"text": "x", "finish_reason": 7}]}',
    "half": b'{"choices": [{"text": "def f", "finish_reason": "error"}]}',
    "filtered": b'{"choices": [{"message": {"content": null}, "finish_reason": "content_filter"}]}',
}  # fmt: skip
"""Bodies with status 200 that hold no completion."""


@pytest.mark.parametrize("body", UNUSABLE.values(), ids=UNUSABLE)
def test_an_answer_without_a_completion_is_one_line_with_the_url_and_what_came(body: bytes) -> None:
    with endpoint(lambda *_: (200, body, {})) as stub:
        done = evaluate(stub, "--limit", "1", "--samples", "1")
    line, code = line_of(done)
    assert code == 3
    assert stub.url in line
    assert "\n" not in line
    words = re.findall("[a-zA-Z]{4,}", body.decode("utf-8", "replace"))
    assert all(word in line for word in words[-1:] or ["answers with"]), "what came"


@pytest.mark.parametrize("name", ["null", "error", "choice null", "stream"])
def test_one_answer_without_a_completion_loses_that_one_alone(name: str) -> None:
    def serves(task: str, _: int) -> Answer:
        return (200, UNUSABLE[name], {}) if task == "a" else right(task)

    with endpoint(serving(serves)) as stub:
        done = evaluate(stub, "--samples", "1")
    assert line_of(done)[1] == 3
    assert (evaluation().dropped, evaluation().pass_at[1]) == (1, 1.0)


def test_a_reply_that_was_cut_off_in_its_thoughts_is_the_models_failure_and_not_lost() -> None:
    body = {"choices": [{"message": {"content": None}, "finish_reason": "length"}]}
    with endpoint(lambda *_: (200, body, {})) as stub:
        done = evaluate(stub, "--samples", "1")
    assert done.exit_code == 0
    assert (evaluation().verdicts, evaluation().truncated) == ({"no_code": 8}, 1.0)
    assert parse_answer('{"choices": [{"text": "\\ud800x"}]}').text == "?x", "half of a pair"


@pytest.mark.parametrize(("failures", "lost"), [(1, 0), (99, 2)])
def test_what_the_judge_loses_is_judged_again_and_else_lost_like_an_endpoints_loss(
    failures: int, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged, run = Counter[str](), Judge.run

    async def failing(self: Judge, job: Job) -> Execution:
        judged[job.task.id] += 1
        if job.task.id == "a" and judged["a"] <= failures * 2:
            return Execution(Verdict.INFRA, detail="a process was killed")
        return await run(self, job)

    monkeypatch.setattr(Judge, "run", failing)
    with endpoint(serving(lambda name, _: right(name))) as stub:
        done = evaluate(stub)
    assert judged["a"] == 4
    assert (evaluation().dropped, evaluation().pass_at[1]) == (lost, 1.0)
    assert (line_of(done)[1] if done.exception else 0) == (3 if lost else 0)
    assert ("a process was killed" in Path("out/report.md").read_text()) == bool(lost)


def test_a_sample_is_lost_wherever_the_verdict_is_not_on_its_program() -> None:
    task = task_from_dict(ROWS[0])
    turn = Turn((), Completion("x", (), (), "stop", ()), "x", Execution(Verdict.INFRA, detail="d"))
    assert row_of(Rollout(task, (turn,), None), 3) == LostSample("a", 3, "d")
    assert row_of(Rollout(task, (), None, failure="f"), 3) == LostSample("a", 3, "f")


def test_grading_says_how_many_samples_were_lost_beside_the_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [{"task_id": row["id"], "solution": RIGHT.format(row["id"])} for row in ROWS]
    Path("samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = Judge.run

    async def failing(self: Judge, job: Job) -> Execution:
        lost = job.task.id in "ab"
        return Execution(Verdict.INFRA, detail="it died") if lost else await run(self, job)

    monkeypatch.setattr(Judge, "run", failing)
    done = assay("grade", "--tasks", "rows.jsonl", "--samples", "samples.jsonl")
    assert line_of(done)[1] == 3
    (row,) = [line for line in done.output.splitlines() if line.startswith("pass@1")]
    assert "1.000" in row
    assert "2 of 8 samples lost" in row


def test_a_server_that_goes_away_leaves_a_report_of_what_was_judged_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with endpoint(serving(seven_lost)) as stub:
        evaluate(stub)
        monkeypatch.setattr(openai, "MAX_LOST", 3)
        Path("out/report.json").write_text(
            json.dumps({"evaluations": [], "setup": setup()})  # as a kill leaves it
        )
        done = evaluate(stub)
    assert isinstance(done.exception, MachineError)
    assert "times in a row" in line_of(done)[0]
    assert (evaluation().dropped, evaluation().completions) == (7, 16)
    assert "times in a row" in evaluation().failure


def test_everything_that_is_reported_is_sent_and_what_the_endpoint_refuses_is_said() -> None:
    with endpoint(serving(lambda name, _: right(name))) as stub:
        evaluate(stub, "--limit", "1", "--top-p", "0.9")
    sent = stub.asked[0][2]
    expected = {
        "temperature": 1.0, "top_p": 0.9, "top_k": -1, "min_p": 0.0, "max_tokens": 64,
        "repetition_penalty": 1.0,
    }  # fmt: skip
    assert {name: sent[name] for name in expected} == expected
    assert "seed" in sent
    assert setup()["not_sent"] == []


def setup(out: str = "out") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(out) / "report.json").read_text())["setup"]
    return found


def refusing(*names: str, status: int = 400) -> Callable[[str, dict[str, Any]], Answer]:
    def answer(path: str, body: dict[str, Any]) -> Answer:
        for name in names:
            if name in body:
                return status, {"error": {"message": f"unknown parameter: {name}"}}, {}
        return right(body["messages"][-1]["content"].split("Write ")[1][0])

    return answer


@pytest.mark.parametrize(
    ("refused", "status", "not_sent"),
    [
        (["top_k"], 400, ["min_p", "repetition_penalty", "top_k"]),
        (["min_p"], 422, ["min_p", "repetition_penalty", "top_k"]),
        (["top_p", "top_k"], 400, ["min_p", "repetition_penalty", "top_k", "top_p"]),
    ],
)
def test_a_parameter_that_is_off_and_refused_is_left_out_and_reported_as_not_sent(
    refused: list[str], status: int, not_sent: list[str]
) -> None:
    with endpoint(refusing(*refused, status=status)) as stub:
        done = evaluate(stub, "--engine.max_concurrent", "1")
        asked = len(stub.asked)
        again = evaluate(stub)
    assert (done.exit_code, evaluation().dropped) == (0, 0)
    assert f"not sent: {', '.join(not_sent)}" in done.output
    assert f"not sent: {', '.join(not_sent)}" in again.output, "read, not asked again"
    assert len(stub.asked) == asked == 16 + (2 if "top_p" in refused else 1)
    assert not set(stub.asked[-1][2]) & set(not_sent)
    assert setup()["not_sent"] == not_sent
    assert f"not_sent: {json.dumps(not_sent)}" in Path("out/report.md").read_text()


@pytest.mark.parametrize("words", [("--evaluate.top_k", "5"), ("--evaluate.min_p", "0.1")])
def test_a_parameter_that_somebody_wants_is_never_left_out(words: tuple[str, str]) -> None:
    with endpoint(refusing("top_k", "min_p")) as stub:
        line, code = line_of(evaluate(stub, *words, "--limit", "1"))
    assert code == 2
    assert f"unknown parameter: {words[0].removeprefix('--evaluate.')}" in line
    assert stub.url in line


@pytest.mark.parametrize("name", ["temperature", "top_p", "max_tokens", "seed"])
def test_a_field_of_a_request_that_would_make_the_report_untrue_is_refused(name: str) -> None:
    with endpoint(refusing()) as stub:
        line, code = line_of(evaluate(stub, f"--engine.request.{name}", "1"))
    assert code == 2
    assert f"request.{name}" in line
    assert not stub.asked
