"""Unpacked images as the root of a box: what is seen there, and what is out of reach."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from assay.archives import tarfile
from assay.check.shown_answers import shown_answer
from assay.engines.base import Sampling
from assay.errors import DataError, RolloutLostError, SandboxError
from assay.judge import Job, Judge, images
from assay.judge.kinds.repository import Repositories
from assay.judge.kinds.repository_cheats import cheats_of, diff_of
from assay.judge.repository_tree import files_of, reader, tree_of
from assay.sandbox.box import Box
from assay.sandbox.isolation import probe_isolation
from assay.tasks import exact, load
from assay.tasks.repository import PREFIXES
from assay.tasks.rows import Row
from assay.types import RepositoryTests, Task, Verdict
from tests.images import RELEASE, make_image
from tests.judge.opened import judge_all
from tests.repositories import FIXES, OTHERS, SOURCE, calc_task, write_tree
from tests.rollout.talks import talk
from tests.sandbox.test_box import in_box, shell
from tests.tasks.test_public_repositories import BUG, FORMATS

WALLS = probe_isolation().walls
needs_namespaces = pytest.mark.skipif("namespaces" not in WALLS, reason="no namespaces here")
HOST_FILE = "/etc/hostname-of-the-host"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = make_image(tmp_path_factory.mktemp("image") / "root")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def small(tmp_path: Path, image: Path) -> Iterator[Path]:
    """An image of links to the files of another, to be changed."""
    yield Path(shutil.copytree(image, tmp_path / "small", symlinks=True, copy_function=os.link))
    shutil.rmtree(tmp_path / "small")


def task_in(image: Path | str, **fields: object) -> Task:
    """The task of repairing the repository in an image."""
    task = calc_task(Path("/testbed"), **{"roots": PREFIXES, "image": str(image), **fields})
    source = Path(str(image)) / "testbed"
    right = diff_of(source, {"src/calc/__init__.py": SOURCE.replace("a - b", "a + b")})
    return replace(task, reference=right)


async def said(box: Box, command: str) -> str:
    """What a command prints, its errors too."""
    done = await box.run(("bash", "-c", command), merged=True)
    return done.stdout.decode().strip()


@needs_namespaces
@pytest.mark.parametrize("number", [1, pytest.param(None, marks=pytest.mark.long)])
def test_python_pytest_and_c_library_of_an_image_decide(image: Path, number: int | None) -> None:
    """A right change passes; none and `number` published cheats fail, or all."""
    library = image / "usr/local/lib"
    site = next(library.glob("python3*")) / "site-packages"
    (site / "of_image.py").write_text("PLACE = __file__\n")
    known = {str(path.stat().st_ino) for path in image.rglob("libc.so.6")}
    look = (
        "from of_image import PLACE\n"
        f"assert PLACE == {'/' + str(site.relative_to(image))!r} + '/of_image.py'\n"
        "import os, sys\nassert sys.executable == '/usr/local/bin/python3'\n"
        "lines = [line.split() for line in open('/proc/self/maps') if 'libc.so.6' in line]\n"
        f"assert {{line[4] for line in lines}} <= {known!r}\nassert lines\n"
        "assert not os.path.exists('/home') and not os.path.exists('/opt')\n"
    )
    few = {} if number is None else {"fail_to_pass": FIXES[:1], "pass_to_pass": OTHERS[:1]}
    task = task_in(image, **few)
    check = task.checks[0]
    assert isinstance(check, RepositoryTests)
    source = {"src/calc/__init__.py": look + SOURCE.replace("a - b", "a + b")}
    cheats = dict(islice(cheats_of(check, task.reference or "").items(), number))
    right, none, *others = judge_all(
        [Job(task, text) for text in (diff_of(image / "testbed", source), "", *cheats.values())]
    )
    assert right.verdict is Verdict.PASS, right.detail
    assert right.passed == right.total == len(check.fail_to_pass) + len(check.pass_to_pass)
    assert none.verdict is Verdict.WRONG
    assert len(others) == number or len(others) > 20
    assert Verdict.PASS not in [one.verdict for one in others]
    assert (image / "testbed/src/calc/__init__.py").read_text() == SOURCE


@needs_namespaces
@pytest.mark.parametrize("place", ["opt/env/lib/python3.9/site-packages", "usr/lib/dist-packages"])
def test_an_installed_release_is_found_anywhere_in_an_image(small: Path, place: str) -> None:
    assert asyncio.run(search(small)) == ""
    (small / place / "calc").mkdir(parents=True)
    (small / place / "calc/__init__.py").write_text(SOURCE)
    said = f"a release of the repository is installed: /{place}/calc/__init__.py"
    assert asyncio.run(search(small)) == said


@needs_namespaces
@pytest.mark.parametrize("missing", ["find", "grep"])
def test_an_image_that_cannot_be_searched_is_not_clean(small: Path, missing: str) -> None:
    (small / "usr/bin" / missing).unlink()
    with pytest.raises(RolloutLostError, match=rf"could not be searched: .*\b{missing}\b"):
        asyncio.run(search(small))


async def search(image: Path) -> str:
    async with Judge(slots=1) as judge:
        return await shown_answer(judge, task_in(image))


@needs_namespaces
def test_commands_see_the_files_of_the_image_and_none_of_the_host(image: Path) -> None:
    async def work(box: Box) -> None:
        assert await said(box, "cat /etc/os-release") == RELEASE.strip()
        assert await said(box, "pwd; ls") == "/testbed\npyproject.toml\nsrc\ntests"
        seen = {name.removeprefix("/") for name in (await said(box, "ls -A /")).split()}
        inside = {path.name for path in image.iterdir()}
        assert seen == inside | {"proc", "dev", "tmp", ".state", ".tree"}
        assert await said(box, "id -un; cat /etc/hosts") == (
            "user\n127.0.0.1 localhost sandbox\n::1 localhost"
        )
        assert await said(box, "echo x > new; git diff --no-index /.tree/new new | cat; ls") == (
            "error: Could not access '/.tree/new'\nnew\npyproject.toml\nsrc\ntests"
        )
        assert "+x" in await box.diff()
        for path in ("/etc/os-release", "/etc/passwd", "/usr/bin/new", "/new", "/.tree/new"):
            assert "Read-only file system" in await said(box, f"touch {path}")

    in_box(image / "testbed", work, image=image)
    assert not (image / "testbed/new").exists()


@needs_namespaces
def test_nothing_outside_the_image_can_be_reached(small: Path, tmp_path: Path) -> None:
    """Neither through links, parents and processes, nor by special files of the image."""
    secret = tmp_path / "secret"
    secret.write_text("SECRET")
    climb = "../" * 40
    (small / "outward").symlink_to(secret)
    (small / "testbed/outward").symlink_to(secret)
    (small / "testbed/upward").symlink_to(climb + str(secret).lstrip("/"))
    (small / "etc/hosts").unlink()
    (small / "etc/hosts").symlink_to(secret)
    shutil.copy(small / "usr/bin/id", small / "usr/bin/id-of-root")
    (small / "usr/bin/id-of-root").chmod(0o4755)
    if os.getuid() == 0:
        os.mknod(small / "usr/disk", stat.S_IFBLK | 0o666, tmp_path.stat().st_dev)
        os.mknod(small / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))

    async def work(box: Box) -> None:
        paths = ["/outward", "outward", "upward", "/etc/hosts", f"{climb}{secret}", str(secret),
                 f"/proc/1/root{secret}", f"/proc/self/root/{climb}{secret}", "/proc/1/cwd",
                 f"/.tree/../..{secret}"]  # fmt: skip
        for path in paths:
            assert "SECRET" not in await said(box, f"cat {path}"), path
        assert await said(box, "id-of-root -u; id -u") == "1000\n1000"
        if os.getuid() == 0:
            assert "Permission denied" in await said(box, "cat /usr/disk")
            assert "Permission denied" in await said(box, "echo > /null")
        listed = (await said(box, "ls /proc/self/fd")).split()
        assert set(listed) <= {"0", "1", "2", "3"}  # ls has opened the folder itself
        for refused in ("mount -t tmpfs x /tmp", "chroot /tmp", "unshare -m true"):
            assert await said(box, f"{refused} && echo done") != "done"

    in_box(small / "testbed", work, image=small)
    assert secret.read_text() == "SECRET"


@needs_namespaces
@pytest.mark.parametrize("name", ["etc", "testbed", "tmp", "dev", "proc", ".state", ".tree"])
def test_a_link_in_place_of_a_folder_changes_nothing_outside(
    small: Path, tmp_path: Path, name: str
) -> None:
    """Not while a box is made either, which our own process does with the rights of its user."""
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    outside.mkdir()
    tree.mkdir()
    if (small / name).exists():
        shutil.rmtree(small / name)
    (small / name).symlink_to(outside)

    async def work(box: Box) -> None:
        await said(box, f"touch /{name}/new /testbed/new /tmp/new")

    with suppress(SandboxError):
        in_box(tree, work, image=small)
    assert list(outside.iterdir()) == []
    assert list(tree.iterdir()) == []


@needs_namespaces
def test_writable_folders_stand_in_the_place_of_those_of_an_image(
    small: Path, tmp_path: Path
) -> None:
    (target := tmp_path / "target").mkdir()
    (small / "logs").symlink_to(target)
    (small / "tests").mkdir()
    (small / "tests" / "old").touch()

    async def work(box: Box) -> None:
        assert await shell(box, "touch /logs/x && ls -A /logs /tests") == "/logs:\nx\n\n/tests:\n"

    in_box(small / "testbed", work, image=small, writable=("/logs", "/tests"))
    assert list(target.iterdir()) == []


def test_no_module_of_an_image_is_loaded_into_our_own_process(small: Path) -> None:
    """Where the interpreter of the sandbox has its library, an image may have another."""
    library = Path(f"{small}{Path(os.__file__).parent}")
    library.mkdir(parents=True, exist_ok=True)
    for name in sys.stdlib_module_names:
        (library / f"{name}.py").unlink(missing_ok=True)  # it may be one of the other image
        (library / f"{name}.py").write_text("open('/tmp/loaded', 'w')\n")

    async def work(box: Box) -> None:
        await box.write({"a": b"x"})
        await box.diff()
        with pytest.raises(OSError, match="none"):
            await box.read("none")
        assert "No such file" in await said(box, "ls /tmp/loaded")

    in_box(small / "testbed", work, image=small)


def test_an_image_is_refused_by_name_where_there_are_no_namespaces(image: Path) -> None:
    async def work(box: Box) -> None:
        raise AssertionError

    with pytest.raises(SandboxError, match=f"the image {image} needs namespaces"):
        in_box(image / "testbed", work, {"namespaces", "user"}, image=image)


@needs_namespaces
def test_an_image_without_git_is_refused_by_name(small: Path) -> None:
    (small / "usr/bin/git").unlink()

    async def work(box: Box) -> None:
        raise AssertionError

    with pytest.raises(SandboxError, match=f"boxes need git in {small}/usr/bin"):
        in_box(small / "testbed", work, image=small)


@pytest.mark.long
@needs_namespaces
def test_a_change_does_not_reach_an_interpreter_in_the_tree_of_an_image(small: Path) -> None:
    """A virtual environment below the tree is one of the roots that a row names."""
    (small / "testbed/.venv/bin").mkdir(parents=True)
    (small / "testbed/.venv/bin/python3").symlink_to("/usr/local/bin/python3")
    forged = json.dumps({"results": {
        test: {"outcome": "passed", "detail": ""} for test in (*FIXES, *OTHERS)}})  # fmt: skip
    program = json.dumps(
        {f".venv/bin/{name}": f"#!/usr/bin/bash\necho '{forged}'\n" for name in ("python3", "git")}
    )
    diff = "".join(
        f"diff --git a/{path} b/{path}\nnew file mode 100755\n--- /dev/null\n+++ b/{path}\n"
        f"@@ -0,0 +1,2 @@\n+#!/usr/bin/bash\n+echo '{forged}'\n"
        for path in (".venv/bin/pytest", ".venv/bin/patch")
    )
    task = task_in(small, roots=("/testbed/.venv",))
    right, *others = judge_all([Job(task, text) for text in (task.reference, program, diff)])
    assert right.verdict is Verdict.PASS, right.detail
    assert [one.verdict for one in others] == [Verdict.WRONG] * 2


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as made:
        for member, content in members:
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))
    data.seek(0)
    return data


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644
) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, link, mode
    return made


def test_what_is_unpacked_has_no_devices_no_pipes_and_no_set_user_id(tmp_path: Path) -> None:
    stream = archive(
        (member("bin", tarfile.DIRTYPE, mode=0o1777), b""),
        (member("bin/su", mode=0o6755), b"x"),
        (member("bin/hard", tarfile.LNKTYPE, "bin/su", mode=0o6755), b""),
        (member("/absolute", mode=0), b"y"),
        (member("link", tarfile.SYMTYPE, "/etc/passwd"), b""),
        (member("disk", tarfile.BLKTYPE), b""),
        (member("null", tarfile.CHRTYPE), b""),
        (member("pipe", tarfile.FIFOTYPE), b""),
    )
    images.unpack(stream, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["absolute", "bin", "link"]
    assert stat.S_IMODE((tmp_path / "bin").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "bin/su").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "absolute").stat().st_mode) == 0o600
    assert (tmp_path / "bin/hard").samefile(tmp_path / "bin/su")
    assert (tmp_path / "link").readlink() == Path("/etc/passwd")


@pytest.mark.parametrize(
    "members",
    [
        [member("../x")],
        [member("a/../../x")],
        [member("a", tarfile.SYMTYPE, "{outside}"), member("a/x")],
        [member("a", tarfile.SYMTYPE, "{outside}/x"), member("a")],
        [member("a", tarfile.SYMTYPE, "../outside"), member("a/x", tarfile.DIRTYPE)],
        [member("a", tarfile.SYMTYPE, "../outside"), member("b", tarfile.LNKTYPE, "a/secret")],
        [member("b", tarfile.LNKTYPE, "../outside/secret")],
        [member("b", tarfile.LNKTYPE, "{outside}/secret")],
    ],
)
def test_nothing_is_unpacked_outside_of_the_folder(
    tmp_path: Path, members: list[tarfile.TarInfo]
) -> None:
    made, outside = tmp_path / "made", tmp_path / "outside"
    made.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("SECRET")
    members = [
        one.replace(linkname=one.linkname.format(outside=outside), deep=False) for one in members
    ]
    with pytest.raises((tarfile.TarError, OSError, KeyError)):
        images.unpack(archive(*((one, b"") for one in members)), made)
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").stat().st_nlink == 1


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE, None])
def test_a_hard_link_to_what_is_no_unpacked_file_is_left_out(
    kind: bytes | None, tmp_path: Path
) -> None:
    """Of a device, a pipe, a folder, and of nothing."""
    members = [] if kind is None else [(member("there", kind), b"")]
    images.unpack(archive(*members, (member("link", tarfile.LNKTYPE, "there"), b"")), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["there"] * (kind == tarfile.DIRTYPE)


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_a_link_that_cannot_be_made_brings_no_device_in_its_place(
    kind: bytes, tmp_path: Path
) -> None:
    """Such as one that is too long for the kernel: what it names is unpacked instead by tarfile."""
    link = (member("link", tarfile.SYMTYPE, "./" * 2048 + "there"), b"")
    with pytest.raises(tarfile.SpecialFileError):
        images.unpack(archive((member("there", kind), b""), link), tmp_path)
    assert list(tmp_path.iterdir()) == []


DOCKER = """#!{python}
import shutil, sys
log = open({log!r}, "a")
print(*sys.argv[1:], file=log)
match sys.argv[1]:
    case "images":
        print("docker.io/owner/calc:1 sha256:{digest}")
    case "create":
        assert sys.argv[2:] == ["--pull=never", "sha256:{digest}", "true"], sys.argv
        print("c0ffee")
    case "export":
        shutil.copyfileobj(open({tar!r}, "rb"), sys.stdout.buffer)
        sys.exit({status})
"""
"""A stand-in that holds one image."""


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Puts a tool into PATH, alone, that holds a tar file as owner/calc:1. The log of its calls."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()

    def install(tar: Path, status: int = 0, name: str = "docker") -> Path:
        log = tmp_path / "log"
        digest = hashlib.sha256(tar.read_bytes()).hexdigest()
        text = DOCKER.format(
            python=sys.executable, log=str(log), tar=str(tar), status=status, digest=digest
        )
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
        return log

    images.local_images.cache_clear()
    yield install
    shutil.rmtree(tmp_path)
    images.local_images.cache_clear()


def tar_of(image: Path, tmp_path: Path) -> Path:
    """What a tool would export of an image."""
    with tarfile.open(tmp_path / "image.tar", "w") as made:
        made.add(image, ".")
    return tmp_path / "image.tar"


@pytest.mark.long
@needs_namespaces
@pytest.mark.parametrize("tool", ["docker", "podman"])
def test_an_image_of_a_tool_is_unpacked_once_and_grades_a_row(
    tool: str, image: Path, tmp_path: Path, docker: Callable[..., Path],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    log = docker(tar_of(image, tmp_path), name=tool)
    row = {"id": "calc-1", "prompt": "add() is wrong.", "image": "owner/calc:1", "tree": "/testbed",
           "fail_to_pass": FIXES, "pass_to_pass": OTHERS,
           "reference": task_in(image).reference}  # fmt: skip
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    (task,) = load(f"jsonl:{tmp_path / 'rows.jsonl'}")
    assert log.exists() is False, "an image is unpacked when it is needed"
    right, none = judge_all([Job(task, task.reference), Job(task, "")])
    assert (right.verdict, none.verdict) == (Verdict.PASS, Verdict.WRONG), right.detail
    assert images.image_folder("owner/calc:1") == images.image_folder("docker.io/owner/calc:1")
    calls = [line.split()[0] for line in log.read_text().splitlines()]
    assert calls == ["images", "create", "export", "rm"]
    assert [one.message for one in caplog.records if "unpack" in one.message] == [
        "unpacking the image owner/calc:1, once"
    ]


@pytest.mark.parametrize("fault", ["status", "../x", "x\0"])
def test_an_export_that_fails_leaves_no_folder(
    fault: str, tmp_path: Path, docker: Callable[..., Path]
) -> None:
    tar = tmp_path / "image.tar"
    one = member("x")
    one.pax_headers = {} if fault == "status" else {"path": fault}
    tar.write_bytes(archive((one, b"")).read())
    log = docker(tar, status=fault == "status")
    with pytest.raises(DataError, match="the image owner/calc:1 cannot be unpacked"):
        images.image_folder("owner/calc:1")
    assert list((tmp_path / "cache/assay/trees").iterdir()) == []
    assert log.read_text().splitlines()[-1] == "rm c0ffee"


def test_an_image_that_is_not_here_is_refused_with_what_to_do(docker: object) -> None:
    with pytest.raises(DataError, match=r"owner/none is not here.*`podman pull owner/none"):
        images.image_folder("owner/none")


def test_a_row_that_a_stranger_wrote_names_no_folder_of_the_machine(
    tmp_path: Path, docker: object
) -> None:
    for name in ("/", str(tmp_path), "--help", "../..", "\0", "\ud800", "/x" * 5000):
        assert not images.is_here(name)


@pytest.mark.long
@needs_namespaces
def test_rows_of_public_sets_are_graded_in_the_images_that_they_name(
    image: Path, tmp_path: Path, docker: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of SWE-smith the bug, which its image lacks, is put into the repository first."""
    monkeypatch.delenv("ASSAY_TREES", raising=False)
    docker(tar_of(image, tmp_path))
    source = {"src/calc/__init__.py": SOURCE.replace("2 * a", "3 * a")}
    bug, doubled = diff_of(image / "testbed", source), "tests/test_calc.py::test_double"
    common: dict[str, Any] = {"instance_id": "owner__calc-1", "problem_statement": "It is wrong.",
              "PASS_TO_PASS": [], "image_name": "owner/calc:1"}  # fmt: skip
    rows: dict[str, dict[str, Any]] = {
        "swe_bench": {"repo": "owner/calc", "patch": task_in(image).reference,
                      "FAIL_TO_PASS": list(FIXES)},
        "swe_smith": {"repo": "swesmith/owner__calc.1", "patch": bug, "FAIL_TO_PASS": [doubled]},
    }  # fmt: skip
    for name, row in rows.items():
        (tmp_path / "rows.jsonl").write_text(json.dumps(common | row) + "\n")
        (task,) = load(f"{name}:{tmp_path / 'rows.jsonl'}")
        right, none = judge_all([Job(task, task.reference), Job(task, "")])
        assert (right.verdict, none.verdict) == (Verdict.PASS, Verdict.WRONG), right.detail
    assert (image / "testbed/src/calc/__init__.py").read_text() == SOURCE
    (tmp_path / "rows.jsonl").write_text(
        json.dumps(common | rows["swe_bench"] | {"image_name": "owner/other:1"}) + "\n"
    )
    with pytest.raises(DataError, match="owner__calc-1 needs the image owner/other:1, which is"):
        load(f"swe_bench:{tmp_path / 'rows.jsonl'}")


@pytest.mark.parametrize(
    ("name", "tree", "roots", "bug"),
    [
        ("swe_bench", "/testbed", PREFIXES, ""),
        ("swe_gym", "/testbed", PREFIXES, ""),
        ("swe_smith", "/testbed", PREFIXES, BUG),
        ("swe_rebench", "/calc", PREFIXES, ""),
        ("r2e_gym", "/testbed", ("/testbed/.venv",), ""),
    ],
)
def test_each_public_set_says_where_its_images_have_what(
    name: str, tree: str, roots: tuple[str, ...], bug: str, tmp_path: Path,
    docker: Callable[..., Path], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("ASSAY_TREES", raising=False)
    (tmp_path / "image.tar").touch()
    docker(tmp_path / "image.tar")
    named = {"docker_image": "owner/calc:1", "image_name": "owner/calc:1"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(FORMATS[name] | named) + "\n")
    (task,) = load(f"{name}:{tmp_path / 'rows.jsonl'}")
    (check,) = task.checks
    assert isinstance(check, RepositoryTests)
    assert (check.image, check.tree, check.roots, check.bug) == ("owner/calc:1", tree, roots, bug)
    assert exact.task_of(Row(json.loads(json.dumps(exact.row_of(task))), "x, line 1")) == task


@pytest.mark.parametrize("change", ["content", "content of the same size", "rights", "name"])
def test_a_folder_counts_as_another_image_once_a_file_of_it_changes(
    change: str, tmp_path: Path
) -> None:
    """Outside of the repository and of what is installed too: verdicts depend on all of it."""
    write_tree(tmp_path / "testbed")
    library = tmp_path / "usr/lib/decides.py"
    library.parent.mkdir(parents=True)
    library.write_text("x = 1\n")
    os.utime(library, (0, 0))
    check = RepositoryTests("/testbed", FIXES, (), image=str(tmp_path))

    def known() -> str:
        return Repositories().surroundings(check)

    before = known()
    assert known() == before
    match change:
        case "rights":
            library.chmod(0o755)
        case "name":
            library.rename(library.with_name("other.py"))
        case _:
            library.write_text("x = 2\n" if "same" in change else "x = 22\n")
    assert known() != before


def test_a_bug_writes_nothing_through_a_link_of_an_image(small: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (small / "testbed/link").symlink_to(outside)
    bug = "--- /dev/null\n+++ b/link/new\n@@ -0,0 +1 @@\n+x\n"
    check = RepositoryTests("/testbed", (), (), image=str(small), bug=bug)
    with pytest.raises(DataError, match=r"link/new leads out of the tree"):
        tree_of(check)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("tree", ["/none", "/../..", "/outward", "/outward/tree", "/etc/passwd"])
def test_a_tree_that_an_image_does_not_hold_is_refused(
    tree: str, small: Path, tmp_path: Path
) -> None:
    (tmp_path / "tree").mkdir()
    (small / "outward").symlink_to(tmp_path)
    with pytest.raises(DataError, match=f"the image {small} holds no folder {tree}"):
        tree_of(RepositoryTests(tree, (), (), image=str(small)))


def test_apptainer_unpacks_a_file_of_its_own(
    tmp_path: Path, docker: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "calc.sif").write_bytes(images.SIF + b"\1")
    (tmp_path / "bin/apptainer").write_text(
        '#!/bin/sh\n[ "$1 $2 $3" = "build --sandbox --force" ] && echo "$5" > "$4/made"\n'
    )
    (tmp_path / "bin/apptainer").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    folder = images.image_folder("calc.sif")
    assert (folder / "made").read_text() == f"{tmp_path / 'calc.sif'}\n"


@pytest.mark.parametrize(
    "start", [b"", b"#" + b" " * 31 + b"SIF_MAGIC\n", b"#" + b" " * 30 + b"\n"]
)
def test_a_recipe_that_would_run_commands_here_is_not_given_to_apptainer(
    start: bytes, tmp_path: Path, docker: object
) -> None:
    """Apptainer builds any file that is no whole image of its own as a recipe."""
    recipe = b"Bootstrap: scratch\n%setup\n touch here\n"
    (tmp_path / "calc.sif").write_bytes(start + recipe)
    (tmp_path / "bin/apptainer").write_text(f"#!/bin/sh\necho x > {tmp_path / 'called'}\n")
    (tmp_path / "bin/apptainer").chmod(0o755)
    with pytest.raises(DataError, match="is no image of Apptainer's; a recipe is not built"):
        images.image_folder(str(tmp_path / "calc.sif"))
    assert not (tmp_path / "called").exists()


PODMAN = """#!/bin/sh
exec {podman} --root {home}/storage --runroot {run} --storage-driver vfs \\
    --cgroup-manager cgroupfs "$@"
"""


@pytest.mark.long
@needs_namespaces
@pytest.mark.skipif(shutil.which("podman") is None, reason="no podman here")
def test_an_image_that_podman_holds_grades_a_row(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, docker: object
) -> None:
    podman = shutil.which("podman", path=os.defpath)
    run = tempfile.mkdtemp(dir="/tmp")  # podman wants a short path
    (tmp_path / "bin/podman").write_text(PODMAN.format(podman=podman, home=tmp_path, run=run))
    (tmp_path / "bin/podman").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.defpath}:/usr/sbin:/sbin")
    command = ["podman", "import", str(tar_of(image, tmp_path)), "calc:1"]
    subprocess.run(command, check=True)
    task = replace(task_in("calc:1"), reference=task_in(image).reference)
    right, none = judge_all([Job(task, task.reference), Job(task, "")])
    assert (right.verdict, none.verdict) == (Verdict.PASS, Verdict.WRONG), right.detail
    listed = subprocess.run(["podman", "ps", "-aq"], check=True, capture_output=True)
    assert listed.stdout == b""
    shutil.rmtree(run)


@pytest.mark.long
@needs_namespaces
def test_a_shell_in_an_image_works_on_its_repository_and_its_change_is_judged(image: Path) -> None:
    commands = (
        "cat /etc/os-release; pwd; python3 -m pytest --version; ls -d /home /opt /root /srv",
        's=src/calc/__init__.py; t=$(<$s); echo "${t/a - b/a + b}" > $s; touch /usr/x',
        "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
    )
    replies = [f"```mswea_bash_command\n{command}\n```" for command in commands]
    rollout = talk(
        *replies, task=task_in(image), environment={"name": "shell", "tool_calls": "text"},
        sampling=Sampling(4000),
    )[0]  # fmt: skip
    first, second, third = rollout.turns
    assert f"{RELEASE}/testbed\npytest " in first.observation
    assert first.observation.count("No such file or directory") == 4
    assert "Read-only file system" in second.observation
    assert third.program is not None
    assert "+    return a + b" in third.program
    assert rollout.execution is not None
    assert rollout.execution.verdict is Verdict.PASS, rollout.execution.detail
    check = rollout.task.checks[0]
    assert isinstance(check, RepositoryTests)
    assert "src/calc/__init__.py" in files_of(check)
    assert reader(check)("src/calc/__init__.py") == SOURCE
