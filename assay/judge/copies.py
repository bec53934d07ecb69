"""Copies of a repository's modules that a box would show beside the repository: pip and setuptools
bring those of others, and any Python of the machine may have a release installed.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Collection, Iterable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from assay.bounded import BoundedDict, bounded_cache
from assay.content import digest_of

PACKAGES = ("-packages", ".egg", "_vendor")
"""How folders of installed packages end."""
NEEDED = {"pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py", "tomli",
          "exceptiongroup", "colorama", "typing_extensions"}  # fmt: skip
"""What pytest imports."""


def copies(
    visible: Iterable[str], roots: Iterable[str], modules: Collection[str]
) -> tuple[str, ...]:
    """The files and folders with copies of these modules among what a box shows. In `roots`, which
    have the interpreter that runs the tests, those that pytest imports stay.
    """
    names = {ending for module in modules for ending in (module, f"{module}.py")}
    places = list[str]()
    for is_root, folders in ((False, visible), (True, roots)):
        for packages, wheels in map(package_folders, folders):
            for folder in packages:
                needed = NEEDED if is_root and not folder.endswith("_vendor") else set[str]()
                places += [
                    f"{folder}/{name}" for name in sorted(names)
                    if name.removesuffix(".py") not in needed and Path(folder, name).exists()
                ]  # fmt: skip
            places += [wheel for wheel in wheels if not names.isdisjoint(modules_of(wheel))]
    return tuple(dict.fromkeys(places))


class Listing(NamedTuple):
    """What was in a folder when all the folders below it had these times."""

    times: dict[str, int]
    packages: tuple[str, ...]
    wheels: tuple[str, ...]


LISTINGS: BoundedDict[str, Listing] = BoundedDict(256, 64)
"""By folder. Each is good while the time of no folder in it changes, as by any file that is added,
removed or renamed."""


def package_folders(folder: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The folders of installed packages below a folder, and the wheels there."""
    listing = LISTINGS.get(folder)
    if listing is None or any(_time(path) != time for path, time in listing.times.items()):
        listing = LISTINGS[folder] = _listed(folder)
    return listing.packages, listing.wheels


def _time(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns  # noqa: PTH116  a Path for each of thousands takes long
    except OSError:
        return 0


def _listed(folder: str) -> Listing:
    packages, wheels, times = list[str](), list[str](), {folder: _time(folder)}
    for path, folders, files in os.walk(folder):
        times |= {f"{path}/{name}": _time(f"{path}/{name}") for name in folders}
        packages += [f"{path}/{name}" for name in folders if name.endswith(PACKAGES)]
        wheels += [f"{path}/{name}" for name in files if name.endswith(".whl")]
    return Listing(times, tuple(packages), tuple(wheels))


def modules_of(wheel: str) -> frozenset[str]:
    """The names in a wheel's folders of packages, and at its top."""
    try:
        return _modules_in(wheel, digest_of(Path(wheel)))
    except OSError:
        return frozenset()


@bounded_cache(256, 16)
def _modules_in(wheel: str, content: str) -> frozenset[str]:
    """As `modules_of`, of a wheel with this digest."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            paths = [name.split("/") for name in archive.namelist()]
    except (OSError, zipfile.BadZipFile):
        return frozenset()
    tops = {parts[0] for parts in paths}
    pairs = (pair for parts in paths for pair in pairwise(parts))
    return frozenset(tops | {name for folder, name in pairs if folder.endswith(PACKAGES)})
