"""The work folder that a Dockerfile makes by copying files alone; all else that it does is refused
by name, since nothing is built.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from assay.content import digest_of
from assay.errors import DataError
from assay.judge.images import full_name, made_once

PLAIN = ("debian", "ubuntu", "python")
"""Images for which this machine's own tools can stand."""
SYSTEM = ("/bin", "/sbin", "/lib", "/lib64", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/share",
          "/usr/include", "/usr/libexec", "/etc", "/dev", "/proc", "/sys", "/tmp", "/logs",
          "/tests", "/solution")  # fmt: skip
"""Folders that are the machine's, or a box's own."""
PLATFORM = re.compile(r"^\s*--platform=\S+\s")
CONTINUED = re.compile(r"\\[ \t]*$")


class Copied(NamedTuple):
    """What one COPY or WORKDIR lays out."""

    sources: tuple[str, ...]
    """Paths and patterns below the folder of the Dockerfile; none for a WORKDIR."""
    target: str
    """An absolute path in the image; of a folder where it ends in a slash."""


class Recipe(NamedTuple):
    """How a work folder is made."""

    folder: str
    """Its absolute path in the image."""
    copied: tuple[Copied, ...]


def is_plain(image: str) -> bool:
    """Whether an image is a plain one of a system or of Python, by its name."""
    name, _, tag = full_name(image.partition("@")[0]).rpartition(":")
    return name in PLAIN and not (name == "python" and tag.startswith("2"))


def recipe_of(environment: Path, folder: str = "") -> Recipe:
    """How the Dockerfile of a folder makes the work folder, or one without a Dockerfile, which is
    copied whole. folder: the work folder, where that is known; else it is the last WORKDIR. Raises
    DataError that says what is needed for it.
    """
    file = environment / "Dockerfile"
    if not file.is_file():
        return Recipe(required_folder(folder), (Copied((".",), f"{folder}/"),))
    if (environment / ".dockerignore").exists():
        raise DataError(f"{environment / '.dockerignore'}, which assay does not read")
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise DataError(f"{file}, which cannot be read: {error}") from None
    place, stages, copied = "/", 0, list[Copied]()
    for number, line in lines_of(text):
        name, _, rest = line.partition(" ")
        refusal = f"an image that line {number} of {file} makes: {line[:80]}"
        match name.upper():
            case "FROM" if not stages and is_plain(PLATFORM.sub("", rest).strip()):
                stages += 1
            case "CMD" | "EXPOSE" | "LABEL" if stages:
                pass  # nothing of these changes a file
            case "WORKDIR" if stages and is_literal(rest):
                place = str(PurePosixPath(place, rest.strip()))
                copied.append(Copied((), f"{place}/"))
            case "COPY" if stages and is_literal(rest):
                copied.append(copied_by(rest, place, refusal))
            case _:
                raise DataError(refusal)
    folder = required_folder(folder or place)
    outside = [each for each in copied if not PurePosixPath(each.target).is_relative_to(folder)]
    for each in outside:
        if each.sources:
            raise DataError(f"files at {each.target}, beside its work folder {folder}")
    return Recipe(folder, tuple(each for each in copied if each not in outside))


def last_folder(environment: Path) -> str:
    """The work folder of an image that a Dockerfile makes in any way; empty where that says none in
    plain words. Raises DataError.
    """
    place = ""
    try:
        text = (environment / "Dockerfile").read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise DataError(f"{environment / 'Dockerfile'} cannot be read: {error}") from None
    for _, line in lines_of(text):
        name, _, rest = line.partition(" ")
        if name.upper() == "FROM":
            place = ""
        elif name.upper() == "WORKDIR":
            place = str(PurePosixPath(place or "/", rest.strip())) if is_literal(rest) else ""
    return place


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """The instructions of a Dockerfile, each in one line, with the number of its first."""
    parts, first = list[str](), 0
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("#") or not (parts or line.strip()):
            continue
        first = first if parts else number
        parts.append(CONTINUED.sub("", line).strip())
        if not CONTINUED.search(line):
            yield first, " ".join(" ".join(parts).split())
            parts = []
    if parts:
        yield first, " ".join(" ".join(parts).split())


def is_literal(arguments: str) -> bool:
    """Whether arguments stand for themselves, without variables, quotes, lists and texts."""
    return bool(arguments.strip()) and not re.search(r"[$\\'\"`\[\]]|<<", arguments)


def copied_by(arguments: str, place: str, refusal: str) -> Copied:
    """What a COPY lays out. Raises DataError, with the refusal, for one with options."""
    words = arguments.split()
    if len(words) < 2 or any(word.startswith("--") for word in words):
        raise DataError(refusal)
    *sources, target = words
    if any(".." in PurePosixPath(path).parts for path in words):
        raise DataError(refusal)
    is_folder = target.rpartition("/")[2] in ("", ".")
    if not is_folder and (len(sources) > 1 or "*" in sources[0] or "?" in sources[0]):
        raise DataError(refusal)  # as Docker does
    path = str(PurePosixPath(place, target))
    return Copied(tuple(sources), f"{path}/" if is_folder else path)


def required_folder(folder: str) -> str:
    """A work folder. Raises DataError for one that no box can have."""
    path = PurePosixPath(folder)
    if not path.is_absolute() or ".." in path.parts or path == PurePosixPath("/"):
        raise DataError(f"the whole image to work in: its work folder is {folder or '/'!r}")
    if any(path.is_relative_to(system) for system in SYSTEM):
        raise DataError(f"the work folder {path}, which is the system's")
    return str(path)


def made_tree(environment: Path, recipe: Recipe) -> Path:
    """The work folder, made once below the user's cache. Raises DataError."""
    try:
        content = digest_of(environment) if environment.is_dir() else ""

        def fill(target: Path) -> None:
            for each in recipe.copied:
                lay_out(environment, each, target, recipe.folder)
            if content and digest_of(environment) != content:
                raise OSError(f"{environment} changed while it was copied; try again")

        key = json.dumps([content, recipe]).encode("utf-8", "surrogatepass")
        return made_once(hashlib.blake2b(key, digest_size=16).hexdigest(), fill).resolve()
    except (OSError, ValueError) as error:  # a pattern may be none
        raise DataError(f"{environment} cannot be copied: {error}") from None


def lay_out(environment: Path, copied: Copied, tree: Path, folder: str) -> None:
    """Copy as a COPY does: of a folder what it holds. Links inside stay links. Raises OSError,
    ValueError.
    """
    inside = PurePosixPath(copied.target).relative_to(folder)
    target, is_folder = tree / inside, copied.target.endswith("/")
    if is_folder:
        require_real([target], tree)
        target.mkdir(parents=True, exist_ok=True)
    for source in sources_of(environment, copied.sources):
        if source.is_dir():
            require_real([target, *(target / path for path in paths_below(source))], tree)
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
            continue
        place = target / source.name if is_folder or target.is_dir() else target
        require_real([place], tree)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, place)


def require_real(places: Iterable[Path], tree: Path) -> None:
    """Raises PermissionError where a link stands at one of these places or on the way there, by
    which something beside the tree would be written.
    """
    for place in places:
        for part in (place, *place.parents):
            if part == tree:
                break
            if part.is_symlink():
                raise PermissionError(f"{part.relative_to(tree)} is a link, to be written through")


def paths_below(folder: Path) -> Iterator[Path]:
    """The paths in a folder of all that it holds."""
    for root, folders, files in os.walk(folder):
        yield from (Path(root, name).relative_to(folder) for name in (*folders, *files))


def sources_of(environment: Path, patterns: Sequence[str]) -> Iterator[Path]:
    """The files and folders that patterns name. Raises OSError where there are none, or outside."""
    if not environment.is_dir() and [*patterns] == ["."]:
        return
    root = environment.resolve()
    for pattern in patterns:
        name = pattern.strip("/") or "."
        paths = [environment] if name == "." else sorted(environment.glob(name))
        if not paths:
            raise FileNotFoundError(f"there is no {pattern}")
        for path in paths:
            if not path.resolve().is_relative_to(root):
                raise PermissionError(f"{path} leads out of the folder")
            yield path
