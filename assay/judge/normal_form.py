"""Brings a mathematical answer into one form, so that two answers are equal if their forms are the
same text. It runs in a sandboxed process, since parsers of LaTeX hang on hostile text and sympy's
evaluates Python.

Two formulas are the same where their values are the same at a few points: that needs no guess at
how to simplify. math-verify reads the text.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

import sympy
from math_verify import LatexExtractionConfig, parse

POINTS = (("137/100", "61/50"), ("29/10", "83/100"), ("-171/100", "47/25"))
"""Of each point: what the first letter of a formula stands for, and the step to the next one's."""
DIGITS = 50
WORD = re.compile(r"(?<![\\a-zA-Z{])[^\W\d_]{4,}")
SAYS_MORE = re.compile(
    r"[0-9]\s*_|\\(?:implies|iff|approx|[lc]?dots|boxed|to|(?:[Rr]ight|Leftright)arrow)(?![a-zA-Z])"
)
"""What math-verify would drop: a subscript, and what makes more of an answer than one value."""
BRACED = re.compile(r"_\{(\w)\}")
WRAPPED = re.compile(r"\\(?:text\w*|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
SPACE = re.compile(r"\s|\\[,;!]|\\left|\\right")
DOLLARS = re.compile(r"(?<!\\)\$|\\[()\[\]]|\.\s*$")
TRIALS = (
    r"\left( 3, \frac{\pi}{2} \right)", r"p - 2q\sqrt{3}", r"(-\infty, 3) \cup [5, 7)", r"x^2+y=4",
    r"\{1, -2, 3.5\}", r"3 < x \le 5", r"\begin{pmatrix} 1 & 2 \\ 3 & 4\end{pmatrix}", r"\pm 3",
    r"\text{no} \log_2 8 + e^{2x}", r"10\%", r"\frac{(x+1)!}{\binom{5}{2}} \cdot \cos 30^\circ",
)  # fmt: skip
"""What a zygote reads once, so that its forks inherit the parser's tables."""


def normal_form(text: str) -> str:
    """The form of an answer in one line of JSON; its words where it is no formula."""
    bare = DOLLARS.sub("", text).replace(r"\varnothing", r"\emptyset").strip()
    found = parse(f"${bare}$", [LatexExtractionConfig()], parsing_timeout=None)
    if found and not SAYS_MORE.search(bare) and not WORD.search(WRAPPED.sub(r"\1", found[-1])):
        try:
            return json.dumps(form(found[0]))
        except Exception:  # noqa: BLE001  sympy raises any kind on what it cannot evaluate
            pass
    return json.dumps(
        ["words", BRACED.sub(r"_\1", SPACE.sub("", WRAPPED.sub(r"\1", bare))).casefold()]
    )


def form(value: Any) -> Any:
    """A parsed answer as lists and texts. Raises many kinds where it has no value."""
    kind = type(value).__name__
    if kind == "Equality" and is_name(value.lhs):
        return form(value.rhs)
    if kind in ("And", "Or"):
        return form(getattr(sympy, kind)(*value.args).as_set())
    if isinstance(value, sympy.core.relational.Relational):
        return relation(value, kind)
    if isinstance(value, sympy.Interval):
        ends = [form(value.start), form(value.end)]
        sides = [bool(value.left_open), bool(value.right_open)]
        return ["tuple", *ends] if all(sides) else ["interval", *ends, *sides]
    if kind in ("FiniteSet", "Union"):
        equal = {str(one.lhs) for one in value.args if isinstance(one, sympy.Eq)}
        parts = [[str(one.lhs), form(one.rhs)] if len(equal) > 1 else form(one)
                 for one in value.args]  # fmt: skip
        texts = sorted(set(map(json.dumps, parts)))
        return parts[0] if len(texts) == 1 else ["set", *texts]
    if isinstance(value, sympy.MatrixBase):
        return ["matrix", *([form(one) for one in row] for row in value.tolist())]
    if isinstance(value, sympy.Tuple):
        return ["tuple", *map(form, value)]
    if not isinstance(value, sympy.Expr):
        raise ValueError(f"{kind} is no formula")
    names = sorted(one.name for one in value.free_symbols if one.is_real)
    values = [shown(number(one)) for one in values_at_points(value)]
    return [names, *values] if names else values[0]


def relation(value: Any, kind: str) -> Any:
    """An inequality in one letter as a set; any other relation by its sides' difference, up to a
    factor.
    """
    two_sided = kind in ("Equality", "Unequality")
    if len(value.free_symbols) == 1 and not two_sided:
        return form(value.as_set())
    above, below = (value.lhs, value.rhs) if two_sided else (value.gts, value.lts)
    values = [number(one) for one in values_at_points(above - below)]
    scale = values[0] if two_sided else abs(values[0])
    if scale == 0:
        raise ValueError("it has no scale")
    return [kind if two_sided else "Strict" in kind, *(shown(one / scale) for one in values)]


def is_name(value: Any) -> bool:
    """Whether it is a letter, or a function of letters such as f(x)."""
    return value.is_Symbol or isinstance(value, sympy.core.function.AppliedUndef)


def values_at_points(value: Any) -> Sequence[Any]:
    """The formula with numbers for its letters, at each point."""
    exact = {one: sympy.Rational(str(one)) for one in value.atoms(sympy.Float)}
    letters = sorted(value.free_symbols, key=str)
    value = value.xreplace(exact | {one: sympy.I for one in letters if not one.is_real})
    letters = [one for one in letters if one.is_real]
    places = [[sympy.Rational(first) + at * sympy.Rational(step) for at in range(len(letters))]
              for first, step in POINTS]  # fmt: skip
    return [value.xreplace(dict(zip(letters, place, strict=True))) for place in places]


def number(value: Any) -> Any:
    """Its value to more digits than are shown."""
    found = value.doit()
    found = found if found.is_Rational else found.evalf(DIGITS + 20)
    if not (found.is_number and (found.is_finite or found in (sympy.oo, -sympy.oo))):
        raise ValueError("it has no value")
    return found


def shown(value: Any) -> str:
    """A number's digits; its real and its imaginary part where it has that."""
    parts = [
        sympy.Float(0) if getattr(one, "_prec", 9) == 1 else one for one in value.as_real_imag()
    ]
    texts = [str(one if one.is_Rational and abs(one) > 10**DIGITS else one.evalf(DIGITS))
             for one in parts]  # fmt: skip
    return texts[0] if parts[1] == 0 else " ".join(texts)


def main() -> None:
    """Read an answer, print its form."""
    sys.stdout.write(normal_form(sys.stdin.read()))


def rehearse() -> None:
    """Fill the caches of the libraries."""
    for text in TRIALS:
        normal_form(text)
