"""The example of an agent with a calculator: its calls, its tasks, and a run that trains through
it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as parquet
import pytest

from assay.registry import load_plugins
from assay.rollout.prompter import Prompter
from assay.rollout.samples import to_samples
from assay.tasks import load
from assay.types import Answer, Rollout, Task
from tests.end_to_end.recipes import assay
from tests.rollout.talks import plain, talk

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "agents"
ENVIRONMENT = {
    "name": "program", "command": [sys.executable, str(FOLDER / "calculator.py")],
    "answer": "answer", "turns": 6,
}  # fmt: skip
QUESTION = Task("q", "Start at 17, multiply by 3, subtract 2.", (Answer("49", True),), "", "answer")
SMALL = """
base = "{base}"
policy.tiny = {{ width = 64, layers = 2, heads = 2 }}
tasks.limit = 300
rollout = {{ tasks_per_step = 4, group_size = 4 }}
evaluate = {{ limit = 2, samples = 1 }}
trackers = ["jsonl", "rollouts"]
judge.slots = 1
[stages.sft]
dataset.batch_size = 16
evaluate.before = false
[stages.grpo]
steps = 2
"""


@pytest.fixture(scope="module")
def tasks() -> ModuleType:
    """The plug-in with the tasks."""
    load_plugins([FOLDER / "calculations.py"])
    (module,) = (each for name, each in sys.modules.items() if name.endswith(".calculations"))
    return module


def rollout_of(*lines: str) -> Rollout:
    rollout, _ = talk(*lines, task=QUESTION, environment=ENVIRONMENT)
    return rollout


def prompts_of(rollout: Rollout) -> list[str]:
    return [plain().tokenizer.decode(turn.prompt_tokens) for turn in rollout.turns]


def test_the_agent_computes_what_the_policy_asks_and_leaves_its_answer() -> None:
    rollout = rollout_of("calc: 17 * 3", "calc: 51 - 2", "answer: 49")
    assert rollout.passed
    assert [prompt.splitlines()[-1] for prompt in prompts_of(rollout)] == [
        QUESTION.prompt, "calc: 17 * 3<end>= 51", "calc: 51 - 2<end>= 49"
    ]  # fmt: skip
    assert not rollout_of("calc: 17 * 3", "answer: 51").passed


@pytest.mark.parametrize(
    "text",
    ["calc: 9 ** 9", "calc: 2 + 3 + 4", "calc: abs(3)", "calc: __import__('os')", "calc: 1 / 0"],
)
def test_only_two_numbers_and_a_sign_are_computed(text: str) -> None:
    rollout = rollout_of(text)
    assert [turn.completion.text for turn in rollout.turns] == [text]
    assert rollout.turns[-1].program == text


def test_the_agent_ends_after_six_calls() -> None:
    rollout = rollout_of(*(["calc: 1 + 1"] * 7))
    assert len(rollout.turns) == 6
    assert not rollout.passed


def test_sft_learns_a_conversation_in_the_tokens_that_the_agent_makes(tasks: ModuleType) -> None:
    steps = ("*", 3), ("-", 2)
    made = (
        tasks.talk("q", QUESTION.prompt, 17, steps, tasks.random.Random(seed)) for seed in range(99)
    )
    right = next(each for each in made if each.demonstrations == ("answer: 49",))
    (learned,) = Prompter(plain()).samples(right)
    replies = [message.content for message in right.messages if message.role == "assistant"]
    (sampled,) = to_samples([[rollout_of(*replies, *right.demonstrations)]])
    assert (learned.tokens, learned.mask) == (sampled.tokens, sampled.mask)


def test_half_of_the_conversations_are_right_and_no_split_has_a_question_of_another(
    tasks: ModuleType,
) -> None:
    splits = {name: load(f"calculations:{name}", judged=name != "talks") for name in tasks.COUNTS}
    assert {name: len(rows) for name, rows in splits.items()} == tasks.COUNTS
    asked = [[(row.messages[0].content if row.messages else row.prompt) for row in rows]
             for rows in splits.values()]  # fmt: skip
    assert max(Counter(prompt for rows in asked for prompt in set(rows)).values()) == 1
    answers = {prompt: str(answer_to(prompt)) for rows in asked for prompt in rows}
    assert all(row.reference == answers[row.prompt] for row in splits["test"])
    right = [row.demonstrations == (f"answer: {answers[row.messages[0].content]}",)
             for row in splits["talks"]]  # fmt: skip
    assert 0.47 < sum(right) / len(right) < 0.55


def answer_to(prompt: str) -> int:
    start, *steps = prompt.removeprefix("Start at ").removesuffix(".").split(", ")
    value = int(start)
    for step in steps:
        word, _, number = step.rpartition(" ")
        value = {"add": value + int(number), "subtract": value - int(number),
                 "multiply by": value * int(number)}[word]  # fmt: skip
    return value


@pytest.mark.long
def test_a_policy_is_trained_and_evaluated_through_the_agent(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "small.toml").write_text(SMALL.format(base=FOLDER / "calculator.toml"))
    trained = assay("train", "small.toml", folder=tmp_path)
    assert trained.returncode == 0, trained.stderr
    grpo = tmp_path / "runs/calculator/grpo"
    lines = map(json.loads, (grpo / "metrics.jsonl").read_text().splitlines())
    assert [line["step"] for line in lines if "reward/pass_rate" in line] == [1, 2]
    rows = parquet.read_table(grpo / "rollouts/step_000001.parquet").to_pylist()
    assert max(row["turn"] for row in rows) > 0, "a call was computed"
    words = ["--policy.model", "runs/calculator", "--out", "after"]
    done = assay("eval", "small.toml", *words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (evaluation,) = json.loads((tmp_path / "after/report.json").read_text())["evaluations"]
    assert (evaluation["tasks"], evaluation["dropped"], evaluation["unjudged"]) == (2, 0, 0)
