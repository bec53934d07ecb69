"""TRL trains on our verdicts: its trainer, a tiny random model, a few steps."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from assay.errors import DataError
from assay.integrations.trl import code_reward, text_of
from tests.policies import TASKS, checkpoint

COLUMNS = {
    "tests": [["assert f([2, 3]) == [2]"]] * 3,
    "entry_point": ["f"] * 3,
    "exchanges": [None] * 3,
}
RIGHT = "def f(xs):\n    return [x for x in xs if x % 2 == 0]\n"
WRONG = "def f(xs):\n    return xs\n"


def test_completions_are_scored_by_the_tests_in_the_columns() -> None:
    assert code_reward()(["p"] * 3, [RIGHT, WRONG, "no code"], **COLUMNS) == [1.0, 0.0, 0.0]


def test_completions_may_be_dialogues() -> None:
    def said(text: Any) -> list[dict[str, Any]]:
        return [{"role": "assistant", "content": text}]

    fenced = f"So:\n```python\n{RIGHT}```"
    prompts = [[{"role": "user", "content": "Write f."}]] * 3
    parts = [{"type": "text", "text": fenced}]
    assert code_reward()(prompts, [said(fenced), said(WRONG), said(parts)], **COLUMNS) == [
        1.0,
        0.0,
        1.0,
    ]
    assert text_of([]) == ""


def test_a_stub_in_the_prompt_is_completed() -> None:
    columns = {"tests": [["assert g(1) == 2"]], "entry_point": ["g"]}
    assert code_reward()(
        ['def g(x):\n    """Add one."""\n'], ["    return x + 1\n\nprint(g(1))"], **columns
    ) == [1.0]


def test_shares_of_tests_are_scored_where_asked_for() -> None:
    columns = {"tests": [["assert f([2]) == [2]", "assert f([3]) == []"]], "entry_point": ["f"]}
    assert code_reward(fraction=True)(["p"], [WRONG], **columns) == [0.5]


def test_what_cannot_be_judged_is_none_and_counted() -> None:
    counted: dict[str, float] = {}
    columns = {"tests": [["assert f(object())"], ["assert f(1)"]], "entry_point": ["f"] * 2}
    reward = code_reward()
    found = reward(
        ["p"] * 2,
        ["def f(x): return x()", "def f(x): return x"],
        **columns,
        log_metric=counted.__setitem__,
    )
    assert found == [None, 1.0]
    assert counted == {"machine_failures": 0, "unjudged": 1}


def test_a_row_without_tests_is_the_users_to_mend() -> None:
    with pytest.raises(DataError, match="row 0 of the batch"):
        code_reward()(["p"], [RIGHT], entry_point=["f"])


def test_grpo_of_trl_trains_on_the_reward(tmp_path: Path) -> None:
    trl = pytest.importorskip(
        "trl", reason="TRL is not installed; pip install -e '.[integrations]'"
    )
    from datasets import Dataset

    rows = [
        {
            "prompt": task.prompt,
            "tests": ["f([])"],
            "entry_point": "f",
            "setup": "",
            "reference": task.reference,
        }
        for task in TASKS
    ]
    rewards: list[list[float | None]] = []
    reward = code_reward()

    def kept(**given: Any) -> list[float | None]:
        # a random model writes no program: every other completion is given the reference, so that
        # rewards differ
        written = [
            given["reference"][n] if n % 2 else text for n, text in enumerate(given["completions"])
        ]
        rewards.append(reward(**{**given, "completions": written}))
        return rewards[-1]

    settings = trl.GRPOConfig(
        output_dir=str(tmp_path / "out"), max_steps=3, per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=8, learning_rate=1e-3, logging_steps=1, report_to=[], use_cpu=True,
        bf16=False,
        save_strategy="no",
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        model=str(checkpoint(tmp_path, "llama")),
        reward_funcs=kept,
        args=settings,
        train_dataset=Dataset.from_list(rows),
    )
    trainer.train()
    assert rewards == [[0.0, 1.0, 0.0, 1.0]] * 3
    logs = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert [entry["reward"] for entry in logs] == [0.5] * 3
    assert all(math.isfinite(entry["grad_norm"]) and entry["grad_norm"] > 0 for entry in logs)
    assert [entry["machine_failures"] for entry in logs] == [0.0] * 3
