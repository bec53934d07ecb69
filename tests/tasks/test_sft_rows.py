"""Rows for SFT, rows with misspelt fields, and rows in languages that cannot be judged."""

from __future__ import annotations

import asyncio
import logging
from ast import literal_eval
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import typer
from typer.main import get_command

from assay.cli import app
from assay.commands import options
from assay.config.generation import PLACEHOLDERS, PromptSettings
from assay.errors import DataError
from assay.integrations import bodies, case_rows
from assay.judge import Job, Judge
from assay.rollout.prompter import Prompter
from assay.tasks import code_contests, load, nemo_gym
from assay.tasks.columns import REPLIES
from assay.tasks.jsonl import FIELDS
from assay.tasks.rows import Row
from assay.types import Cause, Execution, Sample, Task, Verdict
from tests.policy.test_chat import chat_of
from tests.rollout.talks import ADD
from tests.tasks.test_load import ROW, write

ASK, REPLY = {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}
MORE, LAST = {"role": "user", "content": "3+3?"}, {"role": "assistant", "content": "6"}
SYSTEM = {"role": "system", "content": "Add."}


def loaded(folder: Path, row: dict[str, Any]) -> Task:
    (task,) = load(write(folder / "rows.jsonl", row), judged=False)
    return task


def read_and_learned(folder: Path, how: str, row: dict[str, Any], **given: bool) -> tuple[str, str]:
    """The text of the row's one sample, and what of it SFT learns."""
    chat = chat_of(folder, how)
    (sample,) = Prompter(chat).samples(loaded(folder, row), **given)
    return tuple(map(chat.tokenizer.decode, (sample.tokens, learned(sample))))


def learned(sample: Sample) -> list[int]:
    return [token for token, on in zip(sample.tokens, sample.mask, strict=True) if on]


def turns(*pairs: dict[str, str]) -> str:
    return "\n".join(f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>" for one in pairs)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "2+2?", "completion": "4"},
        {"prompt": "2+2?", "answer": "4"},
        {"prompt": "2+2?", "demonstrations": ["4"]},
        {"prompt": [ASK], "completion": [REPLY]},
        {"prompt": [ASK], "completion": "4"},
        {"messages": [ASK, REPLY]},
    ],
)
def test_a_row_without_tests_goes_through_the_chat_template_as_it_stands(
    tmp_path: Path, row: dict[str, Any]
) -> None:
    assert read_and_learned(tmp_path, "auto", row) == (
        turns(ASK, REPLY) + "\n",
        "4<|im_end|>\n",
    )


def test_every_reply_of_a_conversation_is_learned_or_the_last(tmp_path: Path) -> None:
    row = {"messages": [SYSTEM, ASK, REPLY, MORE, LAST, {"role": "user", "content": "Bye"}]}
    whole = turns(SYSTEM, ASK, REPLY, MORE, LAST) + "\n"
    both = "4<|im_end|>\n6<|im_end|>\n"
    assert read_and_learned(tmp_path, "auto", row) == (whole, both)
    assert read_and_learned(tmp_path, "auto", row, last_only=True) == (whole, "6<|im_end|>\n")
    completed = {"prompt": [SYSTEM, ASK, REPLY, MORE], "completion": [LAST]}
    assert read_and_learned(tmp_path, "auto", completed) == (whole, "6<|im_end|>\n")
    plain = "Add.\n2+2?\n4<end>3+3?\n6<end>"
    assert read_and_learned(tmp_path, "text", row) == (plain, "4<end>6<end>")


def test_a_reply_of_weight_0_is_not_learned(tmp_path: Path) -> None:
    bad = {**REPLY, "weight": 0}
    row = {"messages": [ASK, bad, MORE, {**LAST, "weight": 1}, ASK, bad]}
    assert read_and_learned(tmp_path, "auto", row) == (
        turns(ASK, REPLY, MORE, LAST) + "\n",
        "6<|im_end|>\n",
    )
    task = loaded(tmp_path, row)
    assert not any(message.fields for message in task.messages)
    assert not task.demonstration_fields
    with pytest.raises(DataError, match="line 1: holds no answer of the assistant to learn"):
        loaded(tmp_path, {"messages": [ASK, bad]})


def test_a_reply_that_its_label_calls_bad_is_refused(tmp_path: Path) -> None:
    loaded(tmp_path, {"prompt": "2+2?", "completion": "4", "label": True})
    with pytest.raises(DataError, match="line 1: its 'label' is false"):
        loaded(tmp_path, {"prompt": "2+2?", "completion": "5", "label": False})


def test_in_plain_text_a_completion_goes_on_and_an_answer_has_a_new_line(tmp_path: Path) -> None:
    completed, answered = {"prompt": "2+2 =", "completion": " 4"}, {"prompt": "2+2", "answer": "4"}
    assert read_and_learned(tmp_path, "text", completed) == ("2+2 = 4<end>", " 4<end>")
    assert read_and_learned(tmp_path, "text", answered) == ("2+2\n4<end>", "4<end>")


def test_ids_are_made_of_lines_and_only_sft_takes_rows_without_tests(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", {"prompt": "a", "answer": "b"}, "", {**ROW, "id": 7})
    assert [task.id for task in load(file, judged=False)] == ["line 1", "7"]
    with pytest.raises(DataError, match="task 'line 1' has no tests, so only SFT can use it"):
        load(file)


def test_a_prompt_of_messages_may_have_tests(tmp_path: Path) -> None:
    task = loaded(tmp_path, {**ROW, "prompt": [SYSTEM, {"role": "user", "content": "def inc(n):"}]})
    assert (task.prompt, task.stub, len(task.checks)) == ("def inc(n):", "", 1)
    text = chat_of(tmp_path, "auto").tokenizer.decode(
        Prompter(chat_of(tmp_path, "auto")).prompt(task)
    )
    assert text.startswith(turns(SYSTEM))
    assert "Solve" not in text


def test_unknown_fields_are_named_in_a_warning_with_what_was_meant(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    exchange = {"stdin": "1", "stdout": "1", "args": ["-n"]}
    rows = [{**ROW, "refernce": "x"}, {**ROW, "id": "b", "demonstration": [], "zzz": 1},
            {"prompt": "a", "completions": "b", "answer": "c"},
            {"prompt": "Print it.", "exchanges": [exchange]}]  # fmt: skip
    file = write(tmp_path / "rows.jsonl", *rows)
    with caplog.at_level(logging.WARNING):
        load(file, judged=False)
    assert caplog.messages == [
        f"{file}: ignored unknown fields: 'args' of 'exchanges'",
        f"{file}: ignored unknown fields: 'completions' (did you mean 'completion'?),"
        " 'demonstration' (did you mean 'demonstrations'?), 'refernce' (did you mean 'reference'?),"
        " 'zzz'",
    ]


STDIN = {"inputs": ["1"], "outputs": ["1"]}
GYM = {"responses_create_params": {"input": "p"}, "hash_id": "h"}
SANDBOX = {"id": 1, "content": "p", "test": [{"input": {"stdin": "1"}, "output": {"stdout": "1"}}]}


@pytest.mark.parametrize(
    ("read", "row"),
    [
        (
            nemo_gym.task_of,
            {**GYM, "verifier_metadata": {"unit_tests": STDIN, "language": "lua"}},
        ),
        (nemo_gym.task_of, {**GYM, "verifier_metadata": {"unit_tests": STDIN}, "lang": "lua"}),
        (code_contests.task_of, {**SANDBOX, "labels": '{"programming_language": "lua"}'}),
        (lambda row: case_rows.task_of(row.fields, row.where), {**STDIN, "language": "lua"}),
        (
            lambda row: bodies.JudgeRequest(**row.fields).job(),
            {"task": ROW, "language": "lua", "program": ""},
        ),
        (
            lambda row: bodies.JudgeRequest(**row.fields).job(),
            {**STDIN, "language": "lua", "program": ""},
        ),
    ],
)
def test_a_row_of_any_format_in_another_language_is_refused_by_name(
    read: Callable[[Row], object], row: dict[str, Any]
) -> None:
    with pytest.raises(
        DataError, match="the language 'lua' cannot be judged; known: answer, c, cpp"
    ):
        read(Row(row, "row 1"))
    read(Row(literal_eval(repr(row).replace("lua", "Python3")), "row 1"))


def test_the_judge_refuses_a_task_in_another_language() -> None:
    async def run() -> Execution:
        async with Judge(slots=1) as judge:
            return await judge.run(Job(replace(ADD, language="lua"), "int f();"))

    execution = asyncio.run(run())
    assert (execution.verdict, execution.cause) == (Verdict.UNJUDGED, Cause.TASK)
    assert "'lua'" in execution.detail


def test_the_pages_on_data_name_every_field_of_a_row_and_every_setting_of_the_prompt() -> None:
    docs = Path(__file__).parents[2] / "docs"
    pages = ("data.md", "sft-rows.md", "repositories.md")
    page = "".join((docs / name).read_text() for name in pages)
    for name in FIELDS - {"checks", "test_list"} | REPLIES:
        assert f"`{name}`" in page or f'"{name}"' in page, name
    for name in PromptSettings.model_fields:
        assert f"`prompt.{name}`" in page, name
    for name in PLACEHOLDERS:
        assert f"`{{{name}}}`" in page, name


def test_a_warning_about_rows_is_printed_once_for_a_plan(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{**ROW, "tests": ["assert inc(1) == 2"], "refernce": "x"}, {**ROW, "id": "b", "zzz": 1}]
    file = write(tmp_path / "rows.jsonl", *rows)
    common = f'steps = 1\nalgorithm.name = "grpo"\ntasks.train = "{file}"\n'
    (tmp_path / "run.toml").write_text(f"{common}[stages.a]\n[stages.b]\n")
    context = cast(
        typer.Context, get_command(app).make_context("assay", [], resilient_parsing=True)
    )
    with caplog.at_level(logging.WARNING):
        for settings in options.checked_plan(context, tmp_path / "run.toml").stages:
            load(settings.tasks.spec, judged=False)
    (record,) = caplog.records
    assert "'zzz'" in record.getMessage()
