"""Reads completions that a label calls good or bad from a file, for KTO without rollouts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from assay.errors import DataError
from assay.rollout.pairs import of_evaluation, task_named
from assay.rollout.prompter import Prompter
from assay.tasks.conversation import decoded
from assay.tasks.jsonl import task_of, warn_of_unknown
from assay.tasks.published import PAIR
from assay.tasks.rows import Row, file_rows
from assay.types import Sample, Task

FIELDS = {"task_id", "id", "prompt", "completion", "label", "tools"}
Tokens = tuple[int, ...]


def read_labels(file: Path, tasks: Sequence[Task], prompter: Prompter) -> list[list[Sample]]:
    """Groups of two samples: a completion of the file, and its tokens behind another row's prompt,
    by which KTO measures how far the policy has moved.

    A row has `completion`, `label` and either a `prompt` or the `task_id` of one of `tasks`. As in
    TRL, prompt and completion may be lists of messages. Rows of the samples.jsonl of `assay eval`
    (`task_id`, `reply`, `verdict`) are read too; a forgeable pass is none. Raises DataError for any
    other row, and for a file of one prompt or one label.
    """
    by_id = {task.id: task for task in tasks}
    samples: list[Sample] = []
    unknown: dict[str, str] = {}
    for number, row in enumerate(file_rows(file)):
        judged = "reply" in row.fields
        for task, good in of_evaluation(row, by_id) if judged else _of_label(row, by_id):
            (sample,) = prompter.samples(task, last_only=True)
            name = f"{number}/{task.id}"
            samples.append(replace(sample, group=name, passed=good, reward=float(good)))
        unknown |= {name: repr(name) for name in row.fields if name not in FIELDS and not judged}
    warn_of_unknown(unknown, str(file))
    _require_both_labels(file, [sample.passed for sample in samples])
    others = _other_prompts(samples)
    if not others:
        raise DataError(f"{file} has fewer than two prompts, and KTO compares several; add rows")
    return [[sample, _behind(others[_prompt(sample)], sample)] for sample in samples]


def tasks_of_labels(file: Path) -> list[Task]:
    """What the completions of a file answer, which stands for training tasks where there are none.
    Raises DataError.
    """
    labelled = [pair for row in file_rows(file) for pair in _of_label(row, {})]
    _require_both_labels(file, [good for _, good in labelled])
    return [task for task, _ in labelled]


def _require_both_labels(file: Path, labels: Sequence[bool]) -> None:
    """Raises DataError for a file of one label, as TRL does: each loss would push all
    log-probabilities one way, whatever the completions say.
    """
    if labels and len({*labels}) == 1:
        label, other = ("good", "bad") if labels[0] else ("bad", "good")
        advice = ", or learn these with algorithm.name = 'sft'" if labels[0] else ""
        raise DataError(
            f"every completion of {file} is {label}, and KTO tells good from bad; add some that are"
            f" {other}{advice}"
        )


def _of_label(row: Row, by_id: Mapping[str, Task]) -> Iterator[tuple[Task, bool]]:
    """The task with the completion as its demonstration, and whether that is good."""
    if row.fields.keys() >= PAIR:
        raise row.wrong(
            "a pair of DPO ('chosen', 'rejected') has no label; set algorithm.name = 'dpo' and give"
            " the file as algorithm.pairs"
        )
    for names in (("prompt", "task_id"), ("completion",), ("label",)):
        if row.fields.keys().isdisjoint(names):
            raise row.wrong(
                f"{names[0]!r} is missing; a row of KTO has 'prompt', 'completion' and 'label'"
            )
    label = decoded(str(row.fields["label"]).lower())  # tables may hold it as a text
    if not isinstance(label, bool):
        raise row.wrong(f"'label' is {str(row.fields['label'])[:40]!r}; make it true or false")
    if "task_id" in row.fields:
        task = replace(task_named(row, by_id), demonstrations=(row.text("completion"),))
    else:
        of_sft = {name: row.fields[name] for name in ("prompt", "completion")}
        task = task_of(Row(of_sft, row.where))
        if not task.demonstrations[0][:1].isspace():  # else it continues the prompt's last line
            task = replace(task, stub="")
    yield replace(task, tools=row.tools() or task.tools), label


def _other_prompts(samples: Sequence[Sample]) -> dict[Tokens, Tokens]:
    """For each prompt the next shorter one, and for the shortest the next longer one, so that a
    completion behind it is about as long as its row; empty for a single prompt.
    """
    prompts = sorted(
        {_prompt(sample) for sample in samples}, key=lambda prompt: (len(prompt), prompt)
    )
    shorter = {prompt: other for other, prompt in pairwise(prompts)}
    return {prompt: shorter.get(prompt, prompts[1]) for prompt in prompts} if shorter else {}


def _prompt(sample: Sample) -> Tokens:
    return tuple(sample.tokens[: _prompt_length(sample)])


def _prompt_length(sample: Sample) -> int:
    """Tokens before the completion."""
    return bytes(sample.mask).index(1)


def _behind(prompt: Tokens, sample: Sample) -> Sample:
    """The completion behind another prompt."""
    start = _prompt_length(sample)
    return replace(
        sample,
        tokens=(*prompt, *sample.tokens[start:]),
        mask=(*(False for _ in prompt), *sample.mask[start:]),
    )
