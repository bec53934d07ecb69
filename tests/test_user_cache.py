"""Where what is made once is kept, for users with and without a home that can be written."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay import user_cache
from assay.user_cache import added, prune

PRINT = "from assay.user_cache import cache_folder as f; print(f('trees')); print(f('trees'))"


def folders(home: Path, *, cache: Path | None = None) -> tuple[list[str], str]:
    """What `cache_folder` answers twice, and what it warns of."""
    environment = {"HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
    if cache:
        environment["XDG_CACHE_HOME"] = str(cache)
    done = subprocess.run(
        [sys.executable, "-c", PRINT], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout.splitlines(), done.stderr


UNWRITABLE = pytest.param(
    "unwritable", marks=pytest.mark.skipif(os.getuid() == 0, reason="root writes anywhere")
)


@pytest.mark.parametrize("case", [UNWRITABLE, "a file", "below a file"])
def test_a_home_that_cannot_be_written_is_replaced_by_a_folder_that_ends_with_the_process(
    case: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    if case == "unwritable":
        home.mkdir(mode=0o555)
    else:
        home.write_text("")
    (first, second), warning = folders(home / "me" if case == "below a file" else home)
    assert first == second
    assert first.endswith("/trees")
    assert not first.startswith(str(tmp_path))
    assert not Path(first).parent.exists()  # the process has ended
    assert warning.count("\n") == 1
    assert "set XDG_CACHE_HOME to a folder" in warning


def test_the_folder_that_the_environment_names_comes_before_the_home(tmp_path: Path) -> None:
    (first, _), warning = folders(tmp_path / "home", cache=tmp_path / "cache")
    assert (first, warning) == (f"{tmp_path}/cache/assay/trees", "")


def entry(root: Path, name: str, *, kib: int = 8, age: float = 0) -> Path:
    """An entry of a cache that was used so many seconds ago."""
    folder = root / "trees" / name
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(os.urandom(kib << 10))
    os.utime(folder, (time.time() - age,) * 2)
    return folder


def du(root: Path) -> int:
    done = subprocess.run(["du", "-sk", root], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0]) << 10


def test_the_entries_that_were_used_least_recently_go_until_the_rest_fits(tmp_path: Path) -> None:
    entries = [entry(tmp_path, str(age), kib=100, age=age) for age in range(5, 15)]
    (tmp_path / "expected").mkdir()
    (tmp_path / "expected/old.json").write_bytes(bytes(50 << 10))
    os.utime(tmp_path / "expected/old.json", (time.time() - 99,) * 2)
    prune(tmp_path, 350 << 10)
    assert [path.exists() for path in entries] == [True] * 3 + [False] * 7
    assert not (tmp_path / "expected/old.json").exists()
    assert du(tmp_path) < 400 << 10


def test_what_nobody_used_for_long_goes_though_there_is_room(tmp_path: Path) -> None:
    old, new = entry(tmp_path, "old", age=100), entry(tmp_path, "new", age=10)
    prune(tmp_path, 1 << 30, most_seconds=50)
    assert (old.exists(), new.exists()) == (False, True)


def test_files_that_entries_share_count_once(tmp_path: Path) -> None:
    first, second = entry(tmp_path, "first", kib=100), entry(tmp_path, "second", kib=1, age=9)
    (second / "link").hardlink_to(first / "file")
    prune(tmp_path, 150 << 10)
    assert second.exists()


HOLDER = """
import sys
from pathlib import Path
from assay.user_cache import hold, new_entry
print(*[hold(Path(path)) for path in sys.argv[1:]], new_entry(Path(sys.argv[1]).parent), flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def holding(*entries: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that uses entries, and begins one."""
    command = [sys.executable, "-c", HOLDER, *map(str, entries)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline()
        process.kill()


def test_what_a_process_uses_stays_until_it_dies_however_it_dies(tmp_path: Path) -> None:
    used, other = entry(tmp_path, "used", age=9), entry(tmp_path, "other", age=9)
    with holding(used, tmp_path / "trees/absent") as (process, answer):
        *answers, begun = answer.split()
        assert answers == ["True", "False"]
        prune(tmp_path, 0, most_seconds=0)
        assert (used.exists(), other.exists(), Path(begun).exists()) == (True, False, True)
        process.kill()
        process.wait()
        prune(tmp_path, 0, most_seconds=0)
    assert not used.exists()
    assert not Path(begun).exists()
    assert list((tmp_path / ".users").iterdir()) == []


READER = """
import os, sys, time
from pathlib import Path
from assay.judge.images import made_once
from assay.user_cache import prune
os.environ["XDG_CACHE_HOME"] = sys.argv[1]
def fill(folder):
    (folder / "file").write_text(folder.parent.name)
for turn in range(40):
    folder = made_once(f"{sys.argv[2] if turn % 2 else 'both'}-{turn % 8}", fill)
    prune(Path(sys.argv[1], "assay"), 0, 0)
    assert (folder / "file").read_text() == "trees", turn
"""


def test_two_processes_that_prune_and_read_at_once_lose_nothing(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", READER, tmp_path, name]) for name in ("one", "two")
    ]
    assert [process.wait() for process in processes] == [0, 0]
    prune(tmp_path / "assay", 0, 0)
    assert list((tmp_path / "assay/trees").iterdir()) == []


def test_what_a_process_adds_has_the_cache_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_CACHE_GB", "0.0001")
    old, new = entry(tmp_path, "old", kib=200, age=9), entry(tmp_path, "new", kib=20)
    (tmp_path / ".lock").touch()
    added(new)
    for thread in threading.enumerate():
        if thread.name == "prune the cache":
            thread.join()
    assert (old.exists(), new.exists()) == (False, True)


def test_what_was_left_of_a_killed_deletion_is_deleted(tmp_path: Path) -> None:
    entry(tmp_path, "x")
    (tmp_path / "trees").rename(tmp_path / ".deleted-1")
    (tmp_path / "trees").mkdir()
    prune(tmp_path, 1 << 30)
    assert not (tmp_path / ".deleted-1").exists()


def test_nobody_waits_while_a_new_entry_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread goes on to use an entry meanwhile."""
    root, waits = tmp_path / "assay", list[bool]()
    tree, other = entry(root, "trees/a"), entry(root, "trees/b")

    def measured(path: Path, counted: set[tuple[int, int]]) -> int:
        thread = threading.Thread(target=user_cache.hold, args=(other,), daemon=True)
        thread.start()
        thread.join(timeout=10)
        waits.append(thread.is_alive())
        return 1

    monkeypatch.setattr(user_cache, "size_on_disk", measured)
    monkeypatch.setenv("ASSAY_CACHE_GB", "1")
    (root / user_cache.LOCK).touch()
    added(tree)
    assert waits == [False]
