"""Modules of tests that need pytest itself, each with a right program and a wrong one."""

from __future__ import annotations

TWICE = "def f(x):\n    if x is None: raise ValueError('no number')\n    return 2 * x\n"
THRICE = "def f(x):\n    if x is None: raise ValueError('no number')\n    return 3 * x\n"
SILENT = "def f(x):\n    return 2 * (x or 0)\n"
SHOUT = "def f(x):\n    print(f'got {x}')\n    return x\n"
WHISPER = "def f(x):\n    print(f'got {x}.')\n    return x\n"
STORE = (
    "from pathlib import Path\ndef f(path, text):\n"
    "    Path(path).write_text(text.upper())\n    return len(text)\n"
)
LOSE = STORE.replace(".upper()", "")
COUNT = "def f(path):\n    return len(open(path).read().split())\n"
MISCOUNT = "def f(path):\n    return len(open(path).read())\n"
ASK = "def f():\n    return int(input('n? ')) * 2\n"
ASK_WRONG = "def f():\n    return int(input('n? ')) * 3\n"
LATER = "import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return 2 * x\n"
LATER_WRONG = LATER.replace("2 *", "3 *")
STACK = (
    "class Stack:\n    def __init__(self):\n        self.items = []\n"
    "    def push(self, x):\n        self.items.append(x)\n"
    "    def pop(self):\n        return self.items.pop()\n"
    "    def size(self):\n        return len(self.items)\n"
)
QUEUE = STACK.replace("items.pop()", "items.pop(0)")

CASES: dict[str, tuple[str, str, str]] = {
    "a fixture of the module": (
        "import pytest\n@pytest.fixture\ndef number():\n    return 3\n"
        "def test_a(number):\n    assert f(number) == 6\n",
        TWICE, THRICE),
    "a fixture that yields": (
        "import pytest\nlog = []\n@pytest.fixture\ndef number():\n    yield 3\n"
        "    log.append('end')\n"
        "def test_a(number):\n    assert f(number) == 6\n"
        "def test_b():\n    assert log == ['end'] and f(1) == 2\n",
        TWICE, THRICE),
    "a fixture for all": (
        "import pytest\nstate = {}\n@pytest.fixture(autouse=True)\ndef ready():\n"
        "    state['x'] = 3\n    yield\n    state.clear()\n"
        "def test_a():\n    assert f(state['x']) == 6\n",
        TWICE, THRICE),
    "a fixture with parameters": (
        "import pytest\n@pytest.fixture(params=[1, 2, 3])\ndef number(request):\n"
        "    return request.param\n"
        "def test_a(number):\n    assert f(number) == 2 * number\n",
        TWICE, "def f(x):\n    return 2 * x if x < 3 else 0\n"),
    "a fixture of the module's scope that asks": (
        "import pytest\n@pytest.fixture(scope='module')\ndef answer():\n    return f(4)\n"
        "def test_a(answer):\n    assert answer == 8\n"
        "def test_b(answer):\n    assert answer > 7 and answer < 9\n",
        TWICE, THRICE),
    "fixtures of fixtures": (
        "import pytest\n@pytest.fixture\ndef one():\n    return 1\n"
        "@pytest.fixture\ndef two(one):\n    return one + one\n"
        "def test_a(two, one):\n    assert f(two) == 4 * one\n",
        TWICE, THRICE),
    "a factory as a fixture": (
        "import pytest\n@pytest.fixture\ndef make():\n    def build(n):\n        return [n] * n\n"
        "    return build\n"
        "def test_a(make):\n    assert f(make(2)) == [2, 2, 2, 2]\n",
        TWICE, THRICE),
    "a fixture with the program's object": (
        "import pytest\nfrom solution import Stack\n@pytest.fixture\ndef stack():\n"
        "    stack = Stack()\n    stack.push(1)\n    stack.push(2)\n    return stack\n"
        "class TestStack:\n"
        "    def test_size(self, stack):\n        assert stack.size() == 2\n"
        "    def test_pop(self, stack):\n        assert stack.pop() == 2\n"
        "        assert stack.pop() == 1\n",
        STACK, QUEUE),
    "parameters with ids": (
        "import pytest\n@pytest.mark.parametrize('x, y', [(1, 2), (2, 4)], ids=['one', 'two'])\n"
        "def test_a(x, y):\n    assert f(x) == y\n",
        TWICE, THRICE),
    "indirect parameters": (
        "import pytest\n@pytest.fixture\ndef number(request):\n    return request.param + 1\n"
        "@pytest.mark.parametrize('number, y', [(1, 4), (2, 6)], indirect=['number'])\n"
        "def test_a(number, y):\n    assert f(number) == y\n",
        TWICE, THRICE),
    "a case that is skipped": (
        "import pytest\n@pytest.mark.parametrize('x', [1,\n"
        "    pytest.param(2, marks=pytest.mark.skip(reason='slow'))])\n"
        "def test_a(x):\n    assert f(x) == 2\n",
        TWICE, THRICE),
    "marks that use a fixture": (
        "import pytest\nstate = []\n@pytest.fixture\ndef ready():\n    state.append(3)\n"
        "@pytest.mark.usefixtures('ready')\ndef test_a():\n    assert f(state[-1]) == 6\n",
        TWICE, THRICE),
    "a mark of the module": (
        "import pytest\npytestmark = pytest.mark.parametrize('x', [1, 2])\n"
        "def test_a(x):\n    assert f(x) == 2 * x\n",
        TWICE, THRICE),
    "a test that is skipped on a condition beside others": (
        "import pytest, sys\n@pytest.mark.skipif(sys.platform == 'linux', reason='elsewhere')\n"
        "def test_a():\n    assert f(1) == 99\n"
        "def test_b():\n    assert f(1) == 2\n",
        TWICE, THRICE),
    "a test that is expected to fail beside others": (
        "import pytest\n@pytest.mark.xfail(reason='floats')\n"
        "def test_a():\n    assert f(0.1) + 0.1 == 0.3\n"
        "def test_b():\n    assert f(1) == 2\n",
        TWICE, THRICE),
    "what is raised and how it reads": (
        "import pytest\ndef test_a():\n    with pytest.raises(ValueError) as info:\n"
        "        f(None)\n    assert 'no number' in str(info.value)\n"
        "    assert info.match('no num') and info.typename == 'ValueError'\n",
        TWICE, SILENT),
    "one of several that are raised": (
        "import pytest\ndef test_a():\n"
        "    with pytest.raises((TypeError, ValueError), match=r'^no \\w+$'):\n        f(None)\n",
        TWICE, SILENT),
    "close numbers in mappings": (
        "import pytest\ndef test_a():\n"
        "    assert {'a': f(0.1) + 0.1} == pytest.approx({'a': 0.3})\n"
        "    assert f(1.0) == pytest.approx(2.1, rel=0.1)\n",
        TWICE, THRICE),
    "what is printed": (
        "def test_a(capsys):\n    f(3)\n    out = capsys.readouterr().out\n"
        "    assert out == 'got 3\\n'\n",
        SHOUT, WHISPER),
    "what is printed to a descriptor": (
        "def test_a(capfd):\n    assert f(3) == 3\n    out, err = capfd.readouterr()\n"
        "    assert out.strip() == 'got 3' and not err\n",
        SHOUT, WHISPER),
    "a folder for the test": (
        "def test_a(tmp_path):\n    path = tmp_path / 'out.txt'\n"
        "    assert f(str(path), 'hello') == 5\n    assert path.read_text() == 'HELLO'\n",
        STORE, LOSE),
    "a folder that holds a file": (
        "def test_a(tmp_path):\n    path = tmp_path / 'in.txt'\n    path.write_text('a b c')\n"
        "    assert f(path) == 3\n"
        "def test_b(tmp_path):\n    (tmp_path / 'in.txt').write_text('')\n"
        "    assert f(tmp_path / 'in.txt') == 0\n",
        COUNT, MISCOUNT),
    "input that is replaced": (
        "def test_a(monkeypatch):\n    monkeypatch.setattr('builtins.input', lambda *_: '4')\n"
        "    assert f() == 8\n",
        ASK, ASK_WRONG),
    "standard input that is replaced": (
        "import io\ndef test_a(monkeypatch):\n"
        "    monkeypatch.setattr('sys.stdin', io.StringIO('4\\n'))\n    assert f() == 8\n",
        ASK, ASK_WRONG),
    "hooks of the module and of functions": (
        "state = {}\ndef setup_module(module):\n    state['x'] = 3\n"
        "def setup_function(function):\n    state['name'] = function.__name__\n"
        "def teardown_module():\n    state.clear()\n"
        "def test_a():\n    assert f(state['x']) == 6 and state['name'] == 'test_a'\n",
        TWICE, THRICE),
    "hooks of a class that ask": (
        "class TestF:\n    @classmethod\n    def setup_class(cls):\n        cls.answer = f(3)\n"
        "    def setup_method(self, method):\n        self.x = 1\n"
        "    def test_a(self):\n        assert self.answer == 6\n"
        "    def test_b(self):\n        assert f(self.x) == 2\n",
        TWICE, THRICE),
    "a class's fixture and parameters": (
        "import pytest\n@pytest.mark.parametrize('x', [1, 2])\nclass TestF:\n"
        "    @pytest.fixture(autouse=True)\n    def ready(self):\n        self.factor = 2\n"
        "    def test_a(self, x):\n        assert f(x) == self.factor * x\n",
        TWICE, THRICE),
    "unittest's hooks, subtests and cleanups": (
        "import unittest\nclass Cases(unittest.TestCase):\n    @classmethod\n"
        "    def setUpClass(cls):\n        cls.answer = f(3)\n"
        "    def setUp(self):\n        self.done = []\n"
        "        self.addCleanup(self.done.append, 1)\n"
        "    def test_a(self):\n        self.assertEqual(self.answer, 6)\n"
        "    def test_b(self):\n        for x in (1, 2):\n            with self.subTest(x=x):\n"
        "                self.assertEqual(f(x), 2 * x)\n",
        TWICE, THRICE),
    "unittest with a fixture of pytest's": (
        "import unittest, pytest\nclass Cases(unittest.TestCase):\n"
        "    @pytest.fixture(autouse=True)\n    def ready(self, capsys):\n"
        "        self.capsys = capsys\n"
        "    def test_a(self):\n        f(3)\n"
        "        self.assertEqual(self.capsys.readouterr().out, 'got 3\\n')\n",
        SHOUT, WHISPER),
    "a coroutine": (
        "import pytest\n@pytest.mark.asyncio\nasync def test_a():\n    assert await f(2) == 4\n",
        LATER, LATER_WRONG),
    "a fixture that is a coroutine": (
        "import pytest, pytest_asyncio\n@pytest_asyncio.fixture(loop_scope='function')\n"
        "async def two():\n    return await f(1)\n"
        "@pytest_asyncio.fixture\nasync def four():\n    yield await f(2)\n    await f(3)\n"
        "@pytest.mark.asyncio\nasync def test_a(two, four):\n"
        "    assert await f(two) == four == 4\n",
        LATER, LATER_WRONG),
    "tests that a hook makes": (
        "def pytest_generate_tests(metafunc):\n    metafunc.parametrize('x', [1, 2])\n"
        "def test_a(x):\n    assert f(x) == 2 * x\n",
        TWICE, THRICE),
    "a mark that has a name": (
        "import pytest\ncases = pytest.mark.parametrize('x', [1, 2])\n"
        "@cases\ndef test_a(x):\n    assert f(x) == 2 * x\n"
        "@cases\ndef test_b(x, capsys):\n    assert f(x) > x\n",
        TWICE, THRICE),
    "a class in a class": (
        "class TestA:\n    class TestB:\n        def test_a(self):\n            assert f(1) == 2\n"
        "    def test_b(self):\n        assert f(0) == 0\n",
        TWICE, THRICE),
    "a helper that is named as a test": (
        "import pytest\ndef test_help(x):\n    assert f(x) == 2 * x\n"
        "@pytest.fixture\ndef n():\n    return 2\ndef test_a(n):\n    test_help(n)\n",
        TWICE, THRICE),
    "a fixture that is named as a test": (
        "import pytest\n@pytest.fixture\ndef test_data():\n    return 2\n"
        "def test_a(test_data):\n    assert f(test_data) == 4\n",
        TWICE, THRICE),
    "a fixture that a class has in its place": (
        "import pytest\n@pytest.fixture\ndef n():\n    return 1\nclass TestA:\n"
        "    @pytest.fixture\n    def n(self, n):\n        return n + 1\n"
        "    def test_a(self, n):\n        assert f(n) == 4\n",
        TWICE, THRICE),
    "an end that fails": (
        "import pytest\n@pytest.fixture\ndef n():\n    yield 0\n    assert f(2) == 4\n"
        "def test_a(n):\n    assert f(n) == 0\n",
        TWICE, THRICE),
    "subtests of pytest's": (
        "def test_a(subtests):\n    for x in range(3):\n        with subtests.test(x=x):\n"
        "            assert f(x) == 2 * x\n",
        TWICE, THRICE),
    "a failure that is expected strictly": (
        "import pytest\n@pytest.mark.xfail(strict=True)\ndef test_a():\n    assert f(1) == 3\n"
        "def test_b():\n    assert f(1) == 2\n",
        TWICE, THRICE),
    "an error of the program's own class": (
        "from solution import f, Bad\nimport pytest\n@pytest.fixture\ndef n():\n    return -1\n"
        "def test_a(n):\n    with pytest.raises(Bad, match='neg'):\n        f(n)\n",
        "class Bad(Exception):\n    pass\ndef f(x):\n    raise Bad('neg')\n",
        "class Bad(Exception):\n    pass\ndef f(x):\n    raise ValueError('neg')\n"),
    "warnings of the test's own": (
        "import pytest, warnings\ndef test_a():\n    with pytest.warns(UserWarning, match='odd'):\n"
        "        warnings.warn('odd')\n        assert f(1) == 2\n",
        TWICE, THRICE),
    "recorded warnings": (
        "import warnings\ndef test_a(recwarn):\n    warnings.warn('odd')\n"
        "    assert f(1) == 2 and len(recwarn) == 1\n",
        TWICE, THRICE),
    "logs of the test's own": (
        "import logging\ndef test_a(caplog):\n    logging.warning('odd')\n"
        "    assert f(1) == 2 and 'odd' in caplog.text\n",
        TWICE, THRICE),
    "a fixture that asks for others by name": (
        "import pytest\n@pytest.fixture\ndef three():\n    return 3\n"
        "@pytest.mark.parametrize('name', ['three'])\n"
        "def test_a(name, request):\n    assert f(request.getfixturevalue(name)) == 6\n",
        TWICE, THRICE),
    "an end that is asked of the request": (
        "log = []\ndef test_a(request):\n    request.addfinalizer(lambda: log.append(1))\n"
        "    assert f(1) == 2\ndef test_b():\n    assert log == [1] and f(2) == 4\n",
        TWICE, THRICE),
}  # fmt: skip
