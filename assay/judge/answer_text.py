"""Reads the text of an answer: the letter of a choice, the value, its unit. Nothing is evaluated,
and the time is linear in the text's length.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple
from unicodedata import normalize

from assay.languages.answer import SPELLED, final_answer, in_digits

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
RAISED = re.compile(r"[\xb2\xb3\xb9\u2070-\u207b]+")
GLUED = re.compile(r"[^\W\d_]\.?[0-9]|[0-9]\.?(?!(?:st|nd|rd|th)\b)[^\W\d_]")
"""Letters that make a name or a formula of a number."""
DELIMITERS = re.compile(r"(?<!\\)(?:\$|\\[()\[\]])")
PERCENT = re.compile(
    rf"(?:{TEXT}\s*)?(?<![a-zA-Z])(?:percent(?:age)?|pct)(?![a-zA-Z])\s*\}}?", re.I
)
LABEL = re.compile(
    rf"\s*(?:{TEXT}\s*)?(?:\(([A-J])\)|([A-J])[.:)])\s*\}}?(?:\\[ ,;:]|\\q?quad(?![a-z])|[\s~])+"
    rf"(?![(\[\s]*(?:{TEXT}\s*)?(?:and|or|not)(?![a-zA-Z])|[,&])(?=\S)"
)
OTHER_LABEL = re.compile(r"(?<![^\W_])\(([A-J])\)")
LETTER = re.compile(rf"(?:{TEXT}\s*)?(?:(?:[Oo]ption|[Cc]hoice) *)?\(?([A-J])\)?[.:]?\s*\}}?")
INTRODUCTION = re.compile(
    rf"\s*({TEXT})?\s*(?:(?:so|thus|hence|therefore),?\s+)?(?:(?:the|my|our)\s+)?"
    r"(?:(?:final|correct|right)\s+)?(?:answer|result|option|choice)\s*(?:is|are|equals|:|=)\s*:?\s*"
    r"(\}[\s:=~]*)?(?=\S)",
    re.I,
)
"""What a reply says before its answer."""
UNIT = re.compile(rf"{TEXT}((?:[^{{}}]|\^\{{[23]\}})*)\}}\s*(\^\s*\{{?\s*[23]\s*\}}?)?\s*\Z")
BARE_UNIT = re.compile(
    r"([-+]?(?:\\\$)?(?:[0-9][0-9,.]*(?:[:/][0-9]+)?|\\[dt]?frac\{[0-9]+\}\{[0-9]+\}))\s*"
    r"([^\W\d_][^\W\d_ .'/-]*(?:[ .'/-]+[^\W\d_]+)*\.?(?:\^?\{?[23]\}?)?)"
)
DEGREE = re.compile(
    r"(?:\^\s*\{?\s*\\circ\s*\}?|\xb0|\\degree)\s*(?:\\(?:text|mathrm)\{)?\s*([CF]?)\}?\Z"
)
CURRENCY = re.compile(r"\s*(-?)\s*(\\\$|[\u20ac\xa3])\s*")
CURRENCIES = {r"\$": "dollar", "\u20ac": "euro", "\xa3": "pound"}
ANGLE = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)")
MULTIPLES = frozenset(re.findall(r"\w+", """
    tens dozens hundreds thousands millions billions trillions quadrillion quadrillions lakh lakhs
    lac lacs crore crores gross score myriad myriads halves
"""))  # fmt: skip
"""Words that multiply the number before them, and are no number without one."""
CHANGING = MULTIPLES | frozenset(re.findall(r"\w+", """
    not no none hundred thousand million billion trillion dozen half quarter third thirds
    fourths fifths sixths sevenths eighths ninths tenth tenths hundredths thousandths twice
    double triple negative minus plus times squared cubed factorial mod base root pi sqrt most
    least x y z
"""))  # fmt: skip
"""Words that change a number, as its unit and in an aside behind it."""
NO_UNIT = CHANGING | frozenset(re.findall(r"\w+", """
    and or if to is are was than k fourth fifth choose sin cos tan log ln exp real imaginary
    solution solutions below above i e
"""))  # fmt: skip
"""Words that change the value that they stand at."""
SHORT = {
    "h": "hour", "hr": "hour", "min": "minute", "s": "second", "sec": "second", "m": "meter",
    "metre": "meter", "cm": "centimeter", "centimetre": "centimeter", "mm": "millimeter",
    "km": "kilometer", "kilometre": "kilometer", "kg": "kilogram", "g": "gram", "mg": "milligram",
    "ft": "foot", "feet": "foot", "in": "inch", "inche": "inch", "yd": "yard", "mi": "mile",
    "lb": "pound", "oz": "ounce", "l": "liter", "litre": "liter", "ml": "milliliter",
    "mph": "mile per hour", "usd": "dollar", "buck": "dollar", "yr": "year", "deg": "degree",
    "celsius": "c", "fahrenheit": "f", "sq": "^2", "square": "^2", "cubic": "^3", "cu": "^3",
    "day": "day", "per": "per", "cup": "cup", "egg": "egg", "men": "man", "box": "box", "/": "per",
    "2": "^2", "3": "^3", "am": "am", "pm": "pm", "each": "per", "a": "", "of": "", "the": "",
    "an": "", "st": "th", "nd": "th", "rd": "th", "th": "th",
}  # fmt: skip
PARTS = re.compile(r"[^\W\d_]+|[23/]")
EQUALS = re.compile(r"(?<![<>!\\])=|\\in(?![a-zA-Z])")
NAME = re.compile(
    r"\s*((?:[a-zA-Z]|\\[a-z]+)(?:_(?:\w|\{\w+\}))?(?:\([a-z](?:, ?[a-z])*\))?)\s*"
    rf"(?:{EQUALS.pattern})\s*([^=<>]+)\Z"
)
NAMES = re.compile(r"\s*\(\s*(\\?\w+(?:\s*,\s*\\?\w+)*)\s*\)\s*=\s*((?:\\left)?\(.*)", re.S)
ALTERNATIVE = re.compile(r"\s*(?:or|nor|not|and|but|maybe|perhaps)\b", re.I)
"""How an aside begins that says another value, unless that is the same one."""
TEXT_ASIDE = re.compile(rf"\s*{TEXT}([^{{}}]*)\}}\s*")
LABEL_ASIDE = re.compile(r"[a-dA-J]|i{1,3}|iv|vi{0,3}|ix|\*+")
"""An aside that numbers or marks an answer: 12 (ii). Other letters are unknowns."""
TAIL = re.compile(
    rf"([-+]?(?:{NUMBER.pattern})(?:\\?%)?)\s*(?:[,;:=]|(?<=\s)(?:-|aka(?=\s)|(?=i\.e|n?or\b)))\s*"
    r"((?:i\.e\.\s+)?[^\W\d_]{2,}(?:[ -][^\W\d_]+){0,3})"
)
"""A number and a few words behind it: 12, or none."""
REFERENCE = re.compile(
    r"\b(?:steps?|parts?|cases?|eqs?\.?|equations?|formulas?|theorems?|lemmas?|lines?|questions?"
    r"|problems?|exercises?|examples?|figures?|tables?|methods?|options?|choices?|sections?)"
    r"\s+\(?(?:[0-9]+(?:\.[0-9]+)*|[a-zA-Z])\)?(?!\w)",
    re.I,
)
"""Where a number comes from, which is no value: step 3, equation (2)."""
VALUES = CHANGING | frozenset(re.findall(r"\w+", """
    nothing zero infinity infinite infinitely infty undefined unknown impossible percent modulo
    more less fewer otherwise unless except wrong false incorrect invalid rejected opposite
    inverse reciprocal
"""))  # fmt: skip
"""Words of an aside that say another value, or change the one before it."""
REMARKS = frozenset(re.findall(r"\w+", """
    correct exact exactly approximately approx rounded checked verified final answer result total
    altogether required only valid see above below shown
"""))  # fmt: skip
"""Words behind an answer that are no unit of it."""
RESTATES = re.compile(
    r"\s*(?:(?:i\.e\.?|that is|namely|or|equals|equal to|=)(?![a-zA-Z]),?\s*)?", re.I
)
"""How an aside begins that says the value once more."""
WORD = re.compile(r"[^\W\d_]+")
NO_PROSE = re.compile(r"[^\w\s.,:;'!-]|[0-9_]")
"""What no remark has."""
SEVERAL = re.compile(r"[,;]|(?<![a-zA-Z])(?:and|or)(?![a-zA-Z])")
JOINT = re.compile(rf"\\(?:[ ;]|q?quad(?![a-z]))|{TEXT}\s*(and|or)\s*\}}")
ARGUMENTS = re.compile(r"_(?:\w|\{[^{}]*\})|\([^()]*\)|\^\{-1\}")
"""What belongs to the name before it: an index, what a function is called with."""
UNKNOWN = re.compile(
    r"(?<![\\a-zA-Z])[a-zA-Z]+|\\(?:alpha|beta|gamma|delta|theta|lambda|mu|rho|(?:var)?phi|omega)"
)
OPERATES = re.compile(r"[-+*/^!0-9]|\\(?:[dt]?frac|pm|mp|sqrt|cdot|times)")
RELATES = re.compile(rf"{SEVERAL.pattern}|[<>]|not|\\(?:\{{|(?:n?[lg]eq?|[lg]t|neq?)(?![a-zA-Z]))")


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
    text = RAISED.sub(lambda raised: f"^{{{normalize('NFKC', raised[0])}}}", text)
    text = without_introduction(PERCENT.sub(r"\\%", text.translate(DASHES)).strip()).strip()
    text = text if text.endswith("..") else text.rstrip(".,;~\\ \n")
    if letter := LETTER.fullmatch(text):
        return Reading(letter[1], "", frozenset())
    label = LABEL.match(text)
    body = text[label.end() :] if label else text
    others = {letter for letter in OTHER_LABEL.findall(body) if label and letter not in label[0]}
    if label and (LETTER.fullmatch(body) or LABEL.match(body) or others):
        return Reading("", text, frozenset())  # several letters
    return Reading((label[1] or label[2]) if label else "", *with_unit(without_aside(body)))


def without_introduction(text: str) -> str:
    """The text without "The answer is" before the answer, also where it stands in \\text{}."""
    match = INTRODUCTION.match(text)
    if match is None:
        return text
    rest = text[match.end() :]
    if match[2] or not match[1]:
        return rest
    is_all = rest.endswith("}") and "{" not in rest and rest.count("}") == 1
    return rest[:-1] if is_all else match[1] + rest


def without_aside(text: str) -> str:
    """A number without the brackets behind it that give the same number once more, in other words
    or in another unit, or that are a remark or a label; with the words in them as its unit; else
    the whole text, of which the number is not the only value.
    """
    before, aside = _split_aside(text)
    if not aside:
        return text
    before, equation = before.rstrip(), NAME.match(before)
    if SPELLED.fullmatch(before):
        before = SPELLED.sub(in_digits, before)
    repeats = RESTATES.sub("", aside, count=1)
    restated_in = SPELLED.sub(in_digits, repeats)
    several = text if restated_in == repeats else f"{before}, {restated_in}"
    other = NAME.match(restated_in)
    if other and (not equation or equation[1] == other[1]):
        restated_in = other[2]
    (value, unit), (restated, other_unit) = map(
        with_unit, (equation[2] if equation else before, restated_in)
    )
    number, again = plain_number(value), plain_number(restated)
    if number and again:
        is_same = same_number(number, again) and not disagree(unit, other_unit)
        is_other_unit = unit and other_unit and not unit & other_unit
        return before if is_same or is_other_unit else several
    if number and number == plain_number(restated_in, anywhere=True):  # all 12 of them
        return before
    if not is_remark(aside, number is not None):
        return several if number else text
    words = WORD.findall(aside.casefold())
    is_unit = number and REMARKS.isdisjoint(words) and not REFERENCE.search(aside)
    return f"{before} {aside}" if is_unit and unit_of(aside, False) else before


def is_remark(aside: str, is_number: bool) -> bool:
    """Whether an aside is a label, or words that name no value; behind what is no number only words
    that are surely no part of it.
    """
    if LABEL_ASIDE.fullmatch(aside):
        return is_number
    bare = REFERENCE.sub(" ", aside)
    words = {word.casefold() for word in WORD.findall(bare)}
    if ALTERNATIVE.match(aside) or not VALUES.isdisjoint(words) or NO_PROSE.search(bare):
        return False
    if {len(word) for word in words - {"a", "i"}} & {1}:
        return False
    says_value = any(spelled[0].casefold() != "one" for spelled in SPELLED.finditer(bare))
    is_sure = is_number or bare != aside or not REMARKS.isdisjoint(words)
    return not says_value and is_sure and words != {"one"}


def _split_aside(text: str) -> tuple[str, str]:
    """An answer and the brackets behind it, without them, or what a number says behind a comma;
    empty where it has none.
    """
    if len(text) > LONG:
        return text, ""
    if more := TAIL.fullmatch(text):
        return more[1], more[2]
    before, opened, aside = text[:-1].rpartition("(" if text[-1:] == ")" else "[")
    if text[-1:] not in (")", "]") or not opened or not before.strip() or not before[-1].isspace():
        return text, ""
    in_text = TEXT_ASIDE.fullmatch(aside)
    return before, in_text[1] if in_text else aside


def with_unit(text: str) -> tuple[str, frozenset[str]]:
    """The text without the unit after it or the currency before it; and that."""
    currency = None
    if money := CURRENCY.match(text):
        text, currency = money[1] + text[money.end() :], frozenset({CURRENCIES[money[2]]})
    if degree := not ANGLE.search(text) and DEGREE.search(text):
        return text[: degree.start()].rstrip(), frozenset({"degree", *degree[1].casefold()})
    if (unit := UNIT.search(text)) and any(map(str.isdigit, text[: unit.start()])):
        body, words = (
            text[: unit.start()].rstrip("~\\ \n"),
            unit_of(unit[1] + (unit[2] or ""), True),
        )
    elif len(text) < LONG and (unit := BARE_UNIT.fullmatch(text)):
        body, words = unit[1], unit_of(unit[2], False)
    else:
        return text, currency or frozenset()
    return (text, frozenset()) if words is None else (body, words | (currency or frozenset()))


def unit_of(text: str, marked: bool) -> frozenset[str] | None:
    """The words of a unit; None where they are no unit, or, unless it is `marked` as text, where
    they might be letters of a formula.
    """
    words = PARTS.findall(text.casefold().replace(".", ""))
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
    With `anywhere`, words may stand around the only number.
    """
    if len(text) > LONG or APART.search(text):
        return None
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


def unnamed(answer: str, other: str) -> tuple[str, str]:
    """Two answers without the names of what they say the value of, as in `x = 5` and
    `(x, y) = (3, 2)`.
    """
    (names, right), (others, value) = (
        with_names(text, not EQUALS.search(answer)) for text in (answer, other)
    )
    if names or others:
        in_order = names == others if names and others else names + others == sorted(names + others)
        return (right, value) if in_order else (answer, other)
    first, second = NAME.match(right), NAME.match(value)
    if not EQUALS.search(right) or (
        first and not UNKNOWN.search(first[2])
    ):  # an equation is not its solution
        return first[2] if first else right, value_of(value, one_name=first is not None)
    crossed = first and second and first[1] in second[2] and second[1] in first[2]
    if not first or crossed or (not second and "=" in value):
        return right, value
    return first[2], second[2] if second else value


def with_names(text: str, numbered: bool) -> tuple[list[str], str]:
    """The names of several unknowns and the tuple of their values. Values of one unknown, as in
    `x = 1 or x = 2`, are a list without names; so are those of x_1 and x_2 if `numbered`.
    """
    if match := NAMES.match(text):
        return re.findall(r"\w+", match[1]), match[2]
    joined = JOINT.sub(r" \1 ", text)
    parts = [NAME.fullmatch(part) for part in SEVERAL.split(joined)]
    if len(parts) == 1 or not all(parts):
        return [], text
    pairs = sorted((part[1].lstrip("\\"), part[2].strip()) for part in parts if part)
    names, listed = [name for name, _ in pairs], ", ".join(value for _, value in pairs)
    if len({name.partition("_")[0] if numbered else name for name in names}) == 1:
        return [], listed
    in_tuple = len(set(names)) == len(names) and " or " not in joined
    return (names, f"({listed})") if in_tuple else ([], text)


def value_of(text: str, one_name: bool) -> str:
    """The last side of an equation of which the first names a quantity, such as P(A), AB or m + n,
    and a single name if `one_name`; the whole text where an unknown is still to be solved for.
    """
    *sides, value = EQUALS.split(text)
    bare = [ARGUMENTS.sub("", side) for side in sides]
    if (
        not sides
        or any(map(RELATES.search, bare))
        or (one_name and not NAME.match(f"{sides[0]}=0"))
    ):
        return text
    unknowns, letters = set(UNKNOWN.findall(bare[0])), UNKNOWN.findall(value)
    if not OPERATES.search(bare[0]) or r"\frac{d" in bare[0]:
        return value if unknowns.isdisjoint(letters) else text
    return text if letters or len(unknowns) == 1 or value.strip() == "0" else value
