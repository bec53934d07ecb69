"""A stand-in for the q interpreter, which needs a licence that tests cannot have. It is NOT q.

It speaks q's command line as far as docs/q.md describes it: `q SCRIPT -q` or a script on standard
input, a licence in $QLIC or $QHOME that is checked before the first line, errors as `'reason`, exit
statuses. Of the language it knows the few expressions that the tests use. A licence file may hold
the time from which on it is good, which stands for a licence daemon that comes back.
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOKEN = re.compile(
    r'\s*("(?:\\.|[^"\\])*"|`:?[\w./]*|-?\d+\.?\d*(?:e-?\d+)?[bfj]?|[.\w]+|::|.)', re.DOTALL
)
NAME = re.compile(r"[.\w]+")


class QError(Exception):
    """An error of the program's, as q signals it."""


class Text(str):
    """A list of characters; other strings are symbols."""

    __slots__ = ()


def licence() -> None:
    """End as q does where no licence is good."""
    place = os.environ.get("QLIC") or os.environ.get("QHOME") or "/nowhere"
    try:
        good = time.time() >= float(Path(place, "k4.lic").read_text() or 0)
    except OSError:
        stop("'2026.11.23T00:00:00.000 k4.lic")
    if not good:
        stop("'2026.11.23T00:00:00.000 couldn't connect to license daemon -- exiting")


def stop(why: str) -> None:
    os.write(2, f"{why}\n".encode())
    sys.exit(1)


def shown(value: Any) -> str:
    """The value as `show` prints it."""
    if isinstance(value, bool):
        return f"{int(value)}b"
    if isinstance(value, Text):
        return json.dumps(value)
    if isinstance(value, list):
        return " ".join(map(shown, value)) if value else "()"
    return "::" if value is None else str(value)


def each(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """On atoms and lists alike."""

    def on(a: Any, b: Any) -> Any:
        if isinstance(a, list):
            return [on(one, b[at] if isinstance(b, list) else b) for at, one in enumerate(a)]
        return [on(a, one) for one in b] if isinstance(b, list) else function(a, b)

    return on


def joined(a: Any, b: Any) -> Any:
    if isinstance(a, Text) and isinstance(b, Text):
        return Text(a + b)
    return (a if isinstance(a, list) else [a]) + (b if isinstance(b, list) else [b])


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": each(lambda a, b: a + b), "-": each(lambda a, b: a - b), "*": each(lambda a, b: a * b),
    "%": each(lambda a, b: a / b), "~": lambda a, b: a == b, ",": joined,
    "!": lambda keys, values: dict(zip(keys, values, strict=True)),
    "$": lambda kind, value: value, ".": lambda function, given: function(*given),
}  # fmt: skip


class Interpreter:
    def __init__(self) -> None:
        self.names: dict[str, Any] = {
            "show": lambda x: self.write(1, shown(x)), "reverse": self.reverse, "sum": sum,
            "til": lambda n: list(range(n)), "enlist": self.enlist, "count": len,
            ".j.j": lambda x: Text(json.dumps(x)), "system": self.system, "exit": sys.exit,
            "read0": self.read,
            "hopen": self.open, "getenv": lambda name: Text(os.environ.get(name, "")),
            "string": lambda x: Text(x if isinstance(x, str) else shown(x)), ".z.K": 4.1,
        }  # fmt: skip

    def reverse(self, x: Any) -> Any:
        return Text(x[::-1]) if isinstance(x, Text) else x[::-1]

    def enlist(self, x: Any) -> Any:
        return x if isinstance(x, Text) and len(x) == 1 else [x]

    def write(self, where: int, text: str) -> None:
        os.write(where, f"{text}\n".encode())

    def system(self, order: str) -> None:
        if order.startswith("l "):
            self.run(Path(order[2:]).read_text())
        elif not order.startswith(("P ", "d ")) and os.system(order):
            raise QError("os")

    def read(self, source: Any) -> list[Text]:
        try:
            if source == 0:
                return [Text(sys.stdin.readline().rstrip("\n"))]
            return list(map(Text, Path(source.lstrip(":")).read_text().splitlines()))
        except OSError as error:
            raise QError(f"{source}. OS reports: {error.strerror}") from None

    def open(self, where: Any) -> None:
        import socket

        try:
            socket.create_connection(("127.0.0.1", 80), 1)
        except OSError as error:
            raise QError(f"hop. OS reports: {error.strerror}") from None

    def run(self, script: str) -> None:
        """Run a script. A line that begins with a space continues the one before."""
        for line in re.split(r"\n(?![ \t}])", script):
            if line.strip() == "\\\\":
                sys.exit(0)
            if line.strip() == "\\":
                return
            if line.startswith("\\"):
                continue
            if line.strip() and not line.startswith("/"):
                lines = (re.sub(r"(^|\s)/ .*", "", one) for one in line.split("\n"))
                self.statements(TOKEN.findall("\n".join(lines).strip()), show=True)

    def statements(self, tokens: list[str], show: bool = False) -> Any:
        value = None
        for part in cut(tokens):
            assigns = len(part) > 1 and part[1] == ":"
            value = self.expression(part) if part else None
            if show and part and not assigns and value is not None and tokens[-1] != ";":
                self.names["show"](value)
        return value

    def expression(self, tokens: list[str]) -> Any:
        if len(tokens) > 1 and tokens[1] == ":" and NAME.fullmatch(tokens[0]):
            self.names[tokens[0]] = value = self.expression(tokens[2:])
            return value
        if tokens[0] in ("-1", "-2") and len(tokens) > 1 and tokens[1] not in OPERATORS:
            text = self.expression(tokens[1:])
            for line in text if isinstance(text, list) else [text]:
                self.write(-int(tokens[0]), line)
            return None
        if tokens[1:3] == [",", ":"]:
            self.names[tokens[0]] += self.expression(tokens[3:])
            return None
        value, rest = self.noun(tokens)
        if not rest:
            return value
        if rest[:2] == ["0", ":"]:
            Path(value[1:]).write_text("".join(f"{one}\n" for one in self.expression(rest[2:])))
            return None
        if rest[0] in OPERATORS:
            right = self.expression(rest[1:])
            try:
                return OPERATORS[rest[0]](value, right)
            except (TypeError, ArithmeticError) as error:
                raise QError("type") from error
        return value(self.expression(rest))

    def noun(self, tokens: list[str]) -> tuple[Any, list[str]]:
        first, rest = tokens[0], tokens[1:]
        if first in "([{":
            inside, rest = closed(tokens)
            if first == "{":
                value: Any = self.function(inside)
            else:
                parts = cut(inside)
                values = [self.expression(part) for part in parts if part]
                value = values[0] if len(parts) == 1 and values else values
                letters = all(isinstance(one, Text) and len(one) == 1 for one in values)
                value = Text("".join(values)) if letters and len(values) > 1 else value
        elif first == "while":
            inside, rest = closed(rest)
            test, *body = cut(inside)
            while self.expression(test):
                value = [self.expression(part) for part in body if part]
        elif first == "@" and rest[0] == "[":
            inside, rest = closed(rest)
            value = self.trap(*cut(inside))
        else:
            value = self.atom(first)
            while rest and number(first) and number(rest[0]):
                value = [*(value if isinstance(value, list) else [value]), self.atom(rest[0])]
                rest = rest[1:]
        while rest and rest[0] == "[":
            inside, rest = closed(rest)
            value = value(*[self.expression(part) for part in cut(inside) if part])
        return value, rest

    def atom(self, token: str) -> Any:
        if token[0] == '"':
            return Text(re.sub(r"\\(?:([0-7]{3})|(.))", character, token[1:-1]))
        if token[0] == "`":
            return token[1:]
        if token == "::":
            return None
        if number(token):
            if token[-1] == "b":
                return token == "1b"
            return (
                float(token.rstrip("f")) if re.search(r"[.ef]", token) else int(token.rstrip("j"))
            )
        if token not in self.names:
            raise QError(token)
        return self.names[token]

    def function(self, body: list[str]) -> Callable[..., Any]:
        names = ["x", "y", "z"]
        if body and body[0] == "[":
            parameters, body = closed(body)
            names = [name for name in parameters if name != ";"]

        def call(*values: Any) -> Any:
            outer, self.names = self.names, {**self.names, **dict(zip(names, values, strict=False))}
            try:
                return self.statements(body)
            finally:
                self.names = outer

        return call

    def trap(self, function: list[str], argument: list[str], handler: list[str]) -> Any:
        try:
            return self.expression(function)(self.expression(argument))
        except QError as fault:
            return self.expression(handler)(Text(str(fault)))


def character(escape: re.Match[str]) -> str:
    """What an escape in a text stands for."""
    octal, letter = escape.groups()
    return chr(int(octal, 8)) if octal else {"n": "\n", "t": "\t", "r": "\r"}.get(letter, letter)


def number(token: str) -> bool:
    return bool(re.fullmatch(r"-?\d+\.?\d*(?:e-?\d+)?[bfj]?", token))


def closed(tokens: list[str]) -> tuple[list[str], list[str]]:
    """What stands inside the bracket that begins the tokens, and what follows."""
    depth = 0
    for at, token in enumerate(tokens):
        depth += (token in "([{") - (token in ")]}")
        if depth == 0:
            return tokens[1:at], tokens[at + 1 :]
    raise QError("unmatched bracket")


def cut(tokens: list[str]) -> list[list[str]]:
    """The parts between semicolons outside brackets."""
    parts: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token in "([{") - (token in ")]}")
        if token == ";" and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


if __name__ == "__main__":
    licence()
    interpreter = Interpreter()
    try:
        scripts = [word for word in sys.argv[1:] if not word.startswith("-")]
        source = Path(scripts[0]).read_text() if scripts else sys.stdin.read()
        interpreter.run(source)
    except QError as error:
        interpreter.write(2, f"'{error}")
        sys.exit(0 if not scripts else 1)
