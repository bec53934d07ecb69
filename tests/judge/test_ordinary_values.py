"""Ordinary values of the standard library cross as what they are, in both directions."""

from __future__ import annotations

import pytest

from assay.judge import Job
from assay.types import Check, Execution, Task, Verdict
from tests.judge.opened import judge_all

CASES = {
    "a UUID": ("import uuid\nassert f(uuid.UUID(int=4)) == uuid.UUID(int=5)",
               "import uuid\ndef f(x): return uuid.UUID(int=x.int + 1)"),
    "a path": ("from pathlib import Path\nassert f(Path('a')) == Path('a/b')",
               "def f(x): return x / 'b'"),
    "a pure path": ("from pathlib import PurePosixPath\nassert f('a') == PurePosixPath('a')",
                    "from pathlib import PurePosixPath\ndef f(x): return PurePosixPath(x)"),
    "a time zone": ("from datetime import timezone\nassert f(timezone.utc) == timezone.utc",
                    "def f(x): return x"),
    "a named time zone": (
        "from datetime import timedelta, timezone\n"
        "z = timezone(timedelta(hours=2), 'X')\nassert f(z) == ('X', z)",
        "def f(x): return x.tzname(None), x"),
    "a time with a zone": (
        "from datetime import datetime, timezone\n"
        "assert f(2020) == datetime(2020, 1, 1, tzinfo=timezone.utc)",
        "from datetime import datetime, timezone\n"
        "def f(x): return datetime(x, 1, 1, tzinfo=timezone.utc)"),
    "a struct_time": ("import time\nassert f(time.gmtime(0)) == (1970, time.gmtime(0))",
                      "def f(x): return x.tm_year, x"),
    "a slice": ("assert f(slice(1, 3)) == ([2, 3], slice(3, 1))",
                "def f(x): return [1, 2, 3][x], slice(x.stop, x.start)"),
    "a slice of an object": ("s = Seq([1, 2, 3])\nassert s[1:] == [2, 3] and s[::-1] == [3, 2, 1]",
                             "class Seq:\n    def __init__(s, x): s.x = x\n"
                             "    def __getitem__(s, at): return s.x[at]"),
    "a named tuple of the test's": (
        "from collections import namedtuple\nP = namedtuple('P', 'x y')\n"
        "assert f(P(1, [2])) == 3 and f(P(x=3, y=[4])) == 7",
        "def f(p): return p.x + p.y[0]"),
    "what a generator returns": (
        "g = f(2)\nassert list(g) == [0, 1]\ng = f(1)\nnext(g)\n"
        "try:\n    next(g)\n    assert False\nexcept StopIteration as end:\n"
        "    assert end.value == 'all'",
        "def f(n):\n    yield from range(n)\n    return 'all'"),
    "a docstring": ("assert f.__doc__ == 'Doubles.' and f(1) == 2",
                    "def f(x):\n    'Doubles.'\n    return 2 * x"),
    "annotations": ("assert f.__annotations__ == {'x': int, 'return': str} and f(1) == '1'",
                    "def f(x: int) -> str: return str(x)"),
    "standard error": (
        "import contextlib, io\nout = io.StringIO()\nwith contextlib.redirect_stderr(out):\n"
        "    f(3)\nassert out.getvalue() == '3\\n'",
        "import sys\ndef f(x): print(x, file=sys.stderr)"),
    "the code of an exit": (
        "try:\n    f()\n    assert False\nexcept SystemExit as end:\n    assert end.code == 3",
        "import sys\ndef f(): sys.exit(3)"),
    "the cause of an error": (
        "try:\n    f()\n    assert False\nexcept ValueError as error:\n"
        "    assert str(error.__cause__) == \"'a'\" and type(error.__cause__) is KeyError",
        "def f():\n    try: {}['a']\n    except KeyError as why: raise ValueError('x') from why"),
    "an error thrown into a generator": (
        "g = f()\nassert next(g) == 1\nassert g.throw(ValueError('x')) == 'got x'",
        "def f():\n    try: yield 1\n    except ValueError as error: yield f'got {error}'"),
    "an error thrown through a generator": (
        "g = f()\nassert next(g) == 1\ntry:\n    g.throw(KeyError('x'))\n    assert False\n"
        "except KeyError: pass", "def f(): yield 1"),
    "a UserDict": ("assert f() == {'a': 1} and f()['a'] == 1",
                   "from collections import UserDict\ndef f(): return UserDict(a=1)"),
    "a UserList": ("x = f()\nassert x == [1] and len(x) == 1",
                   "from collections import UserList\ndef f(): return UserList([1])"),
    "a test that imports pytest": (
        "import pytest\nx = f(3)\nassert x == pytest.approx(0.3)", "def f(x): return x / 10"),
}  # fmt: skip
MISUSED = {
    "the shape of an array": ("x = f()\nassert x.shape == (2,)",
                              "import numpy as np\ndef f(): return np.zeros(2)"),
    "an array compared with a number": ("x = f()\nassert all(x['a'] > 0)",
                                        "import numpy as np\ndef f(): return {'a': np.ones(2)}"),
    "a compiled expression": ("import re\nx = f()\nassert x == re.compile('a+')",
                              "import re\ndef f(): return re.compile('a+')"),
}  # fmt: skip
"""By name: a test, and a right program whose answer does not cross as what it is."""
UNREACHED = {
    "a patched module": ("from unittest.mock import patch\n"
                         "with patch('time.time', return_value=5): assert f() == 5",
                         "import time\ndef f(): return time.time()"),
    "logs": ("import unittest\nwith unittest.TestCase().assertLogs('a') as seen:\n    f()\n"
             "assert seen.output == ['WARNING:a:hi']",
             "import logging\ndef f(): logging.getLogger('a').warning('hi')"),
}  # fmt: skip


def judged(check: str, *programs: str, reference: str | None = None) -> list[Execution]:
    entry_point = "Seq" if "Seq" in check else "f"
    task = Task("t", "", (Check(check),), entry_point, reference=reference)
    return judge_all([Job(task, program) for program in programs])


@pytest.mark.parametrize("name", CASES)
def test_an_ordinary_value_crosses_as_what_it_is(name: str) -> None:
    check, program = CASES[name]
    right, wrong = judged(check, program, "def f(*a): return None")
    assert (right.verdict, right.forgeable) == (Verdict.PASS, False), right
    assert wrong.verdict in (Verdict.WRONG, Verdict.ERROR, Verdict.NO_CODE)


def test_a_program_has_files_of_its_own_where_its_reference_opens_some() -> None:
    reference = (
        "def f(x):\n    with open('a', 'w') as file: file.write(str(x))\n"
        "    return open('a').read()"
    )
    check = "x = f(3)\nassert x == '3'"
    right, wrong = judged(check, f"{reference}\n# again", f"{reference} + '!'", reference=reference)
    assert (right.verdict, right.forgeable) == (Verdict.PASS, False)
    assert wrong.verdict is Verdict.WRONG


@pytest.mark.parametrize("name", MISUSED)
def test_what_does_not_cross_as_what_it_is_is_not_judged_rather_than_wrong(name: str) -> None:
    check, program = MISUSED[name]
    (execution,) = judged(check, program)
    assert execution.verdict is Verdict.INFRA
    assert execution.detail.startswith("cannot be judged: this test ")


@pytest.mark.parametrize("name", UNREACHED)
def test_what_does_not_reach_the_program_is_not_judged_rather_than_wrong(name: str) -> None:
    check, program = UNREACHED[name]
    (execution,) = judged(check, program)
    assert execution.verdict is Verdict.INFRA
    assert execution.detail.startswith("cannot be judged: this test patches modules")


def test_a_program_is_wrong_where_its_reference_passes_a_test_with_patches() -> None:
    check = "from unittest.mock import patch\nwith patch('time.sleep'):\n    assert f() == 5"
    right, wrong = judged(
        check, "def f(): return 5", "def f(): return 6", reference="def f(): return 5"
    )
    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.WRONG)
