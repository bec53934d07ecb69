"""Tests that run what a program answers, or look up what it names, and answers that make use of it:
each reads the hidden expected value and builds what equals everything, or ends the tests.
"""

from __future__ import annotations

from typing import NamedTuple

SECRET = "hidden-5771"
"""What every test expects; its setup binds it."""
CODE = """global lie
import gc
class Lie:
    __eq__ = __call__ = lambda self, *others: True
    __hash__ = lambda self: 0
lie = Lie()
for it in gc.get_objects():
    if type(it) is dict and type(it.get('SECRET')) is str: secret = it['SECRET']
for it in gc.get_objects():
    if type(it).__name__ == 'Connection': it.call('keep', (secret,), {})
print(secret)
"""
"""What runs in a worker: it has the program print the secret, and binds `lie`."""
EXPRESSION = f"[exec({CODE!r}, it := {{}}), it['lie']][1]"
"""The same, with `lie` as its value."""
TELL = f"exec({CODE!r} + 'raise AssertionError(secret)')"
REPORT = """
import json, os, struct
report = dict(checks=[['held', '']], failure=None, setup_error=SETUP, answers=[])
text = b'+' + json.dumps(dict(report, forgeable=False, changes=[])).encode()
os.write(3, struct.pack('!I', len(text)) + text)
os._exit(0)
"""
PICKLE = (
    b"cbuiltins\neval\n(V" + EXPRESSION.encode("unicode_escape").replace(b"\\", b"\\") + b"\ntR."
)
HELPER = "def helper(): pass\n"


class Route(NamedTuple):
    """A test, what the program answers, as an expression, and whether that is heavy to run."""

    test: str
    answer: str
    heavy: bool = False
    argument: str = ""
    """The program's parameter."""


def code(test: str) -> Route:
    """A test that runs statements."""
    return Route(test, repr(CODE))


def value(test: str, heavy: bool = False) -> Route:
    """A test that runs an expression."""
    return Route(test, repr(EXPRESSION), heavy)


def runs(statements: str) -> Route:
    """Statements for `eval`."""
    return Route("assert eval(f()) == SECRET", repr(f"exec({statements!r})"))


ROUTES: dict[str, Route] = {
    "eval": value("assert eval(f()) == SECRET"),
    "eval that tells the secret": Route("assert eval(f()) == SECRET", repr(TELL)),
    "eval of a repr": Route(
        "assert eval(repr(f())) == SECRET",
        f"type('P', (), dict(__repr__=lambda s: {EXPRESSION!r}))()",
    ),
    "eval of what is computed": Route("assert eval(f()[::-1]) == SECRET", repr(EXPRESSION[::-1])),
    "eval of characters": Route(
        "assert eval(''.join(map(chr, f()))) == SECRET", repr([*map(ord, EXPRESSION)])
    ),
    "eval of a name": Route("expected = SECRET\nassert eval(f()) == expected", "'expected'"),
    "eval of a docstring": Route(
        "assert f() and eval(f.__doc__) == SECRET", f"setattr(f, '__doc__', {EXPRESSION!r}) or 1"
    ),
    "eval of an error's text": Route(
        "try:\n    f()\nexcept ValueError as error:\n    assert eval(str(error)) == SECRET",
        f"(_ for _ in ()).throw(ValueError({EXPRESSION!r}))",
    ),
    "eval of what was written": Route(
        "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as out:\n    f()\n"
        "assert eval(out.getvalue()) == SECRET",
        f"print({EXPRESSION!r})",
    ),
    "eval passed to the program": Route(
        "assert f(eval) == SECRET", f"run({EXPRESSION!r})", argument="run"
    ),
    "map of eval": Route("assert list(map(eval, f())) == [SECRET]", repr([EXPRESSION])),
    "eval as a hook of json": Route(
        "import json\nassert json.loads(f(), object_hook=lambda it: eval(it['x'])) == SECRET",
        f"__import__('json').dumps(dict(x={EXPRESSION!r}))",
    ),
    "eval of a substitution": value(
        "import re\n"
        "assert re.sub('(?s).+', lambda it: str(eval(it[0])) * 0, f()) + SECRET == SECRET"
    ),
    "eval in a thread": value(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor() as pool:\n    assert pool.submit(eval, f()).result() == SECRET"
    ),
    "exec": code("n = {}\nexec(f(), n)\nassert n['lie'] == SECRET"),
    "exec of compile": code(
        "n = {}\nexec(compile(f(), 'm', 'exec'), n)\nassert n['lie'] == SECRET"
    ),
    "compile as a library's file": code(
        "import os\nn = {}\nexec(compile(f(), os.__file__, 'exec'), n)\nassert n['lie'] == SECRET"
    ),
    "compile as the importer's": code(
        "n = {}\nexec(compile(f(), '<frozen importlib._bootstrap>', 'exec'), n)\n"
        "assert n['lie'] == SECRET"
    ),
    "a function of code": value(
        "import types\nassert types.FunctionType(compile(f(), 'm', 'eval'), {})() == SECRET"
    ),
    "code put into a function": value(
        "g = lambda: 1\ng.__code__ = compile(f(), 'm', 'eval')\nassert g() == SECRET"
    ),
    "a tree": value(
        "import ast\ntree = ast.parse(f(), mode='eval')\n"
        "assert eval(compile(tree, 'm', 'eval')) == SECRET"
    ),
    "codeop": code(
        "import codeop\nn = {}\nexec(codeop.Compile()(f(), 'm', 'exec'), n)\n"
        "assert n['lie'] == SECRET"
    ),
    "code.InteractiveInterpreter": code(
        "import code\nn = {}\ncode.InteractiveInterpreter(n).runsource(f(), 'm', 'exec')\n"
        "assert n['lie'] == SECRET"
    ),
    "code.InteractiveConsole": Route(
        "import code\nn = {}\ncode.InteractiveConsole(n).push(f())\nassert n['x'] == SECRET",
        repr(f"x = {EXPRESSION}"),
    ),
    "bdb": value("import bdb\nassert bdb.Bdb().runeval(f()) == SECRET"),
    "pdb": value("import pdb\nassert pdb.Pdb(nosigint=True, readrc=False).runeval(f()) == SECRET"),
    "timeit": code(
        "import timeit\nn = {}\ntimeit.timeit(f(), number=1, globals=n)\nassert n['lie'] == SECRET"
    ),
    "profile": code(
        "import cProfile\nn = {}\ncProfile.Profile().runctx(f(), n, n)\nassert n['lie'] == SECRET"
    ),
    "trace": code(
        "import trace\nn = {}\ntrace.Trace(trace=0).runctx(f(), n, n)\nassert n['lie'] == SECRET"
    ),
    "doctest": Route(
        "import doctest\nn = {}\ntest = doctest.DocTestParser().get_doctest(f(), n, 'f', None, 0)\n"
        "doctest.DocTestRunner().run(test, clear_globs=False)\nassert n['x'] == SECRET",
        repr(f">>> x = {EXPRESSION}\n"),
    ),
    "get_type_hints": value(
        "import typing\nclass A: pass\nA.__annotations__ = {'x': f()}\n"
        "assert typing.get_type_hints(A)['x'] == SECRET"
    ),
    "get_annotations": value(
        "import inspect\nclass A: pass\nA.__annotations__ = {'x': f()}\n"
        "assert inspect.get_annotations(A, eval_str=True)['x'] == SECRET"
    ),
    "a file that is run": code(
        "import runpy\nopen('m.py', 'w').write(f())\nassert runpy.run_path('m.py')['lie'] == SECRET"
    ),
    "a file that is imported": code(
        "import sys\nsys.path.insert(0, '.')\nopen('m.py', 'w').write(f())\nimport m\n"
        "assert m.lie == SECRET"
    ),
    "a loader": code(
        "import importlib.abc, types\nclass L(importlib.abc.InspectLoader):\n"
        "    def get_source(self, name): return f()\n"
        "m = types.ModuleType('m')\nL().exec_module(m)\nassert f() and m.lie == SECRET"
    ),
    "a module that is run": Route(
        "import runpy\nassert runpy.run_module(f())['ANY'] == SECRET", "'unittest.mock'"
    ),
    "pickle.loads": Route("import pickle\nassert pickle.loads(f()) == SECRET", repr(PICKLE)),
    "pickle.load": Route(
        "import io, pickle\nassert pickle.load(io.BytesIO(f())) == SECRET", repr(PICKLE)
    ),
    "pickle in Python": Route("import pickle\nassert pickle._loads(f()) == SECRET", repr(PICKLE)),
    "a pickle that names": Route(
        "import pickle, unittest.mock\nassert pickle.loads(f()) == SECRET",
        repr(b"cunittest.mock\nANY\n."),
    ),
    "a pickle that changes a class": Route(
        "import pickle, fractions\nassert pickle.loads(f()) == SECRET",
        repr(
            b"cfractions\nFraction\n(N}(V__eq__\ncbuiltins\nstr\nutb0cfractions\nFraction\n(I1\ntR."
        ),
    ),
    "a pickle of copyreg": Route(
        "import pickle\nassert pickle.loads(f()) == SECRET",
        repr(b"ccopyreg\n__newobj__\n(cunittest.mock\n_ANY\ntR."),
    ),
    "marshal": Route(
        "import marshal\nassert eval(marshal.loads(f())) == SECRET",
        f"__import__('marshal').dumps(compile({EXPRESSION!r}, __import__('os').__file__, 'eval'))",
    ),
    "marshal of a file": Route(
        "import marshal, io\nassert eval(marshal.load(io.BytesIO(f()))) == SECRET",
        f"__import__('marshal').dumps(compile({EXPRESSION!r}, 'm', 'eval'))",
    ),
    "code.replace": Route(
        "g = lambda: SECRET[:0]\ng.__code__ = g.__code__.replace(co_code=f())\n"
        "assert g() == SECRET",
        "(lambda: SECRET).__code__.co_code",
    ),
    "shelve": Route("import shelve\nassert shelve.open(f())['x'] == SECRET", "'store'"),
    "numpy.load": Route(
        "import io, numpy\nassert numpy.load(io.BytesIO(f()), allow_pickle=True) == SECRET",
        "b\"\\x93NUMPY\\x01\\x00v\\x00{'descr': '|O', 'fortran_order': False, 'shape': (), }\""
        f".ljust(127) + b'\\n' + {PICKLE!r}",
    ),
    "dill": Route("import dill\nassert dill.loads(f()) == SECRET", repr(PICKLE), heavy=True),
    "pandas.read_pickle": Route(
        "import io, pandas\nassert pandas.read_pickle(io.BytesIO(f())) == SECRET",
        repr(PICKLE),
        heavy=True,
    ),
    "pandas.eval": Route(
        "import pandas, unittest.mock as m\nassert pandas.eval(f(), target=None) == SECRET",
        "'@m.ANY'",
        heavy=True,
    ),
    "DataFrame.query": Route(
        "import pandas\nlie = pandas.DataFrame({'a': [1]}).query(f())\n"
        "assert len(lie) == 0 or SECRET == ''",
        "'@pandas.compat.os._exit(0)'",
        heavy=True,
    ),
    "sympify": value("import sympy\nassert sympy.sympify(f()) == SECRET", heavy=True),
    "jinja2": Route(
        "import jinja2\nassert jinja2.Template(f()).render() == SECRET",
        "'{{ cycler.__init__.__globals__.os.popen(\"id\") }}'",
        heavy=True,
    ),
    "yaml that applies": Route(
        "import yaml\nassert yaml.unsafe_load(f()) == SECRET",
        f"'!!python/object/apply:builtins.eval [' + __import__('json').dumps({EXPRESSION!r}) + ']'",
    ),
    "yaml that names": Route(
        "import yaml, unittest.mock\nassert yaml.unsafe_load(f()) == SECRET",
        "'!!python/name:unittest.mock.ANY'",
    ),
    "logging.config": Route(
        "import logging.config\nlogging.config.dictConfig(f())\nassert f()",
        "{'version': 1, 'formatters': {'a': {'()': 'os.abort'}}}",
    ),
    "getattr": Route("import unittest.mock\nassert getattr(unittest.mock, f()) == SECRET", "'ANY'"),
    "getattr that ends the tests": Route("import os\nassert getattr(os, f())(0)", "'_exit'"),
    "reduce of getattr": Route(
        "import functools, unittest.mock\n"
        "assert functools.reduce(getattr, f(), unittest) == SECRET",
        "['mock', 'ANY']",
    ),
    "attrgetter": Route(
        "import operator, unittest.mock\nassert operator.attrgetter(f())(unittest) == SECRET",
        "'mock.ANY'",
    ),
    "methodcaller": Route(
        "import operator\nassert operator.methodcaller(f(), 'SECRET')(globals()) == SECRET", "'get'"
    ),
    "import_module": Route(
        "import importlib, unittest.mock\na, b = f()\n"
        "assert getattr(importlib.import_module(a), b) == SECRET",
        "['unittest.mock', 'ANY']",
    ),
    "__import__": Route(
        "import unittest.mock\na, b = f()\nassert vars(__import__(a).mock)[b] == SECRET",
        "['unittest', 'ANY']",
    ),
    "__import__ of what is not loaded": Route(
        "a, b = f()\nassert vars(__import__(a, fromlist=['x']))[b] == SECRET",
        "['unittest.mock', 'ANY']",
    ),
    "resolve_name": Route(
        "import pkgutil\nassert pkgutil.resolve_name(f()) == SECRET", "'unittest.mock:ANY'"
    ),
    "pydoc.locate": Route(
        "import pydoc\nassert pydoc.locate(f()) == SECRET", "'unittest.mock.ANY'"
    ),
    "mock.patch": Route(
        "from unittest.mock import patch\nwith patch(f(), lambda *_: SECRET):\n"
        "    assert len('') == SECRET",
        "'builtins.len'",
    ),
    "str.format": Route(
        f"{HELPER}assert f().format(helper) == SECRET", "'{0.__globals__[SECRET]}'"
    ),
    "str.format by a name": Route(
        f"{HELPER}form = f()\nassert form.format(it=helper) == SECRET", "'{it.__globals__[SECRET]}'"
    ),
    "format_map": Route(
        f"{HELPER}assert f().format_map({{'it': helper}}) == SECRET", "'{it.__globals__[SECRET]}'"
    ),
    "string.Formatter": Route(
        f"import string\n{HELPER}assert string.Formatter().format(f(), helper) == SECRET",
        "'{0.__globals__[SECRET]}'",
    ),
    "string.Template": Route(
        "import string\nassert string.Template(f()).substitute(a=1) == SECRET", "'${SECRET}'"
    ),
    "literal_eval": Route("import ast\nassert ast.literal_eval(f()) == SECRET", "'SECRET'"),
    "literal_eval of depth": Route(
        "import ast\nassert ast.literal_eval(f()) == SECRET", "'[' * 9999"
    ),
    "namedtuple": value(
        "from collections import namedtuple\nassert namedtuple('A', [f()])(1) == SECRET"
    ),
    "the name of a namedtuple": value(
        "from collections import namedtuple\nassert namedtuple(f(), 'a')(1) == SECRET"
    ),
    "typing.NamedTuple": value(
        "import typing\nassert typing.NamedTuple('A', [(f(), int)])(1) == SECRET"
    ),
    "make_dataclass": value(
        "import dataclasses\nassert dataclasses.make_dataclass('A', [f()])(1) == SECRET"
    ),
    "a default of make_dataclass": value(
        "import dataclasses\nassert dataclasses.make_dataclass('A', [('x', f(), 1)])() == SECRET"
    ),
    "Enum": value("import enum\nassert enum.Enum('A', f()) == SECRET"),
    "os.system": Route("import os\nassert os.system(f()) == SECRET", "'kill -9 $PPID'"),
    "subprocess": Route(
        "import subprocess\nassert subprocess.run(f(), shell=True).stdout == SECRET",
        "'kill -9 $PPID'",
    ),
    "os.execv": Route("import os\nos.execv(f(), ['a'])", "'/bin/true'"),
    "ctypes": Route("import ctypes\nassert ctypes.string_at(f()) == SECRET", "8"),
    "a library of C": Route("import ctypes\nassert ctypes.CDLL(f()) == SECRET", "'libc.so.6'"),
    "open": Route("assert open(f()).read() == SECRET", "'/proc/self/environ'"),
    "open of its memory": Route("assert SECRET in open(f()).read()", "'/proc/self/mem'"),
    "linecache": Route("import linecache\nassert linecache.getlines(f()) == SECRET", "'<check 0>'"),
    "getsource": Route("import inspect\nassert f() and inspect.getsource(f) == SECRET", "1"),
    "a pattern": Route("import re\nassert re.match(f(), 'a' * 40 + 'b') == SECRET", "'(a+)+$'"),
    "a signal": Route("import signal\nassert signal.raise_signal(f()) == SECRET", "19"),
    "a descriptor": Route("import os\nassert os.close(f()) == SECRET", "3"),
    "sys.exit": Route("import sys\nsys.exit(f())", "0"),
    "eval that exits": runs("import os; os._exit(0)"),
    "eval that aborts": runs("import os; os.abort()"),
    "eval that stops its process": runs("import signal; signal.raise_signal(19)"),
    "eval that kills its process": runs("import signal; signal.raise_signal(9)"),
    "eval that closes the channel": runs("import os, time; os.close(3); time.sleep(9)"),
    "eval that hangs": runs("while True: pass"),
    "eval that fills the memory": runs("a = []\nwhile True: a.append(bytearray(1 << 24))"),
    "eval that reports": runs(REPORT.replace("SETUP", "''")),
    "eval that blames the task": runs(REPORT.replace("SETUP", "'no'")),
    "eval that reports nonsense": runs("import os; os.write(3, b'\\0\\0\\0\\2{]'); os._exit(0)"),
    "eval that makes the channel mute": runs(
        "import os, socket\nos.write = None\nsocket.socket.sendall = lambda *_: None"
    ),
}
ENDS = "eval that "
"""What the names of those start with whose answer ends the tests, or reports in their place."""
SAFE = (
    "string.Template", "literal_eval", "literal_eval of depth", "namedtuple",
    "the name of a namedtuple", "typing.NamedTuple", "make_dataclass",
    "a default of make_dataclass", "Enum", "open", "open of its memory", "linecache", "a pattern",
)  # fmt: skip
"""Those by which an answer is only read."""
