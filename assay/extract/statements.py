"""The top-level statements of Python, found by lines and lexemes: hostile text could crash a
parser.
"""

from __future__ import annotations

import keyword
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

LEXEME = re.compile(
    r"""(?P<comment>\#[^\n]*)
    |(?P<string>\"{3}(?:\\.|\\\Z|[^\\])*?(?:\"{3}|\Z)|'{3}(?:\\.|\\\Z|[^\\])*?(?:'{3}|\Z)
        |\"(?:\\.|\\\Z|[^\"\\\n])*\"?|'(?:\\.|\\\Z|[^'\\\n])*'?)
    |(?P<joined>\\\n)
    |(?P<open>[(\[{])|(?P<close>[)\]}])
    |(?P<end>\n)""",
    re.VERBOSE | re.DOTALL,
)
DEFINITION = re.compile(r"(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)")
ASSIGNMENT = re.compile(r"(\w+)[ \t]*(?::[^=\n]+)?=(?!=)")
CHANGE = re.compile(
    r"\w++(?:[.\[][^=\n(]*+|(?:[ \t]*+,[ \t]*+\w++)+[ \t]*+|[ \t]*+[-+*/%&|^@]{1,3})=(?!=)"
)
"""What changes an object, several names at once, or a name's value."""
HOLLOW = re.compile(r"[rRuU]?[\"']|(?:pass|\.\.\.)$")
HEAD = re.compile(r"^(?:@|class\b).*", re.MULTILINE)
"""What a definition runs: its decorators, and its base classes' `__init_subclass__`."""
LAMBDA = re.compile(r"[ \t]*lambda\b")
IMPORT = re.compile(r"(?:from|import)\b")
DEMO = re.compile(r"\b(?:print|assert|raise)\b")
RUNS = r"\b(?:{}\s*\(|input\s*\(|(?:stdin|argv|exit|quit|unittest|doctest|pytest|__name__)\b)"
"""What calls the definition of that name, reads, leaves or tests."""
STATE = frozenset({"setrecursionlimit", "set_int_max_str_digits", "stack_size"})
"""Settings of the interpreter, which every function uses."""
KEYWORDS = frozenset(keyword.kwlist)
FORM_FEEDS = re.compile(r"\f*+")
"""Python reads a line's indentation after these."""
CLAUSE = re.compile(r"(?:else|elif|except|finally)\b")
STATEMENT = re.compile(
    r"""(?:async[ \t]+)?def[ \t]+\w+[ \t]*[(\[]|class[ \t]+\w+[ \t]*[:(\[]|@\w
    |import[ \t]+[\w.]+(?:[ \t]+as[ \t]+\w+)?[ \t]*(?:[,;\#].*)?$|from[ \t]+[\w.]+[ \t]+import\b
    |for\b(?=.*\bin\b).*:|(?:if|while|try|with|async)\b.*:[ \t]*(?:\#.*)?$
    |[\w.]+(?:\[.{0,99}\])?(?:[ \t]*+,[ \t]*+\w++)*[ \t]*+(?::[^=\n]{1,99})?[-+*/%&|^@]{0,3}=(?!=)
    |[\w.]+\(.*[()\[\]{},][ \t]*(?:[;\#].*)?$""",
    re.VERBOSE | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A top-level statement with its decorators, clauses and whatever is indented below it."""

    start: int
    """Where it begins in the text it is from."""
    text: str
    """From there to the end of its last line of code."""
    name: str
    """The function, class or variable that it defines; empty for anything else."""
    defines: bool
    """Whether that is a function or class."""

    @cached_property
    def code(self) -> str:
        """Without comments and plain strings."""
        return _bare(self.text)

    @cached_property
    def words(self) -> set[str]:
        """The words of the code that may be names."""
        return set(re.findall(r"\w+", self.code)) - KEYWORDS


def cut(body: str) -> str:
    """A function's body up to the next top-level statement, with the later definitions that it
    uses.

    Comments and blank lines after the last statement are cut too. Empty if the body has no
    statement.
    """
    head = "def _():\n"
    code = trimmed(head + body, ("_",)) or head
    return code[len(head) :]


def defines(code: str, names: Iterable[str]) -> bool:
    """Whether the code defines one of these with a body."""
    definition = _first(blocks_of(code), names)
    return definition is not None and not _is_hollow(definition)


def prelude_and(stub: str, code: str, names: Iterable[str]) -> str:
    """`code` below the stub's imports and helpers; a `from __future__` that opens the code stays
    first.
    """
    definition = _first(blocks_of(stub), names)
    prelude = stub[: definition.start if definition else len(stub)].strip("\n")
    if not prelude:
        return code
    future = re.match(r"\s*(?:from __future__ import [^\n]*\n)*", code)
    end = future.end() if future else 0
    return f"{code[:end].lstrip()}{prelude}\n\n\n{code[end:]}"


def _first(blocks: list[Block], names: Iterable[str]) -> Block | None:
    """The first definition of one of these names, the first name before the others, that has a
    body, or else the first: models repeat a stub before they answer.
    """
    hits = [block for name in names if name for block in blocks if block.name == name]
    return next((block for block in hits if not _is_hollow(block)), hits[0] if hits else None)


def _is_hollow(block: Block) -> bool:
    lines = [block.text[start:end].strip() for start, end in _logical_lines(block.text)]
    head = next((n for n, line in enumerate(lines) if DEFINITION.match(line)), len(lines))
    return (
        all(HOLLOW.match(line) for line in lines[head + 1 :])
        and lines[head:] != []
        and lines[head].endswith(":")
    )


def trimmed(
    text: str, names: Sequence[str], *, closed: bool = False, needed: Set[str] = frozenset()
) -> str | None:
    """The statements up to the first definition of one of these names, and of the later ones those
    that it or the names `needed` need; None without one.

    What calls the definition, prints, asserts or reads is not needed. A `closed` block holds no
    prose above the definition, and the last definition of a name counts there, as in Python.
    """
    blocks = blocks_of(text)
    definition = _first(blocks, names)
    if definition is None:
        return None
    place = blocks.index(definition)
    before = [block for block in blocks[:place] if closed or STATEMENT.match(block.text)]
    program, later = [*before, definition], blocks[place + 1 :]
    defined = {block.name for block in program if not _is_hollow(block)}
    if closed:
        program += (b for b in later if b.defines and b.name in defined and not _is_hollow(b))
    else:
        first: dict[str, Block | None] = dict.fromkeys(defined)
        later = [b for b in later if not b.defines or first.setdefault(b.name, b) is b]
        later = later[: len(later) - (later[-1:] == blocks[-1:] and not later[-1].defines)]
    program += _needed(later, program, definition.name, needed, blocks)
    places = {block.start for block in program}
    whole = closed and len(places) == len(blocks)
    return text if whole else _spliced(text, blocks, places)


def _needed(
    later: list[Block], program: list[Block], entry: str, needed: Set[str], blocks: list[Block]
) -> list[Block]:
    """Those of the `later` statements that the `program` uses, however indirectly."""
    runs = re.compile(RUNS.format(re.escape(entry)))
    names = {block.name for block in blocks}
    variables = {block.name for block in blocks if not block.defines}
    running = {b.name for b in blocks if b.defines and b.name != entry and runs.search(b.code)}
    by_word = defaultdict[str, list[Block]](list)
    for block in later:
        words = block.words
        head = names & set(re.findall(r"\w+", " ".join(HEAD.findall(block.code))))
        bound = (head | {block.name} if block.name else _changed(block.text)) or words & STATE | (
            words & variables if not DEMO.search(block.code) else set()
        )
        harmful = runs.search(block.code) or words & running
        if block.defines or IMPORT.match(block.text) or bound == {entry} or not harmful:
            for word in words if IMPORT.match(block.text) else bound:
                by_word[word].append(block)
    by_start = dict[int, Block]()
    waiting = [*needed, *STATE, *(word for block in program for word in block.words)]
    while waiting:
        for block in by_word.pop(waiting.pop(), ()):
            if block.start not in by_start:
                by_start[block.start] = block
                waiting.extend(block.words)
    return list(by_start.values())


def _changed(text: str) -> set[str]:
    """The names that a statement changes or binds at once: `A, B = 1, 2` or `f.calls = 0`."""
    change = CHANGE.match(text)
    names = re.findall(r"\w+", change[0]) if change else []
    return set(names if change and "," in change[0] else names[:1])


def _spliced(text: str, blocks: list[Block], starts: set[int]) -> str:
    """The blocks that start at `starts`; what stood between two neighbours stays."""
    pieces: list[str] = []
    end = None
    for block in blocks:
        if block.start in starts:
            pieces += [text[end : block.start] if end else "\n\n\n", block.text]
        end = block.start + len(block.text) if block.start in starts else None
    return "".join(pieces[1:]) + "\n"


def _bare(code: str) -> str:
    """The code without its comments and plain strings."""

    def bare(lexeme: re.Match[str]) -> str:
        prefix = code[max(lexeme.start() - 2, 0) : lexeme.start()].lower()
        quoted = lexeme["comment"] or (lexeme["string"] and "f" not in prefix)
        return " " if quoted else lexeme[0]

    return LEXEME.sub(bare, code)


def statements(text: str) -> str | None:
    """The first statements of a text, up to prose."""
    texts = []
    for block in blocks_of(from_first_statement(text)):
        if not STATEMENT.match(block.text):
            break
        texts.append(block.text)
    return "\n".join(texts) + "\n" if texts else None


def from_first_statement(text: str) -> str:
    """The text from its first line that is a statement."""
    lines = text.split("\n")
    starts = (n for n, line in enumerate(lines) if STATEMENT.match(line.lstrip("\f")))
    first = next(starts, len(lines))
    return "\n".join(lines[first:])


def blocks_of(text: str) -> list[Block]:
    """The top-level statements of a text that may be no Python at all."""
    spans: list[tuple[int, int]] = []
    decorated = False
    for start, end in _logical_lines(text):
        line = text[start:end]
        belongs = decorated or line[0].isspace() or CLAUSE.match(line)
        if spans and belongs:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
        decorated = line.startswith("@") or (decorated and line[0].isspace())
    return [_block(start, text[start:end].rstrip("\n")) for start, end in spans]


def _block(start: int, text: str) -> Block:
    head = (
        next((line for line in text.split("\n") if DEFINITION.match(line)), "")
        if text.startswith("@")
        else text
    )
    definition, assignment = DEFINITION.match(head), ASSIGNMENT.match(text)
    match = definition or assignment
    function = definition is not None or bool(assignment and LAMBDA.match(text, assignment.end()))
    return Block(start, text, match[1] if match else "", defines=function)


def _logical_lines(text: str) -> Iterator[tuple[int, int]]:
    """Start and end (without the line end) of each logical line that is neither blank nor a
    comment.

    Strings and brackets join lines, as in Python; but `def` or `class` at a line's start ends an
    unclosed bracket.
    """
    start, depth = FORM_FEEDS.match(text).end(), 0  # type: ignore[union-attr]
    for lexeme in LEXEME.finditer(text):
        kind = lexeme.lastgroup
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth = max(depth - 1, 0)
        elif kind == "end":
            after = FORM_FEEDS.match(text, lexeme.end()).end()  # type: ignore[union-attr]
            if depth and not DEFINITION.match(text, after):
                continue
            if _is_code(text[start : lexeme.start()]):
                yield start, lexeme.start()
            start, depth = after, 0
    if _is_code(text[start:]):
        yield start, len(text)


def _is_code(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")
