"""Reads the text of an answer: the letter of a choice, the value, its unit. Nothing is evaluated,
and the time is linear in the text's length.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from assay.languages.answer import final_answer

LONG = 200
"""Characters; no plain number has more."""
NUMBER = re.compile(r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+")
PLAIN = re.compile(rf"([-+]?)({NUMBER.pattern})(?:/({NUMBER.pattern}))?(\\?%)?\.?")
FRACTION = re.compile(r"\\[dt]?frac\{([-+]?[0-9.]+)\}\{([0-9.]+)\}")
MARKUP = re.compile(r"\\?\$|\\[,;! ()\[\]]|\{(,)\}|\s")
APART = re.compile(
    r"[0-9](?:\s*\\[dt]?frac|\s+(?![0-9]{3}(?:\D|\Z))[0-9]|\\?[;!]\s*[0-9]|,(?!\\!)\s+[0-9])"
)
"""Digits that are no part of one number: of a mixed fraction, or after a space."""
OPERATORS = re.compile(r"[\\^!_(=<>*|~]")
TEXT = r"\\(?:text\w*|math(?:rm|bf|it)|mbox)\s*\{"
DASHES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212\ufe63\uff0d", "-"))
GLUED = re.compile(r"[^\W\d_]\.?[0-9]|[0-9]\.?(?!(?:st|nd|rd|th)\b)[^\W\d_]")
"""Letters that make a name or a formula of a number."""
DELIMITERS = re.compile(r"(?<!\\)(?:\$|\\[()\[\]])")
PERCENT = re.compile(
    rf"(?:{TEXT}\s*)?(?<![a-zA-Z])(?:percent(?:age)?|pct)(?![a-zA-Z])\s*\}}?", re.I
)
LABEL = re.compile(
    rf"\s*(?:{TEXT}\s*)?(?:\(([A-J])\)|([A-J])[.:)])\s*\}}?(?:\\[ ,;:]|\\q?quad(?![a-z])|[\s~])+"
    r"(?!and|or|[,&])(?=\S)"
)
LETTER = re.compile(rf"(?:{TEXT}\s*)?\(?([A-J])\)?[.:]?\s*\}}?")
UNIT = re.compile(rf"{TEXT}([^{{}}]*)\}}\s*(\^\s*\{{?\s*[23]\s*\}}?)?\s*\Z")
BARE_UNIT = re.compile(
    r"([-+]?(?:\\\$)?(?:[0-9][0-9,.]*(?:/[0-9]+)?|\\[dt]?frac\{[0-9]+\}\{[0-9]+\}))\s*"
    r"([^\W\d_][^\W\d_ .'/-]*(?:[ .'/-]+[^\W\d_]+)*\.?(?:\^?[23]|[\xb2\xb3])?)"
)
DEGREE = re.compile(r"(?:\^\s*\{?\s*\\circ\s*\}?|\xb0)\s*(?:\\(?:text|mathrm)\{)?\s*([CF]?)\}?\Z")
CURRENCY = re.compile(r"\s*(-?)\s*(\\\$|[\u20ac\xa3])\s*")
CURRENCIES = {r"\$": "dollar", "\u20ac": "euro", "\xa3": "pound"}
ANGLE = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)")
NO_UNIT = frozenset(re.findall(r"\w+", """
    and or if to not no none is are was than hundred thousand million billion trillion dozen k half
    quarter third thirds fourth fourths fifth fifths tenth tenths choose twice double
    triple negative minus plus times squared cubed factorial mod base
    root pi sqrt sin cos tan log ln exp real imaginary solution solutions most least below above
    i e x y z
"""))  # fmt: skip
"""Words that change the value that they stand at."""
SHORT = {
    "h": "hour", "hr": "hour", "min": "minute", "s": "second", "sec": "second", "m": "meter",
    "metre": "meter", "cm": "centimeter", "centimetre": "centimeter", "mm": "millimeter",
    "km": "kilometer", "kilometre": "kilometer", "kg": "kilogram", "g": "gram", "mg": "milligram",
    "ft": "foot", "feet": "foot", "in": "inch", "inche": "inch", "yd": "yard", "mi": "mile",
    "lb": "pound", "oz": "ounce", "l": "liter", "litre": "liter", "ml": "milliliter",
    "mph": "mile per hour", "usd": "dollar", "buck": "dollar", "yr": "year", "deg": "degree",
    "sq": "^2", "square": "^2", "cubic": "^3", "cu": "^3", "\xb2": "^2", "\xb3": "^3",
    "day": "day", "per": "per", "cup": "cup", "egg": "egg", "men": "man", "box": "box", "/": "per",
    "2": "^2", "3": "^3", "each": "per", "a": "", "of": "", "the": "", "an": "",
}  # fmt: skip
PARTS = re.compile(r"[^\W\d_]+|[23/\xb2\xb3]")
NAME = re.compile(
    r"\s*((?:[a-zA-Z]|\\[a-z]+)(?:_(?:\w|\{\w+\}))?(?:\([a-z](?:, ?[a-z])*\))?)\s*=\s*([^=<>]+)\Z"
)
NAMES = re.compile(r"\s*\(\s*([a-zA-Z](?:\s*,\s*[a-zA-Z])*)\s*\)\s*=\s*((?:\\left)?\(.*)", re.S)
EQUALS = re.compile(r"(?<![<>!\\])=")
LETTERS = re.compile(r"(?<!\\)(?<![a-zA-Z])(?![ei](?![a-zA-Z]))[a-zA-Z]")
SEVERAL = re.compile(r",|(?<![a-zA-Z])(?:and|or)(?![a-zA-Z])")


class Reading(NamedTuple):
    """What an answer says."""

    letter: str
    """Of a choice, A to J; empty where none is named."""
    body: str
    """The value; empty where the letter is all."""
    unit: frozenset[str]
    """The words of its unit, each as one spelling; `^2` and `per` stand for what they say."""


def reading(text: str) -> Reading:
    """What an answer says, of which only the last box counts where there is one."""
    text = DELIMITERS.sub("", final_answer(text, True) or "")
    text = PERCENT.sub(r"\\%", text.translate(DASHES)).strip()
    text = text if text.endswith("..") else text.rstrip(".,; \n")
    if letter := LETTER.fullmatch(text):
        return Reading(letter[1], "", frozenset())
    label = LABEL.match(text)
    body = text[label.end() :] if label else text
    if label and (LETTER.fullmatch(body) or LABEL.match(body)):
        return Reading("", text, frozenset())  # several letters
    return Reading((label[1] or label[2]) if label else "", *with_unit(body))


def with_unit(text: str) -> tuple[str, frozenset[str]]:
    """The text without the unit after it or the currency before it; and that."""
    currency = None
    if money := CURRENCY.match(text):
        text, currency = money[1] + text[money.end() :], frozenset({CURRENCIES[money[2]]})
    if degree := not ANGLE.search(text) and DEGREE.search(text):
        return text[: degree.start()].rstrip(), frozenset({f"degree{degree[1]}"})
    if (unit := UNIT.search(text)) and any(map(str.isdigit, text[: unit.start()])):
        body, words = text[: unit.start()].rstrip(), unit_of(unit[1] + (unit[2] or ""), True)
    elif len(text) < LONG and (unit := BARE_UNIT.fullmatch(text)):
        body, words = unit[1], unit_of(unit[2], False)
    else:
        return text, currency or frozenset()
    return (text, frozenset()) if words is None else (body, words | (currency or frozenset()))


def unit_of(text: str, marked: bool) -> frozenset[str] | None:
    """The words of a unit; None where they are no unit, or, unless it is `marked` as text, where
    they might be letters of a formula.
    """
    words = PARTS.findall(text.casefold())
    plausible = [
        word in SHORT or word.removesuffix("s") in SHORT or len(word) > 3 for word in words
    ]
    if not words or NO_UNIT.intersection(words):
        return None
    if not (marked or (all(plausible) and len(words[0]) > 1)):
        return None
    names = [SHORT.get(word) or word.removesuffix("s") or word for word in words]
    return frozenset(" ".join(SHORT.get(word, word) for word in names).split())


def disagree(first: frozenset[str], second: frozenset[str]) -> bool:
    """Whether two units are not the same; none agrees with any."""
    if not (first and second):
        return False
    return bool((first ^ second) & {"per", "^2", "^3"}) or not (first <= second or second <= first)


def plain_number(text: str, anywhere: bool = False) -> tuple[Fraction, bool] | None:
    """A number that is written out in digits, and whether as a percentage; None for anything else.
    With `anywhere`, it may be the last of equal sides, and words may stand around the only number.
    """
    if len(text) > LONG or APART.search(text):
        return None
    if anywhere and not SEVERAL.search(text.replace(",\\!", "")):
        text = text.rpartition("=")[2]
    bare = MARKUP.sub(r"\1", FRACTION.sub(r"\1/\2", text))
    match = PLAIN.fullmatch(bare)
    words = anywhere and not (OPERATORS.search(bare) or GLUED.search(text))
    words = words and NO_UNIT.isdisjoint(PARTS.findall(text.casefold()))
    if match is None and words and len(NUMBER.findall(text)) == 1:
        match = PLAIN.search(bare)
    if match is None:
        return None
    sign, over, under, percent = match.groups()
    above, below = (Fraction((digits or "1").replace(",", "")) for digits in (over, under))
    return ((-above if sign == "-" else above) / below, bool(percent)) if below else None


def same_number(first: tuple[Fraction, bool], second: tuple[Fraction, bool]) -> bool:
    """Whether two numbers are equal; 50% is the same as 50 and as 0.5."""
    values = [{value, value / 100 if percent else value} for value, percent in (first, second)]
    return first[0] == second[0] if first[1] == second[1] else bool(values[0] & values[1])


def unnamed(answer: str, other: str) -> tuple[str, str, bool]:
    """Two answers without the names of what they say the value of, as in `x = 5` and
    `(x, y) = (3, 2)`; and whether they are to be compared as equations.
    """
    texts = [last_side(answer), last_side(other)]
    first, second = map(NAMES.match, texts)
    if first or second:
        same = first and second and re.findall(r"\w", first[1]) == re.findall(r"\w", second[1])
        answer, other = (
            names[2] if names and (same or in_order(names[1])) else text
            for names, text in zip((first, second), texts, strict=True)
        )
        return answer, other, False
    first, second = map(NAME.match, texts)
    if first and not LETTERS.search(first[2]) and not SEVERAL.search(first[2]):
        return first[2], second[2] if second else texts[1], False  # an equation is not its solution
    crossed = first and second and first[1] in second[2] and second[1] in first[2]
    is_value = all(
        name or "=" not in text for name, text in zip((first, second), texts, strict=True)
    )
    if crossed or not is_value or any("," in text for text in texts):
        return texts[0], texts[1], bool(crossed) or not is_value
    return first[2] if first else texts[0], second[2] if second else texts[1], False


def in_order(names: str) -> bool:
    """Whether letters stand in the alphabet's order, in which a tuple's values are understood."""
    letters = re.findall(r"\w", names)
    return letters == sorted(set(letters))


def last_side(text: str) -> str:
    """The last of three or more equal sides, where that is a value."""
    sides = EQUALS.split(text)
    a_value = len(sides) > 2 and not re.fullmatch(r"\s*\\?[a-zA-Z]+\s*", sides[-1])
    return sides[-1] if a_value and not SEVERAL.search(text) else text
