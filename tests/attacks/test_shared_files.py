"""Tests that share files with the program: what is carried, and what a program gets from trying to
reach beyond its folder, to plant or to forge. Each on tiers A and C.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from assay.judge import Job
from assay.judge import judge_all as judge_alone
from assay.sandbox.isolation import probe_isolation
from assay.sandbox.limits import Limits
from assay.types import Execution
from tests.judge.jobs import task

TIERS = {"A": (), "C": ("namespaces", "user", "group")}
"""Walls that are left out, to run as on a machine of that tier."""
COPY = "def f(): open('out', 'w').write(open('in').read())"
COPIES = "open('in', 'w').write('x')\nf()\nassert open('out').read() == 'x'"
EXPECTS = "open('right', 'w').write('x')\nf()\nassert open('out').read() == open('right').read()"
LISTS = "import os\nopen('in', 'w').write('x')\nf()\nassert sorted(os.listdir()) == ['in']"
GETS = "open('in', 'w').write('x')\nassert f() == 'held'"
DENIED = "def f():\n    try: {}\n    except OSError: return 'held'"
OWN_LOG = "def f():\n    with open('in', 'a') as log: log.write('!')"
LOGGED = "open('in', 'w').write('x')\nf()\nassert open('in').read() == 'x!'"

CARRIED = {
    "a file that the test reads": (COPIES, COPY),
    "bytes": (
        "open('in', 'wb').write(bytes(range(256)))\nf()\n"
        "assert open('out', 'rb').read() == bytes(range(256))",
        "def f(): open('out', 'wb').write(open('in', 'rb').read())",
    ),
    "folders": (
        "import os\nos.makedirs('a/b')\nf()\nassert os.listdir('a') == ['c']\nos.rmdir('a/c')\n"
        "assert f() is None and os.path.isdir('a/c')",
        "import os\ndef f():\n    if os.path.exists('a/b'): os.rmdir('a/b')\n    os.mkdir('a/c')",
    ),
    "what is removed": (
        "import os\nopen('in', 'w').write('x')\nf()\nassert not os.path.exists('in')",
        "import os\ndef f(): os.remove('in')",
    ),
    "what a call wrote before it raised": (
        "open('in', 'w').close()\ntry: f()\nexcept ValueError: pass\n"
        "assert open('out').read() == 'x'",
        "def f():\n    open('out', 'w').write('x')\n    raise ValueError",
    ),
    "permissions": (
        "import os\nopen('in', 'w').close()\nos.chmod('in', 0o444)\nassert f() == 'held'\n"
        "os.chmod('in', 0o644)\nassert f() is None",
        "def f():\n    try: open('in', 'w').close()\n    except PermissionError: return 'held'",
    ),
    "a database": (
        "import os\nf('a.db', 3)\nassert os.path.exists('a.db') and f('a.db', 4) == [(3,), (4,)]\n"
        "os.remove('a.db')\nassert f('a.db', 5) == [(5,)]",
        "import sqlite3\ndef f(name, n):\n    base = sqlite3.connect(name)\n"
        "    base.execute('create table if not exists t (n)')\n"
        "    base.execute('insert into t values (?)', (n,))\n    base.commit()\n"
        "    return base.execute('select n from t').fetchall()",
    ),
    "copies by shutil": (
        "import os\nos.mkdir('a')\nopen('a/in', 'w').write('x')\nf()\n"
        "assert open('b/in').read() == open('c').read() == 'x'",
        "import shutil\ndef f():\n    shutil.copytree('a', 'b')\n    shutil.copy2('a/in', 'c')",
    ),
}
"""By name: a test and a program that passes it that is not forgeable."""
NOT_CARRIED = {
    "a link to what only the machine has": (
        "import os\nopen('in', 'w').close()\nf()\nassert open('out').read()",
        "import os\ndef f(): os.symlink('/etc/passwd', 'out')",
    ),
    "a folder that is a link": (
        "import os\nos.makedirs('in')\nf()\nassert os.listdir('out')",
        "import os\ndef f(): os.symlink(os.path.dirname(os.__file__), 'out')",
    ),
    "a pipe or a device": (
        GETS.replace("== 'held'", "is None"),
        "import os, stat\ndef f():\n    os.mkfifo('pipe')\n"
        "    os.mknod('null', stat.S_IFCHR | 0o666, os.makedev(1, 3))",
    ),
    "a file of the program before": (
        "import os\nf()\nassert os.path.exists('secret')",
        "import os\ndef f(): open('out', 'w').write(str(os.listdir('.')))",
    ),
    "a reply of its own making, outside the folder": (
        GETS,
        "import os, struct\nfor at in range(2, 9):\n"
        '    body = b\'[%d, "value", 0, [[], [], [["../out", 420, {"bytes": "x"}]]]]\' % at\n'
        "    os.write(3, struct.pack('!I', len(body)) + body)\ndef f(): return 'held'",
    ),
    "a module in place of Python's": (
        "open('in', 'w').close()\nf()\nimport colorsys\nassert colorsys.rgb_to_hsv is None",
        "def f():\n    for name in ('colorsys.py', 'sitecustomize.py', 'pytest.py'):\n"
        "        open(name, 'w').write('rgb_to_hsv = None')",
    ),
    "the descriptor of the judge's own socket, as a name": (
        "name, text = f()\nopen(name, 'w').write(text)\nassert False",
        "import json, struct\nreport = {'checks': [['held', '']], 'failure': None}\n"
        "report |= {'setup_error': '', 'answers': [], 'forgeable': False, 'changes': []}\n"
        "def f():\n    body = '+' + json.dumps(report)\n"
        "    return 3, struct.pack('!I', len(body)).decode() + body",
    ),
    "files without end": (
        GETS,
        "def f():\n    n = 0\n    while True: open(str(n := n + 1), 'wb').write(b'x' * 999)",
    ),
    "one file without end": (
        GETS,
        "def f():\n    with open('out', 'wb') as file:\n"
        "        while True: file.write(bytes(1 << 20))",
    ),
    "folders without end": (
        GETS,
        "import os\ndef f():\n    for _ in range(3000):\n        os.mkdir('d')\n"
        "        os.chdir('d')\n    return 'held'",
    ),
    "a folder that hides what it holds": (
        GETS,
        "import os\ndef f():\n    os.mkdir('d', 0o300)\n    open('d/out', 'w').close()\n"
        "    folder = os.open('.', os.O_RDONLY)\n    os.fchmod(folder, 0)",
    ),
}
"""By name: a test, and a program that it must not let pass."""
KEPT_OUT = {
    "the test's own folder": "open('../companion/in', 'w')",
    "reading in the test's own folder": "open('../companion/in').read()",
    "the folder above": "open('../out', 'w')",
    "the machine's files": "open('/etc/hostname').read()",
    "other folders of the machine": "open('/tmp/assay-left', 'w')",
    "the test's folder, by a link": (
        "__import__('os').symlink('../companion', 'way'); open('way/in', 'w')"
    ),
    "the test's file, by a hard link": "__import__('os').link('../companion/in', 'out')",
    "other processes": "open('/proc/1/mem', 'rb')",
    "programs": "__import__('os').execv('./in', ['in'])",
}
"""By name: what raises OSError in a program."""
FORGED = {
    "what the test expects": (
        EXPECTS,
        "def f():\n    for name in ('right', 'out'): open(name, 'w').write('y')",
    ),
    "what the test expects, by a thread": (
        EXPECTS,
        "import threading, time\ndef go():\n    while True:\n"
        "        for name in ('right', 'out'): open(name, 'w').write('y')\n"
        "threading.Thread(target=go, daemon=True).start()\ndef f(): time.sleep(0.05)",
    ),
    "what the test would read in place of its own file": (
        "import os\nopen('right', 'w').write('x')\nf()\n"
        "if os.path.exists('right'): assert open('out').read() == open('right').read()",
        "import os\ndef f(): os.remove('right')",
    ),
}
"""By name: a test, and a program that may pass it if that is said to be forgeable."""
REFERENCES = {
    "which the reference changes too": (LOGGED, OWN_LOG, OWN_LOG, False),
    "which the reference does not change": (
        EXPECTS,
        "def f():\n    for name in ('right', 'out'): open(name, 'w').write('y')",
        "def f(): open('out', 'w').write('x')",
        True,
    ),
    "beside that which the reference changes": (
        "open('right', 'w').write('x!')\n"
        + LOGGED.replace("== 'x!'", "== open('right').read()"),
        "def f():\n    for name in ('right', 'in'): open(name, 'w').write('y')",
        OWN_LOG,
        True,
    ),
    "in a database that the test reads": (
        "import sqlite3\nf()\nbase = sqlite3.connect('a.db')\n"
        "assert base.execute('select n from t').fetchall() == [(3,)]",
        *2 * ("import sqlite3\ndef f():\n    base = sqlite3.connect('a.db')\n"
              "    base.executescript('create table t (n); insert into t values (3)')",),
        True,
    ),
}  # fmt: skip
"""By name: a test, a program that passes, the reference, and whether that is forgeable."""
UNSAFE = "import pickle\nf()\nassert pickle.load(open('out', 'rb')) == 3"
NAMES = [*CARRIED, *NOT_CARRIED, *KEPT_OUT, *FORGED, *REFERENCES, "pickle", "secret"]


def jobs() -> dict[str, Job]:
    found = {"secret": Job(task("f", COPIES), f"{COPY}\nopen('secret', 'w').write('x')")}
    for name, (check, program) in (CARRIED | NOT_CARRIED | FORGED).items():
        found[name] = Job(task("f", check), program)
    for name, code in KEPT_OUT.items():
        found[name] = Job(task("f", GETS), DENIED.format(code))
    for name, (check, program, reference, _) in REFERENCES.items():
        found[name] = Job(task("f", check, reference=reference), f"{program}\n# again")
    plants = "import pickle\ndef f(): pickle.dump(3, open('out', 'wb'))"
    found["pickle"] = Job(task("f", UNSAFE), plants)
    return found


@pytest.fixture(scope="module", params=["A", pytest.param("C", marks=pytest.mark.long)])
def executions(request: pytest.FixtureRequest) -> Iterator[dict[str, Execution]]:
    found = probe_isolation()
    walls = tuple(wall for wall in found.walls if wall not in TIERS[request.param])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("assay.judge.judge.probe_isolation", lambda: replace(found, walls=walls))
        ordered = jobs()
        limits = Limits(cpu_seconds=0.5, wall_seconds=5)
        yield dict(zip(ordered, judge_alone(list(ordered.values()), limits, 1), strict=True))


@pytest.mark.parametrize("name", CARRIED)
def test_files_are_carried_both_ways(name: str, executions: dict[str, Execution]) -> None:
    execution = executions[name]
    forgeable = name in ("what is removed", "folders")
    assert (execution.verdict, execution.detail, execution.forgeable) == ("pass", "", forgeable)


@pytest.mark.parametrize("name", NOT_CARRIED)
def test_nothing_but_plain_files_crosses(name: str, executions: dict[str, Execution]) -> None:
    assert executions[name].verdict not in ("pass", "infra", "unjudged"), executions[name]


@pytest.mark.parametrize("name", KEPT_OUT)
def test_a_program_reaches_no_folder_but_its_own(
    name: str, executions: dict[str, Execution]
) -> None:
    assert executions[name].verdict == "pass", executions[name]


@pytest.mark.parametrize("name", FORGED)
def test_a_file_of_the_tests_that_a_program_changes_makes_a_pass_forgeable(
    name: str, executions: dict[str, Execution]
) -> None:
    assert executions[name].verdict != "pass" or executions[name].forgeable


@pytest.mark.parametrize("name", REFERENCES)
def test_a_reference_allows_the_changes_of_files_that_it_makes_itself(
    name: str, executions: dict[str, Execution]
) -> None:
    assert (executions[name].verdict, executions[name].forgeable) == ("pass", REFERENCES[name][3])


def test_a_test_that_could_run_what_a_program_wrote_shares_nothing(
    executions: dict[str, Execution],
) -> None:
    assert (executions["pickle"].verdict, executions["secret"].verdict) == ("unjudged", "pass")
