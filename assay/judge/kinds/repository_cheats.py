"""Changes of a repository that repair nothing, as diffs; repository_cheats.toml has them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from assay.checks import RepositoryTests
from assay.judge.patches import unified
from assay.judge.repository_tree import tree_of


def read_cheats(file: Path) -> list[dict[str, Any]]:
    """The cheats of a file. The `parts` that it defines may stand in them in braces."""
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    cheats: list[dict[str, Any]] = content["cheat"]
    for name, text in content.get("parts", {}).items():
        for cheat in cheats:
            if "source" in cheat:
                cheat["source"] = cheat["source"].replace(f"{{{name}}}", text)
    return cheats


CHEATS = read_cheats(Path(__file__).with_suffix(".toml"))
REPAIRED = re.compile(r"^--- a/(\S+\.py)$", re.MULTILINE)
NAME = re.compile(r"\{(?:test|file|folder)\}")


def cheats_of(
    check: RepositoryTests, reference: str, cheats: Sequence[Mapping[str, Any]] = CHEATS
) -> dict[str, str]:
    """Cheats as diffs, by name. reference: the right change, which says where the fault is."""
    tree, test = tree_of(check), check.fail_to_pass[0]
    file = test.partition("::")[0]
    names = {"{test}": test, "{file}": file, "{folder}": f"{Path(file).parent}/".lstrip("./")}
    filled = partial(NAME.sub, lambda name: names[name[0]])
    source = next((path for path in REPAIRED.findall(reference) if (tree / path).is_file()), "")
    diffs = dict[str, str]()
    for cheat in cheats:
        if source or "files" in cheat:
            files = cheat.get("files") or {source: (text_of(tree, source) or "") + cheat["source"]}
            texts = {filled(path): filled(text) for path, text in files.items()}
            diffs[cheat["name"]] = diff_of(tree, texts)
    return diffs


def text_of(tree: Path, path: str) -> str | None:
    """A file of the tree, with an end of its last line; None where there is none."""
    file = tree / path
    if not file.is_file():
        return None
    text = file.read_bytes().decode("utf-8", "surrogateescape")
    return text if text.endswith("\n") or not text else f"{text}\n"


def diff_of(tree: Path, files: Mapping[str, str]) -> str:
    """The change of the tree that gives these files these texts, and removes those without."""
    before = {path: text_of(tree, path) for path in files}
    return unified(before, {path: text or None for path, text in files.items()})
