"""Starts an agent behind a relay that treats its connections badly.

    python relay.py DROP CUT PIECE COMMAND...

The first DROP connections end while the policy samples, the next CUT ones in the middle of an
answer. Answers reach the agent in pieces of PIECE bytes, with a pause after each.
"""

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import count
from urllib.parse import urlsplit

MIDDLE = 400
"""Bytes after which an answer is cut: its head is shorter, and the whole of it longer."""
PAUSE_SECONDS = 0.002
DROP_SECONDS = 1.0
"""Time in which a request has arrived; its policy samples until a second one has."""


def copy(source: socket.socket, target: socket.socket, size: int, most: int | None) -> None:
    """Pass on what arrives, up to `most` bytes, and then close both."""
    passed = 0
    with suppress(OSError):
        while data := source.recv(size if most is None else min(size, most - passed)):
            target.sendall(data)
            passed += len(data)
            if size < 4096:
                time.sleep(PAUSE_SECONDS)
    end(source, target)


def end(*connections: socket.socket) -> None:
    """Close connections for both directions."""
    for connection in connections:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def main(drop: int, cut: int, piece: int, words: list[str]) -> int:
    url = urlsplit(os.environ["OPENAI_BASE_URL"])
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for number in count():
            client, _ = listener.accept()
            server = socket.create_connection((str(url.hostname), int(url.port or 80)))
            if number < drop:
                threading.Timer(DROP_SECONDS, end, (client, server)).start()
            most = MIDDLE if drop <= number < drop + cut else None
            threading.Thread(target=copy, args=(client, server, 1 << 16, None), daemon=True).start()
            threading.Thread(target=copy, args=(server, client, piece, most), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    here = f"http://127.0.0.1:{listener.getsockname()[1]}{url.path}"
    variables = {**os.environ, "OPENAI_BASE_URL": here, "OPENAI_API_BASE": here}
    return subprocess.run(words, env=variables, check=False).returncode


if __name__ == "__main__":
    numbers = map(int, sys.argv[1:4])
    sys.exit(main(next(numbers), next(numbers), next(numbers), sys.argv[4:]))
