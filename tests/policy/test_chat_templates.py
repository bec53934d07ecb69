"""What SFT learns of a conversation under the chat templates of public models: what they render."""

from __future__ import annotations

import json
import logging
import re
import sys
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from assay.cli import main
from assay.config.generation import PromptSettings
from assay.config.sections import TinySettings
from assay.errors import SettingsError, UserError
from assay.policy.chat import Chat, open_chat
from assay.policy.tiny import make_tiny
from assay.rollout.pairs import read_pairs
from assay.rollout.prompter import Prompter
from assay.tasks import load, rows
from assay.types import Sample, Task
from tests.policies import TASKS, checkpoint
from tests.rollout.talks import ADD, RIGHT, WRONG, talk
from tests.rollout.test_play import played
from tests.tasks.test_load import write

FOLDER = Path(__file__).parent / "chat_templates"
NAMES = sorted(file.stem for file in FOLDER.glob("*.jinja"))
MARKER = re.compile(
    r"<[|\uff5c][^<>{}'\"\s]+[|\uff5c]>|\[/?[A-Za-z_]+MASK\]|\[/?(?:INST|TOOL_CALLS|SYSTEM_PROMPT)\]"
    r"|<(?:start|end)_of_turn>|<sop>"
)
"""The special tokens of these templates."""
ENDS = {"glm4moe": "<|endoftext|>", "gptoss": "<|return|>"}
"""The end-of-sequence tokens that are not `</s>`."""
SPLIT = {"gptoss", "phi3", "qwen3", "qwen3_thinking"}
"""Templates that render an earlier reply otherwise than the last."""
DROPS = {"deepseek_r1_distill", "deepseekv3"}
"""Templates that prompt for a thought, and render a reply without one."""
USES = {
    "reasoning_content": {"glm4moe", "qwen3", "qwen3_thinking"},
    "tool_calls": {"deepseek_r1_distill", "deepseekv3", "glm4moe", "gptoss", "mistral_v0_3",
                   "qwen2_5", "qwen3", "qwen3_coder", "qwen3_thinking"},
}  # fmt: skip
NO_SYSTEM = {"gemma", "starcoder2"}
ALTERNATE = {"cohere", "gemma", "gemma3", "llama2", "mistral_v0_3"}
"""Templates that refuse a conversation which starts with the assistant."""
ASK, REPLY = {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "It is 4."}
MORE = {"role": "user", "content": "Write f."}
LAST = {"role": "assistant", "content": "```python\ndef f(xs):\n    return 4\n```"}
SYSTEM = {"role": "system", "content": "Be very brief."}
WEATHER = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Ulm"}}}
CALL: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [WEATHER]}


@pytest.fixture(autouse=True)
def _warn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_warned", set())


@cache
def trained(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(
        make_tiny(folder / "tiny", TASKS, TinySettings(vocabulary=320), 0)
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokenizer")


def tokenizer_of(folder: Path, name: str, *plain: str) -> Any:
    """A byte-level BPE with the template and its special tokens; those of `plain`, and the tags of
    thoughts, are added as tokens that are not special.
    """
    tokenizer = deepcopy(trained(folder))
    tokenizer.chat_template = (FOLDER / f"{name}.jinja").read_text()
    special = {*MARKER.findall(tokenizer.chat_template), "<s>", ENDS.get(name, "</s>")}
    tokenizer.add_tokens(sorted(special.difference(plain)), special_tokens=True)
    tokenizer.add_tokens(["<think>", "</think>", *plain])
    tokenizer.bos_token, tokenizer.eos_token = "<s>", ENDS.get(name, "</s>")
    return tokenizer


def chat_of(folder: Path, name: str, *plain: str) -> Chat:
    return open_chat(tokenizer_of(folder, name, *plain), "auto", ())


def ids(chat: Chat, messages: list[dict[str, Any]], **how: Any) -> list[int]:
    """Transformers' own rendering."""
    made = chat.tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True, **how)
    return list(made["input_ids"])


def ids_text(chat: Chat, messages: list[dict[str, Any]]) -> str:
    return str(chat.tokenizer.decode(ids(chat, messages, add_generation_prompt=True)))


def rendered(chat: Chat, *messages: dict[str, Any]) -> tuple[list[int], list[bool]]:
    """What TRL's conversational SFT trains: the rendering, from where it leaves the prompt."""
    prompt = ids(chat, [*messages[:-1]], add_generation_prompt=True)
    whole = ids(chat, [*messages])
    start = next(
        (n for n, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b), len(prompt)
    )
    return whole, [False] * start + [True] * (len(whole) - start)


def ended(chat: Chat, tokens: list[int], mask: list[bool]) -> tuple[list[int], list[bool]]:
    """With the end token where the template writes none behind a reply."""
    has = any(chat.end_token == token for token, on in zip(tokens, mask, strict=True) if on)
    return (tokens, mask) if has else ([*tokens, chat.end_token], [*mask, True])


def task_of(folder: Path, *messages: dict[str, Any]) -> Task:
    (task,) = load(write(folder / "rows.jsonl", {"messages": messages}), judged=False)
    return task


def learned(sample: Sample) -> tuple[list[int], list[bool]]:
    return list(sample.tokens), list(map(bool, sample.mask))


def text_of(chat: Chat, sample: Sample) -> str:
    own = [token for token, on in zip(sample.tokens, sample.mask, strict=True) if on]
    return str(chat.tokenizer.decode(own))


def test_there_are_more_than_15_templates() -> None:
    assert len(NAMES) > 15


@pytest.mark.parametrize("name", NAMES)
def test_a_row_and_its_mask_are_the_templates_own_rendering(
    folder: Path, tmp_path: Path, name: str
) -> None:
    chat = chat_of(folder, name)
    for messages in ([ASK, REPLY], [ASK, LAST], [SYSTEM, ASK, REPLY]):
        if messages[0] == SYSTEM and name in {*NO_SYSTEM, "mistral_v0_3"}:
            continue
        (sample,) = Prompter(chat).samples(task_of(tmp_path, *messages))
        expected = rendered(chat, *messages)
        assert learned(sample) == ended(chat, *expected)
        assert (name == "glm4moe") == (learned(sample) != expected), "it ends a turn with nothing"


@pytest.mark.parametrize("name", NAMES)
def test_each_of_two_replies_is_learned_as_the_template_renders_it(
    folder: Path, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    chat = chat_of(folder, name)
    first = ended(chat, *rendered(chat, ASK, REPLY))
    second = ended(chat, *rendered(chat, ASK, REPLY, MORE, LAST))
    with caplog.at_level(logging.WARNING):
        samples = Prompter(chat).samples(task_of(tmp_path, ASK, REPLY, MORE, LAST))
    told = [line for line in caplog.messages if "a sample of its own" in line]
    if name in SPLIT:
        assert [*map(learned, samples)] == [first, second]
        assert len(told) == 1
    else:
        (sample,) = samples
        tokens, mask = second
        assert learned(sample) == (tokens, first[1] + mask[len(first[1]) :])
        assert told == []


@pytest.mark.parametrize("name", NAMES)
def test_the_prompt_of_a_row_is_the_one_that_a_rollout_has(
    folder: Path, tmp_path: Path, name: str
) -> None:
    chat, task = chat_of(folder, name), task_of(tmp_path, ASK, LAST)
    prompt = list(Prompter(chat).prompt(task))
    assert prompt == ids(chat, [ASK], add_generation_prompt=True)
    (sample,) = Prompter(chat).samples(task)
    begins = list(sample.tokens[: len(prompt)]) == prompt and not any(sample.mask[: len(prompt)])
    assert begins == (name not in DROPS), "its prompt opens a thought that a reply has not"


@pytest.mark.parametrize("name", NAMES)
def test_what_a_template_refuses_is_told_in_one_line_and_nothing_else_fails(
    folder: Path, tmp_path: Path, name: str
) -> None:
    prompter = Prompter(chat_of(folder, name))
    conversations = [
        [SYSTEM, ASK, REPLY], [REPLY, ASK, LAST], [SYSTEM, REPLY, MORE, LAST],
        [ASK, REPLY | {"reasoning_content": "Two twos."}],
        [ASK, CALL], [ASK, CALL, {"role": "tool", "name": "weather", "content": "sun"}, LAST],
        [ASK, CALL | {"content": None}, MORE, REPLY],
    ]  # fmt: skip
    refused = {}
    for number, messages in enumerate(conversations):
        try:
            assert prompter.samples(task_of(tmp_path, *messages))
        except UserError as error:
            refused[number] = str(error)
    assert not any("\n" in line for line in refused.values())
    assert (0 in refused) == (name in NO_SYSTEM)
    assert 1 in refused, "there is nothing that the first reply answers"
    assert (2 in refused) == (name in ALTERNATE | NO_SYSTEM)
    assert refused.keys() <= {0, 1, 2, 5}


@pytest.mark.parametrize("name", NAMES)
def test_reasoning_and_tool_calls_are_learned_or_what_is_left_out_is_named(
    folder: Path, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    prompter = Prompter(chat_of(folder, name))
    for field, words, reply in (
        ("reasoning_content", "Two twos.", REPLY | {"reasoning_content": "Two twos."}),
        ("tool_calls", "weather", CALL),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            samples = [*prompter.samples(task_of(tmp_path, ASK, reply))] * 2
        named = [line for line in caplog.messages if repr(field) in line]
        assert (words in text_of(prompter.chat, samples[0])) == (name in USES[field])
        assert len(named) == (name not in USES[field])


def test_fields_that_a_table_has_empty_are_not_there(folder: Path, tmp_path: Path) -> None:
    chat = chat_of(folder, "gptoss")
    reply = REPLY | {"tool_calls": None, "thinking": ""}
    (sample,) = Prompter(chat).samples(task_of(tmp_path, ASK, reply))
    assert text_of(chat, sample) == "<|channel|>final<|message|>It is 4.<|return|>"


@pytest.mark.parametrize("name", ["qwen2_5", "llama3", "gemma", "deepseek_coder", "phi3"])
def test_an_end_token_that_is_not_marked_special_ends_a_turn_and_is_learned(
    folder: Path, tmp_path: Path, name: str
) -> None:
    (end,) = {"<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|EOT|>", "<|end|>"} & {
        *MARKER.findall((FOLDER / f"{name}.jinja").read_text())
    }
    chat = chat_of(folder, name, end)
    number = chat.tokenizer.convert_tokens_to_ids(end)
    assert not chat.tokenizer.added_tokens_decoder[number].special
    assert chat.stop_tokens == {number, chat.tokenizer.eos_token_id}
    (sample,) = Prompter(chat).samples(task_of(tmp_path, ASK, LAST))
    assert learned(sample) == rendered(chat, ASK, LAST)
    own = [token for token, on in zip(sample.tokens, sample.mask, strict=True) if on]
    assert number in own
    assert chat.text(own[: own.index(number) + 1]).strip() == LAST["content"]


def test_a_system_message_that_the_template_drops_behind_a_reply_stays(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chat = chat_of(folder, "mistral_v0_3")
    task = task_of(tmp_path, SYSTEM, ASK, REPLY)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            (sample,) = Prompter(chat).samples(task)
    assert chat.tokenizer.decode(sample.tokens) == (
        "<s>[INST] Be very brief.\n\n2+2?[/INST] It is 4.</s>"
    )
    assert text_of(chat, sample) == " It is 4.</s>"
    (line,) = caplog.messages
    assert "not prefix-true" in line


def test_a_thought_that_the_prompt_opens_is_learned_where_the_reply_has_one(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chat = chat_of(folder, "deepseek_r1_distill")
    thinks = {"role": "assistant", "content": "<think>\nTwo twos.\n</think>\n\nIt is 4."}
    with caplog.at_level(logging.WARNING):
        (thought,) = Prompter(chat).samples(task_of(tmp_path, ASK, thinks))
        (bare,) = Prompter(chat).samples(task_of(tmp_path, ASK, REPLY))
    begin, end = ids_text(chat, [ASK]), text_of(chat, bare).removeprefix("It is 4.")
    assert begin.endswith("<think>\n")
    assert chat.tokenizer.decode(thought.tokens) == f"{begin}Two twos.\n</think>\n\nIt is 4.{end}"
    assert text_of(chat, thought) == f"Two twos.\n</think>\n\nIt is 4.{end}"
    assert chat.tokenizer.decode(bare.tokens) == f"{begin[:-8]}It is 4.{end}"
    assert MARKER.fullmatch(end)
    assert [line.count("not prefix-true") for line in caplog.messages] == [1, 1]
    pairs = tmp_path / "pairs.jsonl"
    row = {"prompt": "2+2?", "chosen": thinks["content"], "rejected": "It is 5."}
    pairs.write_text(json.dumps(row))
    ((chosen, rejected),) = read_pairs(pairs, [], Prompter(chat))
    assert learned(chosen) == learned(thought), "pairs are made as rows are"
    assert text_of(chat, rejected) == f"It is 5.{end}"


@pytest.mark.parametrize("name", ["qwen3", "gptoss", "deepseek_r1_distill"])
def test_a_played_demonstration_is_learned_as_a_row_is(folder: Path, name: str) -> None:
    chat = chat_of(folder, name)
    task = replace(ADD, demonstrations=(RIGHT,))
    single, (wrong,) = played(RIGHT, chat=chat), played(WRONG, chat=chat)
    assert [*map(learned, single)] == [*map(learned, Prompter(chat).samples(task))]
    assert text_of(chat, wrong) == text_of(chat, single[0])
    assert "return a - b" in chat.tokenizer.decode(wrong.tokens), "the reply before it is shown"


@pytest.mark.parametrize("name", ["deepseek_r1_distill", "qwen3_thinking"])
def test_a_reply_in_a_thought_that_the_prompt_opened_is_no_answer_until_it_closes(
    folder: Path, name: str
) -> None:
    chat = chat_of(folder, name)
    for closes, passes in (("", False), ("</think>\n\n", True)):
        said = f"So:\n{closes}```python\n{RIGHT}```"
        rollout, _ = talk(said, task=ADD, chat=chat, environment={"name": "single_turn"})
        assert (rollout.turns[0].program == RIGHT) == passes
        assert rollout.passed == passes
        assert rollout.turns[0].completion.text == f"<think>\n{said}"
    rewards = {"format": {"tags": "think"}}
    said = "So.\n</think>\n<answer>\n```python\nx\n```\n</answer>"
    rollout, _ = talk(said, chat=chat, environment={"name": "single_turn"}, rewards=rewards)
    assert rollout.score
    assert rollout.score.total == 1.0


@pytest.mark.parametrize(
    ("settings", "messages", "message"),
    [
        ('prompt.system = "Be brief."', [ASK, REPLY], "(system, user): TemplateError: System role"),
        ("", [REPLY, ASK, LAST], "the conversation starts with the assistant; put a message of"),
        ('dataset.assistant_turns = "last"', [REPLY, ASK, LAST], "(assistant, user): TemplateErr"),
    ],
)
def test_the_command_line_says_in_one_line_which_messages_the_template_refuses(
    tmp_path: Path, settings: str, messages: list[dict[str, Any]], message: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    template = (FOLDER / "gemma.jinja").read_text()
    model = checkpoint(tmp_path, "llama", template, special=("<start_of_turn>", "<end_of_turn>"))
    write(tmp_path / "rows.jsonl", {"id": "odd", "messages": messages})
    (tmp_path / "run.toml").write_text(
        f'name = "x"\nsteps = 1\ntasks.train = "rows.jsonl"\nalgorithm.name = "sft"\n{settings}\n'
        f'dataset.batch_size = 1\npolicy = {{ model = "{model}", device = "cpu" }}\n'
    )
    monkeypatch.setattr(sys, "argv", ["assay", "train", "run.toml"])
    with pytest.raises(SystemExit) as stopped:
        main()
    said = capsys.readouterr().err
    assert stopped.value.code == 2, said
    (line,) = [line for line in said.splitlines() if line.startswith("assay: ")]
    assert "task 'odd': " in line
    assert message in line
    assert "Traceback" not in said


def test_a_template_that_shows_no_text_is_refused(folder: Path) -> None:
    tokenizer = tokenizer_of(folder, "phi4")
    tokenizer.chat_template = (
        "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}"
    )
    with pytest.raises(SettingsError, match="shows no text of a reply"):
        open_chat(tokenizer, "auto", ())


def test_prompts_with_a_system_message_are_refused_for_rollouts_too(
    folder: Path, tmp_path: Path
) -> None:
    settings = PromptSettings(system="Be brief.")
    prompter = Prompter(chat_of(folder, "gemma"), settings=settings)
    with pytest.raises(SettingsError, match=r"task 'line 1': .*\(system, user\).*prompt\.system"):
        prompter.prompt(task_of(tmp_path, ASK, REPLY))


def test_a_reply_whose_beginning_merges_with_the_prompt_is_cut_where_generation_begins(
    folder: Path, tmp_path: Path
) -> None:
    tokenizer = tokenizer_of(folder, "phi4")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.role }}:    {{ m.content }}</s>\n{% endfor %}"
        "{% if add_generation_prompt %}assistant:    {% endif %}"
    )
    chat = open_chat(tokenizer, "auto", ())
    task = task_of(tmp_path, ASK, {"role": "assistant", "content": "return 4"})
    (sample,), prompt = Prompter(chat).samples(task), Prompter(chat).prompt(task)
    whole, _ = rendered(chat, ASK, {"role": "assistant", "content": "return 4"})
    assert whole[: len(prompt)] != list(prompt)
    assert tuple(sample.tokens[: len(prompt)]) == prompt
    assert sum(sample.mask) == len(sample.tokens) - len(prompt)
    assert chat.tokenizer.decode(sample.tokens) == chat.tokenizer.decode(whole)
