"""A run's folder and the folders of its stages: the lock, settings, checkpoints and progress.

Every file in them is complete or absent.
"""

import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from datetime import datetime
from math import inf
from pathlib import Path
from socket import gethostname
from typing import Any, TextIO

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from assay.config.load_settings import dump
from assay.config.sections import RunSettings
from assay.config.toml_files import Table, absolute, flat, saved_model, saved_settings
from assay.errors import AssayError, MachineError, SettingsError, TrainingError, UnhealthyError
from assay.files import (
    by_step,
    lock,
    naming,
    remove,
    remove_leftovers,
    replacing,
    saved_number,
    saved_table,
    write_atomically,
)
from assay.os_errors import PATH_ERRORS, advice, error_number  # fmt: skip
from assay.policy.checkpoints import best_of, list_files, newest_whole, require_whole
from assay.prompts import CARD
from assay.registry import one_line
from assay.trackers.jsonl import ENDED, append_event, events_of, has_ended, keep_steps
from assay.train.inputs import Digests, changed_inputs
from assay.train.learner import Learner
from assay.train.sources import Source
from assay.types import Metrics

MAY_CHANGE = (
    "evaluate", "save", "trackers", "stop_if", "callbacks", "dashboard",
    "learner.micro_batch_tokens", "learner.hybrid_shard", "learner.rank_minutes", "learner.server",
    "policy.gradient_checkpointing", "judge.slots", "judge.allow_weak_isolation", "judge.servers",
    "engine.kv_cache_tokens", "engine.servers", "engine.python", "engine.arguments",
    "engine.weights_folder",
)  # fmt: skip
"""Settings that may differ when a run continues: they do not change what a step computes."""
RATE = ("optimizer.lr", "optimizer.schedule", "optimizer.warmup_steps")
LENGTH = ("steps", "epochs")
"""Settings that may differ from the next step on, which is said and kept in events.jsonl: the
learning rates, unless the stage has finished, and the length, unless rates depend on it."""
LOCK = "lock"
"""Name of the file in a run's folder that a trainer locks."""


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Keep other trainers out of a run's folder. One in which the block has written nothing is gone
    at its end, if it was not there before.

    Raises SettingsError that names the process which holds the lock.
    """
    missing = [folder for folder in (run, *run.parents) if not folder.exists()]
    with _locked_file(run) as file:
        user = f"pid {os.getpid()} on {gethostname()} since {datetime.now():%Y-%m-%d %H:%M:%S}"
        with naming(run / LOCK):
            file.truncate(0)
            os.write(file.fileno(), user.encode())  # a full disk refuses a buffer at its end again
        try:
            yield
        finally:
            with suppress(OSError):  # another trainer may have come in the meantime
                if [path.name for path in run.iterdir()] == [LOCK]:
                    (run / LOCK).unlink()
                    for folder in missing:
                        folder.rmdir()


def _locked_file(run: Path) -> TextIO:
    """The run's lock, locked by this process. Raises SettingsError."""
    while True:
        run.mkdir(parents=True, exist_ok=True)
        file = (run / LOCK).open("a+")
        if not lock(file):
            with file:
                file.seek(0)
                raise SettingsError(
                    f"{run} is in use by {file.read() or 'another process'}; wait for it to end, or"
                    " choose another --name"
                )
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), (run / LOCK).stat()):
                return file
        file.close()  # whoever held it has just removed it


class StageFolder:
    """The folder of one stage of a run, with its checkpoints.

    A checkpoint is a model in Hugging Face format plus the state that training needs to continue.
    """

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.run = Path(settings.folder) / settings.name
        self.path = self.run / settings.stage
        self.saved = self.path / "config.toml"
        self.checkpoints = self.path / "checkpoints"
        self.start = self.path / "start"
        self.evaluated = self.path / "evaluated.json"
        self.inputs = self.path / "inputs.json"

    def check(self) -> None:
        """Raises SettingsError when the folder has checkpoints that other settings made."""
        changed, schedule = self._changed(), self.settings.optimizer.schedule
        depend = schedule != "constant" and "optimizer.schedule" not in changed
        free = (*MAY_CHANGE, *RATE, *(() if depend else LENGTH))
        refused = {key for key in changed if not _within(key, free)}
        why = f", on which the learning rates of a {schedule} schedule depend"
        self._refuse(refused, why if refused <= set(LENGTH) else "")

    def note_changes(self, done: int, steps: int) -> str:
        """Keep the changes of RATE and LENGTH after `done` steps of so many as an event; returns
        them in one line, empty if there are none. Raises SettingsError for another rate where the
        stage has finished: its weights were learned with the old one.
        """
        changed = {key: how for key, how in self._changed().items() if key in (*RATE, *LENGTH)}
        if done >= steps:
            self._refuse(changed.keys() & RATE)
        text = ", ".join(f"{key} {how}" for key, how in changed.items())
        if text:
            text = f"from step {done + 1} on: {text}"
            append_event(self.path, done, "settings", text)
        return text

    def note_end(self, done: int, reason: str) -> None:
        """Keep as an event that the stage has ended after `done` steps, before its last one."""
        if not self.was_ended(done):
            append_event(self.path, done, ENDED, reason)

    def was_ended(self, done: int) -> bool:
        """Whether a callback has ended the stage after `done` steps."""
        return has_ended(events_of(self.path), done)

    def end_of(self, done: int, steps: int) -> int:
        """After how many steps the stage ends: `done` where a callback has ended it there, and
        callbacks and length are as they were; else `steps`.
        """
        again = any(_within(key, ("callbacks", *LENGTH)) for key in self._changed())
        return done if self.was_ended(done) and not again else steps

    def check_inputs(self, inputs: Digests) -> None:
        """Raises SettingsError that names what has changed since the checkpoints were made, of
        tasks, plug-ins and models: the run would go on with other data than it says.
        """
        if changed := self._changed_inputs(inputs):
            verb = "have" if len(changed) > 1 else "has"
            raise SettingsError(
                f"{', '.join(changed)} {verb} other content than when {self.path} was trained: put"
                " it back, choose another --name, start over with --fresh, or go on with"
                " --allow-changes"
            )

    def note_inputs(self, inputs: Digests, done: int) -> str:
        """Write the digests of what the stage reads, and keep changes as an event; returns them in
        one line, empty if there are none.
        """
        changed = self._changed_inputs(inputs)
        text = f"from step {done + 1} on, with other content: {', '.join(changed)}"
        if changed:
            append_event(self.path, done, "inputs", text)
        before = self._saved_inputs() if self.latest() else {}
        write_atomically(self.inputs, json.dumps({**before, **inputs}, indent=1))
        return text if changed else ""

    def _changed_inputs(self, inputs: Digests) -> list[str]:
        return changed_inputs(self._saved_inputs(), inputs) if self.latest() else []

    def _saved_inputs(self) -> Digests:
        """Empty for a stage that an earlier version of assay has trained."""
        return saved_table(self.inputs)

    def _changed(self) -> dict[str, str]:
        """How each setting differs from those that made the checkpoints: `0.1 -> 0.2`."""
        if not (saved := self._saved_settings()):
            return {}
        new = flat(absolute(tomllib.loads(dump(self.settings, self.path)), self.path))
        old = flat(saved)
        keys = sorted(old.keys() | new.keys())
        pairs = {key: (old.get(key, "none"), new.get(key, "none")) for key in keys}
        return {key: f"{was} -> {now}" for key, (was, now) in pairs.items() if was != now}

    def _refuse(self, changed: Iterable[str], why: str = "") -> None:
        if names := ", ".join(sorted(changed)):
            raise SettingsError(
                f"{self.path} was made with other settings ({names}{why}): choose another"
                " --name, or start over with --fresh"
            )

    def forget_unopened(self) -> None:
        """Where the stage was refused before its folder was opened, delete the model that was made
        to start from.
        """
        if not self.saved.exists():
            remove(self.start)
            with suppress(OSError):  # there is none, or logs of an engine are in it
                self.path.rmdir()

    def open(self, done: int) -> None:
        """Create the folder, or clean up after a trainer that was killed after `done` saved steps;
        write the current settings.
        """
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.path)
        remove_leftovers(self.checkpoints)
        self._prune()
        keep_steps(self.path / "metrics.jsonl", done)
        write_atomically(self.saved, dump(self.settings, self.path))

    def forget_unsaved(self) -> None:
        """Without a checkpoint, delete what a killed trainer left: it may have had other
        settings.
        """
        if not self.latest():
            files = ("metrics.jsonl", "events.jsonl")
            for path in (self.start, self.evaluated, *(self.path / name for name in files)):
                remove(path)

    def is_evaluated(self, done: int) -> bool:
        """Whether the newest evaluation was after `done` steps, with the same settings."""
        return saved_table(self.evaluated) == self._evaluation(done)

    def note_evaluation(self, done: int) -> None:
        """Note that the policy was evaluated after `done` steps."""
        write_atomically(self.evaluated, json.dumps(self._evaluation(done)))

    def _evaluation(self, done: int) -> dict[str, Any]:
        settings = self.settings.evaluate
        if settings is None:
            return {"step": done}
        others = {"every", "before", "max_lost"}
        return {"step": done, **settings.model_dump(mode="json", exclude=others)}

    def started_from(self) -> Path | None:
        """The model that the stage has started from, if it has a checkpoint of its own."""
        has_settings = self.latest() and self.saved.is_file()
        return Path(saved_model(self.saved)) if has_settings else None

    def _saved_settings(self) -> Table:
        """Those that made the checkpoints, with absolute paths; empty without a checkpoint."""
        if not (self.latest() and self.saved.is_file()):
            return {}
        return absolute(saved_settings(self.saved), self.path)

    def latest(self) -> Path | None:
        """The folder of the newest checkpoint, if any."""
        return next(reversed(by_step(self.checkpoints).values()), None)

    def track_best(self, step: int, metrics: Metrics) -> None:
        """Note the checkpoint after `step` steps as the best if its metric is higher."""
        name, file = self.settings.save.best, self.path / "best.json"
        if name and self._at(step).is_dir():
            # what was best by another metric is none
            is_known = best_of(self.path) is not None and name in saved_table(file)
            highest = saved_number(file, name, -inf) if is_known else -inf
            if metrics.get(name, -inf) > highest:
                write_atomically(file, json.dumps({"step": step, name: metrics[name]}))

    def save(
        self, learner: Learner, step: int, position: Mapping[str, Any], card: str = "{}"
    ) -> None:
        """Write a checkpoint after `step` steps with the source's `position` and the prompt `card`.

        Older checkpoints beyond `save.keep` are deleted, except the best. Raises MachineError when
        the disk is full or fails, SettingsError for a path that cannot be written to; earlier
        checkpoints stay.
        """
        try:
            with replacing(self._at(step)) as partial:
                (partial / "assay").mkdir(parents=True)
                learner.save(partial)
                (partial / CARD).write_text(card)
                (partial / "assay" / "source.json").write_text(json.dumps(position))
                list_files(partial)
        except Exception as error:
            if error_number(error) is None:
                raise
            what = f"step {step} cannot be saved in {self.checkpoints}: {one_line(error)}"
            raise self._blame(error, what) from error
        self._prune()

    def explain(self, error: TrainingError) -> TrainingError:
        """The error with the last checkpoint named; its batches are saved for inspection."""
        message = f"{error}; {self._left()}"
        if not error.batches:
            return TrainingError(message)
        tensors = {
            f"{number}/{field.name}": value.contiguous().clone()
            for number, batch in enumerate(error.batches)
            for field in fields(batch)
            if isinstance(value := getattr(batch, field.name), Tensor)
        }
        shapes = {
            name: [str(value.dtype).removeprefix("torch."), *value.shape]
            for name, value in tensors.items()
        }
        try:
            with replacing(self.path / "not_finite") as partial:
                partial.mkdir()
                save_file(tensors, partial / "batches.safetensors")
                text = json.dumps({"error": str(error), "tensors": shapes}, indent=1)
                (partial / "batches.json").write_text(text + "\n")
        except (OSError, SafetensorError) as full:
            return TrainingError(f"{message}; its batches could not be saved: {one_line(full)}")
        return TrainingError(f"{message}; its batches are in {self.path / 'not_finite'}")

    def explain_stop(self, error: UnhealthyError) -> UnhealthyError:
        """The error with the last checkpoint named."""
        return UnhealthyError(f"{error}; `stop_if` ends the run here, and {self._left()}")

    def explain_disk(self, error: OSError) -> AssayError:
        """The error with the last checkpoint named."""
        what = f"{error.filename or self.path}: {error.strerror or one_line(error)}"
        return self._blame(error, what)

    def _blame(self, error: Exception, what: str) -> AssayError:
        """The user's error where another path helps, the machine's otherwise."""
        kind = SettingsError if error_number(error) in PATH_ERRORS else MachineError
        return kind(f"{what}; {advice(error)}; {self._left()}")

    def restore(self, learner: Learner, source: Source) -> int:
        """Load the newest checkpoint that is whole, if any; returns the number of steps done.

        A warning names broken ones, and they are moved aside. Raises DataError if all are broken.
        """

        def load(checkpoint: Path) -> None:
            require_whole(checkpoint)
            learner.restore(checkpoint)
            source.resume(saved_table(checkpoint / "assay" / "source.json"))

        saved = [*by_step(self.checkpoints).values()]
        if not saved:
            return 0
        whole = newest_whole(saved, load)
        for broken in saved[saved.index(whole) + 1 :]:
            aside = broken.with_name(f"{broken.name}.broken")
            remove(aside)
            broken.rename(aside)
        return int(whole.name.removeprefix("step_"))

    def _prune(self) -> None:
        for old in [*by_step(self.checkpoints).values()][: -self.settings.save.keep]:
            if old != best_of(self.path):
                remove(old)

    def _left(self) -> str:
        latest = self.latest()
        return f"the last good checkpoint is {latest}" if latest else "no checkpoint was saved yet"

    def _at(self, step: int) -> Path:
        return self.checkpoints / f"step_{step:06d}"


def _within(key: str, tables: Sequence[str]) -> bool:
    return any(key == table or key.startswith(f"{table}.") for table in tables)
