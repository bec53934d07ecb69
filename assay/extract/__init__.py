"""Extracts the program to judge from a reply, by what its parts are: their tags, whether they
define what is asked or read the input, and whether they only use another part.

What a base model generates after its answer (another function, tests, prose) is cut off, because
right answers would count as wrong; and so is what only tries a function.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

from assay.bounded import bounded_cache
from assay.extract import statements as python
from assay.extract.fences import FENCE, Fenced, before_fences, fenced_blocks
from assay.extract.thoughts import answer
from assay.judge.kinds.find import kind_of
from assay.languages import Language, aliases, language_named
from assay.lines import source_lines
from assay.types import Task

TAGGED = re.compile(r"^[ \t]*<answer>\n?(.*?)(?:</answer>|\Z)", re.MULTILINE | re.DOTALL)
READS = re.compile(
    r"\binput\s*\(|\b(?:stdin|Stdin|STDIN)\b(?!\s*=[^=])|\bcin\b|scanf|\bgetchar\b|\bgets\b"
    r"|\bgetline\b|\bARGF\b|System\s*\.\s*in\b|\bfmt\.Scan|\breadFileSync\b|\breadlines?\b|\bread0\b"
    r"|\bopen\s*\(\s*0\s*[,)]|\bos\.read\s*\(\s*0\b|\bfileinput\b"
)
"""How programs read their input, in all languages."""
SESSION = re.compile(
    r"\s*(?:>>> |[$%>] ?\w|\.{1,2}/|/(?:usr|bin|tmp)/|[\[{]\s*[\"\d\[{\]}]|(?:in|out)put\s*[:\n]|"
    r"(?:sample|example|python3?|node|go|cargo|gcc|g\+\+|rustc|javac?|iverilog|npm|npx|echo|q) )",
    re.IGNORECASE,
)
"""How a block begins that is a session, data or an example."""
CODE = re.compile(
    r"[;{}=]|\w\(|^\s*(?:import|from|module|package|print)\b|\\\\|-1 \"", re.MULTILINE
)
NAMED = re.compile(
    r"\b(?:def|class|struct|enum|interface|record|trait|type|typename|fn|func|function|const|let|var"
    r"|void|int|long|bool|string|double|auto|define)[ \t*&]+(?!main\b)(\w+)|\b(\w++)[ \t]*+=(?!=)"
    r"|^[ \t]*((?:\w++[ \t]*+,[ \t]*+)+\w++)[ \t]*+=(?!=)|^[ \t]*(?:from|import|use|using)\b(.*)",
    re.MULTILINE,
)
"""The names that code defines or imports, in most languages."""
PRINTS = re.compile(
    r"print|\bPrint|\bcout\b|\bf?put[cs]|(?m:^|[;|])[ \t]*+pp?[ (](?! *+[-+*/%&|<>,.=])|console\b"
    r"|write|[sS]tdout|STDOUT|\bshow\b|\$display|-1 "
)
FIRST = re.compile(r"#\w|//|/\*|`\w|@\w|(?:package|import|module)\b|.*[;{}]\s*$")
LAST = re.compile(r"(?:[;})]|\bendmodule|\*/)\s*$")
"""The first and the last line of code that stands between prose."""
CALLED = re.compile(r"(?<![.\w])\w+(?=[ \t]*+(?:\(|::<|<\w+>\())|(?<=^@)\w+", re.MULTILINE)
WORD = re.compile(r"(?<![.\w])\w+")
TYPE = re.compile(r"[A-Z]\w+")
"""A type or constant, by the custom of most languages; its mere name uses it."""
IMPORT = re.compile(r"(?:from|import) ")
"""Each line of a block that is there to be put before another."""
MOST_NAMES = 99
"""Calls of another block's names that are looked at in one block."""


def program(task: Task, reply: str) -> str | None:
    """The program to judge, or None if the reply has none.

    A reply that continues the body of the stub's function completes the stub. Otherwise, in this
    order: the last closed code block that defines the entry point, or that reads input and prints
    where the program should, and the task's language is its tag or it has none; bare code, or
    an unclosed block, that does; a block tagged as the task's language that continues the stub, or
    without an entry point; a block with another tag that does what is asked; any untagged code.
    Excerpts of an earlier block are left out. Blocks that use what an earlier one defines are
    joined to it, or left out where that one is a program itself. All blocks, where a program is
    several files.
    In Python, what follows the entry point's definition stays only where that needs it; in
    JavaScript and TypeScript, demonstrations are cut. A program that reads and prints keeps all.
    """
    language = language_named(task.language)
    reply = answer(language.with_own_line_ends(reply))
    tagged = [text for text in TAGGED.findall(reply) if text.strip()]
    reply = tagged[-1] if tagged else reply
    if not language.is_code:
        program_text = language.cut(reply, bool(tagged))
    elif any(len(kind_of(check).files(check)) > 1 for check in task.checks):
        blocks = fenced_blocks(reply)
        own_blocks = [block for block in blocks if _tag(block) in ("", task.language)] or blocks
        program_text = task.stub + ("\n".join(block.code for block in own_blocks) or reply)
    elif language.warm and task.stub and _continues(task.stub, reply):
        program_text = python.trimmed(completed(task.stub, reply), _names(task))
    else:
        program_text = _chosen(task, language, reply)
    return program_text if reply.strip() and program_text and program_text.strip() else None


def _names(task: Task) -> list[str]:
    """What the program defines, the likeliest name first; empty where it reads and prints."""
    if not task.entry_point:
        return [name for check in task.checks for name in kind_of(check).defines(check)][:1]
    owner = re.split(r"\W", task.entry_point, maxsplit=1)[0]
    return list(dict.fromkeys([owner, task.function]))


def _asked(task: Task) -> frozenset[str]:
    """The words of the tests' Python: they may use more than the entry point."""
    return _words(tuple(text for check in task.checks for text in kind_of(check).code(check)))


@bounded_cache(256, 32)
def _words(code: tuple[str, ...]) -> frozenset[str]:
    return frozenset(word for text in code for word in re.findall(r"\w+", text))


def completed(stub: str, completion: str) -> str:
    """Returns the stub and what continues it, on a new line where the stub's last one is whole."""
    last = stub.rpartition("\n")[2]
    whole = last.rstrip().endswith(":") or "#" in last
    between = "\n" if whole and re.match(r"\t|  ", completion) else ""
    return f"{stub}{between}{completion}"


def _chosen(task: Task, language: Language, reply: str) -> str | None:
    blocks = _parts(task, language, reply)
    ranks = _ranks(task, language, blocks)
    codes = [language.blanked(block.code) for block in blocks]
    owner, words = dict[str, int](), dict[str, int]()
    needs, programs = list[set[int]](), list[int]()
    for at, (code, rank) in enumerate(zip(codes, ranks, strict=True)):
        definitions = NAMED.findall(code)
        owns = {*re.findall(r"\w+", " ".join(map(" ".join, definitions)))}
        names = sorted(({*CALLED.findall(code)} - owns) & owner.keys())[:MOST_NAMES]
        needs.append({owner[name] for name in names if not language.defines(code, name)})
        needs[at] |= {words[name] for name in ({*WORD.findall(code)} - owns) & words.keys()}
        if rank:
            owner |= dict.fromkeys(owns, at)
            words |= {name: at for name in map("".join, definitions) if TYPE.fullmatch(name)}
        if rank and all(map(IMPORT.match, filter(str.strip, source_lines(code)))):
            words |= dict.fromkeys(owns - {"import", "as"}, at)
        if rank and not any(
            ranks[n] >= rank and _runs(task, ranks[n], codes[n]) for n in needs[at]
        ):
            programs.append(at)
    best = max(programs, key=lambda at: (ranks[at], blocks[at].closed, at), default=None)
    if best is None:
        return None
    joined, waiting = {best}, [best]
    if ranks[best] == 3 and not _names(task) and any(map(READS.search, codes)):
        joined = {at for at, rank in enumerate(ranks) if rank == 3}
    while waiting:
        new = needs[waiting.pop()] - joined
        joined |= new
        waiting += new
    code = "".join(blocks[at].code for at in sorted(joined))
    return _made(task, language, replace(blocks[best], code=code))


def _parts(task: Task, language: Language, reply: str) -> list[Fenced]:
    """The blocks of a reply, and first the code above them."""
    blocks, bare = fenced_blocks(reply), before_fences(reply)
    names = _names(task)
    if language.warm:
        bare = (python.from_first_statement(bare) if names else python.statements(bare)) or ""
    elif blocks or not names or _defines(language, bare, names):
        bare = _code_lines(bare, "" if blocks else bare)
    end = "\n" if blocks else ""
    return [Fenced(bare + end, closed=False, tag=""), *blocks] if bare.strip() else blocks


def _code_lines(text: str, default: str) -> str:
    """A text from the first to the last line that is surely code; the default where none is."""
    lines = text.split("\n")
    first = next((n for n, line in enumerate(lines) if FIRST.match(line)), len(lines))
    last = next((n for n in reversed(range(len(lines))) if LAST.search(lines[n])), len(lines))
    code = lines[first : last + 1]
    return "\n".join(code) + "\n" * (last + 1 < len(lines)) if code else default


def _defines(language: Language, code: str, names: list[str]) -> bool:
    """Whether code defines one of these, in Python with a body."""
    if language.warm:
        return python.defines(code, names)
    return any(language.defines(code, name) for name in names)


def _ranks(task: Task, language: Language, blocks: list[Fenced]) -> list[int]:
    """How surely each block is the program; 0 for one that is an excerpt of an earlier one."""
    ranks, codes, earlier = list[int](), dict[str, str](), dict.fromkeys(range(5), " ")
    for block in blocks:
        rank, text = _rank(task, language, block, len(blocks) == 1), _in_one_line(language, block)
        is_part = any(f" {text} " in earlier[other] for other in range(rank, 5))
        is_excerpt = is_part and codes.get(text, block.code) == block.code
        ranks.append(0 if is_excerpt else rank)
        if not is_excerpt:
            codes[text] = block.code
            earlier[rank] += f"{text} ``` " * block.closed
    return ranks


def _in_one_line(language: Language, block: Fenced) -> str:
    """The words of a block; in Python, with how each line is indented from the one above."""
    lines = [line for line in block.code.split("\n") if line.strip()]
    if language.warm:
        margins = [len(line) - len(line.lstrip()) for line in lines]
        changes = (below - above for above, below in pairwise(margins))
        lines[1:] = (f"{change} {line}" for change, line in zip(changes, lines[1:], strict=True))
    return " ".join(" ".join(lines).split())


def _rank(task: Task, language: Language, block: Fenced, alone: bool) -> int:
    """How surely a block is the program, from 4; 0 if it is none."""
    names, code = _names(task), block.code
    if not code.strip():
        return 0
    same_language, plain = _tag(block) == task.language, not block.tag
    is_code = CODE.search(code) is not None and not (plain and SESSION.match(code))
    bare = language.blanked(code)
    does = _defines(language, code, names) if names else READS.search(bare) and PRINTS.search(bare)
    if does and is_code:
        return 4 if same_language or plain else 2
    closes = code.count("}") > code.count("{") or "endmodule" in code
    continues = _continues(task.stub, code) if language.warm else closes
    if same_language and (not names or (task.stub and continues)):
        return 3
    return int(same_language or (plain and is_code and (alone or not names or task.stub != "")))


def _tag(block: Fenced) -> str:
    """The language that the tag of a block names, if it does; or the tag."""
    bare = block.tag.rstrip("0123456789")
    return aliases().get(block.tag) or aliases().get(bare) or block.tag


def _runs(task: Task, rank: int, code: str) -> bool:
    """Whether a block does what is asked, or prints where that may be all."""
    return rank in (2, 4) or (not _names(task) and PRINTS.search(code) is not None)


def _made(task: Task, language: Language, block: Fenced) -> str | None:
    """The program of a block."""
    names, stub, code = _names(task), task.stub, block.code
    if not language.warm:
        source = code if _defines(language, code, names) else completed(stub, code)
        return language.without_demos(source, task.function) if task.entry_point else source
    if not names:
        return code
    text = code if block.closed else python.from_first_statement(code)
    if program_text := python.trimmed(text, names, closed=block.closed, needed=_asked(task)):
        return python.prelude_and(stub, program_text, names)
    if stub and _continues(stub, code):
        return python.trimmed(completed(stub, code), names)
    return code if block.closed else None


def _continues(stub: str, reply: str) -> bool:
    """Whether the reply continues the body of the stub's function: its first line is indented, or
    continues the stub's last line.
    """
    last = stub.rpartition("\n")[2]
    if last and not last.rstrip().endswith(":") and "#" not in last and reply[:1] != "\n":
        return not FENCE.match(reply.split("\n", 1)[0]) and not python.STATEMENT.match(reply)
    lines = (
        line for line in reply.split("\n") if line.strip() and not line.lstrip().startswith("#")
    )
    first = next(lines, "").lstrip("\f")
    one_space = re.match(r" (?! )", first)  # a tokenizer's, before a chat model's prose
    return first[:1].isspace() and not FENCE.match(first) and not (one_space and "```" in reply)
