"""The program with which an outside agent runs a command in its rollout's box.

    python box_command.py SOCKET SECONDS plain [-c TEXT | COMMAND...]
    python box_command.py SOCKET SECONDS docker [run | exec | stop | rm | kill] ...

`plain` runs the words of a command, or a text by bash. `docker` understands what agents say to
Docker, whatever the image's and the container's names: there is one box, which is there already.
It writes what the command writes, and exits as the command does: 124 where its time was over, 125
where the box cannot be asked. Its own standard input must end within SECONDS.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

from assay.sandbox.sockets import FramedSocket, OversizedError, message, read_message

MOST_ANSWERED = 1 << 26
MOST_READ = 1 << 24
"""Bytes of standard input."""
CHUNK = 1 << 16
CANNOT = 125
"""Docker's status where Docker itself failed."""
READER_GONE = 141
"""A shell's status for a command that SIGPIPE has ended."""
NAME = "assay-box"
"""What `docker run` says that its container is called."""
ENDS = ("stop", "rm", "kill")
SHORT = {
    "d": "detach", "e": "env", "h": "hostname", "i": "interactive", "l": "label", "m": "memory",
    "q": "quiet", "t": "tty", "u": "user", "v": "volume", "w": "workdir",
}  # fmt: skip
FLAGS = ("detach", "init", "interactive", "privileged", "quiet", "rm", "tty")
IGNORED = (
    "cpus", "detach-keys", "gpus", "hostname", "label", "memory", "name", "network", "platform",
    "pull", "shm-size", "user",
)  # fmt: skip
"""Options with a value that changes nothing here."""
VALUES = ("env", "workdir", *IGNORED)


class BoxCommand(NamedTuple):
    """What the box is asked."""

    words: list[str]
    """Of the command; none where only folder and variables of later commands are set."""
    folder: str = ""
    environment: Mapping[str, str] = {}
    reads: bool = False
    """Whether it gets this process's standard input."""


def fail(why: str) -> NoReturn:
    """End this program as Docker does where it fails."""
    sys.stderr.write(f"assay's box: {why}\n")
    sys.exit(CANNOT)


def plain(words: Sequence[str]) -> BoxCommand:
    """The command of `-c TEXT`, as shells are called, or of words."""
    if not words or (words[0] == "-c" and len(words) < 2):
        fail("name a command, or -c and a text for bash")
    if words[0] == "-c":
        return BoxCommand(["bash", "-c", *words[1:]], reads=True)
    return BoxCommand([*words], reads=True)


def docker(words: Sequence[str]) -> BoxCommand | None:
    """The request of `docker run -d` or `docker exec`; None where there is nothing to do."""
    verb = words[0] if words else ""
    if verb in ENDS:
        return None
    if verb not in ("run", "exec"):
        fail(f"it knows docker run -d, exec, {', '.join(ENDS)}, and not {verb or 'nothing'}")
    options, rest = options_of(verb, words[1:])
    settings = dict(options)
    environment = dict(variable(value) for name, value in options if name == "env")
    folder, detached = settings.get("workdir", ""), is_set(settings, "detach")
    if verb == "run":
        if not detached:
            fail("docker run needs -d: the box is there already, and commands run by docker exec")
        sys.stdout.write(f"{NAME}\n")
        return BoxCommand([], folder, environment)
    if detached:
        fail("docker exec has no --detach here: what a command leaves running ends with it")
    if len(rest) < 2:
        fail("docker exec needs a container and a command")
    return BoxCommand(rest[1:], folder, environment, is_set(settings, "interactive"))


def options_of(verb: str, words: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """The options before the first other word, by their long names with their values, and the other
    words. They are read as Docker reads them: `-eA=1`, `-e A=1`, `-itw /tmp`, `--env=A=1`.
    """
    options, rest = list[tuple[str, str]](), [*words]
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            name, has_value, value = word[2:].partition("=")
            letters = ""
        else:
            name, letters = SHORT.get(word[1], word[1]), word[2:]
            has_value, value = ("=", letters.removeprefix("=")) if letters else ("", "")
        if name in FLAGS:
            if letters and not letters.startswith("="):
                rest.insert(0, f"-{letters}")
                value = ""
            options.append((name, value))
        elif name in VALUES:
            if not has_value and not rest:
                fail(f"docker {verb} needs a value for {word}")
            options.append((name, value if has_value else rest.pop(0)))
        else:
            fail(f"docker {verb} has no option {word} here")
    return options, rest


def is_set(options: dict[str, str], flag: str) -> bool:
    """Whether a flag stands among options, and is not set to false."""
    return options.get(flag, "false").lower() not in ("false", "f", "0")


def variable(value: str) -> tuple[str, str]:
    """The variable of NAME=VALUE, or of NAME as it is set here."""
    name, has_value, text = value.partition("=")
    return name, text if has_value else os.environ.get(name, "")


def standard_input(seconds: float) -> bytes:
    """All of it, where it is no terminal."""
    if sys.stdin is None or sys.stdin.isatty():
        return b""
    descriptor, data, end = sys.stdin.fileno(), bytearray(), time.monotonic() + seconds
    while True:
        if not select.select([descriptor], [], [], max(0.0, end - time.monotonic()))[0]:
            fail(
                f"its standard input was not closed within {seconds:g} seconds; close it, or pass"
                " stdin=DEVNULL"
            )
        if not (chunk := os.read(descriptor, CHUNK)):
            return bytes(data)
        data += chunk
        if len(data) > MOST_READ:
            fail(f"its standard input has more than {MOST_READ} bytes")


def is_merged() -> bool:
    """Whether standard output and error are the same file, so that their order counts."""
    try:
        return os.path.samestat(os.fstat(1), os.fstat(2))
    except OSError:  # one is closed
        return False


def ask(path: str, request: BoxCommand, data: bytes) -> tuple[int, bytes, bytes]:
    """The command's status, and what it wrote to standard output and error. Raises OSError,
    OversizedError.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.connect(path)
        framed = FramedSocket(stream, MOST_ANSWERED)
        words, folder, environment, _ = request
        framed.send(message(words, folder, dict(environment), data, is_merged()))
        status, stdout, stderr = read_message(framed.receive())
    return status, stdout, stderr


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    path, seconds, form, *words = arguments
    request = plain(words) if form == "plain" else docker(words)
    if request is None:
        return 0
    data = standard_input(float(seconds)) if request.reads else b""
    try:
        status, stdout, stderr = ask(path, request, data)
    except (OSError, OversizedError) as error:
        fail(f"it cannot be asked: {error or type(error).__name__}")
    try:
        for file, output in ((sys.stdout, stdout), (sys.stderr, stderr)):
            if output and file is not None:
                file.buffer.write(output)
                file.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or its end complains
        return READER_GONE
    return status
