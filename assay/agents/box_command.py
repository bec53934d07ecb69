"""The program with which an outside agent runs a command in its rollout's box.

    python box_command.py SOCKET plain [-c TEXT | COMMAND...]
    python box_command.py SOCKET docker [run | exec | stop | rm | kill] ...

`plain` runs the words of a command, or a text by bash. `docker` understands what agents say to
Docker, whatever the image's and the container's names: there is one box, which is there already.
It writes what the command writes, and exits as the command does: 124 where its time was over, 137
where it was killed, 125 where the box cannot be asked.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, NoReturn

from assay.sandbox.sockets import FramedSocket, OversizedError, message, read_message

MOST_ANSWERED = 1 << 26
CANNOT = 125
"""Docker's status where Docker itself failed."""
NAME = "assay-box"
"""What `docker run` says that its container is called."""
ENDS = ("stop", "rm", "kill")
VALUES = ("-w", "--workdir", "-e", "--env", "-u", "--user", "--detach-keys", "--env-file")
"""The options of `docker exec` that have a value."""


class Command(NamedTuple):
    """What is to run in the box."""

    words: list[str]
    folder: str = ""
    """Where, instead of the work folder."""
    environment: Mapping[str, str] = {}
    reads: bool = False
    """Whether it gets this process's standard input."""


def fail(why: str) -> NoReturn:
    """End this program as Docker does where it fails."""
    sys.stderr.write(f"assay's box: {why}\n")
    sys.exit(CANNOT)


def plain(words: Sequence[str]) -> Command:
    """The command of `-c TEXT`, as shells are called, or of words."""
    if not words or (words[0] == "-c" and len(words) < 2):
        fail("name a command, or -c and a text for bash")
    if words[0] == "-c":
        return Command(["bash", "-c", *words[1:]], reads=True)
    return Command([*words], reads=True)


def docker(words: Sequence[str]) -> Command | None:
    """The command of `docker exec`; None where there is nothing to do but to agree."""
    verb, rest = (words[0], iter(words[1:])) if words else ("", iter(()))
    if verb == "run":
        if not {"-d", "--detach", "-dit", "-itd"} & {*words}:
            fail("docker run needs -d: the box is there already, and commands run by docker exec")
        sys.stdout.write(f"{NAME}\n")
        return None
    if verb in ENDS:
        return None
    if verb == "exec":
        return executed(rest)
    fail(f"it knows docker run -d, exec, {', '.join(ENDS)}, and not {verb or 'nothing'}")


def executed(words: Iterator[str]) -> Command:
    """The command of the words after `docker exec`."""
    folder, environment, reads = "", dict[str, str](), False
    for word in words:
        if not word.startswith("-"):  # the container's name
            command = [*words]
            if not command:
                fail("docker exec needs a command")
            return Command(command, folder, environment, reads)
        option, has_value, value = word.partition("=")
        if option in VALUES and not has_value:
            value = next(words, "")
        if option in ("-w", "--workdir"):
            folder = value
        elif option in ("-e", "--env"):
            name, is_set, text = value.partition("=")
            environment[name] = text if is_set else os.environ.get(name, "")
        elif option == "--interactive" or (option[1] != "-" and "i" in option):
            reads = True
        elif option in ("-d", "--detach", "--env-file"):
            fail(f"docker exec has no {option} here")
    fail("docker exec needs a container and a command")


def run(path: str, command: Command) -> int:
    """Run it, write what it wrote, and return its status. Raises OSError, OversizedError."""
    data = sys.stdin.buffer.read() if command.reads and not sys.stdin.isatty() else b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.connect(path)
        framed = FramedSocket(stream, MOST_ANSWERED)
        framed.send(message(command.words, command.folder, command.environment, data))
        status, stdout, stderr = read_message(framed.receive())
    for file, output in ((sys.stdout.buffer, stdout), (sys.stderr.buffer, stderr)):
        file.write(output)
        file.flush()
    return int(status)


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    path, form, *words = arguments
    command = plain(words) if form == "plain" else docker(words)
    try:
        return run(path, command) if command else 0
    except BrokenPipeError:
        return 141  # as a shell's commands whose reader is gone
    except (OSError, OversizedError) as error:
        fail(f"it cannot be asked: {error}")
