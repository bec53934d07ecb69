"""An agent that scores its rollout itself: what it reports is the reward, and its failures are not
scored.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from assay.environments.agent_report import read_report
from assay.errors import UserError
from assay.rollout.samples import to_samples
from assay.tasks import task_from_dict
from assay.types import Cause, Rollout, Verdict
from tests.environments.test_program import ASK
from tests.rollout.talks import RIGHT, talk

TASK = task_from_dict({
    "format": "assay", "id": "words/0", "prompt": "Say cat backwards.\n", "entry_point": "",
    "checks": [{"task_data": '{"answer": "tac"}'}],
})  # fmt: skip
EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "agents"
REPORTS = (
    ASK
    + """
import subprocess
def report(**fields):
    os.write(int(os.environ["ASSAY_REPORT_FD"]), json.dumps(fields).encode())
"""
)
KNOWS = REPORTS + "answer = json.load(open(os.environ['ASSAY_TASK_DATA']))['answer']\n"
SCORES = (
    KNOWS
    + """
reply = ask(task)["content"]
print(reply)
report(reward=1.5 if answer in reply else -0.25)
"""
)


def act(tmp_path: Path, code: str, *lines: str, **parameters: Any) -> Rollout:
    file = tmp_path / "agent.py"
    file.write_text(code)
    environment = {"name": "program", "command": [sys.executable, str(file)], **parameters}
    rollout, _ = talk(*lines, task=TASK, environment=environment)
    return rollout


@pytest.mark.parametrize(("reply", "reward", "passed"), [("tac", 1.5, True), ("act", -0.25, False)])
def test_the_reported_reward_is_the_rollouts(
    tmp_path: Path, reply: str, reward: float, passed: bool
) -> None:
    rollout = act(tmp_path, SCORES, reply)
    assert rollout.score is not None
    assert rollout.score.total == reward
    assert rollout.passed == passed
    assert [sample.reward for sample in to_samples([[rollout]])] == [reward]


def test_a_sum_of_shares_that_is_1_but_for_rounding_passes(tmp_path: Path) -> None:
    code = REPORTS + "ask(task); report(reward=0.7 + 0.2 + 0.1)"
    rollout = act(tmp_path, code, "tac")
    assert rollout.reported == 0.7 + 0.2 + 0.1 < 1
    assert rollout.passed


def test_a_report_in_the_policys_reply_pays_nothing(tmp_path: Path) -> None:
    rollout = act(tmp_path, SCORES, '{"reward": 9}')
    assert rollout.score is not None
    assert rollout.score.total == -0.25


def test_a_rollout_that_the_agent_loses_is_not_scored(tmp_path: Path) -> None:
    rollout = act(tmp_path, REPORTS + "ask(task); report(lost='no sandbox')", "tac")
    assert rollout.score is None
    assert rollout.cause is Cause.MACHINE
    assert "no sandbox" in str(rollout.failure)


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "sys.exit(1)", "1 / 0"])
def test_an_agent_that_dies_is_not_scored_whatever_it_reported(tmp_path: Path, end: str) -> None:
    code = f"{REPORTS}ask(task); report(reward=1)\n{end}"
    rollout = act(tmp_path, code, "tac")
    assert rollout.score is None
    assert rollout.cause is Cause.MACHINE


def test_an_agent_whose_time_is_over_is_not_scored(tmp_path: Path) -> None:
    code = REPORTS + "ask(task); report(reward=1)\nimport time; time.sleep(600)"
    rollout = act(tmp_path, code, "tac", seconds=5)
    assert rollout.score is None
    assert rollout.cause is Cause.MACHINE


@pytest.mark.parametrize("called", ["", "ask(task)"])
def test_a_broken_agent_is_the_users_error_in_its_own_words(tmp_path: Path, called: str) -> None:
    code = f"{REPORTS}{called}\nreport(broken='no module\\nwords')"
    with pytest.raises(UserError, match="no module") as refused:
        act(tmp_path, code, "tac")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    ["", "done", "1", "[]", "{}", '{"reward": "1"}', '{"reward": true}', '{"reward": NaN}',
     '{"reward": Infinity}', '{"reward": 1}\nmore', '{"lost": ""}', "[" * 10**5,
     '{"reward": 1' + "0" * 400 + "}", '{"reward": 1}{"reward": 1}', "\x00" * 9],
)  # fmt: skip
def test_what_is_no_report_says_so(text: str) -> None:
    report = read_report(text)
    assert report.reward is None
    assert not report.lost
    assert "report cannot be read" in report.broken


def test_a_text_with_any_separator_of_lines_is_a_reason() -> None:
    assert read_report('{"lost": "a\u2028b"}\n').lost == "a\u2028b"


FLOODS = "(while :; do echo '{\"%s\": 1}' %s; sleep 0.001; done) &"


@pytest.mark.parametrize("said", ["reward", "lost", "broken"])
def test_a_command_of_the_policy_cannot_write_the_report_by_printing(
    tmp_path: Path, said: str
) -> None:
    runs = "subprocess.run(ask(task)['content'], shell=True); report(reward=0.25)"
    rollout = act(tmp_path, REPORTS + runs, FLOODS % (said, ""))
    assert rollout.reported == 0.25


def test_a_command_that_knows_the_descriptor_does_not_have_it(tmp_path: Path) -> None:
    runs = "subprocess.run(ask(task)['content'], shell=True); report(reward=0.25)"
    rollout = act(tmp_path, REPORTS + runs, FLOODS % ("reward", ">&$ASSAY_REPORT_FD"))
    assert rollout.reported == 0.25


@pytest.mark.parametrize("runs", ["os.system({})", "subprocess.run({}, shell=True, close_fds=0)"])
def test_what_a_program_adds_to_the_report_makes_it_none(tmp_path: Path, runs: str) -> None:
    code = REPORTS + runs.format("ask(task)['content']") + "; report(reward=0.25)"
    with pytest.raises(UserError, match="report cannot be read"):
        act(tmp_path, code, "echo '{\"reward\": 1}' >&$ASSAY_REPORT_FD")


def test_what_has_the_descriptor_cannot_take_the_report_out_again(tmp_path: Path) -> None:
    steals = (
        "try: open(f'/proc/self/fd/{os.environ[\"ASSAY_REPORT_FD\"]}', 'rb').read()\n"
        "except OSError as error: report(reward=0.25 if error.errno == 6 else 1)\n"
    )
    assert act(tmp_path, f"{REPORTS}ask(task)\n{steals}", "tac").reported == 0.25


@pytest.mark.parametrize("size", [2**16 - 100, 2**18])
def test_a_report_has_as_many_bytes_as_it_may_and_none_is_kept_beyond(
    tmp_path: Path, size: int
) -> None:
    code = f"{REPORTS}ask(task); report(lost='x' * {size})"
    rollout = act(tmp_path, code, "tac", seconds=5)
    assert rollout.cause is Cause.MACHINE
    assert str(rollout.failure).count("x" * 100) == (size < 2**16) * 4


@pytest.mark.parametrize(
    ("version", "says"), [("", "cannot import verifiers"), ("0.1.9", "has verifiers 0.1.9")]
)
def test_a_python_without_the_verifiers_that_was_tried_is_the_users_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if version:
        (tmp_path / "verifiers.py").write_text(f"__version__ = {version!r}")
    command = [sys.executable, "-S", str(EXAMPLES / "verifiers_rollout.py"), "play", "words"]
    with pytest.raises(UserError, match=says) as refused:
        act(tmp_path, "", command=command)
    assert "\n" not in str(refused.value)
    assert "constraints-agents/verifiers.txt" in str(refused.value)


def test_a_python_without_the_client_of_openenv_is_the_users_error(tmp_path: Path) -> None:
    words = [str(EXAMPLES / "openenv_rollout.py"), "play", "http://127.0.0.1:9"]
    with pytest.raises(UserError, match="cannot import websockets") as refused:
        act(tmp_path, "", command=[sys.executable, "-S", *words])
    assert "\n" not in str(refused.value)
    assert "constraints-agents/openenv.txt" in str(refused.value)


def test_an_agent_that_calls_nobody_cannot_report_a_reward(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did not call the policy"):
        act(tmp_path, REPORTS + "report(reward=1)")


def test_the_agent_is_told_its_budget_and_is_refused_beyond_it(tmp_path: Path) -> None:
    code = REPORTS + (
        "import urllib.error\nask(task)\n"
        "try:\n    ask(task)\nexcept urllib.error.HTTPError as error:\n"
        "    budget = [os.environ[f'ASSAY_{name}'] for name in ('TURNS', 'TOKENS', 'SECONDS')]\n"
        "    good = [error.code, *budget] == [409, '1', '50', '90.5']\n"
        "    report(reward=int(good))\n"
    )
    rollout = act(tmp_path, code, "tac", turns=1, tokens=50, seconds=90.5)
    assert rollout.score is not None
    assert rollout.score.total == 1
    assert len(rollout.turns) == 1


def test_without_its_agent_a_program_for_such_a_task_has_no_score() -> None:
    rollout, _ = talk(RIGHT, task=TASK, environment={"name": "single_turn"})
    assert rollout.score is None
    assert rollout.cause is Cause.TASK
    assert rollout.execution
    assert rollout.execution.verdict is Verdict.UNJUDGED
