"""Bugs that a model writes: it spoils a function that it sees, or writes one anew by its head and
docstring. SWE-smith (arXiv:2504.21798) calls these LM modify and LM rewrite.

A reply is never run here: what it has of the function's body takes the place of the old one, and
the box tries it as any other bug.
"""

import ast
import io
import textwrap
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random

from assay.errors import MachineError, RolloutLostError
from assay.extract import program
from assay.make_tasks.asking import Ask
from assay.make_tasks.bugs import Bug, Candidate, ChangedFile, Fate
from assay.make_tasks.diffs import line_edits
from assay.make_tasks.edits import Edit, SourceFile
from assay.make_tasks.value_types import Function
from assay.syntax_trees import UNPARSABLE
from assay.types import Task

EDIT, REWRITE = "model_edit", "model_rewrite"
REQUESTS = {
    EDIT: """You get a function of a Python package. Put one subtle bug into it, as a careful
programmer could make it: a wrong boundary, a missed case, a wrong order, a value that is not
updated. It still runs, with the same name and parameters, and gives a wrong result for some calls.
Write no comment on the bug. Answer with the whole function in one ```python block.""",
    REWRITE: """You get the head and the docstring of a function of a Python package. Write the
function: the same name and parameters, and a body that does what the docstring says. Answer with
the whole function in one ```python block.""",
}
FEWEST_LINES, MOST_LINES = 3, 80
"""Of a function that a model is shown."""
TIMES = 4
"""How often each function is asked for."""
MOST_LOST = 10
"""Questions in a row that an endpoint may fail."""


@dataclass(frozen=True, slots=True)
class FunctionPlace:
    """A function that a model changes."""

    path: str
    source: SourceFile
    function: Function
    body: int
    """Where its first statement after the docstring begins, with its indent."""

    @property
    def head(self) -> str:
        """Its first lines up to the body, without the indent of a method."""
        return _dedented(self.source, self.function, self.body)

    @property
    def code(self) -> str:
        """All of it, without the indent of a method."""
        return _dedented(self.source, self.function, self.source.end(self.function))


class ModelBugs:
    """Bugs that the model `ask` writes in one of two ways."""

    def __init__(self, ask: Ask, way: str) -> None:
        self._ask, self._way, self._lost = ask, way, 0

    def candidates(self, files: Mapping[str, SourceFile], random: Random) -> list[Candidate]:
        """As BugSource."""
        places = [place for path, source in files.items() for place in places_in(path, source)
                  if self._way == EDIT or ast.get_docstring(place.function)]  # fmt: skip
        random.shuffle(places)
        return [partial(self._bug, place) for _ in range(TIMES) for place in places]

    async def _bug(self, place: FunctionPlace) -> Bug | Fate:
        """The bug that a reply makes of a function. Raises MachineError where the endpoint fails
        again and again.
        """
        code = place.code if self._way == EDIT else place.head
        try:
            reply = await self._ask(REQUESTS[self._way], f"```python\n{code}\n```")
        except RolloutLostError as error:
            self._lost += 1
            if self._lost >= MOST_LOST:
                raise MachineError(f"{error} ({self._lost} questions in a row)") from error
            return Fate.LOST
        self._lost = 0
        stub = "" if self._way == EDIT else place.head
        changed = changed_file(place, reply, stub)
        return changed if isinstance(changed, Fate) else Bug(self._way, (changed,))


def places_in(path: str, source: SourceFile) -> Iterator[FunctionPlace]:
    """The functions and methods of a file that have a body to change, not those inside others."""
    blocks = [source.tree.body]
    for block in blocks:
        for node in block:
            if isinstance(node, ast.ClassDef):
                blocks.append(node.body)
            lines = (node.end_lineno or 0) - node.lineno + 1
            if isinstance(node, Function) and FEWEST_LINES <= lines <= MOST_LINES:
                rest = node.body[_has_docstring(node) :]
                start = source.line_start(rest[0]) if rest else 0
                place = FunctionPlace(path, source, node, start)
                if start > source.start(node) and place.code.startswith(("def ", "async def ")):
                    yield place


def changed_file(place: FunctionPlace, reply: str, stub: str) -> ChangedFile | Fate:
    """The file with the body that a reply gives a function; or why it gives none."""
    old, source = place.function, place.source
    text = program(Task("", "", (), old.name, stub=stub), reply)
    try:
        text = text and without_comments(text, _comments(place.code))
        nodes = list(ast.walk(ast.parse(text or "")))
        functions = [node for node in nodes if isinstance(node, Function) and node.name == old.name]
        rest = functions[0].body[_has_docstring(functions[0]) :] if functions else []
        if not text or not rest:
            return Fate.NO_CODE
        if _signature(functions[0]) != _signature(old):
            return Fate.SIGNATURE
    except UNPARSABLE:
        return Fate.NO_PYTHON
    data = _indented(text, functions[0], rest[0], source.indent(place.body))
    if b"\r\n" in source.data:
        data = data.replace(b"\n", b"\r\n")
    changed = Edit(place.body, source.end(old), data).apply(source.data)
    try:
        ast.parse(changed)
    except UNPARSABLE:
        return Fate.NO_PYTHON
    return ChangedFile(place.path, line_edits(source.data, changed), source.data)


def _indented(text: str, function: Function, first: ast.stmt, indent: bytes) -> bytes:
    """The body of a function from its first statement on, with another indent. Lines of texts that
    stand further left stay as they are.
    """
    lines = text.encode().split(b"\n")[first.lineno - 1 : function.end_lineno]
    before = lines[0][: first.col_offset]
    if before.strip():  # it stands beside the head
        lines[0], before = lines[0][first.col_offset :], b""
    return b"\n".join(
        indent + line[len(before) :] if line.strip() and line.startswith(before) else line
        for line in lines
    )


def without_comments(code: str, old: set[str]) -> str:
    """Code without comments that are not among the old ones: a model names its bug there. Raises
    SyntaxError.
    """
    lines: list[str | None] = [*code.split("\n")]
    for token in _tokens(code):
        if token.type == tokenize.COMMENT and token.string not in old:
            row, column = token.start
            lines[row - 1] = token.line[:column].rstrip() or None
    return "\n".join(line for line in lines if line is not None)


def _comments(code: str) -> set[str]:
    return {token.string for token in _tokens(code) if token.type == tokenize.COMMENT}


def _tokens(code: str) -> list[tokenize.TokenInfo]:
    try:
        return list(tokenize.generate_tokens(io.StringIO(code).readline))
    except tokenize.TokenError as error:
        raise SyntaxError(str(error)) from None


def _dedented(source: SourceFile, function: Function, end: int) -> str:
    start = source.line_start(function)
    text = source.data[start:end].decode().replace("\r\n", "\n")
    return textwrap.dedent(text).rstrip("\n")


def _has_docstring(function: Function) -> bool:
    return ast.get_docstring(function, clean=False) is not None


def _signature(function: Function) -> str:
    """What callers know of a function: its kind, and its parameters without annotations."""
    parts = [function.args.posonlyargs, function.args.args, function.args.kwonlyargs]
    names = [[argument.arg for argument in part] for part in parts]
    rest = [argument and argument.arg for argument in (function.args.vararg, function.args.kwarg)]
    defaults = [*function.args.defaults, *function.args.kw_defaults]
    values = [default and ast.dump(default) for default in defaults]
    return f"{type(function).__name__} {names} {rest} {values}"
