"""Whether the Hugging Face hub can be reached. Its client would try again for minutes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
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


@contextmanager
def hub_or_copies(name: str) -> Iterator[None]:
    """Where `name` is no path on this disk and there is no hub, the hub's client reads its cache
    alone in the block.
    """
    if Path(name).exists() or has_hub():
        yield
        return
    with own_copies_alone():
        yield


def why_no_copy(error: BaseException) -> str:
    """What to do where the client has no copy of a model and may not ask the hub: the end of an
    error's message. Empty for an error of another cause.
    """
    from huggingface_hub.errors import LocalEntryNotFoundError

    causes = [error]
    while cause := causes[-1].__cause__ or causes[-1].__context__:
        causes.append(cause)
    if not any(isinstance(cause, LocalEntryNotFoundError) for cause in causes):
        return ""
    is_set = any(os.environ.get(name) for name in OFFLINE)
    network = "HF_HUB_OFFLINE keeps it" if is_set else "the network keeps it"
    return (
        "no folder of that name is here, and as a hub name it needs the network: the hub's client"
        f" has no copy, and {network} from the hub; correct the name, give a folder, or"
        f" {'unset HF_HUB_OFFLINE' if is_set else 'go online'}"
    )


def _resolves(host: str | None) -> bool:
    try:
        return bool(socket.getaddrinfo(host, 443))
    except OSError:
        return False
