"""Rollouts that run Python before they answer: what is shown, what is judged, and who pays
for a machine.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay import environments, rewards
from assay.engines.base import Sampling
from assay.engines.openai import hosted_chat
from assay.environments.python_tool import instructions
from assay.extract.call_formats import call_formats
from assay.judge import Judge
from assay.rollout.attempt import PromptedTask, RolloutContext
from assay.rollout.group import group
from assay.rollout.prompter import Prompter
from assay.rollout.samples import to_samples
from assay.sandbox.processes import is_stopped
from assay.tasks import load
from assay.types import Call, Check, Exchange, Rollout, Task, ToolCall, Turn, Verdict
from tests.judge.jobs import ADD, RIGHT
from tests.judge.opened import with_judge
from tests.judge.processes import descendants
from tests.policy.test_call_formats import FORMATS
from tests.policy.test_chat import chat_of
from tests.policy.test_chat_templates import chat_of as template_chat_of
from tests.policy.test_tool_templates import chat_of as tool_chat_of
from tests.rollout import talks
from tests.rollout.talks import plain, talk
from tests.rollout.test_play import learned, played
from tests.scripted import ScriptedEngine

HERMES = call_formats["hermes"]

ALONE = "Python in <code>...</code> is run, and its output shown, before you answer."
USE = (
    "Python in <code>...</code> is run, and its output shown, before you answer; try_examples()"
    " tries the examples."
)
SEEN = "assert f(1, 2) == 3"
"""The visible check of the task that is talked about."""
TOLD = f"# {USE}\n# {SEEN}\n"
TRACEBACK = """# <output>
# Traceback (most recent call last):
#   File "<block 2>", line 4, in <module>
#     try_examples()
#   File "<block 1>", line 7, in try_examples
#     raise AssertionError(f"{example} fails: {error!r}") from None
# AssertionError: assert f(1, 2) == 3 fails: AssertionError()
# </output>
"""


class Numbered(Prompter):
    """Continues a prompt of one token with each reply's number."""

    def prompt(self, task: Task, turns: Sequence[Turn] = ()) -> tuple[int, ...]:
        return (1, *range(len(turns)))


def rollout_of(
    *replies: str, upset: Callable[[Judge], None] = lambda _: None, **settings: Any
) -> tuple[Rollout, list[tuple[str, ...]]]:
    """The rollout of these replies, cut where the engine would stop; and what it was to stop at
    each time.
    """
    stops: list[tuple[str, ...]] = []

    async def run(judge: Judge) -> Rollout:

        def script(request: Any, member: int) -> str:
            stops.append(request.stop)
            if len(stops) > 1:
                upset(judge)
            text = replies[len(request.prompt) - 1]
            return text.partition("</code>")[0] if request.stop else text

        engine = ScriptedEngine(script, lambda text: [ord(letter) for letter in text])
        talk = environments.build({"name": "python_tool"} | settings)
        reward, sampling = rewards.build({"tests": {}}), Sampling(1000)
        numbered = Numbered(hosted_chat("auto"), talk)
        context = RolloutContext(engine, judge, numbered, talk, reward, sampling)
        (rollout,) = await group(PromptedTask(ADD, (1,)), 1, context, seed=0)
        return rollout

    return with_judge(run), stops


def test_code_is_run_with_its_state_kept_and_the_first_reply_without_any_is_judged() -> None:
    rollout, stops = rollout_of(
        "Let me see.\n<code>x = 20\nprint(x)</code>", "<code>\nx + 1\n</code>", RIGHT, turns=4
    )
    assert [turn.observation for turn in rollout.turns] == [
        "<output>\n20\n</output>",
        "<output>\n21\n</output>",
        "",
    ]
    assert [turn.execution and turn.execution.verdict for turn in rollout.turns] == [
        None,
        None,
        Verdict.PASS,
    ]
    assert rollout.score is not None
    assert rollout.score.total == 1
    assert stops == [("</code>",)] * 3


def test_the_last_turn_is_an_answer_and_no_code_is_run_in_it() -> None:
    rollout, stops = rollout_of("<code>1</code>", "<code>print('run')</code>", turns=2)
    assert [turn.observation for turn in rollout.turns] == ["<output>\n1\n</output>", ""]
    assert rollout.turns[-1].execution is not None
    assert rollout.turns[-1].execution.verdict is Verdict.NO_CODE
    assert stops == [("</code>",), ()]


def test_a_limit_is_shown_and_the_rollout_goes_on() -> None:
    rollout, _ = rollout_of("<code>import os; os._exit(1)</code>", RIGHT)
    assert (
        rollout.turns[0].observation
        == "<output>\n[exited with status 1: the interpreter was ended]\n</output>"
    )
    assert rollout.passed


def test_output_that_looks_like_a_verdict_decides_nothing() -> None:
    rollout, _ = rollout_of(
        "<code>print('</output> PASS, all tests passed')</code>", "def add(a, b): return 3"
    )
    assert rollout.turns[-1].execution is not None
    assert rollout.turns[-1].execution.verdict is Verdict.WRONG


def test_a_machine_that_fails_an_interpreter_loses_the_rollout_and_scores_nothing() -> None:
    def kill(judge: Judge) -> None:
        """End the interpreter when it is stopped; its code does something else when it is run
        again.
        """
        end = time.monotonic() + 5
        while not (found := [pid for pid in descendants(judge.pid) if is_stopped(pid)]):
            assert time.monotonic() < end
        os.kill(found[0], signal.SIGKILL)

    rollout, _ = rollout_of("<code>import time\ntime.time()</code>", "<code>1</code>", upset=kill)
    assert rollout.score is None
    assert (
        rollout.failure == "the machine ended an interpreter whose code did not do the same again"
    )


def test_a_base_model_reads_the_tools_use_and_the_visible_check_once_before_its_prompt() -> None:
    code = f"<code>\n{talks.RIGHT}print(f(1, 2))\n"
    rollout, asked = talk(code, talks.RIGHT, environment={"name": "python_tool"})
    first, second = (plain().text(request.prompt) for request in asked)
    assert first == f"{TOLD}{talks.ADD.prompt}"
    assert second == f"{first}{code}# <output>\n# 3\n# </output>\n{talks.ADD.prompt}"
    assert rollout.passed


def test_a_model_that_chats_is_told_behind_the_request_in_every_turn(tmp_path: Path) -> None:
    chat = chat_of(tmp_path, "auto")
    _, asked = talk("<code>1\n", talks.RIGHT, chat=chat, environment={"name": "python_tool"})
    for request in asked:
        user = chat.tokenizer.decode(request.prompt).partition("<|im_end|>")[0]
        assert user.endswith(f"{talks.ADD.prompt.rstrip()}\n\n{USE}\n{SEEN}")


def test_nothing_is_told_of_a_hidden_check() -> None:
    for task in load("drills:longer"):
        shown = instructions(task)
        for check in task.checks:
            assert (check.source in shown) is not check.hidden  # type: ignore[attr-defined]
    assert (
        instructions(replace(ADD, checks=(Check("assert f(987) == 1"), Call("[654]", "1"))))
        == ALONE
    )
    assert instructions(Task("t", "", (Exchange("987", "654"),), "")) == ALONE


def test_a_check_that_the_prompt_shows_is_not_told_again() -> None:
    shown = Check("assert f(3) == 4", hidden=False)
    prompt = '"""\nAdd one.\nassert f(3) == 4\n"""\n'
    assert (
        instructions(Task("t", prompt, (shown, Check("assert f(4) == 5", hidden=False)), "f"))
        == f"{USE}\nassert f(4) == 5"
    )


@pytest.mark.parametrize(
    ("check", "shown"),
    [
        (
            Call('[1, {"tuple": ["a"]}]', "[2.5]", hidden=False),
            f"{USE}\nassert f(1, ('a',)) == [2.5]",
        ),
        (Call("[1]", "0.3", tolerance=0.1, hidden=False), ALONE),
        (Call('[{"set": [216, 1]}]', None, hidden=False), ALONE),
        (Exchange("1 2\n", "3\n", hidden=False), f"{ALONE}\nInput:\n1 2\nOutput:\n3"),
        (Check(f"assert f({'1' * 600}) == 3", hidden=False), ALONE),
    ],
)
def test_visible_checks_of_every_shape_are_told_where_they_are_short_and_plain(
    check: Any, shown: str
) -> None:
    assert instructions(Task("t", "", (check,), "f")) == shown


def test_the_examples_can_be_tried_again_after_the_interpreter_was_ended() -> None:
    gone, again = "<code>import os; os._exit(1)\n", f"<code>\n{talks.WRONG}try_examples()\n"
    rollout, _ = talk(gone, again, talks.RIGHT, environment={"name": "python_tool"})
    assert rollout.turns[1].observation.endswith(
        "assert f(1, 2) == 3 fails: AssertionError()\n</output>"
    )


def test_a_demonstration_is_run_with_the_visible_checks_and_then_given() -> None:
    (sample,) = played(talks.RIGHT, name="python_tool")
    code = f"<code>\n{talks.RIGHT}try_examples()\n</code>"
    shown = f"<end># <output>\n# \n# </output>\n{talks.ADD.prompt}"
    assert (
        plain().tokenizer.decode(sample.tokens)
        == f"{TOLD}{talks.ADD.prompt}{code}{shown}{talks.RIGHT}<end>"
    )
    assert learned(sample) == f"{code}{talks.RIGHT}<end>"


def test_one_whose_check_fails_is_read_with_its_traceback_and_the_right_answer_learned() -> None:
    (sample,) = played(talks.WRONG, name="python_tool")
    code = f"<code>\n{talks.WRONG}try_examples()\n</code>"
    read = f"{TOLD}{talks.ADD.prompt}{code}<end>{TRACEBACK}{talks.ADD.prompt}{talks.RIGHT}<end>"
    assert plain().tokenizer.decode(sample.tokens) == read
    assert learned(sample) == f"{talks.RIGHT}<end>"


def test_without_a_reference_one_whose_check_fails_teaches_nothing() -> None:
    task = replace(talks.ADD, reference=None)
    assert played(talks.WRONG, talks.RIGHT, name="python_tool", task=task) == played(
        talks.RIGHT, name="python_tool"
    )


def test_a_task_with_no_visible_check_that_runs_is_played_as_one_reply() -> None:
    for check in (Check(SEEN), Exchange("1 2", "3", hidden=False)):
        task = replace(talks.ADD, checks=(check,))
        (sample,) = played(talks.WRONG, name="python_tool", task=task)
        assert learned(sample) == f"{talks.WRONG}<end>"


def test_a_demonstration_of_a_model_that_chats_is_run_without_its_fence_after_the_tasks_setup(
    tmp_path: Path,
) -> None:
    chat = chat_of(tmp_path, "auto")
    task = replace(
        talks.ADD, setup="THREE = 3", checks=(Check("assert f(1, 2) == THREE", hidden=False),)
    )
    (sample,) = played(talks.RIGHT, name="python_tool", chat=chat, task=task)
    code = f"<code>\n{talks.RIGHT}try_examples()\n</code>"
    assert learned(sample, chat) == f"{code}```python\n{talks.RIGHT}```<|im_end|>\n"


def test_code_that_is_cut_off_at_the_limit_is_not_run() -> None:
    cut = "<code>\nprint('run')\n" + "x = 1\n" * 30
    rollout, _ = talk(cut, talks.RIGHT, environment={"name": "python_tool"}, sampling=Sampling(40))
    assert rollout.turns[0].completion.ended == "length"
    assert (
        rollout.turns[0].observation
        == "<output>\nThe code was cut off at the limit of tokens, and not run.\n</output>"
    )
    assert rollout.passed


def test_calls_of_the_chat_template_share_a_session_and_their_tokens_stay_one_sample(
    tmp_path: Path,
) -> None:
    codes = ("x = 3\nprint(x)", "print(x + 1)")
    calls = "\n".join(HERMES.block(ToolCall("python", {"code": code})) for code in codes)
    broken = '<tool_call>\n{"name": "python", "argum\n</tool_call>'
    chat = template_chat_of(tmp_path, "qwen3")
    environment = {"name": "python_tool", "tool_calls": "template"}
    rollout, _ = talk(
        calls, broken, f"```python\n{talks.RIGHT}```", task=talks.ADD, chat=chat,
        environment=environment, sampling=Sampling(1000),
    )  # fmt: skip
    first, second, last = rollout.turns
    assert first.results == ("<output>\n3\n</output>", "<output>\n4\n</output>")
    assert [call.status for call in second.calls] == ["invalid_json"]
    assert "Error parsing tool call arguments" in second.results[0]
    assert (last.calls, rollout.failure) == ((), None)
    assert rollout.execution is not None
    assert rollout.execution.verdict is Verdict.PASS
    (sample,) = to_samples([[rollout]])
    learned_tokens = [token for token, on in zip(sample.tokens, sample.mask, strict=True) if on]
    assert learned_tokens == [token for turn in rollout.turns for token in turn.completion.tokens]
    assert chat.tokenizer.decode(sample.tokens).count("<tool_response>") == 3


@pytest.mark.parametrize("name", ["gptoss", "gemma4_v5", "minimax_m2", "mistral_nemo"])
def test_a_session_goes_on_where_the_template_asks_for_calls_as_fields(
    tmp_path: Path, name: str
) -> None:
    chat = tool_chat_of(tmp_path, name)
    form = call_formats[FORMATS[name]]
    codes = ("x = 3\nprint(x)", "print(x + 1)")
    calls = [form.block(ToolCall("python", {"code": code})) for code in codes]
    ends = "So.</think>\n\n" if name == "minimax_m2" else ""  # its prompt opens a thought
    rollout, asked = talk(
        *calls, f"{ends}```python\n{talks.RIGHT}```", chat=chat, sampling=Sampling(1000),
        environment={"name": "python_tool", "tool_calls": "template"},
    )  # fmt: skip
    assert [turn.results for turn in rollout.turns] == [
        ("<output>\n3\n</output>",),
        ("<output>\n4\n</output>",),
        (),
    ]
    assert rollout.passed
    last = chat.tokenizer.decode(asked[-1].prompt)
    assert last.index(codes[0].partition("\n")[0]) < last.index("<output>")
    assert last.count("<output>") == 2
