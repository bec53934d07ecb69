"""What all programs of a task share: the fixed part of their jobs, and the proxy features."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from typing import Any

from assay.bounded import size_of
from assay.checks import AnyCheck, Check
from assay.errors import DataError
from assay.judge.checkers import checker_named
from assay.judge.compared_arguments import only_compares_arguments
from assay.judge.identity import digest_of_task, surroundings_of
from assay.judge.kinds.calls import RECOMPUTED_TEXT
from assay.judge.kinds.find import family, kind_of, texts_for_worker
from assay.judge.kinds.kind import InWorker, Kind
from assay.judge.task_code import (
    imported_names,
    is_harmless,
    looks_at_identity,
    node_classes,
    only_binds,
    requested_names,
)
from assay.judge.task_fields import require_fields
from assay.judge.worker_messages import ALIASES, ARGUMENTS, ARRAYS, OBJECTS, SUBCLASSES
from assay.languages import language_named
from assay.sandbox.limits import LONGEST, Limits
from assay.sandbox.program import HASH_SEEDS, Pool, Program
from assay.types import Task

SHARED = ("language", "_limits", "_kinds")
"""What a prepared task has in common with others, or holds a second time."""
SLACK = 4.0
"""A program has so many times the reference's own CPU time, where that is more than the limit."""


@dataclass(frozen=True, slots=True)
class ProxyFeatures:
    """What a task needs, as its reference shows."""

    objects: bool = False
    """The test has handles of the program's objects; else an object in an answer is opaque."""
    mutates: bool = False
    """Objects of a test that the program changes are changed there too."""
    changes: frozenset[str] = frozenset()
    """What a program may change of the test's: what the reference changes, or what the test reads
    as it reads an answer."""
    time_factor: float = 1.0
    """Multiplies the time limits."""
    arrays: bool = False
    """The test has numpy's values as numpy's; else they become Python's."""
    subclasses: bool = False
    """Instances of subclasses of list, dict and other data that can change are objects."""
    aliases: bool = False
    """Objects of answers that are one in the program are one in the test."""

    def with_values(self, changes: Collection[str]) -> ProxyFeatures:
        """The features with those of single values that an execution shows a need of."""
        return replace(
            self,
            arrays=self.arrays or ARRAYS in changes,
            aliases=self.aliases or ALIASES in changes,
            subclasses=self.subclasses or (self.objects and SUBCLASSES in changes),
        )

    def widened(self, changes: Collection[str]) -> ProxyFeatures:
        """The features with all those. What the program may change of the test's comes last, for it
        makes a pass forgeable.
        """
        wider = self.with_values(changes)
        if {OBJECTS, SUBCLASSES} & {*changes}:
            wider = replace(wider, objects=True)
        if wider == self and ARGUMENTS in changes:
            wider = replace(wider, mutates=True)
        return wider


NO_FEATURES = ProxyFeatures()
NEEDS_OBJECTS = "objects"
"""Of a task that says so."""


def first_features(task: Task, sources: Sequence[str]) -> ProxyFeatures:
    """What a program is judged with first. `sources`: the code of the task's checks."""
    is_alone = task.reference is None and not (task.setup or task.checker)
    only_asserts = bool(sources) and all(isinstance(check, Check) for check in task.checks)
    is_compared = is_alone and only_asserts and only_compares_arguments(sources)
    changes = frozenset({ARGUMENTS} if is_compared else ())
    return ProxyFeatures(objects=task.needs == NEEDS_OBJECTS, changes=changes)


def features_to_try(task: Task) -> list[ProxyFeatures]:
    """What to try, in this order, until the task's reference passes."""
    with_objects = (True,) if task.needs == NEEDS_OBJECTS else (False, True)
    return [
        ProxyFeatures(objects, mutates) for objects in with_objects for mutates in (False, True)
    ]


def time_factor(cpu_seconds: float, limit: float) -> float:
    """The time factor, from 1 to LONGEST, of a task whose reference takes `cpu_seconds`."""
    return min(float(LONGEST), max(1.0, SLACK * cpu_seconds / limit))


USES_FILES = re.compile(
    r"(?<![.\w])open\(|\.(?:read|write)_(?:text|bytes)\(|\.(?:iterdir|is_file|is_dir)\("
    r"|\b(?:os\.(?!path\.(?!exists|isfile|isdir))|tempfile|shutil|sqlite3|Path\(|tmp_path"
    r"|(?:glob|fileinput|filecmp|linecache)\.)"
)
"""In a test that may share files with the program."""
WRITING_CALLS = (
    "open", "write_text", "write_bytes", "touch", "mkdir", "makedirs", "FileHandler", r"save\w*",
    "dump", "to_[a-z]+",
)  # fmt: skip
WRITING_MODULES = "tempfile", "sqlite3", "shelve", "dbm", "zipfile", "tarfile", "shutil"
WRITES = re.compile(rf"\b(?:{'|'.join(WRITING_CALLS)})\(|\b(?:{'|'.join(WRITING_MODULES)})\b")
"""In a program that may write files, or whose reference may: it gets a folder of its own."""
WRITING_WORDS = [re.split(r"\W", it)[0] for it in (*WRITING_CALLS, *WRITING_MODULES)]
"""One of these stands in such a program; to look for them takes a tenth of the time."""
RUNS_FILES = re.compile(
    r"\b(?:pickle|marshal|shelve|dill|joblib|ctypes|import(?:lib|_module)|runpy|exec|eval|__import__"
    r"|(?:np|numpy)\.load|read_(?:pickle|hdf)|load_extension|sys\.path|fileConfig|dbm)\b"
)
"""In a test that might run what a program has written: it shares no files."""
ELSEWHERE = re.compile(
    r"[\"']/|\b(?:tempfile|getcwd|abspath|absolute|chdir|resolve|home|patch|mock)\b"
)
"""In a test of which files may lie outside the folder."""
DOUBT = "this test works with files that the program cannot have"
UNREACHED = re.compile(
    r"\b(?:patch(?:\.\w+)?\(|(?:asdict|astuple)\(|getsource|environ\b|argv\b|pickle\.|pandas\b"
    r"|dataclasses\.fields\(|addHandler\(|(?:simplefilter|filterwarnings)\(\s*[\"'](?:error|always)"
    r"|getcontext\(\)\.\w+\s*=[^=]"
    r"|assert(?:Logs|Warns)|pytest\.warns|caplog\b|recwarn\b|monkeypatch\.|catch_warnings"
    r"|Unicode\w+Error\b|__context__)"
)
CONSOLE = re.compile(
    r"monkeypatch\.(?:undo\(|setattr\(\s*[\"']?"
    r"(?:builtins(?:\.|,\s*[\"'])(?:input|print)|sys(?:\.|,\s*[\"'])std(?:in|out|err))[\"'])"
)
"""What a test replaces that the program gets too."""
REPLACED = re.compile(
    r"^[ \t]*(\w+)(?:\.\w+)*\.(?!std|input\b|print\b)\w+[ \t]*=[^=]", re.MULTILINE
)
IMPORTED = re.compile(r"^[ \t]*import (?:[\w.]+ as )?(\w+)", re.MULTILINE)
"""A test that replaces something of a module that it imports, but for the console."""
UNREACHED_DOUBT = "this test patches modules, or needs logs or what else stays on one side"
NUMERIC = re.compile(r"^[ \t]*(?:import|from)\s+(?:numpy|scipy|pandas)\b", re.MULTILINE)
HAS_NUMPY = find_spec("numpy") is not None


@dataclass(frozen=True, slots=True)
class UnpreparableTask:
    """A task that cannot be judged, whatever the program is."""

    task: Task
    error: Exception
    """Why: DataError or CodecError."""
    size: int = 0
    """About how many bytes it takes."""


def weight_of(part: int | PreparedTask | UnpreparableTask) -> int:
    """About the bytes of a prepared task; none of the id that is its key."""
    return 0 if isinstance(part, int) else part.size


class PreparedTask:
    """A task that is judged with these limits. surroundings: what `surroundings_of` the task says;
    it is asked, and the task's fields are looked at, where none are passed. Raises DataError for
    exchanges beside other checks, and for test functions that cannot be run.
    """

    def __init__(
        self, task: Task, limits: Limits, stop_early: bool,
        surroundings: tuple[str, ...] | None = None,
    ) -> None:  # fmt: skip
        if surroundings is None:  # who has looked at them has found the fields right
            require_fields(task)
        self.task, self._limits, self._stop_early = task, limits, stop_early
        self.checks = task.checks
        self._kinds = [(kind_of(check), check) for check in task.checks]
        self.language = language_named(task.language)
        if len(set(map(family, task.checks))) > 1:
            raise DataError(
                f"task {task.id!r} has exchanges beside other checks; split it into two tasks"
            )
        try:
            self.total = sum(kind.count(check) for kind, check in self._kinds)
            """All checks; each test of a module is one."""
        except ValueError as error:
            raise DataError(f"the tests of task {task.id!r}: {error}") from None
        sources = [code for kind, source in self._kinds for code in kind.code(source)]
        self._sources = sources
        self._setup = task.setup if sources or not only_binds(task.setup) else ""
        self.first_features = first_features(task, sources)
        """What a program is judged with first."""
        large = any(getattr(check, "expected", "") == RECOMPUTED_TEXT for check in task.checks)
        self._recomputing = (task.reference or "") if large else ""
        if not all(kind.judges(self.language) for kind, _ in self._kinds):
            raise DataError(
                f"task {task.id!r}: a program in {self.language.title} can only read and print, or"
                " be called; give it exchanges or calls"
            )
        self._imports = {name for kind, check in self._kinds if (name := imports_of(kind, check))}
        self.numeric = any(map(NUMERIC.search, (task.setup, *sources)))
        whole = (task.checker, task.reference or "")
        self._has_arrays = self.numeric or any(map(NUMERIC.search, whole))
        text = "\n".join([self._setup, *sources])
        uses_files = USES_FILES.search(text) is not None
        self.shares_files = uses_files and not (task.large or RUNS_FILES.search(text))
        """Whether test and program have folders of which the files are carried."""
        self.parses_databases = self.shares_files and "sqlite3." in text
        """Whether the test reads what a program wrote by much code that is no Python."""
        known_place = self.shares_files and not ELSEWHERE.search(text)
        self._doubt = DOUBT if uses_files and not known_place else ""
        if UNREACHED.search(CONSOLE.sub("", text)) or {*REPLACED.findall(text)} & {
            *IMPORTED.findall(text)
        }:
            self._doubt = UNREACHED_DOUBT
        self.hash_seed = task.hash_seed % HASH_SEEDS
        self.surroundings = surroundings_of(task) if surroundings is None else surroundings
        self._requested_names = requested_names(task, [self._setup, *sources]) if sources else None
        self._test_imports = imported_names(task) if sources else {}
        self.digest = digest_of_task(
            task, limits, stop_early, self.surroundings, self._requested_names, self._test_imports
        )
        """Differs for every other task, other surroundings and other limits."""

    @cached_property
    def size(self) -> int:
        """About how many bytes it takes, which is long to find out: so what tasks share is left
        out.
        """
        return size_of([value for name, value in vars(self).items() if name not in SHARED])

    def complete(self) -> None:
        """Make what the first program would, and forget what only that needs. Raises DataError and
        CodecError.
        """
        self._shared_fields, self._steps, self._keeps_worker  # noqa: B018
        self._kinds, self._sources = [], []
        self.size  # noqa: B018

    def __getstate__(self) -> dict[str, Any]:
        """For another process, once it is complete."""
        return {**self.__dict__, "language": self.task.language}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, language=language_named(state["language"]))

    def key(self, program: str) -> bytes:
        """The key of a program's verdict in the cache."""
        source = program.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(source, key=self.digest, digest_size=32).digest()

    def checked(self, program: str, features: ProxyFeatures) -> Program:
        """A function with a worker that runs its checks. Raises CodecError."""
        fields = {
            "program": program,
            "mutates": features.mutates,
            "objects": features.objects,
            "numpy": features.arrays or self._has_arrays,
            "subclasses": features.subclasses,
            "aliases": features.aliases,
        }
        return Program(
            companion=f"{json.dumps(fields)[:-1]},{self._shared_fields}".encode(),
            keeps_companion=self._keeps_worker and not features.objects,
            pool=self._pool(program),
            time_factor=features.time_factor,
            steps=self._steps,
        )

    def _pool(self, program: str) -> Pool:
        writes = self.shares_files or self._reference_writes or may_write(program)
        if self.task.large or writes:
            imports = " ".join(sorted(self._imports))
            return Pool(imports, self.hash_seed, writes=writes, large=self.task.large)
        pool = pool_for(program, numeric=self.numeric, hash_seed=self.hash_seed)
        if not self._imports:
            return pool
        return pool._replace(imports=" ".join(sorted({*self._imports, *pool.imports.split()})))

    @cached_property
    def _reference_writes(self) -> bool:
        return may_write(self.task.reference or "")

    @cached_property
    def _steps(self) -> int:
        pairs = [(kind, check) for kind, check in self._kinds if isinstance(kind, InWorker)]
        return max(1, sum(kind.steps(check) for kind, check in pairs))

    @cached_property
    def _keeps_worker(self) -> bool:
        """Whether a worker that has run the job on data may take another."""
        checker = "" if checker_named(self.task.checker) else self.task.checker
        code = [self._setup, *self._sources]
        return not (self._recomputing or checker or self._imports) and is_harmless(code)

    @cached_property
    def _shared_fields(self) -> str:
        """The fields of a CheckJob that all programs share: the inside of a JSON object."""
        task = self.task
        kinds = [(kind, check) for kind, check in self._kinds if isinstance(kind, InWorker)]
        fields = {
            "reply_mb": self._limits.reply_mb,
            "entry_point": task.entry_point,
            "setup": self._setup,
            "classes": node_classes(task),
            "requested_names": self._requested_names,
            "imports": self._test_imports,
            "identity": any(map(looks_at_identity, [self._setup, *self._sources])),
            "files": self.shares_files,
            "doubt": self._doubt,
            "checker": task.checker,
            "reference": self._recomputing,
            "stop_early": self._stop_early,
            "large": task.large,
            "checks": [[kind.wire.__module__, kind.wire(check)] for kind, check in kinds],
            "kinds": {
                name: text
                for kind in {kind for kind, _ in kinds}
                for name, text in texts_for_worker(kind).items()
            },
        }
        return json.dumps(fields)[1:]


def imports_of(kind: Kind[Any], check: AnyCheck) -> str:
    """What a worker must have imported for a check. Raises NotInstalledError."""
    return kind.imports(check) if isinstance(kind, InWorker) else ""


def may_write(program: str) -> bool:
    """Whether a program may write files."""
    return any(word in program for word in WRITING_WORDS) and WRITES.search(program) is not None


def pool_for(*sources: str, numeric: bool = False, hash_seed: int = 0) -> Pool:
    """The pool that has this seed and has loaded what these sources import."""
    loads = HAS_NUMPY and (numeric or any(map(NUMERIC.search, sources)))
    return Pool("numpy" if loads else "", hash_seed)
