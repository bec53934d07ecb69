"""Ordinary values of the standard library cross as what they are, in both directions."""

from __future__ import annotations

import pytest

from assay.judge import Job
from assay.types import Cause, Check, Execution, Task, Verdict
from tests.judge.opened import judge_all

RAISES = "try: f()\nexcept {} as error: assert {}\nelse: assert False"
CASES = {
    "the notes of an error": (RAISES.format("ValueError", "error.__notes__ == ['n']"),
                              "def f():\n    error = ValueError('x')\n"
                              "    error.add_note('n')\n    raise error"),
    "the number of an error": (RAISES.format("OSError", "error.errno == 2"),
                               "def f(): open('no such file')"),
    "a group of errors": (RAISES.format("ExceptionGroup", "len(error.exceptions) == 1"),
                          "def f(): raise ExceptionGroup('g', [ValueError()])"),
    "the place of an error": (
        "import json\n" + RAISES.format("json.JSONDecodeError",
                                        "error.pos == 0 and str(error).startswith('Expect')"),
        "import json\ndef f(): json.loads('x')"),
    "the fields of an error of Python's": (
        "import subprocess\n" + RAISES.format("subprocess.CalledProcessError",
                                              "error.returncode == 3 and '3' in str(error)"),
        "import subprocess\ndef f(): raise subprocess.CalledProcessError(3, ['a'])"),
    "an attribute of a plain error": (RAISES.format("ValueError", "error.code == 7"),
                                      "def f():\n    error = ValueError('x')\n"
                                      "    error.code = 7\n    raise error"),
    "a frozen field": (RAISES.format("FrozenInstanceError", "str(error)").replace(
        "try", "from dataclasses import FrozenInstanceError\ntry", 1),
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass P:\n    x: int\n"
        "def f(): P(1).x = 2"),
    "an error of any module": (RAISES.format("tomllib.TOMLDecodeError", "str(error)").replace(
        "try", "import tomllib\ntry", 1), "import tomllib\ndef f(): tomllib.loads('=')"),
    "bytes in a view": ("assert f() == b'abc' and f()[0] == 97",
                        "def f(): return memoryview(b'abc')"),
    "a view of an array": ("assert f().tolist() == [1, 300]",
                           "import array\ndef f():\n"
                           "    return memoryview(array.array('i', [1, 300])).toreadonly()"),
    "a view of a dict": ("assert f() == {'a': 1}",
                         "import types\ndef f(): return types.MappingProxyType({'a': 1})"),
    "a text in an object": ("assert f() == 'a'",
                            "from collections import UserString\ndef f(): return UserString('a')"),
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
ARRAYS = {
    "the shape of an array": ("x = f()\nassert x.shape == (2,)",
                              "import numpy as np\ndef f(): return np.zeros(2)"),
    "an array compared with a number": ("x = f()\nassert all(x['a'] > 0)",
                                        "import numpy as np\ndef f(): return {'a': np.ones(2)}"),
    "the sum of an array": ("assert f().sum() == 2",
                            "import numpy as np\ndef f(): return np.ones(2)"),
}  # fmt: skip
"""By name: a test that takes an answer for an array without importing numpy, and a right program.
"""
MISUSED = {
    "a compiled expression": ("import re\nx = f()\nassert x == re.compile('a+')",
                              "import re\ndef f(): return re.compile('a+')"),
}  # fmt: skip
"""By name: a test, and a right program whose answer does not cross as what it is."""
UNREACHED = {
    "a patched module": ("from unittest.mock import patch\n"
                         "with patch('time.time', return_value=5): assert f() == 5",
                         "import time\ndef f(): return time.time()"),
    "a replaced function of a module": ("import time\ntime.time = lambda: 5\nassert f() == 5",
                                        "import time\ndef f(): return time.time()"),
    "the environment": ("import os\nos.environ['A'] = 'b'\nassert f() == 'b'",
                        "import os\ndef f(): return os.environ.get('A')"),
    "the command line": ("import sys\nsys.argv = ['p', 'x']\nassert f() == ['p', 'x']",
                         "import sys\ndef f(): return sys.argv"),
    "logs": ("import unittest\nwith unittest.TestCase().assertLogs('a') as seen:\n    f()\n"
             "assert seen.output == ['WARNING:a:hi']",
             "import logging\ndef f(): logging.getLogger('a').warning('hi')"),
    "warnings": ("import warnings\nwith warnings.catch_warnings(record=True) as seen:\n    f()\n"
                 "assert len(seen) == 1", "import warnings\ndef f(): warnings.warn('x')"),
    "an expected warning": ("import unittest\n"
                            "with unittest.TestCase().assertWarns(UserWarning): f()",
                            "import warnings\ndef f(): warnings.warn('x')"),
    "a pickled instance": ("import pickle\np = Seq(3)\n"
                           "assert pickle.loads(pickle.dumps(p)).x == 3",
                           "class Seq:\n    def __init__(self, x): self.x = x"),
    "a dataclass as a dict": ("from dataclasses import asdict\nassert asdict(f()) == {'x': 1}",
                              "from dataclasses import dataclass\n@dataclass\nclass P:\n"
                              "    x: int\ndef f(): return P(1)"),
    "source code": ("import inspect\nassert 'return' in inspect.getsource(f)",
                    "def f(): return 1"),
    "the context of an error": (RAISES.format("ValueError", "error.__context__"),
                                "def f():\n    try: {}['a']\n"
                                "    except KeyError: raise ValueError('x')"),
    "an error of text": (RAISES.format("UnicodeDecodeError", "error.start == 0"),
                         "def f(): b'\\xff'.decode()"),
}  # fmt: skip
UNPROVEN = {
    "a UserDict changed in place": (
        "from collections import UserDict\nd = UserDict(a=1)\nf(d)\nassert d['b'] == 2",
        "def f(d): d['b'] = 2"),
    "a UserList changed in place": (
        "from collections import UserList\nd = UserList([1])\nf(d)\nassert list(d) == [1, 2]",
        "def f(d): d.append(2)"),
    "a list that comes to contain itself": ("d = [1]\nf(d)\nassert d[1] is d",
                                            "def f(d): d.append(d)"),
    "an argument of a class of the test's": (
        "from enum import IntEnum\nclass Level(IntEnum):\n    LOW = 1\n"
        "assert f(Level.LOW) == 'LOW'", "def f(level): return level.name"),
    "an object that records its calls": (
        "from unittest.mock import MagicMock\nm = MagicMock()\nm.get.return_value = 5\n"
        "assert f(m) == 5", "def f(o): return o.get()"),
    "twice an array": ("assert (f() * 2)[0] == 2",
                       "import numpy as np\ndef f(): return np.ones(2)"),
    "a frame": ("assert all(f()['a'] > 0)",
                "import pandas as pd\ndef f(): return pd.DataFrame({'a': [1, 2]})"),
    "a namespace": ("from types import SimpleNamespace as N\nassert f() == N(a=1)",
                    "from types import SimpleNamespace\ndef f(): return SimpleNamespace(a=1)"),
    "a chain of dicts": ("from collections import ChainMap\nassert f() == ChainMap({'a': 1})",
                         "from collections import ChainMap\ndef f(): return ChainMap({'a': 1})"),
    "a tree of code": ("import ast\nassert ast.dump(f())",
                       "import ast\ndef f(): return ast.parse('x')"),
    "a module": ("assert f().pi > 3", "import math\ndef f(): return math"),
    "a match": ("assert f().group() == 'a'", "import re\ndef f(): return re.match('a', 'ab')"),
}  # fmt: skip
"""By name: a test, and a right program of which something does not cross as what it is."""
OF_DATA_ALONE = {"a list that comes to contain itself", "twice an array"}
"""Tests that say nothing of more than data: without a reference, such programs are wrong."""
THREADS = {
    "a pool": "from concurrent.futures import ThreadPoolExecutor\n"
              "with ThreadPoolExecutor(4) as pool: done = list(pool.map(f, range(40)))\n"
              "assert done == [x * 2 for x in range(40)]",
    "coroutines": "import asyncio\nasync def run():\n"
                  "    return await asyncio.gather(*[asyncio.to_thread(f, x) for x in range(20)])\n"
                  "assert asyncio.run(run()) == [x * 2 for x in range(20)]",
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


OWN_FILES = {
    "open": "def f(x):\n    with open('a', 'w') as file: file.write(x)\n"
            "    return open('a').read()",
    "json": "import json\ndef f(x):\n    with open('a', 'w') as file: json.dump(x, file)\n"
            "    return json.load(open('a'))",
    "a Path": "from pathlib import Path\ndef f(x):\n    Path('d').mkdir()\n"
              "    Path('d/a').write_text(x)\n    return Path('d/a').read_text()",
    "a temporary file": "import tempfile\ndef f(x):\n"
                        "    with tempfile.TemporaryFile('w+') as file:\n"
                        "        file.write(x)\n        file.seek(0)\n        return file.read()",
    "a temporary folder": "import os, tempfile\ndef f(x):\n"
                          "    with tempfile.TemporaryDirectory() as folder:\n"
                          "        path = os.path.join(folder, 'a')\n"
                          "        open(path, 'w').write(x)\n        return open(path).read()",
    "a database": "import sqlite3\ndef f(x):\n    db = sqlite3.connect('a')\n"
                  "    db.execute('create table t (a)')\n"
                  "    db.execute('insert into t values (?)', x)\n"
                  "    return db.execute('select * from t').fetchone()[0]",
    "an array": "import numpy as np\ndef f(x):\n    np.save('a.npy', np.array([x]))\n"
                "    return str(np.load('a.npy')[0])",
}  # fmt: skip
"""By name: a program that saves and loads its own file."""


@pytest.mark.parametrize("has_reference", [False, True])
@pytest.mark.parametrize("name", OWN_FILES)
def test_a_program_has_files_of_its_own(name: str, has_reference: bool) -> None:
    program = OWN_FILES[name]
    reference = "def f(x): return x" if has_reference else None
    check = "x = f('3')\nassert x == '3'"
    right, wrong = judged(check, program, f"{program} + '!'", reference=reference)
    assert (right.verdict, right.forgeable) == (Verdict.PASS, False), right
    assert wrong.verdict is Verdict.WRONG


def test_a_class_loads_what_it_has_saved() -> None:
    program = (
        "import json\nclass Seq:\n    def __init__(self): self.x = []\n"
        "    def save(self, path):\n        with open(path, 'w') as file: json.dump(self.x, file)\n"
        "    def load(self, path): self.x = json.load(open(path))"
    )
    check = "a, b = Seq(), Seq()\na.x = [1]\na.save('b.json')\nb.load('b.json')\nassert b.x == [1]"
    (right,) = judged(check, program)
    assert (right.verdict, right.forgeable) == (Verdict.PASS, False), right


@pytest.mark.parametrize("name", ARRAYS)
def test_a_test_that_asks_for_an_array_gets_one(name: str) -> None:
    pytest.importorskip("numpy")
    check, program = ARRAYS[name]
    wrong = program.replace("ones", "zeros") if "ones" in program else "def f(): return None"
    right, *others = judged(check, program, wrong, "def f(): return object()")
    assert (right.verdict, right.forgeable) == (Verdict.PASS, False), right
    assert {it.verdict for it in others} <= {Verdict.WRONG, Verdict.ERROR}, others


@pytest.mark.parametrize("name", MISUSED)
def test_what_does_not_cross_as_what_it_is_is_not_judged_rather_than_wrong(name: str) -> None:
    check, program = MISUSED[name]
    (execution,) = judged(check, program)
    assert execution.verdict is Verdict.UNJUDGED
    assert execution.cause is Cause.CARRY


@pytest.mark.parametrize("name", UNPROVEN)
def test_what_crosses_as_less_than_it_is_never_makes_a_right_program_wrong(name: str) -> None:
    check, program = UNPROVEN[name]
    if "pandas" in program:
        pytest.importorskip("pandas")
    alone = [] if name in OF_DATA_ALONE else judged(check, program)
    for right in alone + judged(check, f"{program}\n", reference=program):
        assert right.verdict in (Verdict.PASS, Verdict.UNJUDGED), right
        assert right.passed or right.cause in (Cause.CARRY, Cause.REFERENCE)


@pytest.mark.parametrize(
    "answer",
    ["__import__('re').compile('a')", "__import__('types').SimpleNamespace()", "Own()",
     "__import__('numpy').ones(2)"],
)  # fmt: skip
def test_a_wrong_program_cannot_choose_not_to_be_judged(answer: str) -> None:
    if "numpy" in answer:
        pytest.importorskip("numpy")
    own = "class Own:\n    __module__ = 'x'\n    def __eq__(self, other): return False\n"
    for check in ("assert f(2) == 4", "import math\nassert math.sqrt(f(2)) + 1 == 3",
                  "assert f(2).strip() == 'a'"):  # fmt: skip
        (wrong,) = judged(check, f"{own}def f(x): return {answer}")
        assert wrong.verdict in (Verdict.WRONG, Verdict.ERROR), (check, wrong)


@pytest.mark.parametrize("name", THREADS)
def test_threads_of_a_test_ask_the_program_one_after_the_other(name: str) -> None:
    right, wrong = judged(THREADS[name], "def f(x): return x * 2", "def f(x): return x")
    assert (right.verdict, right.forgeable) == (Verdict.PASS, False), right
    assert wrong.verdict is Verdict.WRONG


def test_threads_may_share_an_object_of_the_programs() -> None:
    check = (
        "from threading import Thread\nc = Seq()\nmany = [Thread(target=c.add) for _ in "
        "range(20)]\n"
        "[one.start() for one in many]\n[one.join() for one in many]\nassert c.n == 20"
    )
    program = "class Seq:\n    n = 0\n    def add(self): self.n += 1"
    (right,) = judged(check, program)
    assert right.verdict is Verdict.PASS, right


@pytest.mark.parametrize("name", UNREACHED)
def test_what_does_not_reach_the_program_is_not_judged_rather_than_wrong(name: str) -> None:
    check, program = UNREACHED[name]
    (execution,) = judged(check, program)
    assert execution.verdict is Verdict.UNJUDGED
    assert execution.cause is Cause.CARRY


def test_a_program_is_wrong_where_its_reference_passes_a_test_with_patches() -> None:
    check = "from unittest.mock import patch\nwith patch('time.sleep'):\n    assert f() == 5"
    right, wrong = judged(
        check, "def f(): return 5", "def f(): return 6", reference="def f(): return 5"
    )
    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.WRONG)


def test_a_program_finds_no_file_of_the_one_before_and_no_test_imports_one() -> None:
    leaves = "def f():\n    open('colorsys.py', 'w').write('here = 1')\n    return [1]"
    lists = "import os, tempfile\ndef f(): return os.listdir('.')"
    check = "x = f()\nimport colorsys\nassert not hasattr(colorsys, 'here') and x == []"
    executions = judged(check, *[f"{one} # {n}" for n in range(8) for one in (leaves, lists)])
    assert [run.verdict for run in executions] == [Verdict.WRONG, Verdict.PASS] * 8
