"""A box shows no other copy of the modules that its repository has."""

from __future__ import annotations

import asyncio
import zipfile
from pathlib import Path

import pytest

from assay.check.shown_answers import installed
from assay.judge import Judge
from assay.judge.copies import copies
from assay.judge.kinds.repository import shown_spec_of, spec_of
from assay.sandbox.box import FORMS
from assay.types import RepositoryTests

PACKAGES = "lib/python3.11/site-packages"
PLACES = (
    f"{PACKAGES}/pip/_vendor/kit/__init__.py", f"{PACKAGES}/kit/__init__.py",
    f"{PACKAGES}/kit-1.egg/kit/__init__.py", f"{PACKAGES}/setuptools/_vendor/one.py",
    f"{PACKAGES}/pip/_vendor/packaging/__init__.py",
)  # fmt: skip
OTHERS = (f"{PACKAGES}/kitten/__init__.py", f"{PACKAGES}/packaging/__init__.py")


def write(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("ANSWER = 1\n")


def test_copies_are_found_in_every_form_and_pytest_keeps_its_packages(tmp_path: Path) -> None:
    write(tmp_path, *PLACES, *OTHERS)
    wheel = tmp_path / "ensurepip/_bundled/pip-1.whl"
    wheel.parent.mkdir(parents=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("pip/_vendor/kit/__init__.py", "")
    (wheel.parent / "broken.whl").write_text("no archive")
    places = [str(tmp_path / path.removesuffix("/__init__.py")) for path in PLACES]
    root, modules = str(tmp_path), ["kit", "one", "packaging"]
    assert sorted(copies([], [root], modules)) == sorted([*places, str(wheel)])
    of_others = str(tmp_path / PACKAGES / "packaging")
    assert sorted(copies([root], [], modules)) == sorted([*places, of_others, str(wheel)])
    assert copies([root], [root], ["other"]) == ()


@pytest.mark.parametrize("name", ["kit", "one", "idna", "urllib3"])
def test_a_box_for_a_model_shows_no_copy_and_the_repository_itself(
    tmp_path: Path, name: str
) -> None:
    tree, root = tmp_path / "tree", tmp_path / "venv"
    write(root, *PLACES, *OTHERS)
    write(tree, "one.py" if name == "one" else f"{name}/__init__.py")
    check = RepositoryTests(str(tree), (), (), roots=(str(root),))

    async def look() -> tuple[str, str, str, str]:
        spec = await shown_spec_of(check)
        async with Judge(slots=1) as judge, judge.box(spec) as box:
            place = await installed(box, await spec_of(check), [name, f"{name}.py"])
            tree_text = await box.run(("bash", "-c", f"cat {name}.py {name}/__init__.py"))
            other = await box.run(("cat", str(root / OTHERS[0])))
            return box.form, place, tree_text.stdout.decode(), other.stdout.decode()

    form, place, text, other = asyncio.run(look())
    if FORMS.get(form, form) == FORMS["folder"]:
        pytest.skip("without namespaces a box covers nothing")
    assert (place, text, other) == ("", "ANSWER = 1\n", "ANSWER = 1\n")


def test_a_package_that_is_installed_meanwhile_is_found(tmp_path: Path) -> None:
    write(tmp_path, f"{PACKAGES}/other/__init__.py")
    assert copies([str(tmp_path)], [], ["kit"]) == copies([str(tmp_path)], [], ["kit"]) == ()
    write(tmp_path, "new/dist-packages/kit/__init__.py")
    assert copies([str(tmp_path)], [], ["kit"]) == (str(tmp_path / "new/dist-packages/kit"),)
