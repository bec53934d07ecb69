"""What SFT learns of a demonstration is, token for token, what a rollout in `shell` reads and
samples for the same conversation.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.engines.base import Sampling
from assay.environments import build
from assay.policy.chat import Chat
from assay.rollout.prompter import Prompter
from assay.rollout.samples import to_samples
from assay.tasks import load, rows
from assay.types import Completion, Message, Rollout, Task, Turn, Verdict
from tests.demonstrate.shown import demonstrated, row, written
from tests.policy import test_chat_templates as bare
from tests.policy.test_tool_templates import NAMES, chat_of
from tests.rollout.talks import talk

NO_TOOLS = {"deepseek_r1_distill", "deepseek_v3_1", "deepseekv3", "granite3_3"}
"""Templates whose calls `shell` refuses: they take text."""
OPENS_THOUGHT = {
    "deepseek_r1_distill", "deepseek_v3_2", "deepseekv3", "glm4_7", "minimax_m2",
    "nemotron_3_nano",
}  # fmt: skip
"""Templates that prompt for a thought, and render a reply without one."""
OTHERWISE = {"apertus", "apriel1_5", "functionary3_2", "gemma4_v5"}
"""Templates that render calls that are fields otherwise than a model writes them beside text."""
UNREAD = {"hermes2_pro", "lfm2_2_5"}
"""Templates that do not render all calls, or render them without quotes."""
OWN_IDS = {"kimi_k2"}
"""Templates that write calls under ids of their own, and results under those of the rows."""
SAME = sorted({*NAMES} - NO_TOOLS - OPENS_THOUGHT - OTHERWISE - UNREAD - OWN_IDS)
TEXT = sorted({*NAMES, *bare.NAMES} - OPENS_THOUGHT - {"command_r7b", "functionary3_2"})


@pytest.fixture(autouse=True)
def _warn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_warned", set())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a task, and a demonstration of it in both forms."""
    folder = tmp_path_factory.mktemp("tokens")
    tasks = written(folder / "tasks.jsonl", row(folder))
    for form in ("template", "text"):
        demonstrated(tasks, folder / f"{form}.jsonl", "--tool-calls", form)
    return folder


def task_in(file: Path, judged: bool = False) -> Task:
    (task,) = load(str(file), judged=judged)
    return task


def conversation(shown: Task) -> list[Message]:
    """All messages of a row."""
    (answer,) = shown.demonstrations
    return [*shown.messages, Message("assistant", answer, fields=shown.demonstration_fields)]


def sampled(chat: Chat, tokens: tuple[int, ...]) -> Completion:
    """The completion that ends where generation stops."""
    end = next(number for number, token in enumerate(tokens) if token in chat.stop_tokens)
    own = tokens[: end + 1]
    return Completion(chat.text(own), own, (0.0,) * len(own), "stop", (0,) * len(own))


def require_same(folder: Path, chat: Chat, tool_calls: str) -> None:
    """A rollout that samples what SFT learns has its prompts, and runs its commands."""
    task, shown = task_in(folder / "tasks.jsonl", True), task_in(folder / f"{tool_calls}.jsonl")
    sft = Prompter(chat)
    shell = Prompter(chat, build({"name": "shell", "tool_calls": tool_calls}))
    messages, turns = conversation(shown), list[Turn]()
    for at, message in enumerate(messages):
        if message.role != "assistant":
            continue
        learned = sft.turn(messages[:at], message, shown)
        prompt = shell.prompt(task, turns)
        assert prompt == learned.prompt_tokens, f"message {at}"
        said = sampled(chat, learned.completion.tokens)
        calls = shell.calls(said)
        (command,) = [call.arguments["command"] for call in calls]
        assert command.strip() == command_of(message), f"message {at}"
        assert not calls[0].detail
        if at + 1 < len(messages):
            shows = messages[at + 1].content
            turns.append(Turn(prompt, said, calls=calls, results=(shows,), observation=shows))
    assert len(turns) > 4


def command_of(message: Message) -> str:
    for call in message.fields.get("tool_calls", ()):
        return str(call["function"]["arguments"]["command"])
    return message.content.partition("```mswea_bash_command\n")[2].removesuffix("\n```")


@pytest.mark.parametrize("name", SAME)
def test_calls_as_the_template_writes_them_are_those_of_a_rollout(folder: Path, name: str) -> None:
    require_same(folder, chat_of(folder, name), "template")


@pytest.mark.parametrize("name", TEXT)
def test_calls_as_text_are_those_of_a_rollout(folder: Path, name: str) -> None:
    chat = (chat_of if name in NAMES else bare.chat_of)(folder, name)
    require_same(folder, chat, "text")


@pytest.mark.parametrize("name", sorted({*NAMES} - {*SAME} - NO_TOOLS))
def test_the_templates_that_are_left_out_differ(folder: Path, name: str) -> None:
    with pytest.raises((AssertionError, ValueError, KeyError)):
        require_same(folder, chat_of(folder, name), "template")


def played_again(folder: Path, chat: Chat, tool_calls: str) -> tuple[Rollout, Task]:
    """The rollout of an engine that says what SFT learns, in a real box; and the row."""
    task, shown = task_in(folder / "tasks.jsonl", True), task_in(folder / f"{tool_calls}.jsonl")
    messages, prompter = conversation(shown), Prompter(chat)
    lines = [
        sampled(chat, prompter.turn(messages[:at], message, shown).completion.tokens).text
        for at, message in enumerate(messages) if message.role == "assistant"
    ]  # fmt: skip
    environment = {"name": "shell", "tool_calls": tool_calls}
    more = {"environment": environment, "sampling": Sampling(4000)}
    return talk(*lines, task=task, chat=chat, **more)[0], shown


@pytest.mark.parametrize(
    ("name", "tool_calls"), [("qwen2_5", "template"), ("smollm2", "text"), ("llama3_1", "template")]
)
def test_a_rollout_in_a_box_that_says_the_same_is_the_same_sample_and_passes(
    folder: Path, name: str, tool_calls: str
) -> None:
    chat = (chat_of if name in NAMES else bare.chat_of)(folder, name)
    rollout, shown = played_again(folder, chat, tool_calls)
    assert rollout.execution is not None
    assert rollout.execution.verdict is Verdict.PASS
    (learned,), (own,) = Prompter(chat).samples(shown), to_samples([[rollout]])
    size = len(own.tokens)
    assert list(own.tokens) == list(learned.tokens[:size])
    written_by_template = [
        learned.tokens[at] for at in range(size) if learned.mask[at] and not own.mask[at]
    ]
    assert chat.tokenizer.decode(written_by_template).strip() == ""
    assert not [at for at in range(size) if own.mask[at] and not learned.mask[at]]
