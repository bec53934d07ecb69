"""Names the optional part of assay that brings a package which is not installed."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from importlib.metadata import PackageNotFoundError, requires

REQUIREMENT = re.compile(r"([\w.-]+).*;.*extra == ['\"]([\w-]+)['\"]")


@cache
def extras() -> dict[str, str]:
    """The smallest extra that brings a package, by the package's name, from assay's metadata."""
    try:
        lines = requires("assay") or []
    except PackageNotFoundError:  # a folder of sources on the path, never installed
        return {}
    pairs = [match.groups() for line in lines if (match := REQUIREMENT.match(line))]
    sizes = Counter(extra for _, extra in pairs)
    largest_first = sorted(pairs, key=lambda pair: -sizes[pair[1]])
    return {name.replace("-", "_"): extra for name, extra in largest_first}


def advice_on(error: Exception) -> str:
    """What to install where a package of an extra is absent; empty for any other error."""
    if not isinstance(error, ModuleNotFoundError):
        return ""
    package = (error.name or "").partition(".")[0]
    if package not in extras():
        return ""
    command = f"pip install -e '.[{extras()[package]}]'"
    return f"this needs {package}, which is not installed: {command} in assay's checkout"
