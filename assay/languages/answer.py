"""Final answers of questions, such as numbers and formulas: what a reply gives in the place of a
program.
"""

from __future__ import annotations

import re

from assay.languages import Language, language

ANSWER = re.compile(r"answer\s*+(?:is|:|=)[:\s]*+([^\n]++)", re.IGNORECASE)
SENTENCE = re.compile(r"\.\s")
NUMBER = re.compile(
    r"-?\\?\$?-?(?:[0-9][0-9,]*(?:\.[0-9]+)?|\.[0-9]+)(?:\s*/\s*[0-9]+)?(?:\s*\\?%)?"
)
BRACES = re.compile(r"\\[{}]|[{}]")


def final_answer(reply: str, whole: bool) -> str | None:
    """The last box, or else what stands after the last `####`, or `whole` of a text that is nothing
    but the answer, or what stands after the last "answer is", or the last number; None without any.
    """
    _, boxed, rest = reply.rpartition("\\boxed{")
    if boxed:
        return balanced(rest)
    _, marked, rest = reply.rpartition("####")
    if marked:
        return rest.strip().partition("\n")[0].strip() or None
    if whole:
        return reply.strip() or None
    sentences = [SENTENCE.split(said, maxsplit=1)[0] for said in ANSWER.findall(reply)]
    said = [one.rstrip().removesuffix(".") for one in sentences] or NUMBER.findall(reply)
    return said[-1].strip("*$ ,") or None if said else None


def balanced(text: str) -> str | None:
    """The text up to the brace that closes it; None where none does, or where it is empty."""
    depth = 1
    for brace in BRACES.finditer(text):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if not depth:
            return text[: brace.start()].strip() or None
    return None


@language
def answer() -> Language:
    """The final answer of a reply: its last box, or what follows `####`; else its last number."""
    return Language(
        title="mathematics", source="answer.txt", run=("cat", "answer.txt"), package="coreutils",
        cut=final_answer, reply="\\boxed{{{program}}}",
        request="{prompt}\n\nPut the final answer in \\boxed{{}}.",
        hello="hello",
        lazy={"empty": " ", "every digit": "0 or 1 or 2 or 3 or 4 or 5 or 6 or 7 or 8 or 9",
              "undefined": "\\frac{0}{0}", "all": "(-\\infty, \\infty)",
              "code": "__import__('os').abort()", "huge": "9^{9^{9^{9}}}"},
    )  # fmt: skip
