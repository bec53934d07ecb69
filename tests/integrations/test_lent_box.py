"""Boxes that are lent to trainers and evaluators of others: what a command's end is called, and
that no path and no link of a command leads out of the box.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.errors import DataError, SandboxError, SettingsError
from assay.integrations import lent_box
from assay.integrations.lent_box import CommandCause, Finished, LentBox
from assay.sandbox.isolation import probe_isolation
from tests.images import make_image
from tests.sandbox.test_box import TIERS, needs_namespaces, tree

__all__ = ["none_stays", "tree"]
SECRET = b"a secret of the machine"
Work = Callable[[LentBox], Awaitable[None]]


def walls_of(tier: str) -> tuple[str, ...]:
    return tuple(wall for wall in probe_isolation().walls if wall not in TIERS[tier])


@pytest.fixture(scope="module", autouse=True)
def none_stays() -> Iterator[None]:
    """Ends the processes that fork boxes, which else stay for the next box."""
    yield
    for tier in TIERS:
        asyncio.run(lent_box.boxes_of(os.getpid(), walls_of(tier)).close())


@pytest.fixture(params=TIERS)
def tier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the kinds of machine on which boxes differ."""
    isolation = replace(probe_isolation(), walls=walls_of(request.param))
    monkeypatch.setattr(lent_box, "probe_isolation", lambda: isolation)
    return str(request.param)


def in_box(work: Work, tree: Path | None = None, **options: Any) -> None:
    async def run() -> None:
        async with await LentBox.open(tree, **options) as box:
            await work(box)

    asyncio.run(run())


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder of the machine with a secret; the rights of files keep nobody from either."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    (folder / "secret").write_bytes(SECRET)
    (folder / "secret").chmod(0o666)
    yield folder
    assert [path.name for path in folder.iterdir()] == ["secret"]
    assert (folder / "secret").read_bytes() == SECRET
    shutil.rmtree(folder)


def error_of(number: int) -> Any:
    return pytest.raises(OSError, match=os.strerror(number))


def test_a_command_gets_its_words_its_folder_its_variables_and_its_input(
    tier: str, tree: Path
) -> None:
    async def work(box: LentBox) -> None:
        program = ("bash", "-c", 'pwd; echo "$1 $NAME"; cat; echo late >&2; exit 3', "", "a b")
        done = await box.run(program, folder="src", environment={"NAME": "x"}, stdin=b"in\n")
        assert done.stdout == f"{box.folder}/src\na b x\nin\n".encode()
        assert (done.stderr, done.status, done.cause, done.ok) == (
            b"late\n",
            3,
            CommandCause.NONE,
            False,
        )
        assert (await box.run("ls; cat a.txt")).stdout == b"a.txt\nsrc\none\ntwo\n"
        merged = await box.run("echo out; echo err >&2", merged=True)
        assert (merged.stdout, merged.stderr, merged.ok) == (b"out\nerr\n", b"", True)

    in_box(work, tree)


def test_a_box_without_a_tree_is_empty_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def work(box: LentBox) -> None:
        assert (await box.run("ls -A")).stdout == b""
        await box.put("made", b"x")

    in_box(work)
    assert not [*tmp_path.iterdir()]


ENDS = {
    "by a status that shells have for others": ("exit 126", 126, CommandCause.NONE, 0),
    "by a signal": ("kill -TERM $$", 143, CommandCause.KILLED, 0),
    "late": ("sleep 60", 124, CommandCause.TIME, 0),
    "never begun: absent": (("no-such-program",), 127, CommandCause.NOT_STARTED, errno.ENOENT),
    "never begun: no program": (("/etc/passwd",), 126, CommandCause.NOT_STARTED, errno.EACCES),
    "never begun: with a NUL": (("echo", "a\0b"), 126, CommandCause.NOT_STARTED, errno.EINVAL),
    "never begun: with half a character": (("echo", "\ud800"), 126, CommandCause.NOT_STARTED, 22),
    "never begun: without a word": ((), 126, CommandCause.NOT_STARTED, errno.EINVAL),
    "never begun: with words that are too long": (
        ("echo", "x" * 1_000_000), 126, CommandCause.NOT_STARTED, errno.E2BIG,
    ),
}  # fmt: skip


@needs_namespaces
@pytest.mark.parametrize("how", ENDS)
def test_why_a_command_has_ended_is_data(how: str) -> None:
    command, status, cause, number = ENDS[how]

    async def work(box: LentBox) -> None:
        done = await box.run(command, seconds=1 if cause is CommandCause.TIME else 20)
        assert (done.status, done.cause, done.error) == (status, cause, number)
        assert (await box.run("echo on")).stdout == b"on\n"

    in_box(work)


def test_a_folder_that_is_absent_starts_no_command(tier: str) -> None:
    async def work(box: LentBox) -> None:
        done = await box.run("echo here", folder="absent")
        assert (done.cause, done.error, done.stdout) == (
            CommandCause.NOT_STARTED,
            errno.ENOENT,
            b"",
        )

    in_box(work)


def test_a_command_that_takes_too_much_memory_says_so() -> None:
    hog = 'for n in {1..9}; do python3 -c \'b"x" * 50_000_000; x = b"x" * 50_000_000; '
    hog += "import time; time.sleep(20)' & done; wait"

    async def work(box: LentBox) -> None:
        done = await box.run(hog, seconds=20)
        assert (done.cause, done.status) == (CommandCause.MEMORY, 137), done

    in_box(work, memory_mb=80)


def test_of_too_much_output_the_beginning_and_the_end_are_kept(tier: str) -> None:
    async def work(box: LentBox) -> None:
        done = await box.run("echo first; yes | head -c 30000000; echo last", output_bytes=20)
        assert done.stdout.startswith(b"first\n")
        assert done.stdout.endswith(b"last\n")
        assert (done.status, done.left_out, len(done.stdout) < 80) == (0, 29_999_991, True)
        fits = await box.run("printf 12345678901234567890", output_bytes=20)
        assert (fits.stdout, fits.left_out) == (b"12345678901234567890", 0)

    in_box(work)


def test_a_file_goes_in_and_comes_out_as_it_was(tier: str, tree: Path) -> None:
    data = bytes(range(256)) * 40_000

    async def work(box: LentBox) -> None:
        await box.put("deep/er/data", data)
        assert await box.get("deep/er/data") == data
        assert await box.get(f"{box.folder}/deep/er/data") == data
        await box.put("a.txt", b"")
        assert await box.get("a.txt") == b""
        await box.put("program", b"#!/bin/sh\necho ran\n", executable=True)
        assert (await box.run(("./program",))).stdout == b"ran\n"

    in_box(work, tree)
    assert (tree / "a.txt").read_text() == "one\ntwo\n", "the tree stays as it was"
    assert sorted(path.name for path in tree.iterdir()) == ["a.txt", "src"]


def test_what_cannot_be_done_with_a_file_is_said_by_its_number(tier: str, tree: Path) -> None:
    async def work(box: LentBox) -> None:
        with pytest.raises(FileNotFoundError) as found:
            await box.get("absent")
        assert found.value.filename == "absent"
        for deed in (box.get("src"), box.put("src", b"x")):
            with pytest.raises(IsADirectoryError):
                await deed
        with error_of(errno.EFBIG):
            await box.get("a.txt", most=7)
        assert await box.get("a.txt", most=8) == b"one\ntwo\n"
        with pytest.raises(NotADirectoryError):
            await box.get("a.txt/b")
        for path in ("a\0b", "\ud800"):
            with error_of(errno.EINVAL):
                await box.get(path)
        with pytest.raises(OSError, match=r"Read-only|Permission"):
            await box.put("/etc/passwd", b"x")

    in_box(work, tree)


LEADS = {
    "an absolute path": "{secret}",
    "a path with many dots": "../../../../../../../../../..{secret}",
    "a link to the file": "link",
    "a link to its folder": "folder/secret",
    "a link to a link": "second",
    "a link to the root": "root{secret}",
    "the root of another process": "/proc/1/root{secret}",
    "its own root": "/proc/self/root{secret}",
    "a descriptor of another process": "/proc/1/fd/0",
}


@pytest.mark.parametrize("how", LEADS)
def test_no_path_and_no_link_leads_to_a_file_of_the_machine(
    how: str, tier: str, outside: Path
) -> None:
    secret = outside / "secret"
    plant = f"ln -s {secret} link; ln -s {outside} folder; ln -s link second; ln -s / root"

    async def work(box: LentBox) -> None:
        assert (await box.run(plant)).ok
        path = LEADS[how].format(secret=secret)
        with contextlib.suppress(OSError):
            assert await box.get(path) != SECRET
        try:  # in a root of its own, this may make a file of the box
            await box.put(path, b"overwritten")
        except OSError:
            pass
        else:
            assert tier == "A"

    in_box(work)


def test_a_work_folder_that_a_command_makes_a_link_leads_nowhere(tier: str, outside: Path) -> None:
    async def work(box: LentBox) -> None:
        await box.run(f"cd ..; mv {box.folder} away; rm -rf {box.folder}; ln -s {outside} tree")
        done = await box.run("cat secret; echo x > secret; touch made; ls")
        assert SECRET not in done.stdout
        with contextlib.suppress(OSError):
            assert await box.get("secret") != SECRET
        with contextlib.suppress(OSError):
            await box.put("secret", b"x")

    in_box(work)


STANDS = {
    "a pipe": ("mkfifo it", "it"),
    "a device": ("true", "/dev/zero"),
    "a device that is a link": ("ln -s /dev/zero it", "it"),
    "a link to itself": ("ln -s it it", "it"),
    "a huge file": ("truncate -s 1500M it", "it"),
}


@needs_namespaces
@pytest.mark.parametrize("what", STANDS)
def test_what_a_command_puts_in_the_place_of_a_file_cannot_stall_or_fill_us(what: str) -> None:
    plant, path = STANDS[what]

    async def work(box: LentBox) -> None:
        assert (await box.run(plant)).ok
        with pytest.raises(OSError) as raised:  # noqa: PT011  by its number
            await box.get(path, most=1000)
        assert raised.value.errno in (errno.EINVAL, errno.ELOOP, errno.EFBIG)
        if path != "it" or what not in ("a huge file",):
            with pytest.raises(OSError) as raised:  # noqa: PT011
                await box.put(path, b"x")
            assert raised.value.errno in (errno.EINVAL, errno.ENXIO, errno.ELOOP)
        assert (await box.run("echo on")).stdout == b"on\n"

    in_box(work)


def test_no_program_of_the_box_takes_part_in_reading_and_writing(tier: str) -> None:
    fake = "for name in python3 cat cp git sh; do printf '#!/bin/bash\\necho forged' > $name;"
    fake += " chmod +x $name 2>/dev/null; done"

    async def work(box: LentBox) -> None:
        await box.run(fake)
        await box.put("file", b"true")
        assert await box.get("file") == b"true"

    in_box(work, environment={"PATH": ".:/usr/bin:/bin"})


@needs_namespaces
def test_a_command_holds_no_descriptor_of_ours() -> None:
    async def work(box: LentBox) -> None:
        assert (await box.run(("ls", "/proc/self/fd"))).stdout == b"0\n1\n2\n3\n", "ls has one"

    in_box(work)


def test_a_process_stays_over_commands_until_it_is_stopped(tier: str) -> None:
    async def work(box: LentBox) -> None:
        for _ in range(3):
            numbers = [await box.start("while read -r it; do echo got $it; done") for _ in range(8)]
            with pytest.raises(ValueError, match="up to 8"):
                await box.start("true")
            assert (await box.run("echo between")).ok
            for number in numbers:
                done = await box.exchange(number, b"x\n")
                assert (done.stdout, done.cause) == (b"got x\n", CommandCause.NONE)
            for number in numbers:
                await box.stop(number)
            for late in (box.stop(numbers[0]), box.exchange(numbers[0], b"")):
                with pytest.raises(ValueError, match="no daemon"):
                    await late
        brief = await box.start("echo last; exit 4")
        assert (await box.exchange(brief, b"")).stdout == b"last\n"
        assert (await box.exchange(brief, b"")).cause is CommandCause.GONE

    in_box(work)


@needs_namespaces
def test_stopping_a_process_ends_what_it_has_started() -> None:
    async def work(box: LentBox) -> None:
        stays = await box.start("sleep 77 & sleep 78 & setsid sleep 79 & echo on; wait")
        await box.exchange(stays, b"")
        other = await box.start("cat")
        await box.stop(stays)
        assert (await box.run("pgrep -c sleep")).stdout == b"0\n"
        assert (await box.exchange(other, b"x\n")).stdout == b"x\n"

    in_box(work)


@needs_namespaces
def test_more_folders_may_be_written_to() -> None:
    async def work(box: LentBox) -> None:
        assert box.folder == "/workspace"
        await box.put("/root/tools/run", b"echo ran", executable=True)
        done = await box.run("bash /root/tools/run; touch /logs/a && ls /logs; touch /srv/a")
        assert (done.stdout, done.status) == (b"ran\na\n", 1)

    in_box(work, folder="/workspace", writable=("/root", "/logs"))


@needs_namespaces
def test_a_link_in_an_image_makes_no_folder_of_the_machine_writable(
    tmp_path: Path, outside: Path
) -> None:
    image = make_image(tmp_path / "image")
    (image / "logs").symlink_to(outside)

    async def work(box: LentBox) -> None:
        await box.run("touch /logs/made")

    with contextlib.suppress(SandboxError):
        in_box(work, image=image, writable=("/logs",))


@pytest.mark.parametrize("path", ["/", "/proc", "/dev/shm", "/etc", "relative", "/a/../etc", "/a/"])
def test_a_folder_of_the_system_is_none_of_a_box(path: str) -> None:
    for options in ({"writable": (path,)}, {"folder": path}):
        with pytest.raises(SettingsError, match="own folder"):
            in_box(lambda box: asyncio.sleep(0), **options)


def test_what_is_no_folder_is_no_tree(tree: Path) -> None:
    with pytest.raises(DataError, match="needs a folder"):
        in_box(lambda box: asyncio.sleep(0), tree / "a.txt")


def test_a_box_that_cannot_be_opened_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("temporary", "image"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    with pytest.raises(SandboxError):
        in_box(lambda box: asyncio.sleep(0), image=tmp_path / "image")
    assert not [*(tmp_path / "temporary").iterdir()]


def test_a_machine_without_a_sound_sandbox_lends_none(monkeypatch: pytest.MonkeyPatch) -> None:
    weak = replace(probe_isolation(), tier="D")
    monkeypatch.setattr(lent_box, "probe_isolation", lambda: weak)
    with pytest.raises(SandboxError, match="tier D"):
        in_box(lambda box: asyncio.sleep(0))


def test_a_closed_box_does_nothing_more(tree: Path) -> None:
    async def run() -> None:
        box = await LentBox.open(tree)
        await box.close()
        await box.close()
        with pytest.raises(SandboxError, match="has ended"):
            await box.run("true")

    asyncio.run(run())


def test_of_a_command_that_is_cancelled_the_files_stay() -> None:
    async def work(box: LentBox) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(box.run("echo 42 > answer; sleep 60", seconds=86_400), 0.5)
        assert await box.get("answer") == b"42\n"

    in_box(work)


def test_an_error_in_a_block_is_seen_though_a_command_runs() -> None:
    async def run() -> None:
        async with await LentBox.open() as box:
            running = asyncio.create_task(box.run("sleep 60"))
            await asyncio.sleep(0.3)
            try:
                raise KeyError("the caller's own")
            finally:
                await box.close()
                with pytest.raises(SandboxError, match="has ended"):
                    await running

    with pytest.raises(KeyError, match="the caller's own"):
        asyncio.run(run())


def test_boxes_that_are_open_together_do_not_meet() -> None:
    async def run() -> None:
        boxes = await asyncio.gather(*(LentBox.open() for _ in range(3)))
        await asyncio.gather(*(box.put("who", b"%d" % at) for at, box in enumerate(boxes)))
        await boxes[0].close()
        found: list[Finished] = await asyncio.gather(*(box.run("cat who") for box in boxes[1:]))
        assert [done.stdout for done in found] == [b"1", b"2"]
        await asyncio.gather(*(box.close() for box in boxes))

    asyncio.run(run())


def test_threads_that_open_boxes_together_share_one_process_that_forks_them() -> None:
    asyncio.run(lent_box.boxes_of(os.getpid(), walls_of("A")).close())
    together, done = threading.Barrier(6), list[Finished]()
    ends = threading.Barrier(6, timeout=60)

    def work() -> None:
        async def run() -> None:
            together.wait()
            async with await LentBox.open() as box:
                ends.wait()  # all are open
                done.append(await box.run("echo on"))

        asyncio.run(run())

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.stdout for each in done] == [b"on\n"] * 6


@needs_namespaces
def test_roots_and_images_may_be_relative_and_must_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_image(tmp_path / "image")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "run").write_text("echo ran")

    async def runs(box: LentBox) -> None:
        assert (await box.run(("sh", f"{tmp_path}/tools/run"))).stdout == b"ran\n"

    async def opens(box: LentBox) -> None:
        assert (await box.run("echo on")).stdout == b"on\n"

    in_box(runs, roots=[Path("tools")])
    in_box(opens, image=Path("image"))
    for options in ({"roots": [Path("tolls")]}, {"image": Path("absent")}):
        with pytest.raises(DataError, match=str(tmp_path)):
            in_box(opens, **options)


NO_CALLS: dict[str, Callable[[LentBox], Awaitable[object]]] = {
    "a path among the words": lambda box: box.run(("cat", Path("/etc/passwd"))),  # type: ignore[arg-type]
    "bytes": lambda box: box.run(b"echo on"),  # type: ignore[arg-type]
    "a number in a variable": lambda box: box.run("true", environment={"N": 3}),  # type: ignore[dict-item]
    "a number that names a variable": lambda box: box.start("cat", environment={3: "N"}),  # type: ignore[dict-item]
    "a time that is no number": lambda box: box.run("true", seconds=float("nan")),
    "a time without an end": lambda box: box.exchange(0, b"", seconds=float("inf")),
    "output below 0": lambda box: box.run("true", output_bytes=-1),
}


@pytest.mark.parametrize("what", NO_CALLS)
def test_a_call_that_cannot_be_is_refused_and_its_box_lives_on(what: str) -> None:
    async def work(box: LentBox) -> None:
        with pytest.raises(SettingsError):
            await NO_CALLS[what](box)
        assert (await box.run("echo on")).stdout == b"on\n"

    in_box(work)


def test_a_box_with_a_variable_that_is_no_text_or_without_a_limit_is_refused() -> None:
    with pytest.raises(SettingsError, match="3 is none"):
        in_box(lambda box: asyncio.sleep(0), environment={"N": 3})
    for name in ("memory_mb", "size_mb", "processes"):
        none: dict[str, Any] = {name: 0}
        with pytest.raises(SettingsError, match=name):
            in_box(lambda box: asyncio.sleep(0), **none)
