"""Extracts the program to judge from a reply, by lines and lexemes: hostile text could crash a
parser.

What a base model generates after its answer (another function, tests, prose) is cut off, because
right answers would count as wrong. A closed code block is used as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from assay.judge.kinds.every import kind_of
from assay.languages import aliases, language_named
from assay.types import Task

FENCE = re.compile(r"^(?P<before>[^`]*?)(?P<fence>`{3,})[ \t]*(?P<tag>[\w+#-]*)(?P<rest>[^`]*)$")
TAGS = "(?:think|reason|reasoning)>"
THOUGHT, THOUGHT_END = re.compile(rf"\s*<{TAGS}"), re.compile(f"</{TAGS}")
OPENED = re.compile(rf"<{TAGS}\s*\Z")
"""The end of a prompt that opens a thought."""
TAGGED = re.compile(r"^[ \t]*<answer>\n?(.*?)(?:</answer>|\Z)", re.MULTILINE | re.DOTALL)
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
HOLLOW = re.compile(r"[rRuU]?[\"']|(?:pass|\.\.\.)$")
CLAUSE = re.compile(r"(?:else|elif|except|finally)\b")
STATEMENT = re.compile(
    r"""(?:async[ \t]+)?def[ \t]+\w+[ \t]*[(\[]|class[ \t]+\w+[ \t]*[:(\[]|@\w
    |import[ \t]+[\w.]+(?:[ \t]+as[ \t]+\w+)?[ \t]*(?:[,;\#].*)?$|from[ \t]+[\w.]+[ \t]+import\b
    |for\b.+\bin\b.*:|(?:if|while|try|with|async)\b.*:[ \t]*(?:\#.*)?$
    |[\w.]+(?:\[.*\])?(?:[ \t]*,[ \t]*\w+)*[ \t]*(?::[^=\n]+)?[-+*/%&|^@]{0,2}=(?!=)
    |[\w.]+\(.*[()\[\]{},][ \t]*(?:[;\#].*)?$""",
    re.VERBOSE | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Fenced:
    """A block between fences."""

    code: str
    """Without the fences, ending in a line end."""
    closed: bool
    """Whether the closing fence is there."""
    tag: str
    """What the opening fence names, in lower case; empty where that is nothing."""


@dataclass(frozen=True, slots=True)
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


def program(task: Task, reply: str) -> str | None:
    """The program to judge, or None if the reply has none.

    A reply that continues the body of the stub's function completes the stub. Otherwise, in this
    order: the last closed code block that defines the entry point; bare code, or an unclosed block,
    that defines it; a block that continues the body of the stub's function; the last closed block;
    any block. In other languages: the last block, after the stub if it does not define the stub's
    function; all blocks, where a program is several files. A completed stub, bare code and unclosed
    blocks are cut after the entry point's definition; only later definitions that it uses stay.
    """
    reply = _answer(reply.replace("\r\n", "\n").replace("\r", "\n"))
    tagged = [text for text in TAGGED.findall(reply) if text.strip()]
    reply = tagged[-1] if tagged else reply
    cut = language_named(task.language).cut
    found = (
        cut(reply, bool(tagged))
        if cut
        else _python(task, reply)
        if task.language == "python"
        else _whole(task, _last_block(task, reply) or reply)
    )
    return found if reply.strip() and found and found.strip() else None


def cut(body: str) -> str:
    """A function's body up to the next top-level statement, with the later definitions that it
    uses.

    Comments and blank lines after the last statement are cut too. Empty if the body has no
    statement.
    """
    head = "def _():\n"
    kept = _trimmed(head + body, "_") or head
    return kept[len(head) :]


def fenced_blocks(reply: str) -> list[Fenced]:
    """The code blocks of a reply, in order. An opening fence with a tag inside a block starts a new
    one.
    """
    blocks: list[Fenced] = []
    lines: list[str] = []
    open_fence, tag, margin = "", "", 0
    for line in reply.split("\n"):
        fence = FENCE.match(line)
        if not open_fence and fence and _opens(fence):
            open_fence, margin, lines = fence["fence"], len(line) - len(line.lstrip()), []
            tag = fence["tag"].lower()
        elif open_fence and fence and _closes(fence, open_fence, margin, lines):
            if fence["before"].strip():
                lines.append(_without_margin(fence["before"], margin))
            blocks.append(Fenced(_code(lines), closed=True, tag=tag))
            open_fence = ""
        elif open_fence and fence and fence["tag"] and not fence["before"]:
            blocks.append(Fenced(_code(lines), closed=False, tag=tag))
            lines, tag = [], fence["tag"].lower()
        elif open_fence:
            lines.append(_without_margin(line, margin))
    if open_fence:
        blocks.append(Fenced(_code(lines), closed=False, tag=tag))
    return blocks


def _opens(fence: re.Match[str]) -> bool:
    return not (fence["before"].strip() and fence["rest"].strip())  # else it is prose about fences


def _closes(fence: re.Match[str], opened: str, margin: int, lines: list[str]) -> bool:
    """Whether it ends the block of these `lines`. In Markdown no fence is indented by four spaces;
    but models do that, so only one inside a docstring is taken for code.
    """
    indented = not fence["before"].strip() and len(fence["before"]) > margin + 3
    inside = indented and any(_code(lines).count(quotes) % 2 for quotes in ('"""', "'''"))
    return (
        len(fence["fence"]) >= len(opened)
        and not fence["tag"]
        and not fence["rest"].strip()
        and not inside
    )


def _without_margin(line: str, margin: int) -> str:
    return line[min(margin, len(line) - len(line.lstrip())) :]


def _code(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _answer(reply: str) -> str:
    """The text after a reasoning model's thoughts; empty if they never end."""
    *thoughts, answer = THOUGHT_END.split(reply)
    return "" if not thoughts and THOUGHT.match(reply) else answer


def _last_block(task: Task, reply: str) -> str | None:
    """The last closed block, or else the last; all blocks for a program of several files. Where
    one is tagged with the task's language, those of other languages do not count.
    """
    blocks = fenced_blocks(reply)
    if any(len(kind_of(check).files(check)) > 1 for check in task.checks):
        return "\n".join(block.code for block in blocks) or None
    tagged = [known.get(block.tag, "") for known in (aliases(),) for block in blocks]
    if task.language in tagged:
        named = zip(blocks, tagged, strict=True)
        blocks = [block for block, name in named if name in ("", task.language)]
    closed = [block.code for block in blocks if block.closed]
    found = closed or [block.code for block in blocks]
    return found[-1] if found else None


def _whole(task: Task, code: str) -> str:
    """Code of another language than Python; after the stub, unless it defines the function."""
    if not task.entry_point:
        return task.stub + code
    before, _, _ = task.stub.rpartition(task.entry_point)
    words = "|".join(["function", "const", "let", "var", *map(re.escape, before.split()[-1:])])
    defined = re.search(rf"(?:{words})[\s*&]+{re.escape(task.entry_point)}\b", code)
    return code if defined else task.stub + code


def _python(task: Task, reply: str) -> str | None:
    entry = re.split(r"\W", task.entry_point, maxsplit=1)[0]
    if task.stub and _continues(task.stub, reply):
        return _trimmed(task.stub + reply, entry)
    blocks = fenced_blocks(reply)
    bare = _before_fences(reply) if blocks else reply
    for block in reversed(blocks):
        if block.closed and _first(_blocks(block.code), entry):
            return _after_prelude(task.stub, block.code, entry)
    for code in (bare, *(block.code for block in reversed(blocks) if not block.closed)):
        if trimmed := _trimmed(_from_first_statement(code), entry):
            return _after_prelude(task.stub, trimmed, entry)
    if not blocks:
        return None if entry else _statements(bare)
    bodies = [block.code for block in blocks if task.stub and _continues(task.stub, block.code)]
    return _trimmed(task.stub + bodies[-1], entry) if bodies else _last_block(task, reply)


def _continues(stub: str, reply: str) -> bool:
    """Whether the reply continues the body of the stub's function: its first line is indented, or
    continues the stub's last line.
    """
    if not stub.endswith("\n") and not reply.startswith("\n"):
        return not FENCE.match(reply.split("\n", 1)[0]) and not STATEMENT.match(reply)
    lines = (
        line for line in reply.split("\n") if line.strip() and not line.lstrip().startswith("#")
    )
    first = next(lines, "")
    one_space = first.startswith(" ") and not first.startswith(
        "  "
    )  # a tokenizer's, before a chat model's prose
    return first[:1].isspace() and not FENCE.match(first) and not (one_space and "```" in reply)


def _after_prelude(stub: str, code: str, entry: str) -> str:
    """`code` below the stub's imports and helpers; a `from __future__` that opens the code stays
    first.
    """
    definition = _first(_blocks(stub), entry)
    prelude = stub[: definition.start if definition else len(stub)].strip("\n")
    if not prelude:
        return code
    future = re.match(r"\s*(?:from __future__ import [^\n]*\n)*", code)
    end = future.end() if future else 0
    return f"{code[:end].lstrip()}{prelude}\n\n\n{code[end:]}"


def _first(blocks: list[Block], name: str) -> Block | None:
    """The first definition of `name` that has a body, or else the first: models repeat a stub
    before they answer.
    """
    found = [block for block in blocks if name and block.name == name]
    return next((block for block in found if not _is_hollow(block)), found[0] if found else None)


def _is_hollow(block: Block) -> bool:
    lines = [block.text[start:end].strip() for start, end in _logical_lines(block.text)]
    head = next((n for n, line in enumerate(lines) if DEFINITION.match(line)), len(lines))
    return (
        all(HOLLOW.match(line) for line in lines[head + 1 :])
        and lines[head:] != []
        and lines[head].endswith(":")
    )


def _trimmed(text: str, entry: str) -> str | None:
    """The statements up to the first definition of `entry`, and the later definitions they use;
    None without one.
    """
    blocks = _blocks(text)
    definition = _first(blocks, entry)
    if definition is None:
        return None
    before = [
        block for block in blocks if block.start < definition.start and STATEMENT.match(block.text)
    ]
    known = {entry, *(block.name for block in before if not _is_hollow(block))}
    later: dict[str, Block] = {}
    for block in blocks:
        if block.start > definition.start and block.defines and block.name not in known:
            later.setdefault(block.name, block)
    kept = [*before, definition]
    for block in kept:  # grows while it is read: what is kept may use more
        kept.extend(later.pop(name) for name in _names(block.text) & later.keys())
    return _spliced(text, blocks, {block.start for block in kept})


def _spliced(text: str, blocks: list[Block], kept: set[int]) -> str:
    """The blocks that start at `kept`; what stood between two neighbours stays."""
    pieces: list[str] = []
    end = None
    for block in blocks:
        if block.start in kept:
            pieces += [text[end : block.start] if end else "\n\n\n", block.text]
        end = block.start + len(block.text) if block.start in kept else None
    return "".join(pieces[1:]) + "\n"


def _names(code: str) -> set[str]:
    """The words of `code` outside comments and plain strings."""

    def bare(lexeme: re.Match[str]) -> str:
        prefix = code[max(lexeme.start() - 2, 0) : lexeme.start()].lower()
        formatted = lexeme["string"] and "f" in prefix
        return lexeme[0] if formatted else " "

    return set(re.findall(r"\w+", LEXEME.sub(bare, code)))


def _statements(text: str) -> str | None:
    kept = []
    for block in _blocks(_from_first_statement(text)):
        if not STATEMENT.match(block.text):
            break
        kept.append(block.text)
    return "\n".join(kept) + "\n" if kept else None


def _from_first_statement(text: str) -> str:
    lines = text.split("\n")
    first = next((n for n, line in enumerate(lines) if STATEMENT.match(line)), len(lines))
    return "\n".join(lines[first:])


def _before_fences(reply: str) -> str:
    lines = reply.split("\n")
    first = next(
        n for n, line in enumerate(lines) if (fence := FENCE.match(line)) and _opens(fence)
    )
    return "\n".join(lines[:first])


def _blocks(text: str) -> list[Block]:
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
    named = definition or assignment
    return Block(start, text, named[1] if named else "", defines=definition is not None)


def _logical_lines(text: str) -> Iterator[tuple[int, int]]:
    """Start and end (without the line end) of each logical line that is neither blank nor a
    comment.

    Strings and brackets join lines, as in Python; but `def` or `class` at a line's start ends an
    unclosed bracket.
    """
    start = depth = 0
    for lexeme in LEXEME.finditer(text):
        kind = lexeme.lastgroup
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth = max(depth - 1, 0)
        elif kind == "end" and (depth == 0 or DEFINITION.match(text, lexeme.end())):
            if _is_code(text[start : lexeme.start()]):
                yield start, lexeme.start()
            start, depth = lexeme.end(), 0
    if _is_code(text[start:]):
        yield start, len(text)


def _is_code(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")
