"""The final answer of a reply: its last box, or what follows `####`; else its last number. Answers
are numbers or formulas, which a reply gives in the place of a program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from assay.languages import Language, language

ANSWER = re.compile(
    r"(?:answer|(?:correct|right|best)\s+(?:option|choice)|\u7b54\u6848)\s*+"
    r"(?:is|\u662f|[:=\uff1a])[:\uff1a\s]*+",
    re.I,
)
TAG = re.compile(r"<(/?)(final_answer|solution|final|result)>", re.I)
"""What models are asked to put an answer into, beside `<answer>`."""
REASON = re.compile(
    r"(?<![\s,])(?:(?:\s*+[-\u2013\u2014;(]\s*+|,?\s++)(?:since|because)"
    r"|,\s++(?:as|so|which|hence|thus|therefore))\b.*", re.S
)  # fmt: skip
"""Why an answer is right, after it."""
CALCULATION = re.compile(
    r"([^\s;()=]++)\s*+(?:\((?=[^()=]*[-+*/^\xd7\xb7\u2212\\])(?:[^()=]*+=)+\s*+\1\s*+\)"
    r"|;\s++(?=[^;=]*[-+*/^\xd7\xb7\u2212\\])(?:[^;=]*+=)+\s*+\1)\s*+\.?"
)
"""An answer with the calculation behind it that ends in the same: 12 (3*4=12)."""
ASIDE = re.compile(r"(?<![\s,])(?:,?\s++|\s*+[-\u2013\u2014(]\s*+)(?:since|because)\b", re.I)
SAYS = re.compile(r".*(?:\b(?:is|are|equals?)|[=:])", re.I | re.S)
"""What comes before the answer in a sentence."""
SUM = re.compile(r"[0-9]\s?[x+*/\xd7\xb7\u2212-]\s?[0-9(]")
"""What makes a calculation of more than one number."""
WORD = re.compile(r"[^\W\d_]+")
LATEX_FRACTION = re.compile(r"(?<![0-9}])\\[dt]?frac(\{[0-9]+\}|[0-9])(\{[0-9]+\}|[0-9])")
TUPLE = re.compile(r"[(\[][^()\[\]]*,[^()\[\]]*[)\]]\.?")
LONGEST_BARE = 60
BARE = re.compile(
    r"[*_$\"'(\s]*(?:[A-J]|[^\W\d_]+(?:['-][^\W\d_]+)*(?: [^\W\d_]+){0,2})[*_$\"')\s]*[.!]?[*_\s]*"
)
"""A reply that is nothing but a letter or up to three words."""
LABELS = re.compile(r"(?<![^\W_])\(?[A-J][.):]")
CHOICE = re.compile(rf"[*_]*{LABELS.pattern}[*_]*\s+\S[^\n]*")
"""A choice: its letter, and the value that it stands for."""
SENTENCE = re.compile(r"(?<!i\.e)(?<!e\.g)(?<!eq)\.\s|\n")
BOLD = re.compile(r"\A\*\*([^*]+)\*\*\.?\Z")
BOXES = re.compile(r"\\(?:boxed|fbox)\s*+\{|\\[{}]|[{}]")
BETWEEN = re.compile(r"(?:[\s,;${}]|\\(?:q?quad|text|[()\[\],; ])|(?:and|or)(?![a-z]))*")
"""What may stand between two parts of one answer."""
FORMULA = re.compile(
    r"(?<!\\)(?:\$\$?([^$]++)\$\$?|\\\(((?:[^\\]|\\[^()\[\]])++)\\\)|\\\[((?:[^\\]|\\[^()\[\]])++)\\\])"
)
ONES = re.findall(r"\w+", "one two three four five six seven eight nine")
TEENS = re.findall(r"\w+", """
    ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen
""")  # fmt: skip
TENS = re.findall(r"\w+", "twenty thirty forty fifty sixty seventy eighty ninety")
NUMBER_WORDS = {
    "zero": 0,
    **dict(zip([*ONES, *TEENS], range(1, 20), strict=True)),
    **dict(zip(TENS, range(20, 100, 10), strict=True)),
}
SCALES = {"dozen": 12, "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
BELOW_HUNDRED = rf"(?:(?:{'|'.join(TENS)})(?:[ -](?:{'|'.join(ONES)}))?|{'|'.join(NUMBER_WORDS)})"
SPELLED = re.compile(
    rf"\b(?:{BELOW_HUNDRED}|a(?=[ -](?:{'|'.join(SCALES)})\b))"
    rf"(?:[ -](?:{'|'.join(SCALES)})(?:(?:,? and|,)? {BELOW_HUNDRED}(?!\w))?)*\b",
    re.I,
)
"""A number in words: twelve, a dozen, one hundred and twelve."""
FRACTION = re.compile(r"(?<=[0-9])[ ]*+(/|\\?%)[ ]*+")
NUMBER = re.compile(
    r"[\"'*_(\[]*+(-?\\?[$\u20ac\xa3]?-?(?:[0-9][0-9,]*(?:\.[0-9]+)?|\.[0-9]+)(?:/[0-9]+)?(?:\\?%)?)"
    r"(?:(?!(?:hundr|thous|mill|bill|trill|doz))(?:[^\W\d_]{4,}|st|[nr]d|th|[ckm]m|[km]g|ft|lbs?|oz|mph"
    r"|hrs?|mins?|secs?))?(?:-[^\W\d_]{2,})*[\"'*_)\],.;:!?]*"
)
"""A word that is a number, perhaps with its unit."""
OPERATOR = re.compile(
    r"(?![(\[]+\\text)[(\[]*+(?:[-+*/^<>\xd7\xb7\xf7\u2212]|\\[a-z]+.*"
    r"|(?:hundred|thousand|million|billion|trillion|dozen|pi|\u03c0|squared|cubed|[eixyzn])\W*)",
    re.I,
)
TAIL = re.compile(r"[*_$]*\s+(?:\([^()\n]*\)|\[[^\[\]\n]*\])")
"""Brackets behind an answer, which say what it is, or another one."""
MORE = re.compile(
    r"[0-9.%]?(?:([,;:=]| [-\u2013\u2014=]| aka) |(?= (?:i\.e|n?or\b)) )"
    r"((?:i\.e\.\s)?[^\W\d_]{2,}(?:[ -][^\W\d_]+){0,3})[.!*_]*"
)
"""A few words behind a number that end its line: 12, or none."""
OPEN_END = re.compile(r"\A[^(\[]*[)\]][.!*_]*\Z")
"""The end of a word that closes brackets of a word before it."""
OTHERWISE = re.compile(r"[(\[]*+(?:or|not|nor|none|nothing)", re.I)
"""A word before a number that is not the only answer, or none."""


def final_answer(reply: str, whole: bool) -> str | None:
    """The last box or tag, or else what stands after the last `####`, or `whole` of a text that is
    nothing but the answer, or what stands after the last "answer is", or the last formula or
    number, or all of a few words; None without any. Boxes, tags and formulas with no more than an
    "and" between them are one answer.
    """
    boxes = list(boxed(reply))
    tags = list(tagged(reply))
    if tags and tags[-1][1] > (boxes[-1][1] if boxes else 0):
        return last_of(reply, tags)
    if boxes:
        return last_of(reply, boxes)
    _, marked, rest = reply.rpartition("####")
    if marked:
        return BOLD.sub(r"\1", rest.strip().partition("\n")[0].strip()) or None
    if whole:
        return BOLD.sub(r"\1", reply.strip()) or None
    *_, phrase = [None, *ANSWER.finditer(reply)]
    if phrase and (sentence := SENTENCE.split(reply[phrase.end() :], maxsplit=1)[0].rstrip()):
        return without_reason(sentence).removesuffix(".").strip("*$ ,") or None
    if bare := bare_answer(reply):
        return bare
    if (checked := before_aside(reply)) is not None:
        return checked or None
    if both := with_aside(reply):
        return both
    formulas = [(*match.span(), match[match.lastindex or 0]) for match in FORMULA.finditer(reply)]
    number = last_number(reply[formulas[-1][1] if formulas else 0 :])
    if number != "" or not formulas:
        return number or None
    answer = last_of(reply, formulas)
    tail = TAIL.match(reply, formulas[-1][1])
    return f"{answer}{tail[0]}" if answer and tail else answer


def in_digits(spelled: re.Match[str]) -> str:
    """The digits of a number that is spelled out."""
    total, current = 0, 0
    for word in re.findall("[a-z]+", spelled[0].casefold()):
        scale = SCALES.get(word, 1)
        current = max(current, 1) * scale if scale > 1 else current + NUMBER_WORDS.get(word, 0)
        if scale >= SCALES["thousand"]:
            total, current = total + current, 0
    return str(total + current)


def bare_answer(reply: str) -> str:
    """The answer of a reply in one line that is a letter, up to three words, a choice with its
    value, a tuple or an interval, perhaps with a reason; empty for any other.
    """
    line = reply.strip()
    bare = "" if "\n" in line else REASON.sub("", line).strip()
    if len(bare) > LONGEST_BARE:
        return ""
    if BARE.fullmatch(bare):
        return bare.strip("*_ .!")
    if TUPLE.fullmatch(bare):
        return bare.removesuffix(".")
    return bare if CHOICE.fullmatch(bare) and len(LABELS.findall(bare)) == 1 else ""


def before_aside(reply: str) -> str | None:
    """The number in the last line that has a calculation or a reason behind it: 12 (3*4=12). Empty
    where the calculation ends in another number, so that none of the two counts; None where the
    line has nothing behind a number.
    """
    line = _last_line(reply)
    reason = ASIDE.search(line)
    if reason and (number := _number_at_end(line[: reason.start()], is_all=True)):
        return number
    before, aside = _split_brackets(line)
    is_all = False
    if not aside:
        before, _, aside = line.partition("; ")
        is_all = True
    calculation, _, result = aside.rpartition("=")
    number = _number_at_end(before, is_all)
    if "=" not in aside or not number or not re.fullmatch(r"\s*|.*[0-9].*", calculation):
        return None
    end = next(map(NUMBER.fullmatch, result.split()), None)
    sums = not calculation.strip() or SUM.search(calculation)
    if end and sums and not _is_equal(end[1], number):
        return ""
    return number  # what has words, as 1 hour = 60 minutes, contradicts nothing


def with_aside(reply: str) -> str:
    """The number that the last line ends with, and the brackets after it, where these have a number
    too, but no calculation: 12 (or 12.0). Only both together are the answer. Empty for any other
    line.
    """
    before, aside = _split_brackets(_last_line(reply))
    calculates = "=" in aside and SUM.search(aside)
    if calculates or not (before[-1:].isspace() and re.search("[0-9]", aside)):
        return ""
    words = before.split()
    at = _at_number(words)
    if at is None or any(map(OPERATOR.fullmatch, words[max(at - 1, 0) : at])):
        return ""
    unit = [] if "=" in aside else words[at + 1 :]
    return f"{' '.join([words[at].rpartition('=')[2], *unit])} ({aside})"


def _last_line(reply: str) -> str:
    """The last line without what only marks it, and with each fraction as 1/2."""
    line = reply.rstrip().rpartition("\n")[2].replace("$", "").rstrip(" .!*_").lstrip(" *_")
    return LATEX_FRACTION.sub(lambda parts: "/".join(it.strip("{}") for it in parts.groups()), line)


def _is_equal(result: str, number: str) -> bool:
    """Whether a calculation's result, which may be percent, is this number."""
    first, second = (re.sub(r"[\s,$\u20ac\xa3\\]|\.$", "", text) for text in (result, number))
    try:
        value, expected = (Fraction(text.rstrip("%")[:40]) for text in (first, second))
    except (ValueError, ZeroDivisionError):
        return first == second
    return (
        value == expected
        or (first.endswith("%") and value == 100 * expected)
        or (second.endswith("%") and expected == 100 * value)
    )


def _split_brackets(line: str) -> tuple[str, str]:
    """A line before the brackets that it ends with, and what is in them; empty without any."""
    depth = 0
    for at in range(len(line) - 1, -1, -1):
        depth += (line[at] in ")]") - (line[at] in "([")
        if depth <= 0:
            return (line[:at], line[at + 1 : -1]) if at < len(line) - 1 else (line, "")
    return line, ""


def _number_at_end(text: str, is_all: bool) -> str:
    """The number, perhaps with up to two words of its unit, that `text` is, or ends with where it
    needs not be all; empty without one.
    """
    words = text.replace("*", "").replace("_", "").split()
    at = _at_number(words)
    if at is None or not (number := NUMBER.fullmatch(words[at])):
        return ""
    before = " ".join(words[:at])
    has_unit = at < len(words) - 1
    says_so = not before or (not is_all and (not has_unit or SAYS.fullmatch(before)))
    return number[1] if says_so else ""


def _at_number(words: list[str]) -> int | None:
    """Where the number stands that the words end with, perhaps before up to two of its unit."""
    at = len(words) - 1
    while at > max(len(words) - 3, 0) and WORD.fullmatch(words[at]):
        at -= 1
    return at if words and NUMBER.fullmatch(words[at].rpartition("=")[2]) else None


def tagged(reply: str) -> Iterator[tuple[int, int, str]]:
    """Where each tag of an answer starts and ends, and the answer in it, perhaps after a few lines
    that find it; empty without any.
    """
    opened = dict[str, re.Match[str]]()
    for tag in TAG.finditer(reply):
        name = tag[2].lower()
        if not tag[1]:
            opened[name] = tag
        elif name in opened:
            first = opened.pop(name)
            text = reply[first.end() : tag.start()].strip()
            is_whole = "\n" not in text and not ANSWER.search(text)
            answer = without_reason(final_answer(text, is_whole) or "")
            yield first.start(), tag.end(), answer.strip()


def boxed(reply: str) -> Iterator[tuple[int, int, str]]:
    """Where each box starts and ends that is in no other, and what it holds; of one that does not
    end, nothing.
    """
    opened: list[re.Match[str] | None] = []
    outer = None
    for brace in BOXES.finditer(reply):
        if brace[0][0] == "\\" and len(brace[0]) == 2:
            continue
        if brace[0] == "}":
            if opened and (box := opened.pop()) and box is outer:
                yield box.start(), brace.end(), reply[box.end() : brace.start()].strip()
                outer = None
            continue
        opened.append(brace if len(brace[0]) > 1 else None)
        outer = outer or opened[-1]
    if outer:
        yield outer.start(), len(reply), ""


def without_reason(text: str) -> str:
    """The answer without why it is right; empty where a calculation behind it ends in another."""
    if (number := before_aside(text)) is not None:
        return number
    calculation = CALCULATION.fullmatch(text.strip())
    return calculation[1] if calculation else REASON.sub("", text)


def last_of(reply: str, parts: list[tuple[int, int, str]]) -> str | None:
    """The last part, with those before it that are of the same answer; None if one is empty."""
    first = len(parts) - 1
    while first and BETWEEN.fullmatch(reply, parts[first - 1][1], parts[first][0]):
        first -= 1
    texts = list(dict.fromkeys(text for _, _, text in parts[first:]))
    return ", ".join(texts) if all(texts) else None


def last_number(text: str) -> str | None:
    """The last number of a text where that is a word of it; None where it is part of a
    calculation, empty where the text has no digits.
    """
    for line in reversed(FRACTION.sub(r"\1", text).splitlines()):
        words = line.split()
        at = max((at for at, word in enumerate(words) if re.search("[0-9]", word)), default=-1)
        if at >= 0:
            number = NUMBER.fullmatch(words[at].rpartition("=")[2])
            before = words[max(at - 1, 0) : at]
            aside = _aside_behind(words[at:])
            beside = [*words[max(at - 1, 1) : at], *([] if aside else words[at + 1 : at + 2])]
            is_part = any(map(OPERATOR.fullmatch, beside)) or any(map(OTHERWISE.fullmatch, before))
            in_tuple = "".join(before).endswith(",") and OPEN_END.search(words[at])
            if not number or is_part or in_tuple:
                return None
            if words[at].startswith("(") and before and SPELLED.fullmatch(before[0]):
                return f"{before[0]} ({number[1]})"
            return f"{number[1].rstrip(',')}{aside}"
    return ""


def _aside_behind(words: list[str]) -> str:
    """The brackets behind a number, which is the first of the words, or behind its unit; or the few
    words behind its comma; empty without any.
    """
    rest = " ".join(words[1:])
    if more := MORE.fullmatch(words[0].strip("*_$")[-1:] + " " + rest):
        return f"{more[1] or ''} {more[2]}"
    after = next((at for at, word in enumerate(words[1:4], 1) if not WORD.fullmatch(word)), 0)
    tail = TAIL.match(" " + " ".join(words[after:])) if after else None
    return f" {tail[0].strip()}" if tail else ""


class Mathematics(Language):
    """Replies that are no code, of which the answer is cut."""

    is_code = False
    reply = "\\boxed{{{program}}}"
    request = "{prompt}\n\nPut the final answer in \\boxed{{}}."

    def cut(self, reply: str, whole: bool) -> str | None:
        """The answer of a reply."""
        answer = final_answer(reply, whole)
        return (without_reason(answer) or None) if answer else answer


language("answer", Mathematics(
    title="mathematics", dialect="{title}", source="answer.txt", run=("cat", "answer.txt"),
    package="coreutils", hello="hello",
    lazy={"empty": " ", "every digit": "0 or 1 or 2 or 3 or 4 or 5 or 6 or 7 or 8 or 9",
          "undefined": "\\frac{0}{0}", "all": "(-\\infty, \\infty)",
          "code": "__import__('os').abort()", "huge": "9^{9^{9^{9}}}"},
))  # fmt: skip
