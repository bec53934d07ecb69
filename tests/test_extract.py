"""Programs cut from replies: chat models' blocks, base models' run-on text, and everything broken
in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from assay.extract import program
from assay.extract.fences import Fenced, fenced_blocks
from assay.extract.statements import cut
from assay.types import Check, Task

STUB = 'import math\n\n\ndef half(n):\n    return n / 2\n\n\ndef f(n):\n    """Area."""\n'
PRELUDE = "import math\n\n\ndef half(n):\n    return n / 2\n\n\n"


def task(stub: str = "", entry_point: str = "f", language: str = "python") -> Task:
    return Task(
        "t", stub or "f", (Check("assert f(1)"),), entry_point, language=language, stub=stub
    )


STUBBED, PLAIN = task(STUB), task()
ONE = "def f(n):\n    return 1\n"


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("    return 1\n", "    return 1\n"),
        ("    return 1", "    return 1\n"),
        ("    return 1\n\n\ndef other(n):\n    return 2\n", "    return 1\n"),
        ("    return 1\n\nprint(f(3))\nassert f(3) == 4\n", "    return 1\n"),
        ("    return 1\n\nif __name__ == '__main__':\n    f(1)\n", "    return 1\n"),
        ("    return 1\n\nThis isn't code; it's (prose\n", "    return 1\n"),
        ("    return 1\n# end\n    # of it\n\n", "    return 1\n"),
        (
            "# first\n    x = 1\n# then\n    return x\n",
            "# first\n    x = 1\n# then\n    return x\n",
        ),
        (
            "    def g():\n        return 1\n\n    return g()\nx = 1\n",
            "    def g():\n        return 1\n\n    return g()\n",
        ),
        (
            '    s = """\ndef f():\nx\n"""\n    return s\nx\n',
            '    s = """\ndef f():\nx\n"""\n    return s\n',
        ),
        (
            "    s = '''it's\n\\'''\nx'''\n    return s\nx\n",
            "    s = '''it's\n\\'''\nx'''\n    return s\n",
        ),
        ("    return (\n1 +\n2)\nx\n", "    return (\n1 +\n2)\n"),
        ("    return 1 + \\\n2\nx\n", "    return 1 + \\\n2\n"),
        ("    return '(' # ]['\nx\n", "    return '(' # ]['\n"),
        ("\treturn 1\nx\n", "\treturn 1\n"),
        ("    x = (1,\n\ndef other():\n    pass\n", "    x = (1,\n"),
        ("    return 1\n\n@cache\ndef other(n):\n    return 2\n", "    return 1\n"),
        ("def other(n):\n    return 2\n", ""),
        ("# only a comment\n\n", ""),
        ("", ""),
    ],
)
def test_a_body_ends_at_the_next_top_level_statement(body: str, kept: str) -> None:
    assert cut(body) == kept


def test_a_body_keeps_the_later_helpers_that_it_uses() -> None:
    helper, deeper = "def helper(n):\n    return deeper(n)", "@cache\ndef deeper(n):\n    return 1"
    unused = "def unused(n):\n    return 'helper'"
    found = cut(
        f"    return helper(n)  # unused\n\n{deeper}\n\n{unused}\n\nprint(1)\n{helper}\n\ndef"
        " helper(n):\n    pass\n"
    )
    assert found == f"    return helper(n)  # unused\n\n{deeper}\n\n\n{helper}\n"


def test_a_name_inside_a_plain_string_is_no_use_but_in_an_f_string_it_is() -> None:
    helper = "\n\n\ndef helper():\n    return 1\n"
    assert cut(f"    return 'helper()'{helper}") == "    return 'helper()'\n"
    assert cut(f"    return f'{{helper()}}'{helper}") == f"    return f'{{helper()}}'{helper}"


@pytest.mark.parametrize(
    ("reply", "after_stub"),
    [
        ("    return half(n)\n", "    return half(n)\n"),
        ("    return 1\n\n\ndef f(n):\n    return 2\n", "    return 1\n"),
        ("    return f(n - 1)\n\n\ndef f(n):\n    return 2\n", "    return f(n - 1)\n"),
        ("    return half(n)\n\n\ndef half(n):\n    return 2\n", "    return half(n)\n"),
        (
            "    return 1\n```\n\nAnother way:\n```python\ndef f(n):\n    return 2\n```\n",
            "    return 1\n",
        ),
        ("\n    # think\n    return 1\nExplanation: it's 1.", "\n    # think\n    return 1\n"),
        ("    return 1\r\n\r\nprint(1)\r\n", "    return 1\n"),
        ("```python\n    return 1\n```", "    return 1\n"),
    ],
)
def test_a_continued_stub_comes_back_whole_and_cut(reply: str, after_stub: str) -> None:
    assert squeezed(program(STUBBED, reply)) == squeezed(STUB + after_stub)


def squeezed(text: str | None) -> list[str]:
    """Lines that are not blank: how far statements stand apart is nobody's concern."""
    assert text is not None
    return [line for line in text.split("\n") if line.strip()]


@pytest.mark.parametrize(
    "reply",
    [
        f"```python\n{ONE}```",
        f"Sure! Here's (the code:\n\n```python\n{ONE}```\n\nIt returns 1, doesn't it?\n```\n1\n```",
        f"```\nx = 2\n```\nthen\n```py\n{ONE}```\nrun it:\n```bash\npython f.py\n```",
        f"```python\ndef f(n):\n    return 2\n```\nBetter:\n```python\n{ONE}```",
        f"1. So:\n   ```python\n   {ONE[:-1].replace(chr(10), chr(10) + '   ')}\n   ```\n",
        f"Here: ```python\n{ONE.rstrip()}```",
        f"````python\n{ONE}````",
        f"A ``` stands before code.\n{ONE}```\nThat is all.",
        f"```Python title='a'\n{ONE}```".replace("\n", "\r\n"),
        f"<think>\n```python\ndef f(n):\n    return 2\n```\n</think>\n```python\n{ONE}```",
        f"```python\n{ONE}",
        f"```python\n{ONE}\nprint(f(1))\nassert f(1) == (2",
        f"```python\nimport os\n```python\n{ONE}```",
        ONE,
        f"{ONE}\nprint(f(1))\n",
        f"Here's the function:\n{ONE}\nThis returns (one.\n",
        f"{ONE}```\nWhat it does:\n```\nnothing\n",
        f"{ONE}\n\ndef f(n):\n    return 2\n",
        f'{ONE}\n"""\nWrite another function.\nassert g(1) == 2\n"""\ndef g(n):\n    return 2\n',
    ],
)
@pytest.mark.parametrize("asked", [PLAIN, STUBBED], ids=["plain", "stub"])
def test_the_definition_of_the_entry_point_is_found(asked: Task, reply: str) -> None:
    found = program(asked, reply)
    assert found == (PRELUDE + ONE if asked.stub else ONE)


def test_a_closed_block_is_taken_as_it_stands_where_all_of_it_is_needed() -> None:
    code = '"""A module."""\n\nimport os\n\n\ndef f(n):\n    return N\n\n\nN = 1\n'
    assert program(PLAIN, f"```python\n{code}```") == code
    assert program(PLAIN, f"```python\n{code}\nassert f(1) == 2\n```") == f"{code[:-1]}\n"


def test_a_fence_inside_a_docstring_does_not_end_the_block() -> None:
    code = 'def f(n):\n    """\n    ```\n    f(1)\n    ```\n    """\n    return 1\n'
    assert program(PLAIN, f"```python\n{code}```") == code
    assert fenced_blocks(f"```python\n{code}```") == [Fenced(code, closed=True, tag="python")]


def test_a_closing_fence_indented_like_the_code_ends_the_block() -> None:
    code = 'def f(n):\n    """Adds one."""\n    return n + 1\n'
    reply = f"```python\n{code}    ```\nIt adds one.\n"
    assert fenced_blocks(reply) == [Fenced(code, closed=True, tag="python")]
    assert program(PLAIN, reply) == code


def test_a_longer_fence_may_hold_shorter_ones() -> None:
    code = "def f(n):\n    return '''\n```\n'''\n"
    assert program(PLAIN, f"````python\n{code}````\n") == code


def test_a_future_import_stays_above_the_stubs_prelude() -> None:
    found = program(STUBBED, f"```python\nfrom __future__ import annotations\n\n{ONE}```")
    assert found == f"from __future__ import annotations\n{PRELUDE}\n{ONE}"
    compile(found, "f", "exec")


def test_what_stands_above_the_entry_point_is_kept_unless_it_is_prose() -> None:
    code = (
        "import math\nfrom a import b\nK = {\n    1: 2,\n}\ntry:\n    import c\nexcept"
        " ImportError:\n    c = None\n"
    )
    decorated = f"@cache\n{ONE}"
    reply = f"My answer:\n\n{code}\nNow the function, which isn't hard\n{decorated}\nDone.\n"
    assert squeezed(program(PLAIN, reply)) == squeezed(code + decorated)


def test_a_repeated_stub_is_no_answer_but_what_follows_it_is() -> None:
    hollow = 'def f(n):\n    """Area."""\n'
    assert program(PLAIN, f"{hollow}{ONE}") == hollow + ONE
    assert (
        program(STUBBED, f"{hollow}\n{ONE}\ndef f(n):\n    return 2\n")
        == f"{PRELUDE}{hollow}\n{ONE}"
    )
    helper = "def half(n):\n    return n / 2\n"
    reply = f'def half(n):\n    """Half."""\n{hollow}    return half(n)\n\n{helper}'
    assert program(PLAIN, reply) == reply
    assert program(PLAIN, hollow) == hollow


def test_the_entry_point_may_be_a_class_a_method_or_a_variable() -> None:
    code = "class Solution:\n    def add(self, a):\n        return a\n"
    assert program(task(entry_point="Solution().add"), f"{code}\nprint(Solution())\n") == code
    assert program(task(), "f = lambda n: 1\nf(2)\n") == "f = lambda n: 1\n"
    assert program(task(), "async def f(n):\n    return 1\n") == "async def f(n):\n    return 1\n"


@pytest.mark.parametrize("asked", [PLAIN, STUBBED], ids=["plain", "stub"])
@pytest.mark.parametrize(
    "reply",
    [
        "",
        "  \n\n",
        "I can't do that.",
        "<think>\n```python\ndef f(n):\n    return 1\n```\n",
        "```python\n```",
        "def g(n):\n  pass\n",
        "# nothing\n",
    ],
)
def test_a_reply_without_the_entry_point_is_no_code(asked: Task, reply: str) -> None:
    assert program(asked, reply) is None


def test_a_stub_that_breaks_off_inside_a_line_is_continued() -> None:
    asked = task("def f(n):\n    return")
    assert program(asked, " 1\nprint(2)\n") == "def f(n):\n    return 1\n"
    assert program(asked, ONE) == ONE


@pytest.mark.parametrize("stub", ["def f(n):", "def f(n):\n", "def f(n):\n    # One.\n"])
@pytest.mark.parametrize(
    "reply",
    ["    x = 1\n    return x\n\nprint(2)\n", f"Sure:\n\n```python\n{ONE}```\n", f"Here:\n{ONE}",
     "```python\n    return 1\n```"],
)  # fmt: skip
def test_a_stub_that_ends_at_its_head_or_with_a_comment_is_completed(stub: str, reply: str) -> None:
    found = program(task(stub), reply)
    names: dict[str, Callable[[int], int]] = {}
    exec(found or "", {}, names)
    assert names["f"](3) == 1


def test_a_chat_models_leading_space_does_not_make_prose_a_body() -> None:
    assert program(STUBBED, f" Sure:\n```python\n{ONE}```") == PRELUDE + ONE


def test_without_an_entry_point_the_statements_before_the_prose_are_the_program() -> None:
    script = "import sys\nn = int(input())\nfor k in range(n):\n    print(k)\n"
    assert program(task(entry_point=""), f"This reads n.\n{script}That is all.\nx = 1\n") == script
    assert program(task(entry_point=""), f"```python\n{script}```") == script


@pytest.mark.parametrize("tag", ["think", "reason", "reasoning"])
@pytest.mark.parametrize(
    "end", ["</answer>", "</answer>\nI hope that it helps.\n```python\nf(1)\n```", ""]
)
def test_the_program_is_the_block_between_the_tags_of_an_answer(tag: str, end: str) -> None:
    block = f"```python\n{ONE}```\n"
    thought = f"<{tag}>\n```python\ndef f(n):\n    return 2\n```\n</{tag}>"
    assert program(task(), f"{thought}\n<answer>\n{block}{end}") == ONE
    assert program(task(), f"{thought}<answer>{block}{end}") == ONE
    assert program(task(), f"{thought}\n<answer>\n{ONE}{end}") == ONE
    assert program(task(), f"<{tag}>\n{block}") is None
    rust = task(language="rust")
    assert program(rust, f"{thought}\n<answer>\n```rust\nfn f() {{}}\n```\n{end}") == "fn f() {}\n"


@pytest.mark.parametrize("imports", ["import math\n", "# first\nfrom math import pow as p\n"])
def test_a_block_of_imports_is_put_before_the_block_that_uses_them(imports: str) -> None:
    power = "math.pow" if "math\n" in imports else "p"
    body = f"def f(x):\n    return {power}(x, 2)\n"
    reply = f"You need:\n```python\n{imports}```\nThen:\n```python\n{body}```"
    assert program(task(), reply) == imports + body
    own = f"import cmath as math, math as p\n{body}"
    reply = reply.replace(body, own)
    assert program(task(), reply) == own


TABLE = "TABLE = {}\n\n\ndef add(name):\n    return partial(TABLE.setdefault, name)\n\n\n"
CALLS = "def f(n):\n    return TABLE['g'](n)\n\n\n"
GENERIC = "@singledispatch\ndef f(n):\n    raise TypeError\n\n\n"
BASE = "class Base:\n    pass\n\n\ndef f(n):\n    return Base.__subclasses__()[0](n)\n\n\n"
DEMO = (
    "def timed(g):\n    return g\n\n\n@timed\ndef demo():\n    f(1)\n\n\n"
    "class Test(TestCase):\n    pass\n\n\ndemo()\n"
)


@pytest.mark.parametrize(
    ("code", "later"),
    [
        (TABLE + CALLS, "@add('g')\n@cache\ndef g(n):\n    return n\n"),
        (
            GENERIC,
            "@f.register\ndef _(n: int):\n    return n\n\n\n"
            "@f.register(str)\ndef _(n):\n    pass\n",
        ),
        (BASE, "class Child(Base, name='one'):\n    def __init__(self, n):\n        pass\n"),
    ],
    ids=["a table", "singledispatch", "subclasses"],
)
def test_what_registers_itself_behind_the_function_is_kept(code: str, later: str) -> None:
    reply = f"```python\n{code}{later}{DEMO}```"
    assert squeezed(program(PLAIN, reply)) == squeezed(code + later)


def test_a_thought_may_end_right_behind_a_fence() -> None:
    right = "def f(x): return x\n"
    reply = f"<think>```python\ndef f(x): return 0\n```</think>```python\n{right}```"
    assert program(task(), reply) == right


def test_tags_inside_a_program_are_its_own() -> None:
    source = 'def f(n):\n    return f"<answer>{n}</answer>"\n'
    assert program(task(), f"```python\n{source}```") == source


OWN_TAGS = (
    'def f(s):\n    return s.split("a</think>b")\n',
    'def f(s):\n    return """\n<think>\n</think>\n"""\n',
    'def f(s):\n    return """\n<think>\n"""\n',
)


@pytest.mark.parametrize("source", OWN_TAGS)
@pytest.mark.parametrize(
    "before",
    ["", "Here:\n", "<think>x</think>", f"<think>```python\n{ONE}```</think>",
     "<think>a</think>\n<think>b</think>\n", f"Perhaps\n```python\n{ONE}```\nNo.\n</think>\n"],
)  # fmt: skip
def test_tags_of_thoughts_inside_a_block_are_the_programs(source: str, before: str) -> None:
    assert program(task(), f"{before}```python\n{source}```") == source


def test_a_draft_in_a_thought_is_not_the_program() -> None:
    draft, right = f"```python\n{ONE}```", "def f(n):\n    return 2\n"
    block = f"```python\n{right}```"
    for reply in (
        f"```python\n{ONE}</think>\n{block}",
        f"<think>```python\n{ONE}</think>\n{block}",
        f"Sure.\n<think>\n{draft}\n</think>\n{block}",
        f"<think>x</think>\n{block}\n<think>{draft}",
        f"<think>```python\nx = 'a </think> b'\n```\n{draft}\n</think>{block}",
    ):
        assert program(task(), reply) == right, reply


@pytest.mark.parametrize(
    "reply", ["\ufeff{}", "\ufeff```python\n{}```", "```python\n\ufeff{}```",
              "<think>a</think>\ufeff{}",
              "\ufeff<think>```python\nx = 1\n```</think>\n```python\n\ufeff{}```"],
)  # fmt: skip
def test_a_byte_order_mark_is_no_part_of_a_program(reply: str) -> None:
    assert program(task(), reply.format(ONE)) == ONE


def test_other_languages_are_taken_from_the_last_closed_block() -> None:
    rust = task(language="rust")
    assert (
        program(rust, "```rust\nfn f() {}\n```\nor\n```rust\nfn f() { 1 }\n```") == "fn f() { 1 }\n"
    )
    assert program(rust, "fn f() {}") == "fn f() {}"
    code = "```Rust\nfn f() {}\n```\n"
    assert program(rust, f"{code}In Python:\n```py\ndef f(): pass\n```\n") == "fn f() {}\n"
    assert program(rust, f"{code}Or:\n```\nfn f() {{ 1 }}\n```\n") == "fn f() { 1 }\n"
    assert program(rust, "```py\nf\n```\n```cpp\nf()\n```\n") is None
    assert program(task("fn f() {\n", language="rust"), "    1\n}") == "fn f() {\n    1\n}"


def test_in_another_language_a_block_that_does_not_define_the_stubs_function_continues_it() -> None:
    stub = "// Counts down.\nint f(int n) {\n"
    cpp = task(stub, language="cpp")
    body = "    if (f(n - 1)) { return f(n - 2); }\n}\n"
    whole = "int f(int n) { return n ? f(n - 1) : 0; }\n"
    assert program(cpp, f"```cpp\n{body}```") == stub + body
    reads = "    std::cin >> n;\n    return n;\n}\n"
    assert program(cpp, f"```cpp\n{body}```\nOr:\n```cpp\n{reads}```") == stub + reads
    assert program(cpp, body) == stub + body
    assert program(cpp, f"Sure:\n```cpp\n{whole}```") == whole
    script = task("const f = (n) => {\n", language="javascript")
    assert (
        program(script, "```js\nfunction f(n) { return 0 }\n```") == "function f(n) { return 0 }\n"
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "bomb",
    ["(" * 25_000, '"' * 25_001, "'\\" * 12_500, "def f(n):\n" + " " * 25_000 + "x", "```" * 10_000,
    "\n" * 25_000,
     "x = 1\n" * 4_000, "def g():\n  f\n" * 2_500, "```python\n" * 2_500, "if " * 10_000,
     "a." * 12_500,
     "a, " * 10_000, "f(" * 12_500, "f(n): " * 4_000, "def f " * 4_000, "`` " * 10_000,
     "import a, " * 2_500, "for in in in " * 2_000, "a]:" * 8_000, '"\\' * 12_500, "//\n" * 8_000,
     '"""\n' * 6_000, "/*" * 12_500, "import (\n" * 2_500, "<think>\n" * 3_000, "</s> " * 5_000],
)  # fmt: skip
def test_hostile_text_is_read_in_linear_time(bomb: str) -> None:
    start = time.process_time()
    named = [task(language=one) for one in ("go", "java", "javascript", "q", "rust", "verilog")]
    others = (task(entry_point=""), task("int f() {\n", language="cpp"), *named)
    for asked in (PLAIN, STUBBED, *others):
        program(asked, bomb)
        program(asked, f"    x = 1\n{bomb}")
        program(asked, f"```python\n{bomb}")
    assert time.process_time() - start < 8
