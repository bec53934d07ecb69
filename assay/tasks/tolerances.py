"""The tolerance on numbers that a prompt states: `absolute or relative error of at most 1e-6`."""

from __future__ import annotations

import re
from bisect import bisect_left
from decimal import Decimal
from typing import NamedTuple
from unicodedata import normalize

NUMBER = re.compile(r"(?<!\S)[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?!\S)", re.ASCII)
"""A word of an output that is a number."""
LARGEST = Decimal("0.1")
REACH = 100
"""Characters after its cue in which a tolerance's number stands."""
SENTENCE = 1000
"""Most characters of a sentence before its cue, and after it."""
CUE = re.compile(
    r"\b(?:(?:absolute|relative)\b[^.\n]{0,40}?\b(?:errors?|tolerances?|differences?|precision)"
    r"|(?:error|tolerance|deviation)s?|precision|accuracy"
    r"|(?P<bare>(?:to\s+)?within|(?:differ|deviate)s?\b[^.\n]{0,60}?\bby|off\s+by|up\s+to|accurate"
    r"|(?:correct|precise|exact)\s+(?:up\s+)?to))\b",
    re.IGNORECASE,
)
"""What comes before a tolerance's number; where it is `bare`, that says of absolute error only."""
GAP = (
    r"(?:[\s:=<(){\\,\u2264]|\b(?:leq?|lt|of|at|most|no|not|more|less|greater|smaller|larger|than|below"
    r"|under|exceed(?:s|ing)?|does|do|doesn't|is|are|should|must|may|can|be|up|to|by|within|the|an?"
    r"|allowed|error|errors|absolute|relative|or|and|both|either|maximum|only|bounded|tolerance)\b)*"
)
"""What may stand between a cue and its number."""
SMALL = re.compile(
    rf"{GAP}(?<![\d.])(?:(?:(?P<factor>[1-9])\s*(?:\\?cdot|\\?times|[*\xb7\xd7])\s*)?"
    r"10\s*(?:\^|\*\*)?\s*[{(]*\s*-\s*[{(]*(?P<power>\d{1,2})(?!\d)"
    r"|(?P<digit>[1-9])(?:\.0+)?e-(?P<exponent>\d{1,2})(?!\d)"
    r"|0?\.(?P<zeros>0{0,17})(?P<last>[1-9])0*(?![\d%]))(?!\s*(?:s|ms|sec|seconds?|minutes?)\b)",
    re.IGNORECASE,
)
COUNTS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
PLACES = re.compile(
    rf"(?:\s+(?:up\s+)?to)?\s+(?:at\s+least\s+)?(?P<places>\d{{1,2}}|{'|'.join(COUNTS)})"
    r"\s+(?:decimal|digits?\s+(?:after|past|behind)|places?\s+after|fraction\w*)",
    re.IGNORECASE,
)
"""So many decimal places."""
ENDS = re.compile(r"[.!?]\s|\n\s*\n")
OF_ANSWER = re.compile(
    r"\b(?:print|output|answer|return|display|report|result|correct|accura|precis)", re.I
)
OF_INPUT = re.compile(r"\b(?:inputs?|given|contains?|has|have)\b", re.I)
NAMES = {name: re.compile(name, re.I) for name in ("absolute", "relative")}
FORGIVEN = re.compile(
    r"\b(?:absolute|relative)\s+(?:or\s+\w+\s+)?error\b"
    r"|\b(?:floating[- ]point|rounding|precision|numeric\w*|small)\s+(?:precision\s+|rounding\s+)?"
    r"(?:errors?|differences?|deviations?|inaccurac\w+)\b[^.\n]{0,50}\b(?:accept|allow|ignor|tolerat"
    r"|permit|forgiven|fine|okay)",
    re.IGNORECASE,
)
"""How a prompt says that there is a tolerance, where it states no number."""
DASHES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212\u207b", "-"))


class Tolerance(NamedTuple):
    """How far a number may be from the right one."""

    most: Decimal
    kind: str
    """One of the KINDS of checkers.py."""
    words: str
    """Those of the prompt that state it."""

    @property
    def checker(self) -> str:
        """The name of the checker that compares so."""
        if (self.most, self.kind) == (Decimal("1e-6"), "either"):
            return "floats"
        _, (digit,), exponent = self.most.as_tuple()
        return f"floats {digit}e{exponent} {self.kind}"


def stated_tolerance(prompt: str) -> Tolerance | None:
    """The tolerance that a prompt states, of 1e-6 where it gives no number; None without any."""
    prompt = re.sub(
        r"10\s?([\u207b\xb9\xb2\xb3\u2070-\u2079]+)",
        lambda power: f"10^{normalize('NFKC', power[1].translate(DASHES))}", prompt,
    ).translate(DASHES).replace("$", "").replace("`", "")  # fmt: skip
    sentences = _Sentences(prompt)
    for cue in CUE.finditer(prompt):
        if (most := _number(cue, prompt[cue.end() : cue.end() + REACH], sentences)) is None:
            continue
        number, end = most
        if number <= LARGEST:
            words = prompt[cue.start() : cue.end() + end]
            return Tolerance(number, _kind(cue, sentences), " ".join(words.split()))
    forgiven = FORGIVEN.search(prompt)
    return forgiven and Tolerance(Decimal("1e-6"), "either", " ".join(forgiven[0].split()))


def _number(cue: re.Match[str], rest: str, sentences: _Sentences) -> tuple[Decimal, int] | None:
    """The number of a tolerance, and where it ends in what follows its cue."""
    if cue["bare"] and (places := PLACES.match(rest)) and sentences.say(cue, OF_ANSWER, OF_INPUT):
        text = places["places"].lower()
        count = COUNTS.index(text) + 1 if text in COUNTS else int(text)
        return Decimal((0, (5,), -count - 1)), places.end()
    if cue["bare"] and not re.search(r"within|by$", cue[0], re.IGNORECASE):
        return None
    small = SMALL.match(rest)
    if small is None:
        return None
    digit = small["factor"] or small["digit"] or small["last"] or "1"
    power = small["power"] or small["exponent"] or len(small["zeros"]) + 1
    return Decimal((0, (int(digit),), -int(power))), small.end()


class _Sentences:
    """The sentences of a text in which cues stand. What they say is looked up in one reading of the
    whole text: a prompt may have a cue in each of its words.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._places: dict[re.Pattern[str], list[int]] = {}

    def say(self, cue: re.Match[str], word: re.Pattern[str], but: re.Pattern[str]) -> bool:
        """Whether the sentence of a cue has a word of the one kind, and none of the other."""
        return self.has(cue, word) and not self.has(cue, but)

    def has(self, cue: re.Match[str], word: re.Pattern[str]) -> bool:
        """Whether a word of a kind stands in the sentence of a cue."""
        ends, places = self._starts(ENDS), self._starts(word)
        at = bisect_left(ends, cue.start())
        first = max(ends[at - 1] if at else 0, cue.start() - SENTENCE)
        after = bisect_left(ends, cue.end())
        last = min(ends[after] if after < len(ends) else len(self._text), cue.end() + SENTENCE)
        place = bisect_left(places, first)
        return place < len(places) and places[place] < last

    def _starts(self, word: re.Pattern[str]) -> list[int]:
        if word not in self._places:
            self._places[word] = [match.start() for match in word.finditer(self._text)]
        return self._places[word]


def _kind(cue: re.Match[str], sentences: _Sentences) -> str:
    """Which error a sentence bounds; either where it does not say."""
    names = {name for name, word in NAMES.items() if sentences.has(cue, word)}
    if len(names) == 1:
        return names.pop()
    return "absolute" if cue["bare"] and not names else "either"
