"""What all programs of a task share: the fixed part of their jobs, and the proxy features."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.util import find_spec

from assay.errors import DataError
from assay.judge.checkers import CHECKERS
from assay.judge.codec import dumps
from assay.judge.kinds.calls import RECOMPUTED
from assay.judge.kinds.find import kind_of
from assay.judge.kinds.kind import ProgramRun
from assay.judge.task_code import is_harmless, looks_at_identity, only_asserts, only_binds, parsed
from assay.languages import language_named
from assay.sandbox.limits import LONGEST, Limits
from assay.sandbox.program import HASH_SEEDS, Pool, Program, Result
from assay.types import Task

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
    """What of the test's the reference changes."""
    time_factor: float = 1.0
    """Multiplies the time limits."""


NO_FEATURES = ProxyFeatures()
FEATURES_TO_TRY = tuple(
    ProxyFeatures(objects, mutates) for objects in (False, True) for mutates in (False, True)
)
"""What to try, in this order, until the reference passes."""


def time_factor(cpu_seconds: float, limit: float) -> float:
    """The time factor, from 1 to LONGEST, of a task whose reference takes `cpu_seconds`."""
    return min(float(LONGEST), max(1.0, SLACK * cpu_seconds / limit))


USES_FILES = re.compile(
    r"(?<![.\w])open\(|\b(?:os\.(?!path\.(?!exists|isfile|isdir))|tempfile|shutil|sqlite3|Path\()"
)
"""In a test that may share files with the program."""
WRITES = re.compile(
    r"\b(?:open|write_text|write_bytes|touch|mkdir|makedirs|FileHandler|save\w*|dump|to_[a-z]+)\("
    r"|\b(?:tempfile|sqlite3|shelve|dbm|zipfile|tarfile|shutil)\b"
)
"""In a program that may write files, or whose reference may: it gets a folder of its own."""
RUNS_FILES = re.compile(
    r"\b(?:pickle|marshal|shelve|dill|joblib|ctypes|import(?:lib|_module)|runpy|exec|eval|__import__"
    r"|(?:np|numpy)\.load|read_(?:pickle|hdf)|load_extension|sys\.path|fileConfig|dbm)\b"
)
"""In a test that might run what a program has written: it shares no files."""
ELSEWHERE = re.compile(r"[\"']/|\b(?:tempfile|getcwd|abspath|chdir|resolve|home|patch|mock)\b")
"""In a test of which files may lie outside the folder."""
DOUBT = "this test works with files that the program cannot have"
UNREACHED = re.compile(
    r"\b(?:patch(?:\.\w+)?\(|(?:asdict|astuple)\(|getsource|os\.environ|sys\.argv|pickle\.|pandas\b"
    r"|assert(?:Logs|Warns)|pytest\.warns|caplog\b|monkeypatch\b|catch_warnings|ExceptionGroup\b"
    r"|Unicode\w+Error\b|__context__|__notes__|(?:e|err|error|exc\w*|value)\.(?:errno|filename|pos)\b)"
)
REPLACED = re.compile(
    r"^[ \t]*(\w+)(?:\.\w+)*\.(?!std|input\b|print\b)\w+[ \t]*=[^=]", re.MULTILINE
)
IMPORTED = re.compile(r"^[ \t]*import (?:[\w.]+ as )?(\w+)", re.MULTILINE)
"""A test that replaces something of a module that it imports, but for the console."""
UNREACHED_DOUBT = "this test patches modules, or needs logs or what else stays on one side"
NUMERIC = re.compile(r"^[ \t]*(?:import|from)\s+(?:numpy|scipy|pandas)\b", re.MULTILINE)
HAS_NUMPY = find_spec("numpy") is not None


def node_classes(task: Task) -> list[list[str]]:
    """Name and source of each plain class that the setup defines, after the setup's imports. The
    program has them too, without the methods that the prompt does not speak of.
    """
    body = parsed(task.setup).body if "class " in task.setup else []
    text = "\n".join([task.prompt, task.stub, *(message.content for message in task.messages)])
    classes: list[list[str]] = []
    names = {"object"}
    for part in body:
        if isinstance(part, ast.Import | ast.ImportFrom):
            classes.append(["", ast.unparse(part)])
        elif isinstance(part, ast.ClassDef) and part.name != task.entry_point:
            if not all(isinstance(base, ast.Name) and base.id in names for base in part.bases):
                continue
            if not re.search(rf"\b{part.name}\b", text):
                part.body = [statement for statement in part.body if _is_of_data(statement)] or [
                    ast.Pass()
                ]
            names.add(part.name)
            classes.append([part.name, ast.unparse(part)])
    return classes if any(name for name, _ in classes) else []


def _is_of_data(part: ast.stmt) -> bool:
    return not isinstance(part, ast.FunctionDef) or part.name.startswith("__")


class PreparedTask:
    """A task that is judged with these limits. Raises DataError for exchanges beside other
    checks, and for test functions that cannot be run.
    """

    def __init__(self, task: Task, limits: Limits, stop_early: bool) -> None:
        self._task, self._limits, self._stop_early = task, limits, stop_early
        self.checks = task.checks
        self._kinds = [(kind_of(check), check) for check in task.checks]
        in_worker = {kind.in_worker for kind, _ in self._kinds}
        self.language = language_named(task.language)
        self.runs_alone = False in in_worker or not self.language.warm
        """Whether each check is a run of the program, without a worker."""
        if len(in_worker) > 1:
            raise DataError(
                f"task {task.id!r} has exchanges beside other checks; make two tasks of it"
            )
        try:
            self.total = sum(kind.count(check) for kind, check in self._kinds)
            """All checks; each test of a module is one."""
        except ValueError as error:
            raise DataError(f"the tests of task {task.id!r}: {error}") from None
        sources = [code for kind, source in self._kinds for code in kind.code(source)]
        self._sources = sources
        self._setup = task.setup if sources or not only_binds(task.setup) else ""
        is_table = task.reference is not None or (
            not task.entry_point[:1].isupper()  # instances of a class are no data
            and all(
                is_harmless([source]) and only_asserts(source, task.entry_point)
                for source in sources
            )
        )
        self.first_features = ProxyFeatures(objects=not is_table)
        """What a program is judged with first."""
        large = any(getattr(check, "expected", "") == dumps(RECOMPUTED) for check in task.checks)
        self._recomputing = (task.reference or "") if large else ""
        if not all(kind.judges(self.language) for kind, _ in self._kinds):
            raise DataError(
                f"task {task.id!r}: a program in {self.language.title} can only read and print, or"
                " be called; give it exchanges or calls"
            )
        self.numeric = any(map(NUMERIC.search, (task.setup, *sources)))
        text = "\n".join([self._setup, *sources])
        uses_files = USES_FILES.search(text) is not None
        self.shares_files = uses_files and not (task.large or RUNS_FILES.search(text))
        """Whether test and program have folders of which the files are carried."""
        self.parses_databases = self.shares_files and "sqlite3." in text
        """Whether the test reads what a program wrote by much code that is no Python."""
        known_place = self.shares_files and not ELSEWHERE.search(text)
        self._doubt = DOUBT if uses_files and not known_place else ""
        if UNREACHED.search(text) or {*REPLACED.findall(text)} & {*IMPORTED.findall(text)}:
            self._doubt = UNREACHED_DOUBT
        self.hash_seed = task.hash_seed % HASH_SEEDS
        rules = [task.setup, task.entry_point, task.checker, task.reference, stop_early, task.large]
        rules += [str(self.hash_seed), repr(self.language), *self.language.versions()]
        rules += [kind.surroundings(check) for kind, check in self._kinds]
        rules.append(str(node_classes(task)))
        identity = json.dumps([[*map(repr, task.checks)], rules, asdict(limits)]).encode()
        self.digest = hashlib.blake2b(identity, digest_size=32).digest()
        """Differs for every other task and every other limits."""

    def runs(self, program: str) -> list[ProgramRun]:
        """The runs of a program that decide the checks, where it runs alone."""
        return self._kinds[0][0].runs(self.checks, self._task, program, self.language)

    def read(self, at: int, result: Result) -> str:
        """The answer to the check at this place, from a run of the reference."""
        kind, check = self._kinds[at]
        return kind.read(check, result)

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
        }
        return Program(
            companion=f"{json.dumps(fields)[:-1]},{self._shared_fields}".encode(),
            keeps_companion=self._keeps_worker and not features.objects,
            pool=self._pool(program),
            time_factor=features.time_factor,
            steps=max(1, sum(kind.own_time for kind, _ in self._kinds)),
        )

    def _pool(self, program: str) -> Pool:
        writes = self.shares_files or bool(WRITES.search(f"{program}\n{self._task.reference}"))
        if self._task.large or writes:
            return Pool("", self.hash_seed, writes=writes, large=self._task.large)
        return pool_for(program, numeric=self.numeric, hash_seed=self.hash_seed)

    @cached_property
    def _keeps_worker(self) -> bool:
        """Whether a worker that has run the job on data may take another."""
        checker = "" if self._task.checker in CHECKERS else self._task.checker
        code = [self._setup, *self._sources]
        return not (self._recomputing or checker) and is_harmless(code)

    @cached_property
    def _shared_fields(self) -> str:
        """The fields of a CheckJob that all programs share: the inside of a JSON object."""
        task = self._task
        fields = {
            "reply_mb": self._limits.reply_mb,
            "entry_point": task.entry_point,
            "setup": self._setup,
            "classes": node_classes(task),
            "identity": any(map(looks_at_identity, [self._setup, *self._sources])),
            "files": self.shares_files,
            "doubt": self._doubt,
            "checker": task.checker,
            "reference": self._recomputing,
            "stop_early": self._stop_early,
            "large": task.large,
            "numpy": any(map(NUMERIC.search, [task.checker, task.reference or ""])) or self.numeric,
            "checks": [[kind.wire.__module__, kind.wire(check)] for kind, check in self._kinds],
        }
        return json.dumps(fields)[1:]


def pool_for(*sources: str, numeric: bool = False, hash_seed: int = 0) -> Pool:
    """The pool that has this seed and has loaded what these sources import."""
    loads = HAS_NUMPY and (numeric or any(map(NUMERIC.search, sources)))
    return Pool("numpy" if loads else "", hash_seed)
