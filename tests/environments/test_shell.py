"""A shell in a repository: what commands show, what ends the work, and what is judged."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.endpoint_answers import EndpointAnswer
from assay.engines.base import Sampling
from assay.engines.openai import HostedChat, _completion, hosted_chat
from assay.environments.shell import BASH, instructions
from assay.environments.shell_texts import FORMS, TEXTS
from assay.errors import SettingsError
from assay.extract.call_formats import call_formats
from assay.judge.patches import unified
from assay.policy.chat import Chat
from assay.rollout.samples import to_samples
from assay.sandbox.isolation import probe_isolation
from assay.types import RepositoryTests, Rollout, Task, ToolCall, Verdict
from tests.environments.repositories import FIX, FIXED, SOURCE, TESTS, repository
from tests.harbor_folders import harbor_task
from tests.policy.test_chat_templates import chat_of
from tests.rollout.talks import Writer, talk

HERMES = call_formats["hermes"]

NOT_EXECUTED = FORMS["xml"].write(-1, "", "action was not executed")
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
EDIT = "sed -i 's/a - b/a + b/' calc.py"


def block(command: str) -> str:
    return f"I look.\n\n```mswea_bash_command\n{command}\n```\n"


def calls(*commands: str) -> str:
    return "\n".join(HERMES.block(ToolCall("bash", {"command": each})) for each in commands)


class Endpoint(Writer):
    """Says the lines, each byte a token."""

    def __init__(self, lines: Sequence[str], chat: Chat) -> None:
        super().__init__(lines, chat)
        self.encode = str.encode


def worked(
    folder: Path, *lines: str, chat: Chat | None = None, task: Task | None = None, **settings: Any
) -> Rollout:
    """The rollout in which the model says these lines, of a new task below the folder."""
    environment = {"name": "shell"} | ({} if chat else {"tool_calls": "text"}) | settings
    sampling = Sampling(settings.pop("max_tokens", 4000))
    environment.pop("max_tokens", None)
    more = {"engine": Endpoint} if isinstance(chat, HostedChat) else {}
    task = task or repository(folder)
    return talk(*lines, task=task, chat=chat, environment=environment, sampling=sampling, **more)[0]


def test_commands_change_the_work_folder_whose_diff_is_judged(tmp_path: Path) -> None:
    rollout = worked(tmp_path, block("cat calc.py; cd tests"), block(f"{EDIT}; ls"), block(SUBMIT))
    first, second, third = rollout.turns
    assert first.observation == (
        "<returncode>0</returncode>\n<output>\ndef add(a, b):\n    return a - b\n\n\n"
        "def twice(a):\n    return 2 * a\n</output>"
    )
    assert second.observation == "<returncode>0</returncode>\n<output>\ncalc.py\ntests\n</output>"
    assert third.program is not None
    assert "+    return a + b" in third.program
    assert rollout.execution is not None
    assert rollout.execution.verdict is Verdict.PASS
    assert rollout.execution.forgeable, "pytest ran beside the program"
    assert (Path(rollout.task.checks[0].tree) / "calc.py").read_text().count("a - b") == 1  # type: ignore[attr-defined]


@pytest.mark.skipif("namespaces" not in probe_isolation().walls, reason="no namespaces here")
def test_a_work_folder_that_a_script_judges_is_worked_in_alike(tmp_path: Path) -> None:
    task = harbor_task(tmp_path / "sum")
    lines = block("pwd; ls -A . /tests /solution"), block("echo 6 > sum.txt"), block(SUBMIT)
    rollout = worked(tmp_path, *lines, task=task)
    first = rollout.turns[0]
    assert "\n.:\nDockerfile\nnumbers.txt\n" in first.observation, "no history, as in Harbor"
    assert "cannot access '/tests'" in first.observation
    assert rollout.execution is not None
    assert (rollout.execution.verdict, rollout.execution.forgeable) == (Verdict.PASS, True)
    text = instructions(task, "text")
    assert ("Do what is asked" in text, "Test your work" in text) == (True, True)
    assert "Test your fix" in instructions(repository(tmp_path), "text")


def test_what_the_submitting_command_prints_is_the_patch(tmp_path: Path) -> None:
    rollout = worked(tmp_path, block(f"{SUBMIT} && cat <<'E'\n{FIX}E"))
    assert rollout.turns[0].program == FIX
    assert rollout.execution is not None
    assert rollout.execution.verdict is Verdict.PASS


def test_a_command_that_fails_submits_nothing(tmp_path: Path) -> None:
    rollout = worked(tmp_path, block(f"{SUBMIT}; false"), block("true"), turns=2)
    assert rollout.turns[0].observation.startswith("<returncode>1</returncode>")
    assert len(rollout.turns) == 2
    assert rollout.execution is not None
    assert rollout.execution.verdict is not Verdict.PASS


def test_python_runs_what_was_edited_last_also_within_one_second(tmp_path: Path) -> None:
    edits = [f"echo 'X = {x}' > m.py; touch -d @1700000000 m.py" for x in (1, 2)]
    rollout = worked(
        tmp_path, *(block(f"{edit}; python3 -c 'import m; print(m.X)'") for edit in edits), turns=2
    )
    assert [turn.observation.split("\n")[2] for turn in rollout.turns] == ["1", "2"]


def test_limits_are_those_of_mini_swe_agent(tmp_path: Path) -> None:
    rollout = worked(
        tmp_path, block("echo a; sleep 9"), block("printf '%10003s' | tr ' ' x; exit 3"),
        block("printf '%9999s' | tr ' ' x"), block("echo out; echo err >&2; kill -9 $$"),
        block("echo $PAGER $TQDM_DISABLE; pwd; exit 7"), turns=5, seconds=1.0,
    )  # fmt: skip
    late, long, short, killed, variables = (turn.observation for turn in rollout.turns)
    assert late == (
        "<exception>An error occurred while executing the command: Command 'echo a; sleep 9' timed"
        " out after 1 seconds</exception>\n<returncode>-1</returncode>\n<output>\na\n</output>"
    )
    assert long.startswith("<returncode>3</returncode>\n<warning>\nThe output of your last command")
    assert long.endswith(
        f"</warning><output_head>\n{'x' * 5000}\n</output_head>\n<elided_chars>\n3 characters"
        f" elided\n</elided_chars>\n<output_tail>\n{'x' * 5000}\n</output_tail>"
    )
    assert short == f"<returncode>0</returncode>\n<output>\n{'x' * 9999}</output>"
    assert "killed by SIGKILL" in killed
    assert killed.endswith("<output>\nout\nerr\n</output>")
    assert variables.startswith("<returncode>7</returncode>\n<output>\ncat 1\n/")


def test_three_replies_in_a_row_without_a_command_end_the_work(tmp_path: Path) -> None:
    good = block("true")
    rollout = worked(tmp_path, "Hm.", "So?", good, "Hm.", good + good, "<tool_call>", good)
    assert len(rollout.turns) == 6
    shown = [turn.observation for turn in rollout.turns]
    assert "Expected exactly 1 action, found 0." in shown[0]
    assert "found 2 actions" in shown[4]
    assert shown[2].startswith("<returncode>0</returncode>")


def test_a_reply_that_was_cut_off_is_told_so(tmp_path: Path) -> None:
    rollout = worked(tmp_path, "word " * 99, block("true"), block(SUBMIT), max_tokens=60)
    assert rollout.turns[0].observation == TEXTS["cut_off"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokenizer")


def test_calls_of_the_chat_template_run_and_their_tokens_stay_one_sample(
    folder: Path, tmp_path: Path
) -> None:
    chat = chat_of(folder, "qwen3")
    rollout = worked(tmp_path, calls("pwd", EDIT), calls(SUBMIT, "rm calc.py"), chat=chat)
    first, second = rollout.turns
    assert len(first.results) == 2
    assert second.results[1] == NOT_EXECUTED
    assert rollout.execution is not None
    assert rollout.execution.verdict is Verdict.PASS
    (sample,) = to_samples([[rollout]])
    text = chat.tokenizer.decode(sample.tokens)
    assert text.count('"name": "bash"') >= 3
    assert text.count("<tool_response>") == 2
    learned = [token for token, on in zip(sample.tokens, sample.mask, strict=True) if on]
    assert learned == [*first.completion.tokens, *second.completion.tokens]


def test_a_reply_that_cannot_be_used_leaves_the_conversation_and_none_of_it_runs(
    folder: Path, tmp_path: Path
) -> None:
    chat = chat_of(folder, "qwen2_5")
    wrong = f'{calls("touch x")}\n<tool_call>\n{{"name": "python"}}\n</tool_call>'
    rollout = worked(
        tmp_path, calls("pwd"), wrong, "No call.", calls("ls"), calls(SUBMIT), chat=chat
    )
    first, unknown, absent, listed, _ = rollout.turns
    assert not unknown.results
    assert "Unknown tool 'python'" in unknown.observation
    assert TEXTS["no_calls"] in absent.observation
    assert "x" not in listed.observation.split("\n")
    text = chat.tokenizer.decode(listed.prompt_tokens)
    assert "touch x" not in text
    assert "No call." not in text
    users = text.partition(first.results[0])[2].split("<|im_start|>user")
    assert len(users) == 3, "both errors follow each other"


def test_what_is_sampled_before_and_after_a_reply_that_leaves_is_learned_once(
    folder: Path, tmp_path: Path
) -> None:
    rollout = worked(
        tmp_path, calls("pwd"), "No call.", calls("ls"), calls(SUBMIT),
        chat=chat_of(folder, "qwen2_5"),
    )  # fmt: skip
    samples = to_samples([[rollout]])
    learned = [
        [token for token, on in zip(sample.tokens, sample.mask, strict=True) if on]
        for sample in samples
    ]
    first, absent, *others = (turn.completion.tokens for turn in rollout.turns)
    assert learned == [[*first, *absent], [*others[0], *others[1]]]
    (rest,) = (sample.tokens for sample in samples[1:])
    assert tuple(rest[: len(rollout.turns[0].prompt_tokens) + len(first)]) == (
        *rollout.turns[0].prompt_tokens, *first
    ), "the tokens before stay those that were sampled"  # fmt: skip


@pytest.mark.parametrize("template", ["mistral_v0_3", "gemma3", "llama2"])
def test_a_template_that_wants_turns_keeps_the_reply_that_cannot_be_used(
    folder: Path, tmp_path: Path, template: str
) -> None:
    chat = chat_of(folder, template)
    assert not chat.takes_users_in_a_row
    rollout = worked(tmp_path, "No call.", block("ls"), block(SUBMIT), chat=chat, tool_calls="text")
    assert len(rollout.turns) == 3
    assert "No call." in chat.tokenizer.decode(rollout.turns[1].prompt_tokens)


def test_observations_have_the_form_of_mini_yaml_too(tmp_path: Path) -> None:
    rollout = worked(
        tmp_path, block("echo '<é> & co'"), block("sleep 9"), block("printf '%10003s'"), "Hm.",
        turns=4, seconds=1.0, observations="json",
    )  # fmt: skip
    short, late, long, wrong = (turn.observation for turn in rollout.turns)
    assert short == ('{\n  "returncode": 0,\n  "output": "\\u003c\\u00e9\\u003e \\u0026 co\\n"\n}')
    assert late == (
        '{\n  "returncode": -1,\n  "output": "", "exception_info": "An error occurred while'
        ' executing the command: Command \\u0027sleep 9\\u0027 timed out after 1 seconds"\n}'
    )
    assert json.loads(long) == {
        "returncode": 0, "output_head": " " * 5000, "output_tail": " " * 5000, "elided_chars": 3,
        "warning": "Output too long.",
    }  # fmt: skip
    assert wrong.endswith("FINAL_OUTPUT`\nwithout any other command.")


@pytest.mark.parametrize(
    "command",
    [
        "d=$(printf 'd%.0s' $(seq 200)); for n in $(seq 25); do mkdir $d && cd $d || exit; done;"
        " touch x",
        "for n in $(seq 9); do head -c 3000000 /dev/urandom > big$n; done",
        "head -c 9G /dev/zero > $TMPDIR/full; ! echo x > $TMPDIR/more",
        "head -c 9000000 /dev/urandom > new; echo x > small; chmod 0 tests; chmod 0 $TMPDIR",
    ],
    ids=["a folder too deep", "a diff too large", "a full disk", "what cannot be read"],
)  # fmt: skip
def test_of_a_change_that_is_no_diff_what_fits_is_submitted_and_the_rest_is_said(
    command: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rollout = worked(tmp_path, block(EDIT), block(command), block(SUBMIT))
    program = rollout.turns[-1].program
    assert program is not None
    assert "+    return a + b" in program
    assert rollout.execution is not None
    assert rollout.execution.verdict is Verdict.PASS
    warnings = [row.message for row in caplog.records if "the submitted diff lacks" in row.message]
    assert len(warnings) <= 1
    assert warnings or "full" in command or os.getuid() == 0


ALL_OBJECTS = "git cat-file --batch-all-objects --batch; git log --oneline | wc -l"


def test_git_shows_one_commit_of_a_made_task_without_its_fix_and_its_hidden_test(
    tmp_path: Path,
) -> None:
    task = repository(tmp_path)
    (check,) = task.checks
    assert isinstance(check, RepositoryTests)
    (Path(check.tree) / "calc.py").write_text(FIXED)
    cut = TESTS.replace("def test_add():\n    assert add(1, 2) == 3\n\n\n", "")
    (Path(check.tree) / "tests/test_calc.py").write_text(cut)
    (Path(check.tree) / ".hidden").write_text("")
    hidden = unified({"tests/test_calc.py": cut}, {"tests/test_calc.py": TESTS})
    bug = unified({"calc.py": FIXED}, {"calc.py": SOURCE})
    task = replace(task, checks=(replace(check, bug=bug, test_patch=hidden),))
    lines = [block(ALL_OBJECTS), block("git status; git diff"), block(EDIT),
             block(f"{SUBMIT} && git diff")]  # fmt: skip
    rollout = worked(tmp_path, *lines, task=task)
    objects, clean, _, last = rollout.turns
    assert "return a - b" in objects.observation
    assert "assert twice(2) == 4" in objects.observation
    assert "a + b" not in objects.observation
    assert "add(1, 2)" not in objects.observation
    assert objects.observation.endswith("\n1\n</output>")
    assert clean.observation == (
        "<returncode>0</returncode>\n<output>\nOn branch main\nnothing to commit, working tree"
        " clean\n</output>"
    )
    assert last.program is not None
    assert last.program.startswith("diff --git a/calc.py b/calc.py\n"), "what git diff prints"
    assert rollout.execution is not None
    assert rollout.execution.verdict is Verdict.PASS


HOSTILE = """
set -e; mark={mark}
for name in pre-commit post-checkout post-index-change pre-applypatch reference-transaction; do
    mkdir -p .git/hooks && printf '#!/bin/sh\\ntouch %s; echo {right} > calc.py\\n' $mark \\
        > .git/hooks/$name && chmod +x .git/hooks/$name
done
for name in core.fsmonitor core.pager core.editor diff.external diff.x.command diff.x.textconv \\
    filter.x.clean filter.x.smudge; do
    git config $name "sh -c 'touch $mark; echo {right}'"
done
git config core.worktree /tmp; git config core.bare true; git config diff.noprefix true
echo '* filter=x diff=x -text' | tee .git/info/attributes > .gitattributes
cp -r .git $TMPDIR; cp .git/config $TMPDIR/.gitconfig
"""


@pytest.mark.parametrize("edit", ["true", EDIT], ids=["nothing repaired", "repaired"])
def test_what_an_agent_does_to_git_changes_neither_its_diff_nor_the_verdict(
    edit: str, tmp_path: Path
) -> None:
    mark = tmp_path / "outside"
    mark.mkdir(mode=0o777)
    tmp_path.chmod(0o755)
    hostile = HOSTILE.format(mark=mark / "ran", right="evil")
    plain, changed = (
        worked(tmp_path / name, block(edit), block(attack), block(SUBMIT))
        for name, attack in (("plain", "true"), ("changed", hostile))
    )
    assert plain.execution is not None
    assert changed.execution is not None
    assert changed.execution.verdict is plain.execution.verdict
    assert (plain.execution.verdict is Verdict.PASS) == (edit == EDIT)
    assert plain.turns[-1].program == "".join(of_files(changed.turns[-1].program, ".gitattributes"))
    assert changed.turns[1].observation.startswith("<returncode>0<"), "all of it was set"
    assert list(mark.iterdir()) == []


def of_files(diff: str | None, left_out: str) -> list[str]:
    """The parts of a diff, each of one file, but for that of one."""
    parts = re.split(r"(?m)^(?=diff --git )", diff or "")
    return [part for part in parts if f" b/{left_out}\n" not in part]


def test_a_box_in_which_git_cannot_commit_is_worked_in_without_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = repository(tmp_path)
    (Path(task.checks[0].tree) / "nested" / ".git").mkdir(parents=True)  # type: ignore[attr-defined]
    subprocess.run(["git", "init", "-q"], cwd=tmp_path / "tree" / "nested", check=True)
    (tmp_path / "tree" / "nested" / "file").touch()
    lines = [block(EDIT), block("git status"), block(SUBMIT)]
    rollout = worked(tmp_path, *lines, task=task)
    assert "not a git repository" in rollout.turns[1].observation
    assert rollout.execution is not None
    assert rollout.execution.verdict is Verdict.PASS
    warnings = [row.message for row in caplog.records if "no git repository" in row.message]
    assert [task.id in message for message in warnings] == [True]


def test_a_template_without_tools_is_refused_in_one_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"environment.tool_calls' = 'template': .* 'text'\Z"):
        worked(tmp_path, "x", chat=chat_of(folder, "smollm2"))


def test_calls_that_an_endpoint_answers_with_are_read() -> None:
    function = {"name": "bash", "arguments": '{"command": "ls"}'}
    message = {"content": "I look.", "tool_calls": [{"id": "a", "function": function}]}
    broken = {"name": "bash", "arguments": '{"command'}
    for given, status in (
        (message, "ok"),
        ({"tool_calls": [{"function": broken}]}, "invalid_json"),
        ({"tool_calls": [{"function": function | {"arguments": {"command": "ls"}}}]}, "ok"),
    ):
        answer = {"choices": [{"message": given, "finish_reason": "tool_calls"}]}
        read = _completion(EndpointAnswer.model_validate(answer))
        assert [call.status for call in HERMES.parse(read.text, (BASH,))] == [status]
        assert read.ended == "stop"


def test_an_endpoint_is_sent_tools_calls_and_results_as_its_api_has_them(tmp_path: Path) -> None:
    rollout = worked(tmp_path, calls("echo hi"), calls(SUBMIT), chat=hosted_chat("auto"))
    asked = json.loads(bytes(rollout.turns[1].prompt_tokens))
    assert asked["tools"][0]["function"]["name"] == "bash"
    user, assistant, tool = asked["messages"]
    assert user["content"].startswith("add subtracts.\n\nYou can interact with a computer.")
    (call,) = assistant["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"command": "echo hi"}
    assert tool["tool_call_id"] == call["id"]
    assert tool["content"] == "<returncode>0</returncode>\n<output>\nhi\n</output>"
