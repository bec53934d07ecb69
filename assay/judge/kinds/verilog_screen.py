"""Reads the text of Verilog, and refuses what could reach a test bench: both are one simulation, so
this is decided before anything runs.

Without any of its rules, a design passes some bench:

* system functions: `$fopen` and `$readmemh` read answers from the files of a bench; `$finish` ends
  one before it counts a mismatch, and `$display` prints its verdict, where it decides itself;
* directives: `` `include `` reads those files, too, and a macro of the bench's may hold an answer;
* names: a module, function, package or block of the bench's may compute one;
* what stands before a dot: by it a design reads any net of the bench's;
* `force`: an input that it holds may hide what is wrong from a bench that decides itself;
* what hides text, and the limits on length and depth: the others read texts, in linear time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from math import inf

from assay.bounded import bounded_cache

PRINTS = re.compile(r"(?:display|write|strobe|monitor)[bho]?|info|warning|error")
COMPUTES = re.compile(
    r"(?:un)?signed|clog2|bits|size|high|low|left|right|increment|(?:unpacked_)?dimensions"
    r"|isunknown|countones|onehot0?|itor|rtoi|bitsto(?:short)?real|(?:short)?realtobits|ceil|floor"
    r"|sqrt|pow|exp|ln|log10|s?time|realtime"
)
"""System functions that only compute."""
DIRECTIVES = re.compile(
    r"define|undef|ifn?def|elsif|else|endif|timescale|default_nettype|resetall|(?:end)?celldefine"
)
BLANK = re.compile(
    r"//[^\n]*|/\*.*?(?:\*/|\Z)|\\\S+|(?P<string>\"(?:\\.|[^\"\\\n])*+\")|\"(?:\\.|[^\"\\\n])*+",
    re.DOTALL,
)  # fmt: skip
"""A comment, a string, or a name that a backslash starts and that may look like these; also a
comment or string that nothing ends. No character is read more than twice."""
STRING = " 0 "
"""Stands for a string."""
HIDES = re.compile(r"[\"\\]|``|[\w$]`|`(?!\w)|`\s*define\s+\w+\(|[^\t\n\x20-\x7e]")
"""What could make another text of a text: an open string, an escape, pasted macros."""
BRACKETS = re.compile(r"\[[^\[\]]*\]")
HEAD = re.compile(r"(?<![a-zA-Z_$])(`?[a-zA-Z_][\w$]*+)\s*+(?:\.|::)\s*+[\w$`]")
"""What stands before a dot; a name may follow a number at once."""
OWN = re.compile(r"(?<![`\w$.])(`?[a-zA-Z_][\w$]*+)(?!\s*+(?:\.|::))")
"""A name that stands alone."""
LONG_WORD = re.compile(r"[\w$]{500}")
MOST_EXPANDED, DEEPEST_MACRO = 1_000_000, 50
"""Characters of a program after its macros are replaced, and macros in macros: 30 that each double
the one before would make a gigabyte."""
DEFINE = re.compile(r"`\s*define\s+(\w+)([^\n]*)")
USE = re.compile(r"`\s*(\w+)")
LONGEST, DEEPEST = 50_000, 8
"""Characters of a program, and brackets in brackets: the screen runs in the judge's process."""
DEFINED = re.compile(
    r"\b(?:interface|package|class|primitive)\s++(\w++)|\b(?:task|function)\b([^;(]*+)"
    r"|\b(?:begin|fork)\s*+:\s*+(\w++)"
)
INSTANCE = re.compile(r"(?<![\w$`.])(\w++)\s*+(?:\[[^][;]*+\]\s*+)?\(")
"""Names of instances, one of which may follow another after a comma; and of what is called."""


MODULE = re.compile(r"\bmodule\s++(\w++)|\bendmodule\b")


def modules_of(code: str) -> list[tuple[str, int, int]]:
    """Each module's name, start and end in a code without comments and strings."""
    modules, head = list[tuple[str, int, int]](), None
    for word in MODULE.finditer(code):
        if word[1] and head is None:
            head = word
        elif not word[1] and head is not None:
            modules.append((head[1], head.start(), word.end()))
            head = None
    return modules


def without_comments(source: str) -> str:
    """The source with a space for each comment, and the lines that it ends."""

    def space(blank: re.Match[str]) -> str:
        return " " + "\n" * blank[0].count("\n") if blank[0][0] == "/" else blank[0]

    return BLANK.sub(space, source)


def without_strings(source: str) -> str:
    """A source without comments with STRING for each string of one line."""

    def stands_for(blank: re.Match[str]) -> str:
        return STRING if blank["string"] and "\n" not in blank[0] else blank[0]

    return BLANK.sub(stands_for, source)


def designs(bodies: Mapping[str, str], name: str, reference: str | None) -> dict[str, str]:
    """A module for each body, with this name and the ports that it has in the reference."""
    head = re.search(rf"\bmodule\s+{re.escape(name)}\b[^;]*;", reference or "")
    start = head[0] if head else f"module {name};"
    return {key: f"{start}\n{body}\nendmodule\n" for key, body in bodies.items()}


def used(program: str, design: str) -> str:
    """The program without comments, without the modules that its design does not use, such as a
    test bench of its own, and without what follows the last one that it uses.
    """
    if len(program) > LONGEST:
        return program  # and `refusal` says so
    program = without_comments(program.replace("\r\n", "\n"))
    code = BLANK.sub(lambda blank: re.sub(r"[^\n]", " ", blank[0]), program)
    modules = modules_of(code)
    texts = {name: code[start:end] for name, start, end in modules}
    left = [design] if design in texts else []
    needed = set(left)
    while left:
        new = {*re.findall(r"\w+", texts[left.pop()])} & texts.keys()
        left += new - needed
        needed |= new
    last = max((end for name, _, end in modules if name in needed), default=len(program))
    pieces, at = list[str](), 0
    for name, start, end in modules:
        if name not in needed and end <= last:
            pieces += [program[at:start], "\n" * code.count("\n", start, end)]
            at = end
    rest = "\n" + "`endif\n" * code.count("`endif", last) if needed else ""
    return "".join([*pieces, program[at:last], rest])


def expanded(code: str) -> float:
    """The most characters that a program has once its macros are replaced; infinite where they are
    too deep in each other. Where one is defined twice, the longer one counts.
    """
    bodies: dict[str, list[str]] = {}
    for name, body in DEFINE.findall(code):
        bodies.setdefault(name, []).append(body)
    sizes: dict[str, float] = {}

    def size_of_text(text: str, depth: int) -> float:
        return len(text) + sum(size_of_macro(name, depth) for name in USE.findall(text))

    def size_of_macro(name: str, depth: int) -> float:
        if depth > DEEPEST_MACRO:
            return inf
        if name not in sizes:
            texts = bodies.get(name, ())
            sizes[name] = max((size_of_text(text, depth + 1) for text in texts), default=0)
        return sizes[name]

    return size_of_text(DEFINE.sub("", code), 0)


def refusal(program: str, bench: str, design: str, prints: bool = True) -> str:
    """Why a program without comments may not run beside this bench; empty where it may. `design`:
    the module that the bench instantiates. `prints`: whether it may print.
    """
    if len(program) > LONGEST or LONG_WORD.search(program):
        return f"it has more than {LONGEST:,} characters, or a word of more than 500"
    code = without_strings(program)
    if hidden := HIDES.search(code):
        return f"it holds {hidden[0]!r}, which can hide what it does"
    for name in re.findall(r"\$\s*(\w*)", code):
        if not (COMPUTES.fullmatch(name) or (prints and PRINTS.fullmatch(name))):
            return f"it uses ${name}"
    macros = set(re.findall(r"`\s*define\s+(\w+)", code))
    for name in re.findall(r"`\s*(\w*)", code):
        if name not in macros and not DIRECTIVES.fullmatch(name):
            return f"it uses `{name}, which it does not define"
    if expanded(code) > MOST_EXPANDED:
        return f"its macros make more than {MOST_EXPANDED:,} characters of it"
    theirs, heads = names_of(bench)
    for word in sorted(set(re.findall(r"\w+", code))):
        if word == "force":
            return "it uses `force`, which acts beyond its own module"
        if word in theirs and word != design:
            return f"it names {word!r}, which belongs to the test bench"
    for _ in range(DEEPEST):  # from the innermost brackets, so that `a[b.c].d` shows both heads
        declared = set(OWN.findall(code))
        for head in HEAD.findall(code):
            if head in heads or head not in declared:
                return f"it looks into {head!r}, which it does not declare"
        if (outer := BRACKETS.sub("", code)) == code:
            return ""
        code = outer
    return "its brackets are nested too deep"


@bounded_cache(256, 16)
def names_of(bench: str) -> tuple[frozenset[str], frozenset[str]]:
    """What a bench defines: tasks, functions, blocks, and the modules that it uses itself (others
    are there for the design); the same and its instances.
    """
    code = without_strings(without_comments(bench))
    words = {
        word for parts in DEFINED.findall(code) for word in re.findall(r"\w+", "".join(parts))[-1:]
    }
    uses = Counter(re.findall(r"\w+", code))
    words |= {"tb"} | {name for name, *_ in modules_of(code) if uses[name] > 1}
    return frozenset(words), frozenset(words | set(INSTANCE.findall(code)))
