"""Run folders for tests of the viewer, written by the trackers that training uses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.rollout.samples import to_samples
from assay.tools import ToolCall
from assay.trackers.jsonl import JsonlTracker
from assay.trackers.rollouts import RolloutTracker, write_rollouts, write_vocabulary
from assay.types import (
    AgentCall,
    AgentCalls,
    Check,
    Completion,
    Execution,
    RepositoryTests,
    Rollout,
    Score,
    Task,
    TestOutcome,
    Turn,
    Verdict,
    failing,
)

RIGHT, WRONG = "def f(x):\n    return x + 1\n", "def f(x):\n    return x\n"
HOSTILE = (
    "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
    "\x1b[31mred\x1b[0m \u202eesrever\u202c zero\u200bwidth \U0001f600 'é'\r\x00\n"
)
GIVES = failing({0: ("wrong", "gives 1 at `assert f(1) == 2`"), 1: ("error", "ValueError: no")})
ENCODED = {byte: bytes([byte]) for byte in range(256)}


PATCH = """diff --git a/stack.py b/stack.py
--- a/stack.py
+++ b/stack.py
@@ -1,3 +1,3 @@
 def pop(items):
-    return items[0]
+    return items.pop()
"""
TESTS = (
    TestOutcome("tests/test_stack.py::test_pop", "passed", 0.02, is_fix=True),
    TestOutcome("tests/test_stack.py::test_empty", "failed", 0.01, is_fix=True,
                detail="E   IndexError: pop from empty list"),
    TestOutcome("tests/test_stack.py::test_push", "passed", 0.01, is_fix=False),
)  # fmt: skip


def made_repair(name: str) -> Rollout:
    """A rollout of a shell in a repository: a command, then the change with its tests."""
    first = made_rollout(name, observations=["two results"]).turns[0]
    calls = (ToolCall("bash", {"command": "cat stack.py"}),
             ToolCall("bash", detail="the call has no command"))  # fmt: skip
    results = ("<returncode>0</returncode>\ndef pop(items):", "not executed")
    looked = replace(first, program=None, execution=None, calls=calls, results=results)
    execution = Execution(Verdict.WRONG, passed=2, total=3, tests=TESTS,
                          detail="test_empty: failed", forgeable=True)  # fmt: skip
    changed = replace(first, program=PATCH, execution=execution, observation="")
    fixes, others = ([one.name for one in TESTS if one.is_fix is fix] for fix in (True, False))
    check = RepositoryTests("/nowhere", tuple(fixes), tuple(others))
    tags = {"difficulty": "hard", "kind": "repository"}
    task = Task(id=name, prompt="pop is wrong", checks=(check,), entry_point="", tags=tags)
    return Rollout(task, (looked, changed), Score(0.5, {"tests": 0.5}))


SECONDS = 2.5
"""Of wall time, of each rollout."""


def made_rollout(
    name: str, program: str = RIGHT, *, reward: float | None = None, verdict: Verdict | None = None,
    output: str = "", held_out: Verdict | None = None, forgeable: bool = False,
    observations: Sequence[str] = (), checks_passed: int | None = None,
    difficulty: str = "easy",
) -> Rollout:  # fmt: skip
    """A rollout of one turn, or of one more for each observation; its tokens are its bytes."""
    verdict = verdict or (Verdict.PASS if program == RIGHT else Verdict.WRONG)
    passed = verdict is Verdict.PASS
    reward = float(passed) if reward is None else reward
    checks = (Check("assert f(1) == 2", hidden=False), Check("assert f(5) == 6"))
    detail = "" if passed else "AssertionError at `assert f(1) == 2`"
    tokens = tuple(program.encode("utf-8", "replace"))
    logprobs = tuple(-0.01 * (one % 50) for one in tokens)
    written = Completion(program, tokens, logprobs, "stop", (3,) * len(tokens))
    execution = Execution(
        verdict, passed=2 * passed if checks_passed is None else checks_passed, total=2,
        detail=detail, output=output, cpu_seconds=0.01,
        forgeable=forgeable,
        tests=() if passed else GIVES[checks_passed or 0 :],
    )  # fmt: skip
    prompt = tuple(f"<user># {name}: add 1<end>".encode())
    turns = tuple(
        Turn(prompt, written, program, execution, observation=one) for one in (*observations, "")
    )
    task = Task(id=name, prompt=f"# {name}: add 1", checks=checks, entry_point="f",
                tags={"difficulty": difficulty})  # fmt: skip
    score = Score(reward, {"tests": float(passed), "length": reward - float(passed)})
    held = Execution(held_out) if held_out else None
    return Rollout(task, turns, score, held_out=held, seconds=SECONDS)


def made_agent(name: str, learned: str = RIGHT, other: str = WRONG) -> Rollout:
    """A rollout of an agent: two turns, the first of which was sent twice, a title beside them, a
    reply of a conversation that is not the agent's own, and a call that the machine failed.
    """
    rollout = made_rollout(name, learned, verdict=Verdict.PASS, observations=["again"])
    first, last = (turn.completion.length for turn in rollout.turns)
    size = len(other)
    calls = (
        AgentCall(0, None, 0, first, turn=0, ended="stop", characters=len(learned), retries=1,
                  seconds=1.5),
        AgentCall(1, None, 1, 9, reason="auxiliary", ended="stop", text="A title", characters=7),
        AgentCall(2, None, 2, 30, reason="foreign_root", ended="length", text=other[:2000],
                  characters=size),
        AgentCall(3, 2, 3, 5, reason="foreign_root", ended="tool_calls"),
        AgentCall(4, 0, 4, 4, reason="machine", seconds=0.25),
        AgentCall(5, 0, 5, last, turn=1, ended="stop", characters=len(learned)),
    )  # fmt: skip
    unlearned = {"auxiliary": 9, "foreign_root": 35, "machine": 4}
    return replace(rollout, unlearned=unlearned, agent_calls=AgentCalls(calls, len(calls)))


def made_chain(name: str, count: int, text: str = "x") -> Rollout:
    """A rollout of an agent with a long conversation that is not its own."""
    rollout = made_rollout(name)
    first = AgentCall(0, None, 0, rollout.length, turn=0, ended="stop")
    others = [
        AgentCall(n, n - 1 if n > 1 else None, n, 2, reason="foreign_root", text=text)
        for n in range(1, count)
    ]
    return replace(
        rollout, unlearned={"foreign_root": 2 * (count - 1)},
        agent_calls=AgentCalls((first, *others), count),
    )  # fmt: skip


def write_agents(stage: Path, step: int, *rollouts: Rollout) -> None:
    """A step of agents' rollouts, from which the learner learned."""
    groups = [[rollout] for rollout in rollouts]
    file = stage / "rollouts" / f"step_{step:06d}.parquet"
    write_rollouts(file, step, groups, to_samples(groups))


def make_run(folder: Path, steps: int = 3, extra: Sequence[Rollout] = ()) -> Path:
    """A run with one stage `grpo`, an evaluation before and after it, and a report."""
    stage = folder / "grpo"
    stage.mkdir(parents=True)
    (stage / "config.toml").write_text('name = "made"\n[algorithm]\nname = "grpo"\n')
    write_vocabulary(stage, list(ENCODED.values()))
    metrics, rollouts = JsonlTracker(stage, start_step=0), RolloutTracker(stage, start_step=0)
    for step in range(1, steps + 1):
        group = [made_rollout("set/a"), made_rollout("set/a", WRONG)]
        others = [made_rollout("set/b", WRONG, observations=["try again"])]
        groups = [group, others, *([[*extra]] if extra and step == steps else [])]
        rollouts.rollouts(step, groups, [
            replace(one, advantages=[ADVANTAGE * sign] * len(one.tokens))
            for one, sign in zip(to_samples(groups[:1]), (1, -1), strict=True)
        ])  # fmt: skip
        share = step / steps
        metrics.track(step, {"reward/pass_rate": share, "reward/mean": share, "loss": 0.1 / step,
                             "reward/tests": share, "reward/length": 0.0, "time/learn": 1.0,
                             "time/judge": 0.5, "learn/entropy": 1 / step})  # fmt: skip
    metrics.close()
    event = {"step": 2, "event": "entropy_collapse", "text": "entropy collapsed", "time": 0.0}
    (stage / "events.jsonl").write_text(json.dumps(event) + "\n")
    for step, first in ((0, WRONG), (steps, RIGHT)):
        groups = [[made_rollout("set/a", first)], [made_rollout("set/c")]]
        write_rollouts(stage / "evaluations" / f"step_{step:06d}.parquet", step, groups)
    (folder / "report.json").write_text(json.dumps({"evaluations": [EVALUATION]}))
    return folder


ADVANTAGE = 0.7071
"""Not the reward minus the mean of the group: what a learner that divides by a deviation uses."""
EVALUATION: dict[str, Any] = {
    "name": "grpo", "tasks_spec": "set:test", "tasks": 2, "samples": 1, "temperature": 1.0,
    "pass_at": {"1": 0.75}, "interval": {"low": 0.5, "high": 0.9}, "mean_length": 27.0,
    "truncated": 0.0, "verdicts": {"pass": 2}, "dropped": 0, "seconds": 1.0,
    "per_task": [{"id": "set/a", "passed": 1, "samples": 1},
                 {"id": "set/c", "passed": 1, "samples": 1}],
    "groups": {"difficulty": {
        "easy": {"tasks": 1, "pass_at_1": 1.0, "interval": {"low": 0.2, "high": 1.0}},
        "hard": {"tasks": 1, "pass_at_1": 0.5, "interval": {"low": 0.1, "high": 0.9}},
    }},
}  # fmt: skip


def make_evaluation(folder: Path, passing: Sequence[str] = ("set/a",)) -> Path:
    """What `assay eval` writes: two tasks, of which those in `passing` pass."""
    names = ("set/a", "set/c")
    groups = [[made_rollout(one, RIGHT if one in passing else WRONG)] for one in names]
    write_rollouts(folder / "evaluations" / "step_000000.parquet", 0, groups)
    tasks = [{"id": one, "passed": int(one in passing), "samples": 1} for one in names]
    share = len(passing) / len(names)
    made = EVALUATION | {"name": "model", "per_task": tasks, "pass_at": {"1": share}}
    setup = {"model": {"model": "model"}, "seed": 7, "sampling": {"temperature": 1.0}}
    (folder / "report.json").write_text(json.dumps({"evaluations": [made], "setup": setup}))
    return folder
