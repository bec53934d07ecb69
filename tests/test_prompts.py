"""What models are shown."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from pydantic import ValidationError

from assay.cli import main
from assay.config.generation import PromptSettings
from assay.environments.single_turn import single_turn
from assay.errors import ModelError, SettingsError
from assay.extract import program
from assay.languages import language_named, languages
from assay.prompts import CARD, in_tags, messages, plain, settings_of, text, transformers_code
from assay.rollout.prompter import Prompter
from assay.sandbox.program import ENVIRONMENT
from assay.tasks import load
from assay.types import Answer, Call, Check, Message, OwnTests, Task
from tests.policy.test_chat import CHATML, chat_of

STUB = 'def f(n):\n    """Add one."""\n'
STUBBED = Task("t", STUB, (Check("assert f(1)"),), "f", stub=STUB)
STUBBED_WITH_ANSWER = replace(STUBBED, demonstrations=("    return n + 1\n",))
PYTHON = "Python {}.{}".format(*sys.version_info)
REQUEST = f"Solve this task in {PYTHON}. Answer with one ```python code block."
DESCRIBED = Task("t", "Add one.", (Check("assert inc(1) == 2"),), "inc")


def test_a_stub_is_shown_in_a_code_block() -> None:
    (message,) = messages(STUBBED)
    assert message.role == "user"
    assert (
        message.content
        == f"Complete this {PYTHON} code. Answer with one ```python code block. It holds the whole"
        ' program.\n\n```python\ndef f(n):\n    """Add one."""\n```'
    )


def test_where_tests_bring_a_main_function_none_is_asked_for() -> None:
    stub = "int f(int n) {\n"
    for check in (OwnTests("int main() {}"), Call("[1]", "2")):
        (message,) = messages(Task("t", stub, (check,), "f", language="cpp", stub=stub))
        assert "It holds all of this code, but no main function and no tests." in message.content
        (message,) = messages(Task("t", STUB, (check,), "f", stub=STUB))
        assert "It holds the whole program." in message.content


def test_a_description_is_shown_as_it_is_with_the_functions_name_where_it_lacks_it() -> None:
    assert messages(DESCRIBED) == (Message("user", f"{REQUEST} It defines `inc`.\n\nAdd one."),)
    named = Task("t", "Write inc(n): add one.", DESCRIBED.checks, "inc")
    assert "It defines" not in messages(named)[0].content


def test_the_language_is_the_tasks() -> None:
    cpp = Task("t", "Add one.", (Check("x"),), "", language="cpp")
    assert (
        messages(cpp)[0].content
        == f"Solve this task in {language_named('cpp').title_here()}. Answer with one ```cpp code"
        " block.\n\nAdd one."
    )


def test_a_prompt_names_the_version_of_this_machines_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "PATH", str(tmp_path))
    task = Task("t", "Add one.", (Check("x"),), "", language="go")
    assert "in Go. Answer" in messages(task)[0].content
    for name, says in {
        "go": "go version go1.22.5 linux/amd64", "ruby": "ruby 3.3.0 (2023-12-25)",
        "java": "openjdk 21.0.2 2024-01-16", "node": "v22.1.0", "tsc": "Version 5.4.2",
        "rustc": "rustc 1.79.0", "vvp": "Icarus Verilog runtime version 12.0 (stable) ()",
        "javac": "javac 21.0.2", "jar": "jar 21.0.2",
        "iverilog": "Icarus Verilog version 12.0 (stable) ()",
    }.items():  # fmt: skip
        tool = tmp_path / name
        tool.write_text(f"#!/bin/sh\necho '{says}'\n")
        tool.chmod(0o755)
    titles = {name: language_named(name).title_here() for name in languages if name[0] in "gjrtv"}
    assert titles == {
        "go": "Go 1.22", "java": "Java 21", "javascript": "JavaScript (Node.js 22)",
        "ruby": "Ruby 3.3", "rust": "Rust 1.79 (edition 2021)", "typescript": "TypeScript 5.4",
        "verilog": "Verilog (IEEE 1800-2012, Icarus Verilog 12.0)",
    }  # fmt: skip
    template = PromptSettings(template="{prompt} In {Language}, which is {dialect}.")
    assert messages(task, settings=template)[0].content == "Add one. In Go, which is Go 1.22."


@pytest.mark.parametrize(
    ("newest", "standard", "title"),
    [("26", "gnu++26", "C++26"), ("20", "gnu++20", "C++20"), ("none", "gnu++17", "C++17")],
)
def test_cpp_is_the_newest_standard_of_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newest: str, standard: str, title: str
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "PATH", f"{tmp_path}:/usr/bin:/bin")
    cpp, tool = language_named("cpp"), tmp_path / "g++"
    known = f"--version|*++{newest}|*++17"
    tool.write_text(f"#!/bin/sh\ncase $1 in {known}) echo g++ 1{newest};; *) exit 1;; esac\n")
    tool.chmod(0o755)
    assert cpp.title_here() == title
    assert cpp.versions() == [f"g++ 1{newest}", f"-std={standard}"]
    assert f"-std={standard}" in cpp.compilers()[0]
    assert "-std=gnu++17" in cpp.compilers()[-1]


def test_a_base_model_continues_the_stub_or_the_prompt_on_a_new_line() -> None:
    assert text(STUBBED) == STUB
    assert text(DESCRIBED) == "Add one.\n"
    assert text(Task("t", "# f(xs)\n", DESCRIBED.checks, "f")) == "# f(xs)\n"
    assert (
        text(Task("t", "x", DESCRIBED.checks, "f", stub="def f(n): return")) == "def f(n): return"
    )


def test_instructions_follow_the_request_or_come_first_as_a_comment() -> None:
    assert messages(DESCRIBED, "a\nb")[0].content == messages(DESCRIBED)[0].content + "\n\na\nb"
    assert messages(STUBBED, "a\nb")[0].content == messages(STUBBED)[0].content + "\n\na\nb"
    assert text(STUBBED, "a\n\nb") == "# a\n# \n# b\n" + STUB


EXAMPLES = (("Add two.", "def inc(n): return n + 2"),)
SHAPED = PromptSettings(
    system="Be brief.", template="{Language}, {entry_point}: {prompt}{{}}", examples=EXAMPLES
)


def test_system_prompt_and_examples_come_first_and_the_template_holds_the_task() -> None:
    found = [(message.role, message.content) for message in messages(DESCRIBED, "Try.", SHAPED)]
    assert found == [
        ("system", "Be brief."),
        ("user", "Add two."),
        ("assistant", "def inc(n): return n + 2"),
        ("user", "Python, inc: Add one.{}\n\nTry."),
    ]
    (only,) = plain(DESCRIBED, "Try.", SHAPED)
    assert only.content == (
        "Be brief.\n\nAdd two.def inc(n): return n + 2\n\n# Try.\nPython, inc: Add one.{}"
    )


@pytest.mark.parametrize("tag", ["think", "reasoning"])
def test_reasoning_is_asked_for_last_and_demonstrations_are_put_into_its_tags(
    tag: Literal["think", "reasoning"],
) -> None:
    settings = PromptSettings(reasoning=tag)
    asked = f"First reason between <{tag}> and </{tag}>. Then write what is asked for between"
    assert f"\n\nTry.\n\n{asked}" in messages(DESCRIBED, "Try.", settings)[-1].content
    assert plain(STUBBED, "", settings)[0].content.startswith(f"# {asked}")
    code = in_tags(STUBBED, "    return n + 1\n", tag)
    assert code == f"<{tag}>\n\n</{tag}>\n<answer>\n    return n + 1\n\n</answer>"
    assert program(STUBBED, code) == f"{STUB}    return n + 1\n"
    sum_ = replace(DESCRIBED, language="answer", entry_point="", checks=(Answer("4"),))
    reply = in_tags(sum_, "2 + 2 = 4\n#### 4", tag)
    assert reply == f"<{tag}>\n2 + 2 = 4\n#### 4\n</{tag}>\n<answer>\n4\n</answer>"
    assert program(sum_, reply) == "4"
    assert in_tags(sum_, reply, tag) == reply


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{promt}", r"unknown placeholder \{promt\}; did you mean 'prompt'\?"),
        ("{prompt.__class__}", "unknown placeholder"),
        ("{prompt} {", "write a brace that is no placeholder twice"),
        ("Solve it.", "the template shows no task"),
    ],
)
def test_a_template_that_cannot_be_filled_is_refused(template: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        PromptSettings(template=template)


THINKS = CHATML + "{% if add_generation_prompt and not thinking|default(true) %}<no>{% endif %}"


def test_the_arguments_of_the_chat_template_are_passed_on_and_checked(tmp_path: Path) -> None:
    chat = chat_of(tmp_path, "auto", THINKS)
    quiet = Prompter(chat, settings=PromptSettings(chat_template_kwargs={"thinking": False}))
    assert chat.tokenizer.decode(quiet.prompt(DESCRIBED)).endswith("assistant\n<no>")
    assert chat.tokenizer.decode(quiet.samples(STUBBED_WITH_ANSWER)[0].tokens).count("<no>") == 1
    for settings in ({"thinkin_": False}, {"enable_thinking": True}):
        with pytest.raises(SettingsError, match="the model's chat template does not use it"):
            Prompter(chat, settings=PromptSettings(chat_template_kwargs=settings))


@pytest.mark.parametrize("how", ["auto", "text"])
def test_the_card_of_a_checkpoint_holds_code_that_encodes_the_same_prompt(
    tmp_path: Path, how: str
) -> None:
    import transformers

    arguments = {"chat_template_kwargs": {"thinking": False}} if how == "auto" else {}
    settings = PromptSettings(system="Be 'brief'.", examples=EXAMPLES, **arguments)
    prompter = Prompter(
        chat_of(tmp_path, how, THINKS),
        replace(single_turn, instructions=lambda task: "Try."),
        settings,
    )
    (tmp_path / "saved").mkdir()
    prompter.chat.tokenizer.save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / CARD).write_text(prompter.card(STUBBED))
    code = transformers_code(tmp_path / "saved")
    names = {"transformers": transformers}
    exec(code, names)  # our own text, as a reader would paste it
    assert max(map(len, code.replace(str(tmp_path), "runs/demo").splitlines())) <= 80
    assert tuple(names["tokens"]) == prompter.prompt(STUBBED)
    assert settings_of(tmp_path / "saved") == settings
    assert settings_of(tmp_path) == PromptSettings()


@pytest.mark.long
def test_show_prompt_prints_what_the_model_reads_with_its_special_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = chat_of(tmp_path, "auto")
    (tmp_path / "run.toml").write_text(
        f'[tasks]\ntrain = "drills:train"\n[policy]\nmodel = "{tmp_path}/llama"\n'
        '[stages.sft]\nsteps = 1\nalgorithm.name = "sft"\n'
        '[stages.rl]\nsteps = 1\nalgorithm.name = "grpo"\n'
        '[stages.tool]\nsteps = 1\nalgorithm.name = "grpo"\nenvironment.name = "python_tool"\n'
    )
    words = ["assay", "show-prompt", str(tmp_path / "run.toml"), "--prompt.system", "Be brief."]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    shown = capsys.readouterr().out
    task = load("drills:train", limit=1)[0]
    prompter = Prompter(chat, settings=PromptSettings(system="Be brief."))
    tokens = prompter.prompt(task)
    text = chat.tokenizer.decode(tokens)
    assert text.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nSolve")
    count = f"stage sft, task drills/train/0: {len(tokens)} tokens, with the chat template\n"
    assert shown.startswith(f"{count}{text}\nstage tool, "), "the second stage reads the same"
    assert "Python in <code>" in shown.partition("stage tool, ")[2]


@pytest.mark.parametrize(
    "card", ["[]", "{", "{}", '{"settings": {"sytem": ""}}', '{"settings": 3}']
)
def test_a_prompt_file_of_another_program_is_refused_in_one_line(tmp_path: Path, card: str) -> None:
    (tmp_path / CARD).write_text(card)
    for read in (lambda: settings_of(tmp_path), lambda: transformers_code(tmp_path)):
        with pytest.raises(ModelError, match="move it away") as refused:
            read()
        assert "\n" not in str(refused.value)
