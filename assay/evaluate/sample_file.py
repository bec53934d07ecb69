"""The file of an evaluation's samples. Each row is appended as soon as it is judged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from assay.errors import DataError
from assay.line_file import LineFile
from assay.types import UNJUDGED_CAUSES, Completion, Execution, Rollout, Score, Task, Turn, Verdict


@dataclass(frozen=True, slots=True)
class SampleRow:
    """One judged completion: a line of samples.jsonl, which `assay grade` reads too."""

    task_id: str
    sample: int
    """Number of the completion within its task, from 0."""
    solution: str
    """The program that was judged; empty if the completion held none."""
    verdict: str
    tokens: int
    """Completion tokens over all turns."""
    truncated: bool
    """Whether the token limit ended the last completion."""
    forgeable: bool = False
    """Whether the program could have forged a pass."""
    axes: Mapping[str, bool] = field(default_factory=dict)
    """Whether each of the evaluation's further axes holds."""
    reply: str | None = None
    """The completion's text; None after several turns, where it does not answer the prompt."""
    reported: float | None = None
    """The reward that its agent reported; None where checks decide."""


@dataclass(frozen=True, slots=True)
class LostSample:
    """A completion that the machine lost, so that no rate counts it. It is sampled again when the
    evaluation resumes.
    """

    task_id: str
    sample: int
    failure: str
    """Why, in one line."""
    unjudged: bool = False
    """Whether its task cannot be judged: then the machine is not at fault."""


def row_of(rollout: Rollout, sample: int, axes: Sequence[str] = ()) -> SampleRow | LostSample:
    """The row of a rollout. An axis holds where the part of the score by its name is positive."""
    if rollout.failure is not None or rollout.execution is None:
        failure = rollout.failure or "it was not judged"
        return LostSample(rollout.task.id, sample, failure, rollout.cause in UNJUDGED_CAUSES)
    if not rollout.execution.is_judged:
        unjudged = rollout.execution.verdict is Verdict.UNJUDGED
        return LostSample(rollout.task.id, sample, rollout.execution.detail, unjudged)
    last = rollout.turns[-1]
    reply = last.completion.text if len(rollout.turns) == 1 else None
    truncated, verdict = last.completion.ended == "length", str(rollout.execution.verdict)
    program, tokens = last.program or "", rollout.length
    forgeable = rollout.execution.forgeable
    parts = rollout.score.parts if rollout.score else {}
    return SampleRow(
        rollout.task.id, sample, program, verdict, tokens, truncated, forgeable,
        {name: parts[name] > 0 for name in axes}, reply, rollout.reported,
    )  # fmt: skip


def rollout_of(row: SampleRow, task: Task) -> Rollout:
    """What a row keeps of its rollout."""
    ended: Literal["stop", "length"] = "length" if row.truncated else "stop"
    text = row.solution if row.reply is None else row.reply
    completion = Completion(text, (), (), ended, (0,), counted=row.tokens)
    execution = Execution(Verdict(row.verdict), forgeable=row.forgeable)
    score = Score(float(execution.proven) if row.reported is None else row.reported)
    turn = Turn((), completion, row.solution or None, execution)
    return Rollout(task, (turn,), score, reported=row.reported)


class SampleFile:
    """samples.jsonl, open for one evaluation: its rows so far, and `append`.

    Raises SettingsError if another process writes to the file, DataError for rows that are not
    samples.
    """

    def __init__(self, path: Path) -> None:
        self.rows: list[SampleRow] = []
        read = TypeAdapter(SampleRow).validate_json
        try:
            self._file = LineFile(
                path, "evaluation", b'{"task_id": ', lambda line: self.rows.append(read(line))
            )
        except ValidationError as error:
            raise DataError(
                f"{path} holds other rows; remove it or choose another --out"
            ) from error

    def __enter__(self) -> SampleFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, row: SampleRow) -> None:
        """Write one row; it survives the end of this process."""
        self.rows.append(row)
        self._file.append(json.dumps(asdict(row)))
