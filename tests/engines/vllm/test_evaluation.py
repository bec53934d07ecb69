"""An evaluation through a real vLLM server agrees with one in process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.config.evaluation import EvaluationRun
from assay.evaluate import evaluate
from tests.engines.vllm.conftest import SETTINGS
from tests.policies import tiny_policy

pytestmark = pytest.mark.vllm


def test_an_evaluation_through_a_server_agrees_with_one_in_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_policy(tmp_path)
    rows = [{"id": "any", "prompt": "# anything\n", "entry_point": "f", "tests": ["assert f"]}]
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def made(engine: dict[str, Any]) -> Any:
        run = EvaluationRun.model_validate(
            {
                "policy": {"model": str(tmp_path / "tiny"), "device": "cpu"}, "engine": engine,
                "evaluate": {"tasks": "rows.jsonl", "samples": 64, "max_tokens": 24,
                             "axes": ["format"], "greedy": True},
            }
        )  # fmt: skip
        return evaluate(run).evaluations

    inside, greedy = made({})
    outside, greedy_outside = made(SETTINGS.model_dump(include={"name", "python"}))
    assert outside.interval.low <= inside.pass_at[1] <= outside.interval.high
    assert outside.mean_length == pytest.approx(inside.mean_length, rel=0.25)
    assert outside.axes["format"][1] == pytest.approx(inside.axes["format"][1], abs=0.25)
    assert (greedy.verdicts, greedy.mean_length) == (
        greedy_outside.verdicts, greedy_outside.mean_length
    )  # fmt: skip
