"""The walk of a call through the files of the package: one stay is one visit to a file."""

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGE = f"{Path(__file__).parents[1] / 'assay'}/"


def stays_of(call: Callable[[], Any], closed: Collection[str] = ()) -> list[str]:
    """The files that the calls of `call` pass, in order; consecutive calls in one file are one
    stay. Imports are no stays. Of a call into a `closed` file nothing more is counted until it
    returns.
    """
    files: list[str] = []
    inside: FrameType | None = None

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal inside
        code = frame.f_code
        if event == "return" and frame is inside:
            inside = None
        if event != "call" or inside or not code.co_filename.startswith(PACKAGE):
            return
        if code.co_name != "<module>":
            file = code.co_filename.removeprefix(PACKAGE)
            files.append(file)
            inside = frame if file in closed else None

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return [file for file, _ in groupby(files)]


async def files_of(act: Callable[[], Awaitable[None]]) -> set[str]:
    """The files whose functions run while `act` does, in this thread and in others that it uses."""
    files = set[str]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name != "<module>":
            files.add(code.co_filename.removeprefix(PACKAGE))

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())  # of new threads
    try:
        await act()
    finally:
        sys.setprofile(before)
        threading.setprofile(before)
    return files
