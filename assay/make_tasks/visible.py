"""What the policy may see of a tree: no failing test, and no other copy of the code in question."""

import ast
from collections.abc import Collection, Iterable, Mapping

from assay.make_tasks.edits import Edit, SourceFile
from assay.make_tasks.value_types import Function

CONTEXT = 2
"""Lines before and after a change that tell a copy of the code from code like it."""
SHORTEST = 12
"""Characters of a line that tells an answer; shorter ones stand everywhere."""
Names = tuple[str, ...]


def functions_of(source: SourceFile, test: str) -> list[tuple[Function, list[ast.stmt]]]:
    """The function of a test, with the block it is in; all of that name where a class inherits
    it, none where the file has none.
    """
    functions: dict[Names, tuple[Function, list[ast.stmt]]] = {}
    blocks: list[tuple[Names, list[ast.stmt]]] = [((), source.tree.body)]
    for names, block in blocks:
        for node in block:
            if isinstance(node, Function):
                functions[*names, node.name] = node, block
            elif isinstance(node, ast.ClassDef):
                blocks.append(((*names, node.name), node.body))
    names = tuple(test.partition("[")[0].split("::")[1:])
    same_name = [function for path, function in functions.items() if path[-1:] == names[-1:]]
    return [functions[names]] if names in functions else same_name


def without_tests(source: SourceFile, tests: Iterable[str]) -> bytes:
    """A test file without the functions of the tests that have these ids, or without all of a name
    where a class inherits it; empty where one is not written in the file as a function.
    """
    groups = [functions_of(source, test) for test in tests]
    if not all(groups):
        return b""
    functions = {id(function): (function, block) for some in groups for function, block in some}
    edits = [
        source.without(function, all(id(node) in functions for node in block))
        for function, block in functions.values()
    ]
    data = source.data
    for edit in sorted(edits, key=lambda edit: -edit.start):
        data = edit.apply(data)
    return data


def names_answer(text: str, original: bytes, changed: bytes) -> bool:
    """Whether a text has a line that only the original file has, not the one with the bug."""
    removed = stripped(original).split("\n")
    changed_lines: Collection[str] = set(stripped(changed).split("\n"))
    return any(
        len(line) >= SHORTEST and line not in changed_lines and line in text for line in removed
    )


def copy_of(others: Mapping[str, str], original: bytes, edit: Edit) -> str:
    """The name of another file with the same code as the original around the edit, if any; each is
    `stripped`.
    """
    first, last = (original.count(b"\n", 0, place) for place in (edit.start, edit.end))
    lines = original.split(b"\n")[max(0, first - CONTEXT) : last + 1 + CONTEXT]
    code = stripped(b"\n".join(lines))
    return next((name for name, text in others.items() if code in text), "")


def stripped(data: bytes) -> str:
    """A text without indents and blank lines."""
    return "\n".join(filter(None, map(str.strip, data.decode("utf-8", "replace").split("\n"))))
