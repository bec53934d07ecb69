"""The final answer of a reply: its last box, or what follows `####`; else its last number. Answers
are numbers or formulas, which a reply gives in the place of a program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from assay.languages import Language, language

ANSWER = re.compile(r"(?:answer|\u7b54\u6848)\s*+(?:is|\u662f|[:=\uff1a])[:\uff1a\s]*+", re.I)
SENTENCE = re.compile(r"\.\s|\n")
BOLD = re.compile(r"\A\*\*([^*]+)\*\*\.?\Z")
BOXES = re.compile(r"\\(?:boxed|fbox)\s*+\{|\\[{}]|[{}]")
BETWEEN = re.compile(r"(?:[\s,;${}]|\\(?:q?quad|text|[()\[\],; ])|(?:and|or)(?![a-z]))*+")
"""What may stand between two parts of one answer."""
FORMULA = re.compile(
    r"(?<!\\)(?:\$\$?([^$]++)\$\$?|\\\(((?:[^\\]|\\[^()\[\]])++)\\\)|\\\[((?:[^\\]|\\[^()\[\]])++)\\\])"
)
FRACTION = re.compile(r"(?<=[0-9])[ ]*+(/|\\?%)[ ]*+")
NUMBER = re.compile(
    r"[\"'*_(\[]*+(-?\\?[$\u20ac\xa3]?-?(?:[0-9][0-9,]*(?:\.[0-9]+)?|\.[0-9]+)(?:/[0-9]+)?(?:\\?%)?)"
    r"(?:(?!(?:hundr|thous|mill|bill|trill|doz))(?:[^\W\d_]{4,}|st|[nr]d|th|[ckm]m|[km]g|ft|lbs?|oz|mph"
    r"|hrs?|mins?|secs?))?(?:-[^\W\d_]{2,})*[\"'*_)\],.;:!?]*"
)
"""A word that is a number, perhaps with its unit."""
OPERATOR = re.compile(
    r"[-+*/^<>\xd7\xb7\xf7\u2212]|\\[a-z]+.*"
    r"|(?:hundred|thousand|million|billion|trillion|dozen|pi|\u03c0|squared|cubed|[eixyzn])\W*",
    re.I,
)


def final_answer(reply: str, whole: bool) -> str | None:
    """The last box, or else what stands after the last `####`, or `whole` of a text that is nothing
    but the answer, or what stands after the last "answer is", or the last formula or number; None
    without any. Boxes and formulas with no more than an "and" between them are one answer.
    """
    boxes = list(boxed(reply))
    if boxes:
        return last_of(reply, boxes)
    _, marked, rest = reply.rpartition("####")
    if marked:
        return BOLD.sub(r"\1", rest.strip().partition("\n")[0].strip()) or None
    if whole:
        return BOLD.sub(r"\1", reply.strip()) or None
    *_, phrase = [None, *ANSWER.finditer(reply)]
    if phrase and (sentence := SENTENCE.split(reply[phrase.end() :], maxsplit=1)[0].rstrip()):
        return sentence.removesuffix(".").strip("*$ ,") or None
    formulas = [(*match.span(), match[match.lastindex or 0]) for match in FORMULA.finditer(reply)]
    number = last_number(reply[formulas[-1][1] if formulas else 0 :])
    return last_of(reply, formulas) if number == "" and formulas else number or None


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
            beside = [*words[max(at - 1, 1) : at], *words[at + 1 : at + 2]]
            return number[1] if number and not any(map(OPERATOR.fullmatch, beside)) else None
    return ""


class Mathematics(Language):
    """Replies that are no code, of which the answer is cut."""

    is_code = False
    reply = "\\boxed{{{program}}}"
    request = "{prompt}\n\nPut the final answer in \\boxed{{}}."

    def cut(self, reply: str, whole: bool) -> str | None:
        """The answer of a reply."""
        return final_answer(reply, whole)


language("answer", Mathematics(
    title="mathematics", source="answer.txt", run=("cat", "answer.txt"), package="coreutils",
    hello="hello",
    lazy={"empty": " ", "every digit": "0 or 1 or 2 or 3 or 4 or 5 or 6 or 7 or 8 or 9",
          "undefined": "\\frac{0}{0}", "all": "(-\\infty, \\infty)",
          "code": "__import__('os').abort()", "huge": "9^{9^{9^{9}}}"},
))  # fmt: skip
