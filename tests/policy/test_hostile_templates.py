"""No chat template of a stranger's holds up the trainer, or takes its memory: each is refused in a
line.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from assay.config.sections import TinySettings
from assay.errors import ModelError, SettingsError, UserError
from assay.policy import template_process
from assay.policy.chat import Chat, open_chat
from assay.policy.local_template import is_local
from assay.policy.template_process import PROCESS, apply_template
from assay.policy.tiny import make_tiny
from assay.types import Message
from tests.policies import TASKS

PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
LATER = "{% if messages | length > 4 %}BOMB{% endif %}"
MANY = "{% for a in range(99999) %}"
BOMBS = {
    "nested loops": MANY * 4 + "{% endfor %}" * 4,
    "a macro that calls itself twice": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(99) }}"
    ),
    "a recursive loop": (
        "{% for a in [[1] * 9] recursive %}{% if loop.depth < 90 %}{{ loop([[1]] * 9) }}{% endif %}"
        "{% endfor %}"
    ),
    "a text that doubles": (
        "{% set ns = namespace(x='aaaaaaaa') %}{% for a in range(60) %}{% set ns.x = ns.x ~ ns.x %}"
        "{% endfor %}{{ ns.x }}"
    ),
    "a long text": "{{ 'a' * 10 ** 11 }}",
    "a wide text": "{{ 'a' | center(10 ** 11) }}",
    "much text": MANY + "{{ messages | string | center(400) }}{% endfor %}",
    "a power": "{{ (messages | length) ** (9 ** 9) }}",
}
"""By what a template does beside showing its messages."""
DEEP = "{{ " + "(" * 9999 + "1" + ")" * 9999 + " }}"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("tokenizer") / "tiny"
    return AutoTokenizer.from_pretrained(make_tiny(folder, TASKS, TinySettings(vocabulary=320), 0))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Templates have less time than a user's."""
    monkeypatch.setattr(template_process, "CPU_SECONDS", 0.5)
    PROCESS._end()


def chat_of(tokenizer: Any, template: str) -> Chat:
    tokenizer.chat_template = template
    return open_chat(tokenizer, "template", [])


@pytest.mark.parametrize("name", BOMBS)
def test_a_template_that_never_ends_is_refused_in_a_line(tokenizer: Any, name: str) -> None:
    """With the first conversation, or where it begins so later."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    chat = chat_of(tokenizer, PLAIN + LATER.replace("BOMB", BOMBS[name]))
    with pytest.raises(UserError, match=r"chat template .*policy\.chat = 'text'") as caught:
        chat.encode_prompt([Message("user", "Hi")] * 5, {})
    assert "\n" not in str(caught.value)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime - before.ru_utime < 5, "another process took the time"
    assert after.ru_maxrss - before.ru_maxrss < 400_000, "and the memory"
    assert chat.encode_prompt([Message("user", "Hi")], {}), "what it can show it still shows"


def test_a_template_that_never_ends_is_refused_when_the_model_is_loaded(tokenizer: Any) -> None:
    with pytest.raises(ModelError, match=r"takes over 0\.5 s for one conversation"):
        chat_of(tokenizer, PLAIN + BOMBS["nested loops"])


def test_a_template_that_cannot_be_read_is_refused_in_a_line(tokenizer: Any) -> None:
    assert not is_local(PLAIN + DEEP)
    assert not is_local("{% if " * 3000)
    with pytest.raises(SettingsError, match="RecursionError: maximum recursion depth"):
        chat_of(tokenizer, PLAIN + DEEP)


def test_a_template_that_refuses_says_why(tokenizer: Any) -> None:
    chat = chat_of(tokenizer, PLAIN + LATER.replace("BOMB", "{{ raise_exception('No, sir') }}"))
    with pytest.raises(
        SettingsError, match=r"refuses the messages \(.*\): TemplateError: No, sir;"
    ):
        chat.encode_prompt([Message("user", "Hi")] * 5, {})


def test_the_other_process_renders_as_the_tokenizer_does(tokenizer: Any) -> None:
    tokenizer.chat_template = PLAIN + "{{ eos_token }}{{ tools | tojson }}{{ more }}"
    talk = [{"role": "user", "content": "\u00e9 \ud800 \U0001f600\r\n"}]
    options: dict[str, Any] = {"tools": [{"name": "a"}], "more": [1, 2]}
    assert apply_template(tokenizer, talk, **options) == tokenizer.apply_chat_template(
        talk, tokenize=False, **options
    )


def test_a_tokenizer_with_a_method_of_its_own_is_asked_itself(tokenizer: Any) -> None:
    class Own(type(tokenizer)):  # type: ignore[misc]
        def apply_chat_template(self, *args: Any, **options: Any) -> str:
            return "own"

    own = Own(tokenizer_object=tokenizer.backend_tokenizer, chat_template=PLAIN)
    assert apply_template(own, [{"role": "user", "content": "Hi"}]) == "own"


def test_a_process_that_was_killed_is_started_again(tokenizer: Any) -> None:
    tokenizer.chat_template = PLAIN
    talk = [{"role": "user", "content": "Hi"}]
    text = apply_template(tokenizer, talk)
    assert PROCESS._process is not None
    PROCESS._process.kill()
    assert apply_template(tokenizer, talk) == text


def test_a_template_that_takes_too_much_memory_is_the_models_fault(tokenizer: Any) -> None:
    tokenizer.chat_template = PLAIN + (
        "{% set ns = namespace(x='a' * 999) %}{% for a in range(40) %}{% set ns.x = ns.x ~ ns.x %}"
        "{% endfor %}"
    )
    with pytest.raises(ModelError, match="chat template"):
        apply_template(tokenizer, [{"role": "user", "content": "Hi"}])


def test_a_file_of_the_work_folder_is_no_module_of_the_other_process(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jinja2.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    tokenizer.chat_template = PLAIN
    assert apply_template(tokenizer, [{"role": "user", "content": "Hi"}]) == "<user>Hi</s>"


def test_a_forked_process_renders_in_a_process_of_its_own(tokenizer: Any) -> None:
    tokenizer.chat_template = PLAIN
    apply_template(tokenizer, [{"role": "user", "content": "Hi"}])
    used = PROCESS._process
    if (child := os.fork()) == 0:
        os._exit(PROCESS._process is not None)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert PROCESS._process is used
