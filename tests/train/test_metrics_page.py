"""docs/metrics.md names every metric that real runs track, and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from assay.config.load_settings import load_plan
from assay.train.stages import run_plan
from assay.types import Verdict

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "metrics.md"
PLAN = """
trackers = ["jsonl"]
steps = 2
policy.model = "tiny"
policy.tiny = { vocabulary = 300, width = 32, layers = 1, heads = 2, context = 512 }
tasks = { train = "drills:train", limit = 8, held_out = 1 }
judge.allow_weak_isolation = true
rollout = { tasks_per_step = 2, group_size = 4, max_tokens = 12 }
rewards = { format = { weight = 0.1 }, length = { on_failure = true } }
[stages.sft]
algorithm.name = "sft"
evaluate = { tasks = ["drills:test", "drills:longer"], limit = 2, samples = 1, max_tokens = 12 }
[stages.ppo]
algorithm = { name = "ppo", kl = 0.1, epochs = 1 }
rollout.max_staleness = 1
[stages.dapo]
algorithm = { name = "dapo", max_resamples = 1 }
[stages.dppo]
algorithm.name = "dppo"
tasks.replay = { below = 1.0 }
[stages.echo]
algorithm.name = "echo"
environment.name = "repair"
[stages.dpo]
algorithm = { name = "dpo", pairs = "PAIRS" }
"""
DISTILLATION = """
trackers = ["jsonl"]
steps = 1
policy.model = "MODEL"
tasks = { train = "drills:train", limit = 8 }
judge.allow_weak_isolation = true
rollout = { tasks_per_step = 2, group_size = 2, max_tokens = 12 }
[stages.opd]
algorithm = { name = "opd", teacher = "MODEL" }
"""


def page() -> set[str]:
    """The names in the first column of the page's tables."""
    return set(re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(), flags=re.MULTILINE))


def generic(name: str) -> str:
    """The page's name for a metric, with placeholders for terms, verdicts and the like."""
    area, _, what = name.partition("/")
    if area == "verdict":
        return "verdict/VERDICT"
    if what == "pass@1/drills:longer":
        return "evaluate/pass@1/SET"
    if area == "tokens" and what not in ("learned", "replayed"):
        return "tokens/REASON"
    if area == "held_out":
        return name.replace("drills/python", "FAMILY")
    if area == "staleness" and what.isdigit():
        return "staleness/N"
    return re.sub(r"^reward/(tests|format|length)(_std)?$", r"reward/TERM\2", name)


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The metrics of a short real run with every kind of stage."""
    folder = tmp_path_factory.mktemp("metrics")
    pairs = [{"prompt": "f", "chosen": "def f(): pass", "rejected": f"x = {n}"} for n in range(4)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    plan = PLAN.replace("PAIRS", str(folder / "pairs.jsonl"))
    (folder / "plan.toml").write_text(plan)
    words = ["--folder", str(folder / "runs"), "--name", "short"]
    model = run_plan(load_plan(folder / "plan.toml", words)).model
    (folder / "more.toml").write_text(DISTILLATION.replace("MODEL", str(model)))
    run_plan(load_plan(folder / "more.toml", [*words[:2], "--name", "more"]))
    rows = [
        json.loads(line)
        for file in (folder / "runs").glob("*/*/metrics.jsonl")
        for line in file.read_text().splitlines()
    ]
    return {name for row in rows for name in row} - {"step", "time"}


@pytest.mark.long
def test_every_metric_of_a_run_is_on_the_page(tracked: set[str]) -> None:
    assert {generic(name) for name in tracked} - page() == set()


@pytest.mark.long
def test_every_metric_on_the_page_is_tracked(tracked: set[str]) -> None:
    vllm = (ROOT / "assay" / "engines" / "vllm" / "engine.py").read_text()
    servers = {name for name in page() if f'"{name}"' in vllm}
    assert len(servers) == 4
    reported = {"evaluate/reward"}  # agents report it; tests/evaluate/test_report.py shows it
    luck = {"reward/gain_of_passing"}  # where a group of the short run has passes and failures
    luck |= {"replay/age", "replay/weight"}  # where it passes; end_to_end/test_resume.py has both
    assert page() - {generic(name) for name in tracked} - servers - luck == reported


def test_the_page_lists_every_verdict_that_is_scored() -> None:
    (row,) = [line for line in PAGE.read_text().splitlines() if line.startswith("| `verdict/")]
    assert set(re.findall(r"`(\w+)`", row.split("|")[2])) == set(Verdict) - {
        Verdict.INFRA,
        Verdict.UNJUDGED,
    }


def test_every_metric_has_a_formula() -> None:
    for line in PAGE.read_text().splitlines():
        if line.startswith("| `"):
            assert len(line.split("|")[2].strip()) > 10, line
