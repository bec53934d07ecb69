"""rollouts/step_000012.parquet: all completions of a step with program, verdict and reward."""

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from itertools import compress
from pathlib import Path
from typing import Any

from assay.files import by_step, encodable, remove_leftovers, replacing
from assay.judge.kinds.asserts import expected_values
from assay.trackers.base import Tracker
from assay.types import AgentCall, AnyCheck, Check, Rollout, Sample, Turn

VOCABULARY = "vocabulary.parquet"
"""Name of the file in a stage's folder with the bytes of each token id, so that tokens can be read
without the tokenizer."""
CHECKS, CHECK_TEXT = 64, 4096
"""Checks of a task that are kept, and characters of each."""
GENERATED = ("tokens", "logprobs", "ended", "version")
JUDGED = ("verdict", "cause", "passed", "total", "detail", "output", "cpu_seconds", "stderr",
          "forgeable")  # fmt: skip
"""Columns of a turn that was judged: fields of its Execution."""
TESTS = 1000
"""Tests of a turn that are kept, those that fail first."""
INPUTS = ("source", "arguments", "stdin", "code", "after", "bench", "module")
EXPECTED = ("expected", "stdout", "prints", "answer")
"""Fields of the kinds of checks that hold what a program gets, and what it must answer."""


class RolloutTracker(Tracker):
    """Writes one file for each step; a row is a turn, or a rollout that failed before any turn."""

    def __init__(
        self, folder: Path, *, start_step: int, tokens: Callable[[], Sequence[bytes]] | None = None
    ) -> None:
        """Delete files after `start_step`, and partial files that a killed trainer left. The bytes
        of `tokens`, if given, are written beside.
        """
        if tokens:
            write_vocabulary(folder, tokens())
        self._folder = folder / "rollouts"
        self._folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self._folder)
        for step, file in by_step(self._folder, ".parquet").items():
            if step > start_step:
                file.unlink()

    def rollouts(
        self, step: int, groups: Sequence[Sequence[Rollout]], samples: Sequence[Sample] = ()
    ) -> None:
        """Write the step's file."""
        write_rollouts(self._folder / f"step_{step:06d}.parquet", step, groups, samples)


def write_rollouts(
    file: Path, step: int, groups: Sequence[Sequence[Rollout]], samples: Sequence[Sample] = ()
) -> None:
    """Write groups of rollouts, with the advantages of their samples, as one Parquet file, complete
    or not at all.

    Raises OSError when the disk is full or fails.
    """
    from pyarrow import Table, parquet

    rows = [*_rows(step, groups, _advantages(groups, samples), _first_turns(samples))]
    table = Table.from_pylist(rows, schema=schema())
    with replacing(file) as partial:
        parquet.write_table(table, partial, compression="zstd")


def _advantages(
    groups: Sequence[Sequence[Rollout]], samples: Sequence[Sample]
) -> dict[tuple[int, int, int], list[float]]:
    """The advantages of a turn's tokens by group, index and turn; one if they are all the same."""
    advantages = {}
    for sample in samples:
        learned = list(compress(sample.advantages, sample.mask))
        if sample.place is None:
            continue
        group, index, first = sample.place
        for number, turn in enumerate(groups[group][index].turns[first:], first):
            length = turn.completion.length
            if learned:
                part, learned = learned[:length], learned[length:]
                advantages[group, index, number] = part[:1] if len(set(part)) == 1 else part
    return advantages


def _first_turns(samples: Sequence[Sample]) -> dict[tuple[int, int], list[int]]:
    """By a rollout's group and index, the turn with which each of its samples begins."""
    firsts = defaultdict[tuple[int, int], list[int]](list)
    for sample in samples:
        if sample.place is not None:
            group, index, first = sample.place
            firsts[group, index].append(first)
    return {place: sorted(turns) for place, turns in firsts.items()}


def write_vocabulary(folder: Path, tokens: Sequence[bytes]) -> None:
    """Write the bytes of each token id into the folder of a stage."""
    from pyarrow import parquet, table

    with replacing(folder / VOCABULARY) as partial:
        parquet.write_table(table({"bytes": list(tokens)}), partial, compression="zstd")


def schema() -> Any:
    """The columns of a file of rollouts."""
    import pyarrow as pa

    text, number, whole = pa.string(), pa.float64(), pa.int32()
    check = pa.struct({"input": text, "expected": text, "hidden": pa.bool_()})
    test = {"name": text, "outcome": text, "seconds": number, "is_fix": pa.bool_(), "detail": text}
    call = {"name": text, "arguments": pa.map_(text, text), "detail": text, "result": text}
    agent_call = {"id": whole, "parent": whole, "number": whole, "tokens": whole, "turn": whole,
                  "sample": whole, "reason": text, "ended": text, "text": text, "characters": whole,
                  "retries": whole, "seconds": number}  # fmt: skip
    return pa.schema(
        {
            "step": whole,
            "task_id": text,
            "group": whole,  # the task's place in the step
            "index": whole,  # the rollout's place in its group
            "turn": whole,
            "prompt": text,  # the task's; null after the first turn
            "completion": text,
            "program": text,
            "verdict": text,
            "passed": whole,
            "total": whole,
            "detail": text,
            "output": text,
            "observation": text,  # what the environment answered
            "reward": number,
            "parts": pa.map_(text, number),
            "tokens": pa.list_(whole),
            "logprobs": pa.list_(pa.float32()),
            "ended": text,
            "version": whole,
            "cpu_seconds": number,
            "failure": text,
            "held_out": text,  # the verdict on the checks held out of the reward
            "stderr": text,
            "forgeable": pa.bool_(),  # whether a program could have forged a pass
            "length": whole,  # completion tokens of the turn
            "prompt_tokens": pa.list_(whole),  # null where the group's first row has the same
            "checks": pa.list_(check),  # the task's first checks; null but in a group's first row
            "tags": pa.map_(text, text),  # the task's language and tags; there too
            "tests": pa.list_(pa.struct(test)),  # each of a repository; else the checks that fail
            "calls": pa.list_(pa.struct(call)),  # the turn's tool calls, with their results
            "cause": text,  # whose doing the verdict is, or that the rollout is lost
            "advantages": pa.list_(pa.float32()),  # of its tokens; one number if all are the same
            "agent_calls": pa.list_(pa.struct(agent_call)),  # in a rollout's first row; else null
            "agent_call_count": whole,  # of all; there too
            "unlearned": pa.map_(text, whole),  # by the reason, tokens of no turn; there too
            "seconds": number,  # of wall time, from the rollout's first prompt to its verdict
        }
    )


def turns(files: Iterable[Path]) -> Any:
    """The turns in some files, as a data set of pyarrow."""
    from pyarrow import dataset

    return dataset.dataset([str(file) for file in files], schema=schema(), format="parquet")


def _rows(
    step: int,
    groups: Sequence[Sequence[Rollout]],
    advantages: Mapping[tuple[int, int, int], list[float]],
    first_turns: Mapping[tuple[int, int], list[int]],
) -> Iterator[dict[str, Any]]:
    for place, group in enumerate(groups):
        for index, rollout in enumerate(group):
            score = rollout.score
            common = {
                "step": step,
                "task_id": rollout.task.id,
                "group": place,
                "index": index,
                "reward": score.total if score else None,
                "parts": list(score.parts.items()) if score else None,
                "failure": rollout.failure,
                "seconds": rollout.seconds,
                "held_out": rollout.held_out and rollout.held_out.verdict,
            }
            turns = [_turn(turn) for turn in rollout.turns] or [{}]
            for number, turn in enumerate(turns):
                prompt = rollout.task.prompt if number == 0 else None
                if number == index == 0:
                    checks = rollout.task.checks[:CHECKS]
                    turn["checks"] = [_check(check, rollout.task.function) for check in checks]
                    turn["tags"] = [("language", rollout.task.language), *rollout.task.tags.items()]
                elif number == 0:
                    turn["prompt_tokens"] = None
                if number == 0:
                    turn |= _agent_calls(rollout, first_turns.get((place, index), []))
                row = common | {"turn": number, "prompt": prompt} | turn
                row["cause"] = rollout.cause or row.get("cause")
                row["advantages"] = advantages.get((place, index, number))
                yield {name: _storable(value) for name, value in row.items()}


def _storable(value: Any) -> Any:
    """A value without lone surrogates in its texts, nor in those of what it holds."""
    match value:
        case str():
            return encodable(value)
        case dict():
            return {name: _storable(item) for name, item in value.items()}
        case list():
            return [_storable(item) for item in value]
        case (str(), *_):
            return tuple(map(_storable, value))
    return value


def _turn(turn: Turn) -> dict[str, Any]:
    completion, execution = turn.completion, turn.execution
    tests = sorted(execution.tests if execution else (), key=lambda test: test.holds)
    results = [*turn.results, *[""] * len(turn.calls)]
    return {
        "completion": completion.text,
        "program": turn.program,
        "observation": turn.observation,
        "length": completion.length,
        "prompt_tokens": turn.prompt_tokens,
        **{name: getattr(completion, name) for name in GENERATED},
        **{name: getattr(execution, name) for name in JUDGED if execution},
        "tests": [asdict(test) | {"detail": test.detail[:CHECK_TEXT]} for test in tests[:TESTS]],
        "calls": [
            {"name": call.name, "arguments": _texts(call.arguments), "detail": call.detail,
             "result": result}
            for call, result in zip(turn.calls, results, strict=False)
        ],
    }  # fmt: skip


def _agent_calls(rollout: Rollout, first_turns: Sequence[int]) -> dict[str, Any]:
    """The columns of its agent's calls; none of a rollout without any."""
    if not rollout.agent_calls.count:
        return {}
    return {
        "agent_calls": [_agent_call(call, first_turns) for call in rollout.agent_calls.calls],
        "agent_call_count": rollout.agent_calls.count,
        "unlearned": [*rollout.unlearned.items()],
    }


def _agent_call(call: AgentCall, first_turns: Sequence[int]) -> dict[str, Any]:
    """A call, with the number of the sample in which it is learned: none without samples."""
    if call.turn is None or not first_turns:
        return asdict(call)
    return asdict(call) | {"sample": bisect_right(first_turns, call.turn) - 1}


def _texts(arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The arguments of a call; those that are no texts as JSON."""
    return [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in arguments.items()
    ]


def _check(check: AnyCheck, function: str) -> dict[str, Any]:
    """What a check gives and expects, as text; empty for a kind without such a field."""
    values = {field.name: getattr(check, field.name) for field in fields(check)}  # type: ignore[arg-type]
    texts = [next((values[n] for n in names if n in values), None) for names in (INPUTS, EXPECTED)]
    if isinstance(check, Check):
        with suppress(RecursionError):  # of a sum of a thousand terms
            texts[1] = next(expected_values(check.source, function), "")
    arguments, expected = (text[:CHECK_TEXT] if text else "" for text in texts)
    return {"input": arguments, "expected": expected, "hidden": check.hidden}
