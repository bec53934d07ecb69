"""Brings a mathematical answer into one form, so that two answers are equal if their forms are the
same text. It runs in a sandboxed process, since parsers of LaTeX hang on hostile text and sympy's
evaluates Python.

Two formulas are the same where their values are the same at a few points, which the seed draws:
that needs no guess at how to simplify. math-verify's parser reads the text.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from random import Random
from typing import Any

import sympy
from latex2sympy2_extended.latex2sympy2 import (
    ConversionConfig,
    NormalizationConfig,
    latex2sympy,
    normalize_latex,
)

RANGES = ((1, 1), (-1, -1), (-1, 1), (-100, 100))
"""Of each point: the bounds on its letters' signs, times how far they lie from 0."""
DIGITS, WORKING = 50, 100
"""Of a number that is shown, and of what is computed with."""
OPERATIONS = (sympy.Integral, sympy.Derivative, sympy.Sum, sympy.Product, sympy.Limit)
"""What nobody gives as an answer who has worked it out."""
AS_WRITTEN = NormalizationConfig(malformed_operators=True, nits=True, boxed="none")
CASES_COUNT = ConversionConfig(lowercase_symbols=False, interpret_as_mixed_fractions=False)
WRAPPED = re.compile(r"\\(?:text\w*|math(?:rm|bf|it)|mbox)\s*\{([^{}]*)\}")
SIGNS = str.maketrans({"\u221e": r"\infty ", "\xb0": r"^\circ ", "\u222a": r"\cup ",
                       "\xb1": r"\pm ", "\u221a": r"\sqrt ", "\xb7": r"\cdot "})  # fmt: skip
CLEANED = (
    (r"(?<!\\)(?:\$|\\(?:[()\[\],]|!\s*|(?:left|right|[bB]igg?)(?![a-zA-Z])\.?))", ""),
    (r"(?<!\\)\\(?:[;: ]|q?quad(?![a-zA-Z]))|~|\s+", " "),
    (r"(?<=[0-9})]) *\\approx.*", ""),
    (r"\\varnothing", r"\\emptyset"),
    (r"(?<![\\a-zA-Z])(?=(?:sqrt|pi|sin|cos|tan|cot|sec|csc|ln|log|exp)(?![a-zA-Z]))", r"\\"),
    (r"\\sqrt *(?:\(([^()]*)\)|([0-9]+(?:\.[0-9]+)?))", r"\\sqrt{\1\2}"),
    (r"\*\*", "^"),
    (r"(?<!\d)\\(?:text\w*|math(?:rm|bf|it)|mbox) *\{ *(-?\d[\d.,]*|[ei]) *\}", r"\1"),
    (r"\\log *_ *([0-9a-zA-Z])", r"\\log_{\1}"),
    (r"[.,;]?\s*\Z|\A\s+", ""),
    (r"\A([^,]*)\\pm([^,]*)\Z", r"\1+\2,\1-\2"),
)


def repeating(whole: str, digits: str, period: str) -> str:
    """A decimal fraction of which the last digits repeat, as LaTeX."""
    over = int(whole + digits + period) - int(f"0{whole}{digits}")
    return rf"(\frac{{{over}}}{{{'9' * len(period)}{'0' * len(digits)}}})"


NUMBERS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"(?<![\w.])([0-9]+(?:\.[0-9]+)?)[eE]([-+]?[0-9]+)(?![\w.])", r"(\1\\cdot 10^{\2})"),
    (r"\\([dtc]?frac) *([0-9]) *([0-9])", r"\\\1{\2}{\3}"),
    (r"(?<![\^.\w])([0-9]+) *\\[dtc]?frac *(\{[0-9]+\}) *(\{[0-9]+\})", r"(\1+\\frac\2\3)"),
    (r"(?<![\^.\w])([0-9]+) +([0-9]+)/([0-9]+)(?![0-9.])", r"(\1+\\frac{\2}{\3})"),
    (
        r"([0-9]*)\.([0-9]*)\\(?:overline|bar) *\{([0-9]+)\}",
        lambda match: repeating(*match.groups()),
    ),
    (r"([0-9)]) *\((?=[^a-zA-Z]*\))", r"\1\\cdot ("),
    (
        r"(?<![0-9.])([0-9]*)\.([0-9]+)(?![0-9.])",
        lambda match: rf"(\frac{{{match[1]}{match[2]}}}{{1{'0' * len(match[2])}}})",
    ),
    (r"\) *\\?%", ")/100"),
)
"""Powers of ten, percentages, mixed and decimal numbers, which the parser reads as others."""
DEGREES = re.compile(r"([0-9]+|\([^()]*\)) *\^ *(?:\{ *\\circ *\}|\\circ(?![a-zA-Z]))")
ANGLES = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])")
WORD = re.compile(
    r"(?<![\\a-zA-Z{])(?:[^\W\d_]{4,}|no|on|is|if|of|in|at|to|by|it|so|not|yes|odd|all|any|one|two"
    r"|six|ten|sum|max|min|mod|for)(?![^\W\d_])", re.IGNORECASE,
)  # fmt: skip
LETTERS = re.compile(r"[^\W\d_]+(?:[ '-]+[^\W\d_]+)*\.?")
VOWEL = re.compile(r"[aeiou\u0080-\uffff]", re.IGNORECASE)
SAYS_MORE = re.compile(
    r"--|\{ *\w+ *(?::|\\mid)|[0-9] *_|[0-9] *:[0-9 ]+:|[0-9]:\d\d(?!\d)|[0-9] +[0-9]|\.[0-9]*\.|'"
    r"|\\(?:implies|iff|[lcv]?dots|boxed|[pb]?mod|to|approx|(?:[Rr]ight|Leftright)arrow)(?![a-zA-Z])"
)
"""What the parser would drop or take for one number: what makes another answer of it, or more."""
JOINED = re.compile(r",? *(?:\\text\s*\{ *(and|or) *\}|(?<![a-zA-Z\\])(and|or)(?![a-zA-Z]))")
COMPARES = re.compile(r"[<>\u2264\u2265\u2260]|!=|\\(?:[lg]e?q?|[lg]t|neq?)(?![a-zA-Z])")
BRACED = re.compile(r"_\{(\w)\}")
TRIALS = (
    r"\left( 3, \frac{\pi}{2} \right)", r"p - 2q\sqrt{3}", r"(-\infty, 3) \cup [5, 7)", r"x^2+y=4",
    r"\{1, -2, 3.5\}", r"3 < x \le 5", r"\begin{pmatrix} 1 & 2 \\ 3 & 4\end{pmatrix}", r"\pm 3",
    r"\text{no} \log_2 8 + e^{2x}", r"10\%", r"\frac{(x+1)!}{\binom{5}{2}} \cdot \cos 30^\circ",
)  # fmt: skip
"""What a zygote reads once, so that its forks inherit the parser's tables."""


def normal_form(text: str, ordered: bool = False, seed: str = "") -> str:
    """The form of an answer in one line of JSON; its words where it is no formula. The order of a
    list counts if it is `ordered`.
    """
    text = text.translate(SIGNS)
    for pattern, by in CLEANED:
        text = re.sub(pattern, by, text)
    try:
        return json.dumps(Form(ordered, seed).of_text(text))
    except Exception:  # noqa: BLE001  the parser and sympy raise any kind on what they cannot read
        return json.dumps(words(text))


def words(text: str) -> list[str]:
    """The form of what is no formula: its words, without cases, and spaces but those of numbers."""
    bare = BRACED.sub(r"_\1", WRAPPED.sub(r"\1", text))
    return ["words", re.sub(r"(?<!\d)\s|\s(?!\d)", "", bare).casefold()]


def is_words(text: str) -> bool:
    """Whether letters stand for a word and not for a product, of which the order does not count."""
    bare = WRAPPED.sub(r"\1", text).strip()
    letters = LETTERS.fullmatch(bare) and len(bare) > 1
    return bool(WORD.search(bare) or (letters and VOWEL.search(bare)))


def parsed(text: str) -> Any:
    """The formula as sympy's. Raises many kinds where it is none."""
    for pattern, by in NUMBERS:
        text = re.sub(pattern, by, text)
    if SAYS_MORE.search(text) or is_words(text):
        raise ValueError("it says more than one value")
    by = r"(\\frac{\1\\cdot\\pi}{180})" if ANGLES.search(text) else r"\1"
    latex = normalize_latex(DEGREES.sub(by, text), AS_WRITTEN)
    return latex2sympy(
        latex, is_real=True, normalization_config=None, conversion_config=CASES_COUNT
    )


class Form:
    """How answers are brought into forms, as `normal_form`."""

    def __init__(self, ordered: bool, seed: str) -> None:
        self.ordered, self.seed = ordered, seed

    def of_text(self, text: str) -> Any:
        """The form of a text. Raises many kinds where it is no formula."""
        either = [part for part in JOINED.split(text) if part is not None]
        parts, joints = either[::2], set(either[1::2])
        if COMPARES.search(text) and joints == {"or"}:
            return self.of(sympy.Or(*map(parsed, parts)))
        if any(map(is_words, ",".join(parts).split(","))):
            return words(text)
        return self.of(parsed(",".join(parts)))

    def of(self, value: Any) -> Any:
        """A parsed answer as lists and texts. Raises many kinds where it has no value."""
        kind = type(value).__name__
        if kind in ("And", "Or"):
            return self.of(solution(getattr(sympy, kind)(*value.args)))
        if isinstance(value, sympy.core.relational.Relational):
            return self.relation(value, kind)
        if isinstance(value, sympy.Interval):
            ends = [self.of(value.start), self.of(value.end)]
            sides = [bool(value.left_open), bool(value.right_open)]
            return ["tuple", *ends] if all(sides) else ["interval", *ends, *sides]
        if kind in ("FiniteSet", "Union"):
            return self.members(value, "set" if kind == "FiniteSet" else "union")
        if isinstance(value, sympy.MatrixBase | sympy.MatrixExpr):
            rows = sympy.Matrix(value.doit()).tolist()
            return ["matrix", *([self.of(entry) for entry in row] for row in rows)]
        if isinstance(value, sympy.Tuple):
            return ["tuple", *map(self.of, value)]
        if value in (sympy.S.EmptySet, sympy.S.Reals, sympy.S.Integers):
            return ["all", str(value)]
        if not isinstance(value, sympy.Expr):
            raise ValueError(f"{kind} is no formula")
        names = sorted(symbol.name for symbol in value.free_symbols if symbol.name != "i")
        values = [digits_of(number(point)) for point in self.at_points(value)]
        return [names, *values] if names else values[0]

    def members(self, value: Any, kind: str) -> Any:
        """A list, a set or a union: of equations and inequalities, which letter each is of."""
        members = getattr(value, "_unsorted_args", value.args)
        bounds = [
            member for member in members if isinstance(member, sympy.core.relational.Relational)
        ]
        letters = {str(letter) for member in bounds for letter in member.free_symbols}
        if (
            len(letters) == 1
            and len(bounds) == len(members)
            and not any(member.is_Equality for member in bounds)
        ):
            return self.of(solution(sympy.And(*bounds)))
        if len(letters) > 1 and any(len(member.free_symbols) == 1 for member in bounds):
            raise ValueError("it is of several letters")
        parts = [self.of(member) for member in members]
        texts = list(map(json.dumps, parts))
        if self.ordered and kind == "set" and len(texts) > 1:
            return ["list", *texts]
        texts = sorted(set(texts))
        return parts[0] if len(texts) == 1 else [kind, *texts]

    def relation(self, value: Any, kind: str) -> Any:
        """An inequality in one letter as a set; any other relation by its sides' difference, up to
        a factor.
        """
        two_sided = kind in ("Equality", "Unequality")
        if len(value.free_symbols) == 1 and kind != "Equality":
            return self.of(solution(value))
        above, below = (value.lhs, value.rhs) if two_sided else (value.gts, value.lts)
        values = [number(point) for point in self.at_points(above - below)]
        scale = values[0] if two_sided else abs(values[0])
        if scale == 0:
            raise ValueError("it has no scale")
        names = sorted(map(str, value.free_symbols))
        form = [kind if two_sided else "Strict" in kind, names]
        return [*form, *(digits_of(number(difference / scale)) for difference in values)]

    def at_points(self, value: Any) -> Iterator[Any]:
        """The formula with numbers for its letters, at each point."""
        if value.has(*OPERATIONS):
            raise ValueError("it is a question, and no answer")
        exact = not any(power.exp.free_symbols for power in value.atoms(sympy.Pow, sympy.exp))
        for at, bounds in enumerate(RANGES):
            places = {letter: self.place(letter.name, at, *bounds) for letter in value.free_symbols}
            decimals = {letter: place.evalf(WORKING) for letter, place in places.items()}
            yield value.xreplace(places if exact else decimals)  # sympy factors p/q in (p/q)^(r/s)

    def place(self, name: str, at: int, low: int, high: int) -> Any:
        """What a letter stands for at a point."""
        if name == "i":
            return sympy.I
        draw = Random(f"{self.seed} {at} {name}")
        sign = draw.choice((low, high))
        return sign * sympy.Rational(draw.randrange(100_000, 400_000), 100_003)


def solution(value: Any) -> Any:
    """The set of what fulfils inequalities in one letter. Raises ValueError where one of them is to
    be solved first: that is the question.
    """
    for bound in value.atoms(sympy.core.relational.Relational):
        if not any(
            side in (letter, -letter, abs(letter))
            for side in bound.args
            for letter in bound.free_symbols
        ):
            raise ValueError("it is not solved")
    return value.as_set()


def number(value: Any) -> Any:
    """Its value to more digits than are shown."""
    result = value.doit()
    result = result if result.is_Rational else result.evalf(WORKING)
    if not (result.is_number and (result.is_finite or result in (sympy.oo, -sympy.oo))):
        raise ValueError("it has no value")
    return result


def digits_of(value: Any) -> str:
    """A number's digits, or its fraction; its real and its imaginary part where it has that."""
    texts = [fraction_or_digits(part) for part in value.as_real_imag()]
    return texts[0] if texts[1] == "0/1" else " ".join(texts)


def fraction_or_digits(value: Any) -> str:
    """A rational number exactly, in base 16 as Python bounds the digits of others; any other to as
    many digits as are sure.
    """
    if value.is_Float and value._prec == 1:
        return "0/1"
    if value.is_Float and 10**-DIGITS < abs(value) < 10**DIGITS:  # else a fraction is too long
        exact = Fraction(str(value))
        nearest = exact.limit_denominator(10**30)
        if abs(exact - nearest) <= abs(exact) / 10**80:
            value = sympy.Rational(nearest)
    return f"{value.p:x}/{value.q:x}" if value.is_Rational else str(value.evalf(DIGITS))


def main(ordered: bool, seed: str) -> None:
    """Read an answer, print its form."""
    sys.stdout.write(normal_form(sys.stdin.read(), ordered, seed))


def rehearse() -> None:
    """Fill the caches of the libraries."""
    for text in TRIALS:
        normal_form(text)
