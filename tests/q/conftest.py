"""A q for tests: the stand-in beside this file, as an executable with a home and a licence."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assay.languages import languages
from assay.sandbox.access import INTERPRETER
from tests.q import stand_in

USERS_Q = os.environ.get("ASSAY_Q", "")


def forget_q() -> None:
    """The language is made anew of the environment."""
    languages._items.pop("q", None)
    sys.modules.pop("assay.languages.q", None)


@contextmanager
def using(program: str) -> Iterator[None]:
    """The language q is run by this program."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_Q", program)
        forget_q()
        yield
    forget_q()


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a stand-in for q."""
    home = tmp_path_factory.mktemp("q")
    (home / "q.k").write_text("/ q's own functions\n")
    (home / "k4.lic").write_text("")
    program = home / "l64" / "q"
    program.parent.mkdir()
    source = Path(stand_in.__file__).read_text()
    program.write_text(f"#!{INTERPRETER[0]} -IS\n{source}")
    program.chmod(0o755)
    return home


@pytest.fixture
def q(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The home of a stand-in, which is the language's interpreter."""
    monkeypatch.delenv("QHOME", raising=False)
    monkeypatch.delenv("QLIC", raising=False)
    with using(f"{home}/l64/q"):
        yield home


@pytest.fixture(scope="module", params=["a stand-in", "q itself"])
def any_q(request: pytest.FixtureRequest, home: Path) -> Iterator[None]:
    """A stand-in; and the user's q, where ASSAY_Q names one."""
    if request.param == "q itself" and not USERS_Q:
        pytest.skip("needs an interpreter of q with a licence; set ASSAY_Q to it")
    with using(f"{home}/l64/q" if request.param == "a stand-in" else USERS_Q):
        yield
