"""What failures of tests say of a bug: whether all of them crash where it is."""

import ast
import re
from collections.abc import Iterable, Mapping

from assay.make_tasks.edits import Change, applied

CRASHES = ("TypeError", "NameError", "AttributeError", "UnboundLocalError")
"""Exceptions of code that makes no sense, which name the line to look at."""
FRAME = re.compile(r'^(?:(\S+):(\d+): in |\s*File "([^"]+)", line (\d+), in )', re.MULTILINE)
RAISED = re.compile(r"^(?:E +|UNEXPECTED EXCEPTION: )?([A-Za-z_]\w*)(?=[:(]|$)", re.MULTILINE)
"""The exception below the last frame, as pytest, doctest or Python writes it."""


def all_crash(failures: Iterable[str], lines: Mapping[str, set[int]]) -> bool:
    """Whether each failure, as pytest tells it, is a crash on one of these lines of files."""
    return all(any(_crashes(failure, *file) for file in lines.items()) for failure in failures)


def _crashes(failure: str, path: str, lines: set[int]) -> bool:
    *_, last = [None, *FRAME.finditer(failure)]
    if last is None or not (raised := RAISED.search(failure, last.end())):
        return False
    file, line = last[1] or last[3], int(last[2] or last[4])
    is_here = file == path or file.endswith(f"/{path}")
    return is_here and line in lines and raised[1] in CRASHES


def changed_lines(change: Change, data: bytes) -> set[int]:
    """The lines of a changed file, counted from 1, on which a statement with an edit stands; for
    the condition of an `if`, those too that it decides on.
    """
    changed, shift, lines = applied(change, data), 0, set[int]()
    for edit in sorted(change, key=lambda edit: edit.start):
        first = changed.count(b"\n", 0, edit.start + shift) + 1
        shift += len(edit.new) - (edit.end - edit.start)
        last = changed.count(b"\n", 0, edit.end + shift) + 1
        lines |= {*range(first, last + 1)}
    for node in ast.walk(ast.parse(changed)):
        if isinstance(node, ast.stmt):
            block = getattr(node, "body", None)
            end = block[0].lineno - 1 if block else node.end_lineno or node.lineno
            whole = {*range(node.lineno, max(node.lineno, end) + 1)}
            if whole & lines and isinstance(node, ast.If):
                whole |= {*range(node.lineno, (node.body[-1].end_lineno or end) + 1)}
            lines |= whole if whole & lines else set()
    return lines
