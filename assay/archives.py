"""Python's tarfile, which refuses what reaches out of a folder; before 3.11.4 it cannot, and its
backport takes its place: Debian 12 has Python 3.11.2.
"""

import importlib
import tarfile
from contextlib import suppress

__all__ = ["tarfile"]

if not hasattr(tarfile, "data_filter"):
    with suppress(ImportError):
        tarfile = importlib.import_module("backports.tarfile")
