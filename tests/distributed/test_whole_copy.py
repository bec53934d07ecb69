"""Where rank 0's whole copy of the weights is."""

from __future__ import annotations

from typing import Any

import pytest

from assay.algorithms import algorithms
from assay.distributed.whole_copy import generates_with_it
from tests.policies import run_settings

GRPO, SFT = {"algorithm": {"name": "grpo"}}, {"algorithm": {"name": "sft"}}
EVALUATE = {"evaluate": {"tasks": ["drills:test"]}}
VLLM = {"engine": {"name": "vllm"}}


@pytest.mark.parametrize(
    ("changes", "on_device"),
    [
        (GRPO, True),
        (GRPO | {"rollout": {"max_staleness": 1}}, False),
        (GRPO | {"engine": {"dtype": "bfloat16"}}, False),
        (GRPO | VLLM, False),
        (SFT, False),
        (SFT | EVALUATE, True),
        (SFT | EVALUATE | VLLM, False),
        (GRPO | VLLM | {"policy": {"lora": {"rank": 4}, "quantize": "nf4"}}, True),
    ],
)
def test_it_stays_on_the_device_only_where_the_engine_computes_with_it(
    changes: dict[str, Any], on_device: bool
) -> None:
    settings = run_settings(**changes)
    algorithm = algorithms[settings.algorithm["name"]].build(settings.algorithm)
    assert generates_with_it(settings, algorithm) is on_device
