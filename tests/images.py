"""An unpacked image, made of this machine's Python, git and shell, for tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from assay.sandbox.access import INTERPRETER
from tests.repositories import copy_pytest, write_tree

PYTHON = f"python3.{sys.version_info.minor}"
PROGRAMS = ("bash", "cat", "env", "find", "git", "grep", "id", "ls", "mkdir", "sh", "stat", "touch")
RELEASE = 'ID=of-the-image\nNAME="Made for a test"\n'
LIBRARY = re.compile(r"(/\S+) \(0x")


def make_image(image: Path) -> Path:
    """A folder that can be `/`: with the repository of tests/repositories.py at /testbed, whose
    interpreter, packages, C library and programs are copies. Some 70 MB.
    """
    library = image / "usr/local/lib" / PYTHON
    for folder in ("usr/bin", "usr/lib", "usr/lib64", "usr/local/bin", "etc", "tmp"):
        (image / folder).mkdir(parents=True)
    for link, target in (("bin", "usr/bin"), ("lib", "/usr/lib"), ("lib64", "/usr/lib64")):
        (image / link).symlink_to(target)
    left_out = shutil.ignore_patterns("*-packages", "test", "__pycache__", "idlelib", "config-*")
    shutil.copytree(Path(os.__file__).parent, library, ignore=left_out)
    (library / "site-packages").mkdir()
    copy_pytest(library / "site-packages")
    copy(INTERPRETER[0], image / "usr/local/bin/python3", image)
    for module in (library / "lib-dynload").glob("*.so"):
        copy_libraries(str(module), image)
    for name in PROGRAMS:
        copy(str(shutil.which(name, path="/usr/bin:/bin")), image / "usr/bin" / name, image)
    (image / "etc/os-release").write_text(RELEASE)
    for name in ("passwd", "group", "hosts"):
        (image / "etc" / name).write_text("")
    write_tree(image / "testbed")
    return image


def copy(program: str, target: Path, image: Path) -> None:
    """Copy a program with what it loads."""
    shutil.copy(program, target)
    copy_libraries(program, image)


def copy_libraries(program: str, image: Path) -> None:
    """Copy the shared libraries that a file loads."""
    listed = subprocess.run(["ldd", program], check=False, capture_output=True, text=True).stdout
    for path in LIBRARY.findall(listed):
        searched = path.removeprefix("/usr").startswith("/lib")
        place = f"/usr{path.removeprefix('/usr')}" if searched else f"/usr/lib/{Path(path).name}"
        if not (target := Path(f"{image}{place}")).exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
