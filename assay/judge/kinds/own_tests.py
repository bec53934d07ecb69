"""Tests in the program's language that run in its own process, as HumanEval-X and MultiPL-E have
them.
"""

from __future__ import annotations

from dataclasses import replace

from assay.judge.kinds.kind import EachCheck
from assay.judge.kinds.workbench import Workbench
from assay.languages import Language
from assay.types import Execution, OwnTests, Task


class TestsOfItsOwn(EachCheck[OwnTests], judges=OwnTests):
    """Each is a run of the program and its tests, which is believed."""

    __test__ = False
    started_by_tests = True
    always_forgeable = True

    async def judge_check(
        self, workbench: Workbench, check: OwnTests, task: Task, program: str
    ) -> Execution:
        """The program with the tests must exit with status 0."""
        source, beside = with_tests(check, program, workbench.language)
        execution = (await workbench.run(source, beside=beside)).execution
        return replace(execution, forgeable=execution.passed > 0)


def with_tests(check: OwnTests, program: str, language: Language) -> tuple[str, str]:
    """A program, without its own main, between the tests' parts, and the file beside it."""
    before = "" if program.lstrip().startswith(check.before.strip()) else check.before
    program = language.apart(program, f"{check.after}\n{check.beside}", "")
    source = language.with_imports(f"{before}{program}\n{check.after}")
    return source, language.with_imports(check.beside)
