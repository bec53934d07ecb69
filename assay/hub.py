"""Whether the Hugging Face hub can be reached. Its client would try again for minutes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

PROXIES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


def has_hub() -> bool:
    """Whether the hub may answer: its name resolves, or a proxy is asked, and the client may go
    out.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    return any(map(os.environ.get, PROXIES)) or _resolves(urlsplit(constants.ENDPOINT).hostname)


@contextmanager
def own_copies_alone() -> Iterator[None]:
    """The hub's client reads its cache alone in the block."""
    from huggingface_hub import constants

    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _resolves(host: str | None) -> bool:
    try:
        return bool(socket.getaddrinfo(host, 443))
    except OSError:
        return False
