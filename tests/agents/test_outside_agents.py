"""Real agents of others: what they leave is judged, and the learner gets what was sampled."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.types import Verdict
from tests.agents.outside import (
    LANGGRAPH,
    MINI,
    OPENAI_AGENTS,
    SMOLAGENTS,
    SUBMIT,
    OutsideAgent,
    in_characters,
    play,
    talk_of,
)
from tests.agents.served import chat
from tests.environments.repositories import repository
from tests.environments.test_shell import EDIT
from tests.rollout.talks import RIGHT

pytestmark = pytest.mark.agents
THOUGHT = {"qwen3": "<think>\nHm.\n</think>\n\n"}
"""By the template, what a reply begins with."""
MINI_RESPONSES = ("--model-class", "litellm_response")
MINI_MESSAGES = ("-m", "anthropic/policy")


@pytest.mark.parametrize(
    ("agent", "words", "template"),
    [
        (MINI, (), "qwen2_5"), (MINI, (), "qwen3"), (MINI, MINI_RESPONSES, "qwen3"),
        (MINI, MINI_MESSAGES, "qwen2_5"),
        (OPENAI_AGENTS, (), "qwen3"), (OPENAI_AGENTS, ("stream",), "qwen2_5"),
        (OPENAI_AGENTS, ("chat",), "qwen2_5"), (OPENAI_AGENTS, ("chat", "stream"), "qwen3"),
        (LANGGRAPH, (), "qwen3"), (LANGGRAPH, ("stream",), "qwen2_5"),
        (LANGGRAPH, ("responses",), "qwen2_5"), (LANGGRAPH, ("responses", "stream"), "qwen3"),
    ],
)  # fmt: skip
def test_turns_with_tool_calls_are_one_sample_of_the_ids_that_were_sampled(
    agent: OutsideAgent, words: tuple[str, ...], template: str
) -> None:
    using = chat(template)
    texts = talk_of(agent, using, THOUGHT.get(template, ""))
    played = play(agent.command(*words), *texts, using=using, answer=agent.answer)
    played.require_all_learned()
    assert played.rollout.passed
    assert played.received == len(played.sampled) == 3
    assert len(played.samples) == 1


def test_an_agent_that_sends_its_calls_back_as_text_is_a_sample_for_each_call() -> None:
    played = play(SMOLAGENTS.command(), *talk_of(SMOLAGENTS))
    played.require_all_learned()
    assert played.rollout.passed
    assert len(played.samples) == 3


def test_replies_that_end_at_a_stop_string_are_learned_with_the_tokens_of_that() -> None:
    looks = "I look.\n<code>\nprint(run_python('print(3)'))\n</code>"
    ends = f"<code>\nfinal_answer({RIGHT!r})\n</code>"
    played = play(SMOLAGENTS.command("code"), *map(in_characters, (looks, ends)))
    played.require_all_learned()
    assert played.rollout.passed
    assert len(played.samples) == 2


@pytest.mark.parametrize(
    "reply", ["I think about it.", '<tool_call>\n{"name": "bash", "argum', "", MINI.call("ls")[:-9]]
)
def test_a_reply_that_the_agent_drops_is_learned_as_a_branch(reply: str) -> None:
    played = play(
        MINI.command(), in_characters(reply), *talk_of(MINI)[1:], answer=MINI.answer
    )  # fmt: skip
    played.require_all_learned()
    assert played.rollout.passed
    assert len(played.samples) == 2


def test_an_agent_whose_budget_is_spent_ends_and_is_judged_by_what_it_left() -> None:
    played = play(MINI.command(), *talk_of(MINI)[1:2], answer=MINI.answer, turns=1)
    played.require_all_learned()
    assert played.rollout.passed
    assert played.received == 1 + 3


@pytest.mark.parametrize("model_class", ["litellm_textbased", "mini_requests.TextModel"])
def test_an_agent_that_reads_calls_from_the_text_needs_a_model_without_tools_only(
    model_class: str,
) -> None:
    def said(command: str) -> list[int]:
        return in_characters(f"I act.\n```mswea_bash_command\n{command}\n```", using)

    using = chat("smollm2")
    words = ("-c", "mini_textbased.yaml", "--model-class", model_class)
    texts = [said("ls"), said(MINI.program), said(SUBMIT)]
    played = play(MINI.command(*words), *texts, using=using, answer=MINI.answer)
    played.require_all_learned()
    assert played.rollout.passed
    assert len(played.samples) == 1


def test_an_agent_that_works_in_containers_works_in_the_box_of_a_repository(
    tmp_path: Path,
) -> None:
    texts = [MINI.call("git status --short; cat calc.py"), MINI.call(EDIT), MINI.last]
    task = repository(tmp_path)
    played = play(
        MINI.command(), *map(in_characters, texts), task=task, name="program_with_box"
    )  # fmt: skip
    played.require_all_learned()
    assert len(played.samples) == 1
    execution = played.rollout.execution
    assert execution is not None
    assert execution.verdict is Verdict.PASS
    (sample,) = played.samples
    shown = chat().tokenizer.decode(sample.tokens)
    assert "def twice(a)" in shown
