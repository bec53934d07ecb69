"""The rollouts of a stage: an index in memory of what is filtered, and texts read when shown."""

import codecs
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay.errors import DataError
from assay.files import by_step
from assay.trackers.rollouts import VOCABULARY, schema, turns
from assay.types import Verdict
from assay.viewer.call_tree import call_tree
from assay.viewer.file_cache import UNREADABLE, FileCache
from assay.viewer.parse import read_vocabulary, require_parquet

PLACES = ("step", "group", "index")
LISTED = (
    *PLACES, "task_id", "verdict", "passed", "total", "reward", "ended", "version", "failure",
    "held_out", "length", "cause",
)  # fmt: skip
"""Columns of the list of rollouts."""
SEARCHED = ("completion", "output", "detail", "observation")
IN_MEMORY = (*PLACES, "task_id", "verdict", "reward", "program", *SEARCHED)
"""Columns of turns that stay in memory for searches, where their files are no more than KEPT."""
TEXTS = ("prompt", "completion", "program", "detail", "output", "stderr", "observation")
TURN = (
    "turn", "verdict", "passed", "total", "forgeable", "cpu_seconds", "ended", "version", "length",
    "tests", "calls", "cause",
)  # fmt: skip
"""Columns of a turn that are shown as they stand."""
CALLS = ("agent_calls", "agent_call_count", "unlearned", "failure", "cause")
"""Columns of which a rollout's tree of calls is made, beside the lengths of its turns."""
SHARED = ("checks", "tags")
"""Columns of a group's first row, which all of its rollouts share."""
NEVER_NULL = (*PLACES, "turn", "task_id")
ROWS = "rows"
"""What the cache calls the part of a file that an index is made of."""
KEPT = 1 << 30
"""Bytes of files whose texts stay in memory; those of more are read each time."""
CUT, PIECE, TOKENS = 20_000, 200_000, 2_000
"""Characters of a text that are sent at first, and of each piece after; tokens that are sent."""


@dataclass(frozen=True, slots=True)
class RolloutFilter:
    """Which rollouts to list; what is empty does not matter."""

    step: int | None = None
    task: str = ""
    """The id of a task, or a part of it after `~`."""
    verdict: str = ""
    """Verdicts with commas between them; `gap`: paid as right, and wrong by held-out checks;
    `forgeable`: passes that a program could have forged."""
    low: float | None = None
    high: float | None = None
    """The smallest and the largest reward."""
    search: str = ""
    """A part of a completion, of what it printed, of the verdict's detail or of an observation."""


class RolloutFiles:
    """A folder with a Parquet file of rollouts for each step. A file that is damaged is left out,
    and told by the cache.
    """

    def __init__(self, folder: Path, cache: FileCache) -> None:
        self._folder, self._cache = folder, cache
        self._stamps: dict[int, tuple[int, int]] = {}
        self._index: pa.Table | None = None
        self._kept: Any = None
        self._lock = Lock()
        self._search = lru_cache(maxsize=8)(self._find)

    def files(self) -> dict[int, Path]:
        """The sound files by step."""
        return {
            step: file
            for step, file in by_step(self._folder, ".parquet").items()
            if self._cache.read(file, require_columns, False)
            and not self._cache.is_damaged(file, ROWS)
        }

    def index(self) -> pa.Table:
        """One row for each rollout, in order: LISTED, `turns`, `forgeable`. New files are read."""
        with self._lock:
            files = self.files()
            stats = {step: file.stat() for step, file in files.items()}
            stamps = {step: (stat.st_mtime_ns, stat.st_size) for step, stat in stats.items()}
            small = sum(size for _, size in stamps.values()) < KEPT
            if small and self._kept is None:
                self._stamps = {}
            new = [step for step in files if self._stamps.get(step) != stamps[step]]
            if self._index is None or new or stamps.keys() != self._stamps.keys():
                rows, sound = self._sound_rows(
                    {step: files[step] for step in new}, IN_MEMORY if small else ()
                )
                same = [step for step in stamps if step not in new]
                stamps = {step: stamps[step] for step in (*same, *sound)}
                indexes = [last_turns(rows)]
                in_memory = [rows.select([*IN_MEMORY])] if small else []
                for parts, old in ((indexes, self._index), (in_memory, self._kept)):
                    if old is not None:
                        parts.append(old.filter(np.isin(old["step"].to_numpy(), same)))
                table = pa.concat_tables(indexes).unify_dictionaries().combine_chunks()
                self._index = table.take(np.argsort(row_keys(table), kind="stable"))
                self._kept = pa.concat_tables(in_memory) if small else None
                self._stamps = stamps
                self._search.cache_clear()
            return self._index

    def _sound_rows(
        self, files: Mapping[int, Path], more: Sequence[str]
    ) -> tuple[pa.Table, list[int]]:
        """The rows of those files that can be read, and their steps."""
        try:
            return read_rows(list(files.values()), more), list(files)
        except DataError:  # which of them it is shows one by one
            tables = {}
            for step, file in files.items():
                try:
                    tables[step] = read_rows([file], more)
                except DataError as error:
                    self._cache.blame(file, ROWS, error.__cause__ or error)
            return pa.concat_tables([read_rows([], more), *tables.values()]), list(tables)

    def select(self, rule: RolloutFilter, order: str = "step") -> pa.Table:
        """The rows of the index that pass the filter, by `step`, `reward` or `length`; the largest
        first where `order` starts with `-`.
        """
        table = self.index()
        masks = [*_masks(table, rule)]
        if rule.search:
            hits = self._search(rule.search, rule.step)
            masks.append(pa.array(np.isin(row_keys(table), hits)))
        if masks:
            table = table.filter(reduce(pc.and_, masks))
        column, way = order.removeprefix("-"), "descending" if order[:1] == "-" else "ascending"
        keys = [(column, way), ("step", way), ("group", "ascending"), ("index", "ascending")]
        if order != "step":
            table = table.take(pc.sort_indices(table, sort_keys=keys[column == "step" :]))
        return table

    def _find(self, text: str, step: int | None) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The keys of the rollouts that have `text` in a turn."""
        hits = [pc.match_substring(pc.field(name), text, ignore_case=True) for name in SEARCHED]
        return row_keys(self.turns(PLACES, reduce(or_, hits), step))

    def turns(self, columns: Sequence[str], where: pc.Expression, step: int | None) -> pa.Table:
        """Some columns of the turns that pass a filter, of one step or of all; both may use those
        of IN_MEMORY.
        """
        from pyarrow import dataset

        files = [file for number, file in self.files().items() if step in (None, number)]
        where = where if step is None else where & (pc.field("step") == step)
        if self._kept is None:
            return read_table(files, columns, where)
        return dataset.dataset(self._kept).to_table([*columns], filter=where)

    def rollout(self, step: int, group: int, index: int) -> dict[str, Any] | None:
        """A rollout with its turns; None if there is none. Long texts are cut: see `text`."""
        rows = self._rows(step, group, index)
        mine = [row for row in rows if row["index"] == index]
        if not mine:
            return None
        shared: dict[str, Any] = {
            name: next((row[name] for row in rows if row[name]), []) for name in SHARED
        }
        turns = [self._turn(row, rows) for row in mine]
        return (
            {name: mine[-1][name] for name in (*LISTED, "parts")}
            | shared
            | {"turns": turns, "call_tree": call_tree(mine), "seconds": mine[-1]["seconds"]}
        )

    def call_sums(self) -> list[dict[str, Any]]:
        """Of each rollout of the newest step that has an agent's calls, how many there were, and
        their tokens by what became of them.
        """
        files = self.files()
        if not files:
            return []
        file, columns = files[max(files)], [*PLACES, "task_id", "length", *CALLS]
        try:
            rows = read_table([file], columns, None).to_pylist()
        except (DataError, ValueError) as error:  # the latter of bytes that are no text
            self._cache.blame(file, "calls", error.__cause__ or error)
            return []
        turns = defaultdict[tuple[int, ...], list[dict[str, Any]]](list)
        for row in rows:
            turns[tuple(row[name] for name in PLACES)].append(row)
        trees = [(mine[0], call_tree(mine)) for mine in turns.values()]
        return [
            {name: row[name] for name in (*PLACES, "task_id")}
            | {"calls": tree["count"], "tokens": dict(tree["sums"])}
            for row, tree in trees
            if tree
        ]

    def tags(self, step: int) -> dict[str, dict[str, str]]:
        """The tags of each task of a step that has any."""
        file = self.files().get(step)
        if file is None:
            return {}
        try:
            rows = read_table([file], ["task_id", "tags"], pc.field("tags").is_valid()).to_pylist()
        except DataError as error:
            self._cache.blame(file, "tags", error.__cause__ or error)
            return {}
        return {row["task_id"]: dict(row["tags"]) for row in rows}

    def text(self, step: int, group: int, index: int, turn: int, name: str, start: int) -> str:
        """A piece of a text of a turn, from character `start`; empty behind its end."""
        rows = self._rows(step, group, index)
        for row in rows:
            if (row["index"], row["turn"]) == (index, turn) and name in TEXTS:
                return self._text(row, rows, name)[start : start + PIECE]
        return ""

    def _rows(self, step: int, group: int, index: int) -> list[dict[str, Any]]:
        """The turns of a rollout, and those of the first of its group."""
        file = self.files().get(step)
        if file is None:
            return []
        rule = (pc.field("group") == group) & pc.field("index").isin([0, index])
        try:
            rows: list[dict[str, Any]] = read_table([file], None, rule).to_pylist()
        except (DataError, ValueError) as error:  # the latter of bytes that are no text
            self._cache.blame(file, "texts", error.__cause__ or error)
            raise DataError(f"{file} cannot be read: {error}") from error
        return rows

    def _turn(self, row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        texts = {name: self._text(row, rows, name) for name in TEXTS}
        cut = {name: {"text": text[:CUT], "total": len(text)} for name, text in texts.items()}
        return (
            {name: row[name] for name in TURN}
            | cut
            | {
                "rendered": bool(self._read(row, rows)),
                "prompt_length": len(self._read(row, rows)),
                "tokens": self._pieces((row["tokens"] or [])[:TOKENS]),
                "logprobs": (row["logprobs"] or [])[:TOKENS],
                "advantages": (row["advantages"] or [])[:TOKENS],
            }
        )

    def _text(self, row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], name: str) -> str:
        """A text of a turn; the prompt as the model read it where its tokens are known."""
        read = self._read(row, rows) if name == "prompt" else []
        return "".join(self._pieces(read)) or str(row[name] or "")

    def _read(self, row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[int]:
        """The prompt's tokens: a group's first turns have the same, kept once."""
        first = [turn["prompt_tokens"] for turn in rows if turn["index"] == turn["turn"] == 0]
        return row["prompt_tokens"] or (first and not row["turn"] and first[0]) or []

    def _pieces(self, tokens: Sequence[int]) -> list[str]:
        """The text of each token, at the token's place; a character of several tokens is at the
        last of them. An id that the vocabulary lacks has no text; without a vocabulary none has.
        """
        file = self._folder.parent / VOCABULARY
        vocabulary: list[bytes] = self._cache.read(file, read_vocabulary, [])
        if not vocabulary:
            return []
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        size = len(vocabulary)
        pieces = [decoder.decode(vocabulary[id] if 0 <= id < size else b"") for id in tokens]
        if unfinished := decoder.decode(b"", final=True):
            pieces[-1] += unfinished
        return pieces


def require_columns(file: Path) -> bool:
    """True for a file with the columns of rollouts, of types that can be read as theirs."""
    from pyarrow import parquet

    require_parquet(file)
    columns, target = parquet.read_schema(file), schema()
    if missing := [name for name in NEVER_NULL if name not in columns.names]:
        raise DataError(f"it has no column {', '.join(missing)}")
    names = [name for name in target.names if name in columns.names]
    empty = columns.empty_table().select(names)
    empty.cast(pa.schema([target.field(name) for name in names]))
    return True


def row_keys(table: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """[N] one number for each row's step, group and index, in their order."""
    step, group, index = (table[name].to_numpy().astype(np.int64) for name in PLACES)
    numbers: np.ndarray[Any, np.dtype[np.int64]] = (step << 40) + (group << 20) + index
    return numbers


def read_rows(files: Sequence[Path], more: Sequence[str] = ()) -> pa.Table:
    """The turns in some files: what an index is made of, and `more` columns. Raises DataError for a
    file that is damaged.
    """
    table = read_table(files, [*dict.fromkeys([*LISTED, "turn", "forgeable", *more])], None)
    if empty := [name for name in NEVER_NULL if table[name].null_count]:
        raise DataError(f"a row has no {empty[0]}")
    return table


def read_table(
    files: Sequence[Path], columns: Sequence[str] | None, where: pc.Expression | None
) -> pa.Table:
    """Columns of the turns in some files that pass a filter. Raises DataError for damage."""
    try:
        names = None if columns is None else [*columns]
        table = turns(files).to_table(names, filter=where)
        table.validate(full=True)
    except UNREADABLE as error:
        why = " ".join(str(error).split())
        raise DataError(f"rollouts in {files[0].parent} cannot be read: {why}") from error
    return table


def last_turns(rows: pa.Table) -> pa.Table:
    """The index of some turns: each rollout's last, with the tokens of all its turns."""
    table = rows.select([*LISTED, "turn", "forgeable"]).combine_chunks()
    changes = np.flatnonzero(np.diff(row_keys(table))) + 1
    first = np.r_[0, changes] if len(table) else changes
    last = np.r_[changes, len(table)] - 1 if len(table) else changes
    lengths = pc.fill_null(table["length"], 0).to_numpy()
    columns = {name: table[name] for name in LISTED} | {"turns": table["turn"]}
    columns["forgeable"] = pc.fill_null(table["forgeable"], False)
    columns |= {name: pc.dictionary_encode(table[name]) for name in ("task_id", "verdict")}
    index = pa.table(columns).take(last)
    total = np.add.reduceat(lengths, first) if len(first) else lengths
    return index.set_column(
        index.column_names.index("length"), "length", pa.array(total, pa.int32())
    )


def _masks(table: pa.Table, rule: RolloutFilter) -> Iterator[Any]:
    """What a row must be, but for what is searched."""
    tasks, verdicts = (pc.cast(table[name], pa.string()) for name in ("task_id", "verdict"))
    passes, part = str(Verdict.PASS), rule.task.removeprefix("~")
    if rule.step is not None:
        yield pc.equal(table["step"], rule.step)
    if rule.task and rule.task == part:
        yield pc.equal(tasks, part)
    elif rule.task:
        yield pc.match_substring(tasks, part, ignore_case=True)
    match rule.verdict:
        case "":
            pass
        case "gap":
            yield pc.not_equal(table["held_out"], passes)
        case "forgeable":
            yield pc.and_(table["forgeable"], pc.equal(verdicts, passes))
        case several:
            yield pc.is_in(verdicts, pa.array(several.split(",")))
    if rule.low is not None:
        yield pc.greater_equal(table["reward"], rule.low)
    if rule.high is not None:
        yield pc.less_equal(table["reward"], rule.high)
