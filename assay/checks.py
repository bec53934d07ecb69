"""The checks of a task, one class for each kind of test. judge/kinds has a file for each, with all
that is done with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


class AnyCheck(Protocol):
    """A check of any kind. judge/kinds has a file for each kind, with all that is done with it."""

    @property
    def hidden(self) -> bool:
        """Whether it is hidden from the model."""


@dataclass(frozen=True, slots=True)
class Check:
    """One assertion that a correct program passes."""

    source: str
    """Python code that the test worker runs. It calls the entry point through a proxy and raises if
    the program is wrong."""
    hidden: bool = True
    """Whether it is hidden from the model."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the entry point, and the expected value."""

    arguments: str
    """The list of arguments in the judge's JSON (judge/codec.py), which is plain JSON for plain
    values."""
    expected: str | None = None
    """The expected value in the same JSON; None to use the reference's answer."""
    tolerance: float = 0.0
    """Absolute tolerance for floats anywhere in the value."""
    hidden: bool = True


@dataclass(frozen=True, slots=True)
class Exchange:
    """One run of a whole program: its standard input and the expected standard output."""

    stdin: str
    stdout: str
    hidden: bool = True


@dataclass(frozen=True, slots=True)
class PrintTest:
    """Code that runs after a whole program, in its process, and what the two must print."""

    code: str
    """In the program's language. The program can read it."""
    prints: str
    """The expected standard output, which the program's process never gets."""
    hidden: bool = True


@dataclass(frozen=True, slots=True)
class OwnTests:
    """Tests in the program's language, which run in its own process. It can end them early, so that
    their pass is forgeable.
    """

    after: str
    """What follows the program's source: the tests, and what starts them."""
    before: str = ""
    """What stands before the program's source."""
    beside: str = ""
    """A source file of its own, in a language that compiles all files of a folder."""
    hidden: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """The final answer of a question, in the place of a program: a number, a formula or words."""

    answer: str
    """The right one, as LaTeX or text."""
    exact: bool = False
    """Whether it is a plain number, and only the same number is right."""
    ordered: bool = False
    """Whether the order of a list counts."""
    hidden: bool = True


@dataclass(frozen=True, slots=True)
class TestBench:
    """A test bench in Verilog: its module `tb` has an instance of the design, and ends by itself.

    It prints a sample as `$display("@SAMPLE %b %b | %b", a, b, out)`, inputs before the bar. These
    are compared with those of the task's reference. A bench that prints none says itself whether
    the design is right, so a pass is forgeable; a reference must be right then.
    """

    __test__ = False

    bench: str
    design: str
    """The module that the program defines."""
    expected: str | None = None
    """The samples of a right design, a line for each; None to take them from the reference."""
    passes: str = ""
    """What a bench without samples prints where the design is right, in any case and with any space
    between words. Two `#` in it are numbers: the tests passed, and all tests."""
    data: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What the bench reads, by paths in its folder."""
    hidden: bool = True


@dataclass(frozen=True, slots=True)
class Harness:
    """Tests in Python that build a hardware design and drive its simulation, as CVDP has them: its
    functions of pytest call cocotb's runner, and each test of cocotb counts as a check.
    """

    files: Mapping[str, str] = field(hash=False)
    """Its files by path: what lies below `src` are its own, and below `code` the design's others.
    In them, `/src` and `/code` are these folders."""
    targets: tuple[str, ...]
    """The design's files that a program is, below `code`: `rtl/adder.sv`. A program of several has
    each after a line `// file: rtl/adder.sv`."""
    tests: tuple[str, ...]
    """The files whose functions pytest runs: `src/test_runner.py`."""
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Its variables: `{"TOPLEVEL": "adder"}`."""
    hidden: bool = True


@dataclass(frozen=True, slots=True)
class TestFunctions:
    """A module of test functions and classes, as pytest and unittest collect them, or of doctests;
    each test counts as a check.
    """

    __test__ = False

    module: str
    """Its Python, or text with `>>>`. It finds the program's names as it finds Python's own, or
    imports them from `solution`."""
    hidden: bool = True


@dataclass(frozen=True, slots=True)
class RepositoryTests:
    """Tests of a repository with pytest. A program is a change of it: a diff as git writes it, or a
    JSON object of whole files by path.
    """

    tree: str
    """The repository before the change: a folder, or a tar file of one; as an absolute path, which
    is one in the image if there is one."""
    fail_to_pass: tuple[str, ...]
    """Ids of the tests that pass after a right change only."""
    pass_to_pass: tuple[str, ...]
    """Ids of those that pass before and after."""
    tests: tuple[str, ...] = ()
    """Files and folders of tests, which no change reaches; beside those that are named as tests."""
    test_patch: str = ""
    """A diff of the tests that the program never sees, as SWE-bench has it."""
    pytest_arguments: tuple[str, ...] = ()
    """Of pytest, beside those that its configuration in the tree has: `("-p", "xdist")`."""
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Variables. `PYTHONPATH` names folders of the tree; `.` and `src` are there without."""
    roots: tuple[str, ...] = ()
    """Folders that are there too, to be read: a virtual environment. The first with `bin/python`
    has the interpreter; without any it is the one that runs assay, with pytest alone. An image's
    interpreter is the first `python3` in their `bin`, or in `/usr/bin`."""
    seconds: float = 600.0
    """Wall time of all tests together."""
    image: str = ""
    """What is `/`: an image of Docker's or Podman's, by name, or the path of its unpacked folder.
    The tree, the roots and the interpreter are in it."""
    bug: str = ""
    """A diff that is put into the tree first."""
    hidden: bool = True


@dataclass(frozen=True, slots=True)
class TestScript:
    """A script that judges a work folder and leaves a reward, as Harbor's tasks have it. A program
    is a change of the folder: a diff, or a script of bash that makes it.
    """

    __test__ = False

    test_script: str
    """An absolute path of the script, `tests/test.sh`. All that its folder holds is at /tests; it
    writes /logs/verifier/reward.txt or reward.json."""
    work_tree: str
    """The work folder before the change: a folder, or a tar file of one, as an absolute path. Where
    it `is_made`, Harbor's folder `environment`."""
    folder: str = "/app"
    """Where the work folder is."""
    is_made: bool = False
    """Whether the work folder is made of what `work_tree` holds, as a Dockerfile there says."""
    solution: str = ""
    """An absolute path of the script `solution/solve.sh`, which makes the right change by files
    beside it: they are at /solution for a program that is the task's reference, so that has to be a
    text that nobody guesses. Empty where the reference is the solution itself."""
    seconds: float = 600.0
    """Wall time of the test script."""
    script_seconds: float = 600.0
    """Wall time of a script that makes a change."""
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Variables of all commands."""
    test_environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    """More of the test script's."""
    solution_environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    """More of the solution's."""
    roots: tuple[str, ...] = ()
    """Folders that are there too, to be read, as a virtual environment; their `bin` comes first in
    PATH."""
    hidden: bool = True


@dataclass(frozen=True, slots=True)
class Reported:
    """Nothing here is judged: the agent that plays the task reports the reward
    (docs/outside-environments.md).
    """

    task_data: str
    """What the agent gets to know of the task beside its prompt."""
    hidden: bool = True
