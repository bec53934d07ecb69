"""An outside agent as an environment: its process, its answer, and whose fault its failures are."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from assay.errors import MachineError, SettingsError, UserError
from assay.rollout.attempt import make_prompts
from assay.rollout.group import group
from assay.rollout.samples import to_samples, token_balance
from assay.types import Rollout, Verdict
from tests.judge.opened import with_judge
from tests.rollout.talks import ADD, RIGHT, WRONG, Overflowing, Writer, context, plain, talk

ASK = """
import json, os, sys, urllib.request
def ask(*messages):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "any", "messages": messages}).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]
task = {"role": "user", "content": open(os.environ["ASSAY_TASK"]).read()}
"""
TWICE = (
    ASK
    + """
first = ask(task)
second = ask(task, first, {"role": "user", "content": "Again.\\n"})
print(second["content"])
"""
)
WRITES = (
    ASK
    + """
open("answer.py", "w").write(ask(task)["content"])
print("noise")
"""
)


class Silent(Writer):
    async def generate(self, request: Any, sampling: Any) -> Any:
        await asyncio.Event().wait()


class Failing(Writer):
    async def generate(self, request: Any, sampling: Any) -> Any:
        raise MachineError("the engine is gone")


class OverflowingOnce(Overflowing):
    """Its first completion has a log-probability that is no number."""

    async def generate(self, request: Any, sampling: Any) -> Any:
        engine: Any = super() if not self.requests else super(Overflowing, self)
        return await engine.generate(request, sampling)


def act(
    tmp_path: Path, code: str, *lines: str, engine: Any = Writer, **parameters: Any
) -> tuple[Rollout, Sequence[Any]]:
    file = tmp_path / "agent.py"
    file.write_text(code)
    command = parameters.pop("command", [sys.executable, str(file)])
    changes = {name: parameters.pop(name) for name in ("context_length",) if name in parameters}
    environment = {"name": "program", "command": command, **parameters}
    return talk(*lines, environment=environment, engine=engine, **changes)


def test_an_agents_calls_are_the_turns_and_what_it_prints_is_judged(tmp_path: Path) -> None:
    rollout, requests = act(tmp_path, TWICE, WRONG, RIGHT)
    assert rollout.passed
    assert [turn.completion.text for turn in rollout.turns] == [WRONG, RIGHT]
    assert [turn.prompt_tokens for turn in rollout.turns] == [each.prompt for each in requests]
    (sample,) = to_samples([[rollout]])
    assert sample.trained_tokens == rollout.length
    assert token_balance([[rollout]], [[rollout]])["tokens/learned"] == rollout.length
    left_out = token_balance([[rollout]], [[]])
    assert left_out == {
        "tokens/learned": 0, "tokens/machine": 0, "tokens/zero_variance": rollout.length,
    }  # fmt: skip


def test_the_file_that_an_agent_leaves_is_judged_and_not_what_it_prints(tmp_path: Path) -> None:
    rollout, _ = act(tmp_path, WRITES, RIGHT, answer="answer.py")
    assert rollout.passed
    missing, _ = act(tmp_path, WRITES, RIGHT, answer="other.py")
    assert missing.execution
    assert missing.execution.verdict is Verdict.NO_CODE


def test_a_line_for_the_shell_runs_in_a_work_folder_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "agent.py"
    command = f"touch here && ls > answer && {sys.executable} {file} | sed s/-/+/ >> answer"
    rollout, _ = act(tmp_path, TWICE, RIGHT, WRONG, command=command, answer="answer")
    assert rollout.turns[-1].program == f"answer\nhere\n{RIGHT}\n"


def test_an_agent_has_a_clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("OPENAI_API_KEY", "the user's")
    code = ASK + "ask(task)\nopen('answer', 'w').write(str(os.environ))"
    rollout, _ = act(tmp_path, code, RIGHT, answer="answer")
    program = str(rollout.turns[-1].program)
    assert "SECRET" not in program
    assert "the user's" not in program
    assert "OPENAI_BASE_URL" in program


def test_the_key_stands_in_the_variables_for_keys_and_in_no_other(tmp_path: Path) -> None:
    code = ASK + (
        "ask(task)\nkey = os.environ['OPENAI_API_KEY']\n"
        "names = sorted(name for name, text in os.environ.items() if key in text)\n"
        "open('answer', 'w').write(' '.join(names))"
    )
    rollout, _ = act(tmp_path, code, RIGHT, answer="answer")
    assert rollout.turns[-1].program == "ANTHROPIC_API_KEY OPENAI_API_KEY"


@pytest.mark.parametrize("ending", ["sys.exit(3)", "pass"])
def test_an_agent_that_never_calls_is_the_users_error_with_what_it_wrote(
    tmp_path: Path, ending: str
) -> None:
    code = f"import sys\nprint('no module named agents', file=sys.stderr)\n{ending}"
    with pytest.raises(UserError, match="no module named agents") as refused:
        act(tmp_path, code)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("command", [["/nowhere/agent"], ["nowhere-agent", "x"]])
def test_a_command_that_cannot_start_is_the_users_error(tmp_path: Path, command: list[str]) -> None:
    with pytest.raises(SettingsError, match="nowhere"):
        act(tmp_path, "", command=command)


def test_a_missing_command_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"environment\.command"):
        act(tmp_path, "", command=[])


def test_an_agent_that_fails_after_a_call_is_judged_as_it_is(tmp_path: Path) -> None:
    rollout, _ = act(tmp_path, TWICE + "sys.exit(1)", WRONG, RIGHT)
    assert rollout.passed


def test_an_engine_that_fails_is_the_machines_failure_whatever_the_agent_does(
    tmp_path: Path,
) -> None:
    code = ASK + "try: ask(task)\nexcept Exception as error: print(error)"
    with pytest.raises(MachineError, match="the engine is gone"):
        act(tmp_path, code, engine=Failing)


def test_the_tokens_of_a_completion_whose_log_probabilities_are_no_numbers_are_the_machines(
    tmp_path: Path,
) -> None:
    code = ASK + "\ntry: ask(task)\nexcept OSError: print(ask(task)['content'])"
    rollout, _ = act(tmp_path, code, WRONG, RIGHT, engine=OverflowingOnce)
    assert rollout.passed
    lost = len(plain().encode_reply(WRONG))
    assert rollout.unlearned == {"machine": lost}
    counts = token_balance([[rollout]], [[rollout]])
    assert counts == {"tokens/machine": lost, "tokens/learned": rollout.length}


def test_an_agent_whose_time_is_over_is_judged_as_it_is_and_leaves_no_process(
    tmp_path: Path,
) -> None:
    note = tmp_path / "pid"
    code = WRITES + (
        "import subprocess, time\n"
        f"open({str(note)!r}, 'w').write(str(subprocess.Popen(['sleep', '600']).pid))\n"
        "time.sleep(600)"
    )
    rollout, _ = act(tmp_path, code, RIGHT, answer="answer.py", seconds=6.0)
    assert rollout.passed
    state = Path("/proc", note.read_text(), "stat")
    while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.05)


def test_a_process_that_left_the_agents_session_ends_with_it(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = TWICE + (
        "import subprocess\n"
        "daemon = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"open({str(note)!r}, 'w').write(str(daemon.pid))\n"
    )
    rollout, _ = act(tmp_path, code, WRONG, RIGHT)
    assert rollout.passed
    assert not Path("/proc", note.read_text()).exists()


def test_of_a_long_output_the_end_is_judged_and_a_line_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = TWICE.replace("print(", "print('# noise\\n' * 200_000)\nprint(")
    rollout, _ = act(tmp_path, code, WRONG, RIGHT)
    assert rollout.passed
    assert "bytes" in caplog.text


def test_an_answer_that_is_too_long_is_no_program_and_a_line_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = WRITES + "open('answer.py', 'a').write('# noise\\n' * 200_000)"
    rollout, _ = act(tmp_path, code, RIGHT, answer="answer.py")
    assert rollout.execution
    assert rollout.execution.verdict is Verdict.NO_CODE
    assert "bytes" in caplog.text


def test_of_an_agent_that_leaves_no_answer_a_line_says_once_which_file_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        rollout, _ = act(tmp_path, WRITES, RIGHT, answer="elsewhere.py")
        assert rollout.execution
        assert rollout.execution.verdict is Verdict.NO_CODE
    assert caplog.text.count("left no file 'elsewhere.py'") == 1


def test_an_agent_that_writes_without_end_is_ended_and_judged_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.environments.program.MOST_WRITTEN", 1 << 16)
    code = WRITES + "import time\nwhile True: print('x' * 9999); time.sleep(0.001)"
    rollout, _ = act(tmp_path, code, RIGHT, answer="answer.py")
    assert rollout.passed


def test_an_agent_that_waits_for_less_time_than_a_reply_takes_is_a_lost_rollout(
    tmp_path: Path,
) -> None:
    code = "import socket\nsocket.setdefaulttimeout(0.5)\n" + ASK + "ask(task)"
    rollout, _ = act(tmp_path, code, engine=Silent)
    assert rollout.failure
    assert rollout.score is None


def test_an_agent_whose_first_prompt_is_longer_than_the_context_is_a_lost_rollout(
    tmp_path: Path,
) -> None:
    rollout, requests = act(tmp_path, ASK + "ask(task)", RIGHT, context_length=3)
    assert rollout.failure
    assert not requests


def test_an_agent_whose_calls_are_all_refused_is_the_users_error_with_the_reason(
    tmp_path: Path,
) -> None:
    with pytest.raises(UserError, match="robot"):
        act(tmp_path, ASK + "ask({'role': 'robot', 'content': ''})")


def test_an_agent_that_tries_refused_calls_until_its_time_is_over_is_the_users_error(
    tmp_path: Path,
) -> None:
    code = (
        ASK
        + """
while True:
    try: ask({"role": "robot", "content": ""})
    except urllib.error.HTTPError: __import__("time").sleep(0.2)
"""
    )
    act(tmp_path, ASK + "print(ask(task)['content'])", RIGHT)  # loads what an endpoint needs
    with pytest.raises(UserError, match="robot"):
        act(tmp_path, code, seconds=15.0)  # a busy machine starts it late


def test_a_prompt_without_text_is_the_requests_error_and_the_engine_never_gets_it(
    tmp_path: Path,
) -> None:
    code = (
        ASK
        + """
try:
    ask({"role": "user", "content": ""})
except urllib.error.HTTPError as error:
    assert error.code == 400
    print(ask(task)["content"])
"""
    )
    rollout, requests = act(tmp_path, code, RIGHT)
    assert rollout.passed
    assert len(requests) == 1


def test_a_tree_of_any_depth_and_a_folder_that_nobody_may_write_to_are_removed(
    tmp_path: Path,
) -> None:
    note = tmp_path / "folder"
    code = TWICE + (
        f"open({str(note)!r}, 'w').write(os.getcwd())\n"
        "os.mkdir('locked'); os.mkdir('locked/in'); os.chmod('locked', 0o500)\n"
        "for _ in range(1500): os.mkdir('d'); os.chdir('d')\n"
    )
    rollout, _ = act(tmp_path, code, WRONG, RIGHT)
    assert rollout.passed
    assert not Path(note.read_text()).parent.exists()


def test_a_folder_that_cannot_be_removed_is_logged_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("assay.environments.program.REMOVE", "echo busy >&2; exit 1")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    rollout, _ = act(tmp_path, TWICE, WRONG, RIGHT)
    assert rollout.passed
    assert "busy" in caplog.text


def test_an_agent_without_a_reply_in_time_is_a_lost_rollout(tmp_path: Path) -> None:
    rollout, _ = act(tmp_path, "import time; time.sleep(600)", seconds=0.5)
    assert rollout.failure
    assert rollout.score is None


def test_a_budget_ends_an_agents_loop_and_its_polite_answer_is_no_turn(tmp_path: Path) -> None:
    code = (
        ASK
        + """
talk = [task]
for _ in range(4):
    talk += [ask(*talk), {"role": "user", "content": "More.\\n"}]
print(talk[1]["content"])
"""
    )
    rollout, requests = act(tmp_path, code, RIGHT, WRONG, turns=2)
    assert (len(rollout.turns), len(requests)) == (2, 2)
    assert rollout.passed


def test_foreign_conversations_are_counted_and_not_learned(tmp_path: Path) -> None:
    code = (
        ASK
        + """
print(ask(task)["content"])
ask({"role": "user", "content": "token token token"})
"""
    )
    rollout, _ = act(tmp_path, code, RIGHT, WRONG)
    assert len(rollout.turns) == 1
    assert (
        token_balance([[rollout]], [[rollout]])["tokens/foreign_root"]
        == sum(rollout.unlearned.values())
        > 0
    )
    record = rollout.agent_calls
    assert [(call.turn, call.reason, call.text) for call in record.calls] == [
        (0, "", ""), (None, "foreign_root", WRONG),
    ]  # fmt: skip
    assert record.count == 2
    every, _ = act(tmp_path, code, RIGHT, WRONG, paid_roots="all")
    assert len(every.turns) == 2
    assert not every.unlearned
    assert len(to_samples([[every]])) == 2


def test_commands_in_a_box_find_neither_the_endpoint_nor_its_key(tmp_path: Path) -> None:
    """A judged program is a command in a box: it has no network, and none of our environment."""
    spying = (
        "import os, socket\n"
        "def f(a, b):\n"
        "    assert not [name for name in os.environ if 'OPENAI' in name or 'ASSAY' in name]\n"
        "    try:\n"
        "        socket.create_connection(('127.0.0.1', PORT), 1)\n"
        "    except OSError:\n"
        "        return a + b\n"
    )
    code = (
        ASK
        + """
ask(task)
port = os.environ["OPENAI_BASE_URL"].split(":")[2].split("/")[0]
print(PROGRAM.replace("PORT", port))
""".replace("PROGRAM", repr(spying))
    )
    rollout, _ = act(tmp_path, code, RIGHT)
    assert rollout.passed


def test_no_more_agents_run_at_once_than_may(tmp_path: Path) -> None:
    log = tmp_path / "log"
    file = tmp_path / "agent.py"
    file.write_text(
        f"log = open({str(log)!r}, 'a', buffering=1)\nlog.write('+\\n')\n{ASK}\n"
        "print(ask(task)['content'])\nlog.write('-\\n')\n"
    )
    environment = {"name": "program", "command": [sys.executable, str(file)], "at_once": 2}

    async def run(judge: Any) -> list[Rollout]:
        using = context(Writer([RIGHT] * 6, plain()), judge, plain(), environment)
        (asked,) = make_prompts([ADD], using.prompter, 1, None)
        return await group(asked, 6, using, seed=3)

    assert all(rollout.passed for rollout in with_judge(run))
    steps = [1 if mark == "+" else -1 for mark in log.read_text().split()]
    assert len(steps) == 12
    assert max(accumulate(steps)) <= 2
