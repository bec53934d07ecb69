"""Tests in the program's language that run in its own process, as HumanEval-X and MultiPL-E have
them.
"""

from __future__ import annotations

from assay.judge.kinds.kind import Kind, ProgramRun
from assay.languages import Language
from assay.types import OwnTests


class TestsOfItsOwn(Kind[OwnTests], judges=OwnTests):
    """Each is a run of the program and its tests, which is believed."""

    __test__ = False
    started_by_tests = True

    def run(self, check: OwnTests, program: str, language: Language) -> ProgramRun:
        """The program, without its own main, between the tests' parts; it must exit with status
        0.
        """
        before = "" if program.lstrip().startswith(check.before.strip()) else check.before
        program = language.apart(program, f"{check.after}\n{check.beside}", "")
        source = f"{before}{program}\n{check.after}"
        beside = language.with_imports(check.beside)
        return ProgramRun(language.with_imports(source), beside=beside, forgeable=True)
