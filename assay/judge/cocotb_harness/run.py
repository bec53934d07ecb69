"""Runs a harness of cocotb: its functions of pytest, which build and test a design. The design is
compiled and simulated in processes of its own, which can neither read the harness nor write.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pygpi
import pytest
from cocotb_tools import config
from cocotb_tools.runner import Icarus

from assay.judge.cocotb_harness import remote
from assay.sandbox import landlock

TOOLS = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/dev/urandom")
LIBRARY = "libcocotbvpi_icarus"
UNLOADED = 3
"""Exit status of the process of the tests where these cannot be loaded."""
folder, packages = Path.cwd(), Path(pygpi.__file__).parents[1]
readable = [*TOOLS, sys.base_prefix, f"{folder}/code", f"{folder}/simulator"]
readable += [f"{packages}/{name}" for name in ("cocotb", "cocotb_tools", "pygpi")]
report: dict[str, Any] = {"status": 0, "tests": [], "compiler": "", "fault": "", "built": False}


def enclose(visible: Sequence[str], writable: Sequence[str] = ()) -> None:
    """Give up all files but these. Raises OSError."""
    if not writable:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if landlock.abi():
        landlock.restrict(visible, [str(packages)], writable)


def execute(runner: Any, commands: Sequence[Sequence[str]], cwd: Path, _: object = None) -> None:
    """What cocotb's runner does with commands. Raises RuntimeError where one fails."""
    report["built"] = True
    for command in commands:
        if command[0] == "vvp":
            simulate(command[command.index(str(runner.sim_file)) :], runner.env, str(cwd))
            continue
        done = subprocess.run(
            command, cwd=cwd, env={"PATH": "/usr/bin:/bin", "TMPDIR": str(cwd)},
            stdin=subprocess.DEVNULL, stdout=2, stderr=subprocess.PIPE, text=True, errors="replace",
            preexec_fn=partial(enclose, readable, [str(cwd)]),
        )  # fmt: skip
        if done.returncode:
            report["compiler"] = done.stderr[:4000] or "the compiler failed"
            raise RuntimeError(report["compiler"])


def simulate(arguments: Sequence[str], environment: Mapping[str, str], cwd: str) -> None:
    """Run the tests on a compiled design, in a process of their own, and note what they came to.
    Raises RuntimeError where that process fails.
    """
    child = os.fork()
    if not child:
        status = 1
        try:
            os.chdir(cwd)
            command = ["vvp", "-M", f"{folder}/simulator", "-m", LIBRARY, *arguments]
            remote.run(command, environment, partial(enclose, [*readable, cwd]))
            status = 0
        except Exception as error:  # noqa: BLE001  the data set's own code
            traceback.print_exc()
            status = UNLOADED if isinstance(error, ImportError) else 1
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    before = len(report["tests"])
    with suppress(OSError, ElementTree.ParseError):
        for case in ElementTree.parse(environment["COCOTB_RESULTS_FILE"]).iter("testcase"):
            failed = [outcome for outcome in case if outcome.tag in ("failure", "error")]
            why = "; ".join(outcome.get("message") or outcome.tag for outcome in failed)
            report["tests"].append([case.get("name"), why])
    if len(report["tests"]) == before:
        report["tests"].append(["a simulation", "it ended before its tests did"])
    if status == UNLOADED:
        report["fault"] = "its tests cannot be loaded"
    if status:
        raise RuntimeError("the process of the tests failed")


def main(job: Mapping[str, Any]) -> None:
    """Run the job, and print what came of it."""
    out = os.dup(1)
    os.dup2(2, 1)
    random.seed(1)
    os.environ.update(job["environment"], WAVES="0", ASSAY_PATH=f"{folder}/simulator:{packages}")
    Path(f"simulator/{LIBRARY}.vpi").symlink_to(f"{config.libs_dir}/{LIBRARY}.so")
    Icarus._execute_cmds = execute
    Path("code/rundir").mkdir(parents=True)
    os.chdir("code/rundir")
    # Without a --confcutdir, pytest lists /dev, which a wall may forbid.
    quiet = [
        "-q",
        "-s",
        "--tb=short",
        "-c/dev/null",
        f"--rootdir={folder}/src",
        f"--confcutdir={folder}/src",
    ]
    report["status"] = int(
        pytest.main([*quiet, "-pno:cacheprovider", *(f"{folder}/{name}" for name in job["tests"])])
    )
    os.write(out, json.dumps(report).encode())
