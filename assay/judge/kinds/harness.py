"""Harnesses of cocotb: Python that drives the simulation of a design.

judge/cocotb_harness is what runs in the sandbox. The tests have a process, and the simulator, with
the design in it, has another, which answers the first one's questions about signals. It can read no
test, write no file and reach no other process, so the tests' report is proof.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from assay.checks import Harness
from assay.errors import NotInstalledError
from assay.judge.kinds.kind import EachCheck
from assay.judge.kinds.verilog_screen import designs
from assay.judge.kinds.workbench import Workbench, decided
from assay.judge.worker_messages import SETUP
from assay.languages import Language
from assay.sandbox.access import INTERPRETER
from assay.sandbox.program import Result
from assay.types import Execution, Task, Verdict

START = """
import json, os, re, sys
here, job = os.getcwd(), json.load(open("job.json"))
def placed(text):
    return re.sub(r"(?<![\\w./])/(?=(?:code|src)\\b)", here + "/", text)
job["environment"] = {name: placed(text) for name, text in job["environment"].items()}
for name, text in job["files"].items():
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(placed(text) if name.startswith("src/") else text)
library = [entry for entry in sys.path if not entry.endswith("-packages")]
sys.path = [here + "/tools", here + "/src", *library, *job["packages"]]
from assay.judge.cocotb_harness import run
run.main(job)
"""
"""Lays the files of a job out. In the harness's, absolute paths are those of the folder."""
TOOLS = ("sandbox/__init__", "sandbox/kernel", "sandbox/landlock", "sandbox/sockets",
         "judge/cocotb_harness/__init__", "judge/cocotb_harness/remote",
         "judge/cocotb_harness/run")  # fmt: skip
SIMULATION = {"simulation": "judge/cocotb_harness/simulation",
              "assay/sandbox/sockets": "sandbox/sockets"}  # fmt: skip
"""What the simulator gets of ours; the process of the tests gets TOOLS."""
RUNNER = Language(
    title="cocotb", source="job.json", run=(INTERPRETER[0], "-IBu", "-c", START),
    environment={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    runtime_mb=512, time_factor=6, starts_processes=True,
)  # fmt: skip
SEED = "1"
FORGED = '<testsuites><testsuite><testcase name=\\"test\\"/></testsuite></testsuites>'
CHEATS = {
    "empty": "", "an early $finish": "initial $finish;",
    "printed pass markers": 'initial $display("PASS 1 passed in 0.1s");',
    "forged results": 'integer f; final begin f = $fopen("test.result.xml");'
    f' $fdisplay(f, "{FORGED}"); end',
}  # fmt: skip
"""What cheating programs have in place of a design's body."""
REPORTED, FAILED = ("status", "tests", "compiler", "fault", "built"), 1
"""The report's parts; the greatest status of pytest that says something of a design that was not
yet built: it is 2 where the harness cannot be read, and where it gives up on a design."""
FILE = re.compile(r"^[ \t]*//[ \t]*file:[ \t]*(\S+)[ \t]*$", re.MULTILINE | re.IGNORECASE)
"""The line before each file of a program that is several."""


def files_of(check: Harness, program: str) -> dict[str, str]:
    """The files of a program, of which a harness of one target takes the whole."""
    _, *parts = FILE.split(program)
    if len(check.targets) == 1 or not parts:
        return {check.targets[0]: program}
    texts = dict(zip(parts[::2], parts[1::2], strict=True))
    return {name: text for name, text in texts.items() if name in check.targets}


def joined(files: Mapping[str, str]) -> str:
    """The program that is these files."""
    if len(files) == 1:
        return next(iter(files.values()))
    return "\n".join(f"// file: {name}\n{text}" for name, text in files.items())


@cache
def ours() -> tuple[dict[str, str], dict[str, str]]:
    """Files and variables of each run. Raises NotInstalledError where cocotb is not installed."""
    if find_spec("cocotb") is None:
        raise NotInstalledError(
            "cocotb is not installed; pip install -e '.[cocotb]' in assay's checkout"
        )
    from find_libpython import find_libpython

    if (library := find_libpython()) is None:
        raise NotInstalledError("cocotb needs a Python that has a shared library, as Debian's has")
    package = Path(__file__).parents[2]
    files = {f"tools/assay/{name}.py": (package / f"{name}.py").read_text() for name in TOOLS}
    files |= {f"tools/assay/{name}__init__.py": "" for name in ("", "judge/")}
    files |= {f"simulator/{name}.py": (package / f"{source}.py").read_text()
              for name, source in SIMULATION.items()}  # fmt: skip
    files |= {f"simulator/assay/{name}__init__.py": "" for name in ("", "sandbox/")}
    files["tools/cocotb.dist-info/METADATA"] = f"Name: cocotb\nVersion: {version('cocotb')}\n"
    return files, {"LIBPYTHON_LOC": library, "COCOTB_RANDOM_SEED": SEED}


def decide(result: Result) -> Execution:
    """What the harness's report makes of a design. The first fault decides."""
    try:
        status, tests, compiler, fault, built = map(json.loads(result.stdout).get, REPORTED)
        faults = [f"{name}: {why}" for name, why in tests if why]
        lines, broken = compiler.splitlines(), status > FAILED and not built
    except (ValueError, TypeError, AttributeError, RecursionError):
        return of_one(Verdict.UNJUDGED, f"{SETUP}the harness reported nothing")
    if fault or broken:
        return of_one(Verdict.UNJUDGED, f"{SETUP}{fault or f'pytest ends with status {status}'}")
    if compiler:
        return of_one(Verdict.COMPILE, next((line for line in lines if "error" in line), lines[0]))
    passed, total = len(tests) - len(faults), max(len(tests), 1)
    if status or not tests:
        faults.append("a function of the harness fails" if status else "no test of cocotb has run")
    return Execution(Verdict.WRONG if faults else Verdict.PASS, passed, total, "".join(faults[:1]))


def of_one(verdict: Verdict, detail: str) -> Execution:
    """The execution of what counts as one test that fails."""
    return Execution(verdict, total=1, detail=detail)


class Harnesses(EachCheck[Harness], judges=Harness):
    """Each is a run of its Python on a design."""

    is_one_test = False

    async def judge_check(
        self, workbench: Workbench, check: Harness, task: Task, program: str
    ) -> Execution:
        """The run of the harness on a design. Raises NotInstalledError without cocotb."""
        files, variables = ours()
        design = {f"code/{name}": text for name, text in files_of(check, program).items()}
        job = {
            "files": {**check.files, **design, **files}, "tests": check.tests,
            "environment": {**check.environment, **variables},
            "packages": [entry for entry in sys.path if entry.endswith("-packages")],
        }  # fmt: skip
        return await decided(await workbench.run(json.dumps(job), language=RUNNER), decide)

    def files(self, check: Harness) -> Sequence[str]:
        """The design's."""
        return check.targets

    def cheats(self, check: Harness, task: Task) -> dict[str, str]:
        """Designs without a right body."""
        return designs(CHEATS, task.entry_point, task.reference)
