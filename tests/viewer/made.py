"""Run folders for tests of the viewer, written by the trackers that training uses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.trackers.jsonl import JsonlTracker
from assay.trackers.rollouts import RolloutTracker, write_rollouts, write_vocabulary
from assay.types import Check, Completion, Execution, Rollout, Score, Task, Turn, Verdict

RIGHT, WRONG = "def f(x):\n    return x + 1\n", "def f(x):\n    return x\n"
HOSTILE = (
    "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
    "\x1b[31mred\x1b[0m \u202eesrever\u202c zero\u200bwidth \U0001f600 'é'\r\x00\n"
)
ENCODED = {byte: bytes([byte]) for byte in range(256)}


def made_rollout(
    name: str, program: str = RIGHT, *, reward: float | None = None, verdict: Verdict | None = None,
    output: str = "", held_out: Verdict | None = None, trusted: tuple[str, ...] = (),
    observations: Sequence[str] = (), checks_passed: int | None = None,
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
        trusted=trusted,
    )  # fmt: skip
    prompt = tuple(f"<user># {name}: add 1<end>".encode())
    turns = tuple(
        Turn(prompt, written, program, execution, observation=one) for one in (*observations, "")
    )
    task = Task(id=name, prompt=f"# {name}: add 1", checks=checks, entry_point="f")
    score = Score(reward, {"tests": float(passed), "length": reward - float(passed)})
    return Rollout(task, turns, score, held_out=Execution(held_out) if held_out else None)


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
        rollouts.rollouts(step, [group, others, *([[*extra]] if extra and step == steps else [])])
        share = step / steps
        metrics.track(step, {"reward/pass_rate": share, "reward/mean": share, "loss": 0.1 / step,
                             "reward/tests": share, "reward/length": 0.0, "time/learn": 1.0,
                             "time/judge": 0.5, "learn/entropy": 1 / step})  # fmt: skip
    metrics.close()
    event = {"step": 2, "event": "learn/entropy", "text": "entropy collapsed", "time": 0.0}
    (stage / "events.jsonl").write_text(json.dumps(event) + "\n")
    for step, first in ((0, WRONG), (steps, RIGHT)):
        groups = [[made_rollout("set/a", first)], [made_rollout("set/c")]]
        write_rollouts(stage / "evaluations" / f"step_{step:06d}.parquet", step, groups)
    (folder / "report.json").write_text(json.dumps({"evaluations": [EVALUATION]}))
    return folder


EVALUATION: dict[str, Any] = {
    "name": "grpo", "tasks_spec": "set:test", "tasks": 2, "samples": 1, "temperature": 1.0,
    "pass_at": {"1": 0.75}, "interval": {"low": 0.5, "high": 0.9}, "mean_length": 27.0,
    "truncated": 0.0, "verdicts": {"pass": 2}, "dropped": 0, "seconds": 1.0,
    "per_task": [{"id": "set/a", "passed": 1, "samples": 1}],
}  # fmt: skip
