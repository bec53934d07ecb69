"""The real inspect_ai runs its tools in boxes of assay: it finds them by their name, its own checks
of sandboxes pass, and an evaluation with a scripted model gets what commands did.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.agents.outside import ENVIRONMENTS

pytestmark = pytest.mark.agents

CHECKS = """
import asyncio, json
from inspect_ai.util._sandbox import self_check
from inspect_ai.util._sandbox.events import SandboxEnvironmentProxy
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv

async def main():
    kind, failed = registry_find_sandboxenv("assay"), {}
    for name in self_check.__all__:
        opened = await kind.sample_init("checks", None, {})
        try:
            await getattr(self_check, name)(SandboxEnvironmentProxy(opened["default"]))
        except Exception as error:
            failed[name] = type(error).__name__
        await kind.sample_cleanup("checks", None, opened, False)
    print(json.dumps([len(self_check.__all__), failed]))

asyncio.run(main())
"""
EVALUATION = """
import json, sys
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, accuracy, scorer
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash, python
from inspect_ai.util import SandboxEnvironmentSpec, sandbox

NAME = "mockllm/model"
config, calls, limits = json.loads(sys.argv[1])

@scorer(metrics=[accuracy()])
def wrote():
    async def score(state, target):
        try:
            text = await sandbox().read_file("answer.txt")
        except FileNotFoundError:
            text = ""
        return Score(value=float(text.strip() == target.text), answer=text)
    return score

outputs = [ModelOutput.for_tool_call(NAME, tool, given) for tool, given in calls]
outputs.append(ModelOutput.from_content(NAME, "done"))
for output in outputs:  # else a tokenizer is downloaded
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
if isinstance(config, dict):
    from assay.integrations.inspect_ai import BoxConfig
    config = BoxConfig(**config)
sample = Sample("Add them.", target="6", files={"data.txt": "1 2 3"}, setup="echo set > up")
task = Task([sample], solver=[use_tools(bash(timeout=2), python()), generate()], scorer=wrote(),
            sandbox=SandboxEnvironmentSpec("assay", config))
(log,) = eval(task, model=get_model(NAME, custom_outputs=outputs), display="none", log_dir="logs",
              **limits)
sample = log.samples[0] if log.samples else None
tools = [[m.text, m.error and m.error.type] for m in sample.messages if m.role == "tool"]
score = sample.scores["wrote"].value if sample.scores else None
error = str(sample.error.message) if sample.error else ""
print(json.dumps([log.status, tools, score, error]))
"""


def printed(script: str, *words: str, folder: Path | None = None) -> Any:
    """What a script of the environment with inspect_ai prints in its last line, as JSON."""
    python = ENVIRONMENTS / "inspect-ai" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"there is no {python}: make test-agents builds it")
    done = subprocess.run(
        [python, "-c", script, *words], capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def evaluated(folder: Path, config: Any, *calls: Any, **limits: Any) -> Any:
    return printed(EVALUATION, json.dumps([config, calls, limits]), folder=folder)


def test_all_of_its_own_checks_of_sandboxes_pass_but_those_of_other_users() -> None:
    known = {"test_exec_as_user": "SandboxUserUnsupportedError"}
    if os.getuid() == 0:  # commands may write to the tree of any user then, whatever its rights
        for what in ("read_file_not_allowed", "write_text_file_without_permissions",
                     "write_binary_file_without_permissions"):  # fmt: skip
            known[f"test_{what}"] = "AssertionError"
    count, failed = printed(CHECKS)
    assert count >= 44
    assert failed == known


def test_an_evaluation_gets_what_the_tools_did_in_the_box_of_its_sample(tmp_path: Path) -> None:
    add = "echo $((1 + $(wc -w < data.txt) + 2)) > answer.txt"
    status, tools, score, _ = evaluated(
        tmp_path, None,
        ("bash", {"command": "cat up data.txt; pwd; id -un; cat /root/.profile"}),
        ("bash", {"command": "echo begun; sleep 60"}),
        ("bash", {"command": "sleep 60 & echo left behind"}),
        ("bash", {"command": f"pgrep sleep; {add}"}),
        ("python", {"code": "print(int(open('answer.txt').read()) * 7)"}),
        ("bash", {"command": "head -c 11000000 /dev/zero"}),
    )  # fmt: skip
    assert (status, score) == ("success", 1.0)
    first, late, background, add_up, product, long = tools
    assert "set\n1 2 3/testbed\nuser\n" in first[0]
    assert late[1] == "timeout"
    assert background == ["left behind\n", None]
    assert add_up == ["", None]
    assert product[0].strip() == "42"
    assert long[1] == "limit"


def test_a_sample_whose_time_is_up_is_scored_by_its_files(tmp_path: Path) -> None:
    code = "import pathlib, time; pathlib.Path('answer.txt').write_text('6'); time.sleep(98765)"
    found = evaluated(tmp_path, None, ("python", {"code": code}), time_limit=4)
    assert found == ["success", [], 1.0, ""]


def test_a_folder_is_what_the_box_of_each_sample_holds(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "answer.txt").write_text("6")
    (tmp_path / "logs").mkdir()
    show = ("bash", {"command": "cat answer.txt; echo 7 > answer.txt"})
    for config in (str(tmp_path / "tree"), {"tree": str(tmp_path / "tree"), "folder": "/work"}):
        status, tools, score, _ = evaluated(tmp_path, config, show)
        assert (status, tools, score) == ("success", [["6", None]], 0.0)
    assert (tmp_path / "tree" / "answer.txt").read_text() == "6"


def test_variables_and_more_folders_are_settings_of_the_box(tmp_path: Path) -> None:
    config = {"environment": [["NAME", "x"]], "writable": ["/logs"]}
    say = ("bash", {"command": "echo $NAME > /logs/a && cat /logs/a"})
    assert evaluated(tmp_path, config, say)[1] == [["x\n", None]]
