"""The walls stand when attacked: as we are, as an ordinary user, and as a user of the family's
own.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.sandbox import isolation, namespaces, walls
from assay.sandbox.access import access_rules
from assay.sandbox.attack import ATTACKS, HIDING
from assay.sandbox.isolation import advice, graded, probe_isolation
from assay.sandbox.users import claim_user

PRELUDE = """
import json, os, sys
from assay.sandbox import attack, kernel, namespaces, walls
LIMITS = walls.ProcessLimits(cpu_seconds=9, memory_mb=256, stack_mb=64, open_files=32)
become, rules, required = json.loads(sys.argv[1])
rules = namespaces.AccessRules(*rules)
if become:
    os.setgroups([]); os.setresgid(become, become, become); os.setresuid(become, become, become)
"""
ENCLOSED = """
walls.enclose_family(rules, required)
walls.put_up(walls.process_walls(LIMITS, os.getppid()))
stood, failed = attack.attacked(attack.ATTACKS)
import decimal, wave
print(json.dumps({"failed": failed, "stood": stood, "user": os.getuid(), "groups": os.getgroups()}))
"""
WITHOUT_NAMESPACES = ("landlock", "capabilities", "seccomp")
"""What must stand on its own, as on a machine that allows no more."""


def enclosed(
    rules: namespaces.AccessRules,
    required: Sequence[str] = WITHOUT_NAMESPACES,
    become: int | None = None,
    code: str = ENCLOSED,
) -> dict[str, Any]:
    asked = json.dumps([become, rules, required])
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code, asked], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_wall_stands_on_this_machine() -> None:
    found = probe_isolation()
    assert found.tier in "ABC"
    assert set(ATTACKS) <= set(found.enforced)
    assert set(HIDING) <= set(found.enforced) or found.tier != "A"


def test_an_assay_that_python_cannot_import_is_told_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without_packages = tmp_path / "python"
    without_packages.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    without_packages.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(without_packages))
    found = probe_isolation()
    assert found.tier == "E"
    assert "cannot import assay: install it" in found.advice


def test_a_probe_that_did_not_finish_is_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert probe_isolation().tier == "E"
    python.write_text('#!/bin/sh\necho \'{"walls": ["user"], "stood": [], "failed": {}}\'\n')
    assert probe_isolation().tier == "B"


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become someone else")
needs_namespaces = pytest.mark.skipif(
    "namespaces" not in probe_isolation().walls, reason="this machine allows no namespaces"
)


def test_the_walls_stand_without_namespaces_and_the_standard_library_can_be_imported() -> None:
    found = enclosed(access_rules(claim_user().user))
    assert found["failed"] == {}
    assert set(found["stood"]) == set(ATTACKS)
    assert found["user"] == os.getuid()


@needs_root
def test_the_walls_stand_for_an_ordinary_user() -> None:
    code = ENCLOSED.replace(
        "import decimal, wave\n", ""
    )  # this interpreter's folder may be closed to others
    found = enclosed(access_rules(claim_user().user), become=65_534, code=code)
    assert found["failed"] == {}
    assert (found["user"], found["groups"]) == (65_534, [])


@needs_root
@needs_namespaces
def test_with_namespaces_root_changes_user_wherever_the_interpreter_lies() -> None:
    user = claim_user().user
    found = enclosed(access_rules(user), ("namespaces", "user", *WITHOUT_NAMESPACES))
    assert found["failed"] == {}
    assert (found["user"], found["groups"]) == (user, [])


@needs_root
def test_a_user_that_could_not_get_to_the_interpreter_is_not_taken(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "lib").mkdir()
    with pytest.raises(PermissionError, match=f"below {tmp_path}, which other users cannot enter"):
        walls.change_user(60_000, str(tmp_path / "lib"))


ALONE = """
walls.enclose_family(rules, required)
import socket
def got_through(attack):
    try: attack()
    except OSError: return False
    return True
def say_hello():
    ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.sendto(b"", os.environ["ABSTRACT"])
print(json.dumps({
    "file": got_through(lambda: os.stat("/etc/passwd")),
    "file of the old root": got_through(lambda: os.stat("/../etc/passwd")),
    "own package": got_through(lambda: os.stat(attack.__file__)),
    "test of the standard library": got_through(
        lambda: os.stat(rules.library + "/test/support/__init__.py")
    ),
    "processes": got_through(attack.see_processes),
    "loopback": got_through(
        lambda: socket.create_connection(("127.0.0.1", int(os.environ["PORT"]))).close()
    ),
    "abstract socket": got_through(say_hello),
    "writing": got_through(lambda: os.open(os.__file__, os.O_WRONLY)),
    "host name": os.uname().nodename == os.environ["NAME"],
}))
"""


@needs_namespaces
def test_namespaces_alone_hide_files_processes_and_the_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as named,
    ):
        named.bind(f"\0assay-test-{os.getpid()}")
        monkeypatch.setenv("PORT", str(server.getsockname()[1]))
        monkeypatch.setenv("NAME", os.uname().nodename)
        code = ALONE.replace('os.environ["ABSTRACT"]', repr(named.getsockname()))
        outside = enclosed(access_rules(claim_user().user), (), code=code)
        assert outside.pop("writing") == (os.getuid() == 0)
        assert set(outside.values()) == {True}
        assert set(
            enclosed(access_rules(claim_user().user), ("namespaces",), code=code).values()
        ) == {False}


HELLO = """
walls.enclose_family(rules, required)
import socket
try:
    ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.sendto(b"", os.environ["SOCKET"])
    sent = True
except OSError:
    sent = False
print(json.dumps({"sent": sent}))
"""


def test_no_message_reaches_a_socket_that_lies_in_a_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SOCKET", str(tmp_path / "log"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(str(tmp_path / "log"))
        assert enclosed(access_rules(claim_user().user), (), code=HELLO)["sent"]
        assert not enclosed(access_rules(claim_user().user), code=HELLO)["sent"]


STATUS = """
before = open("/proc/self/status").read()
status = os.open("/proc/self/status", os.O_RDONLY)
walls.enclose_family(rules, required)
lines = os.pread(status, 9999, 0).decode().splitlines()
print(json.dumps(dict(line.split(":\\t", 1) for line in lines if ":\\t" in line)))
"""


def test_capabilities_are_gone_for_good() -> None:
    status = enclosed(access_rules(claim_user().user), code=STATUS)
    sets = ["CapInh", "CapPrm", "CapEff", "CapAmb"]
    sets += ["CapBnd"] * (os.getuid() == 0)  # an ordinary user's bounds what it cannot get
    assert {int(status[name], 16) for name in sets} == {0}
    assert status["NoNewPrivs"].strip() == "1"
    assert status["Seccomp"].strip() == "2"


BEYOND = """
walls.enclose_family(rules, required)
walls.put_up(walls.process_walls(LIMITS, os.getppid()))
libc, found = kernel.libc, {}
import ctypes, threading
for name, call in {
    "clone3": lambda: libc.syscall(435, None, 0),
    "vfork": lambda: libc.syscall(58) if os.uname().machine == "x86_64" else -1,
    "unshare": lambda: libc.unshare(0x10000000),
    "mount": lambda: libc.mount(b"none", b"/", b"tmpfs", 0, None),
    "memfd": lambda: libc.memfd_create(b"x", 0),
    "io_uring": lambda: libc.syscall(425, 1, None),
    "keyctl": lambda: libc.syscall(250, 0, 0) if os.uname().machine == "x86_64" else -1,
    "a call of the future": lambda: libc.syscall(500),
    "die with parent no more": lambda: libc.prctl(1, 0, 0, 0, 0),
    "kill by thread": lambda: (
        libc.syscall(234, os.getpid(), os.getpid(), 9) if os.uname().machine == "x86_64" else -1
    ),
}.items():
    found[name] = call()
done = []
threads = [threading.Thread(target=done.append, args=(1,)) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps({"calls": found, "threads": len(done)}))
"""


def test_calls_that_widen_the_kernel_are_refused_and_threads_are_not() -> None:
    found = enclosed(access_rules(claim_user().user), code=BEYOND)
    assert set(found["calls"].values()) == {-1}
    assert found["threads"] == 4


THREADS = """
import threading
walls.enclose_family(rules, required)
walls.put_up(walls.process_walls(LIMITS._replace(threads=walls.THREADS), os.getppid()))
threading.stack_size(32768)
done, started = threading.Event(), 0
try:
    for started in range(1000): threading.Thread(target=done.wait, daemon=True).start()
except RuntimeError:
    pass
done.set()
print(json.dumps({"threads": started}))
"""


@needs_root
def test_a_user_of_its_own_has_so_many_threads_and_no_more() -> None:
    required = ("user",) if "namespaces" not in probe_isolation().walls else ("namespaces", "user")
    rules = access_rules(claim_user().user)
    assert 100 < enclosed(rules, (*required, *WITHOUT_NAMESPACES), code=THREADS)["threads"] < 256


def test_no_test_nor_data_of_ours_may_be_read() -> None:
    rules = access_rules(claim_user().user)
    for path in rules.readable:
        assert not os.path.realpath(__file__).startswith(os.path.realpath(path).rstrip("/") + "/")
        assert not path.endswith("site-packages")


@pytest.mark.parametrize(
    ("walls", "failed", "tier"),
    [
        (["namespaces", "user"], [], "A"),
        (["namespaces"], ["user", "group", "landlock"], "A"),
        (["user"], ["namespaces", "looking at files", "seeing processes"], "B"),
        ([], ["namespaces", "user", "looking at files", "seeing processes"], "C"),
        (["namespaces"], ["network"], "E"),
        (["user"], ["reading files"], "D"),
        ([], ["writing files", "landlock"], "D"),
        (["user"], ["processes", "reading files"], "E"),
        ([], ["other processes"], "E"),
        ([], ["limits"], "E"),
    ],
)
def test_the_tier_is_the_weakest_wall(walls: list[str], failed: list[str], tier: str) -> None:
    found = graded(walls, [], dict.fromkeys(failed, "got through"))
    assert found.tier == tier
    assert found.sound == (tier in "ABC")
    assert found.walls == tuple(walls)
    assert bool(found.advice) or tier in "ABC"


def test_the_advice_is_the_one_setting_that_is_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "/proc/sys/user/max_user_namespaces": "0",
        "/proc/self/status": "NoNewPrivs:\t0\nSeccomp:\t2\n",
    }
    monkeypatch.setattr(isolation, "read_text", lambda file: files.get(file, ""))
    assert advice("C", ["namespaces"]) == "for tier A: sudo sysctl user.max_user_namespaces=10000"
    files["/proc/sys/kernel/apparmor_restrict_unprivileged_userns"] = "1"
    assert "apparmor_restrict_unprivileged_userns=0" in advice("C", ["namespaces"])
    files.clear()
    assert advice("C", ["namespaces"]) == ""
    files["/proc/self/status"] = "NoNewPrivs:\t0\nSeccomp:\t2\n"
    assert "docker run --security-opt seccomp=unconfined" in advice("B", ["namespaces"])
    assert advice("A", []) == ""
