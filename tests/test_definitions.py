"""Which function a program in another language defines is seen by patterns, whatever stands in its
parameters, comments, strings and regular expressions.
"""

from __future__ import annotations

import pytest

from assay.checks import Exchange
from assay.evaluate.syntax import LARGEST, syntax_of
from assay.extract import program
from assay.languages import flat, language_named
from assay.types import Task

DEFINES_F = {
    "cpp": (
        "bool f(vector<int> v = {}) {\n return 1; }",
        "auto f(int x) -> decltype(x) { return x; }",
        "auto f = [](int x) { return x; };",
        "std::function<int(int)> f = [](int x) { return x; };",
        "bool f(const vector<int>& v) noexcept(true) { return 1; }",
        "template <typename T>\nT f(T x) requires (sizeof(T) > 1) { return x; }",
        "int f(function<int(int, function<int(int)>)> g) { return 0; }",
        "std::pair<int,int>f(int x) { return {}; }",
        'const char RAW[] = R"(" /* )";\nint f(int x) { return x; }',
        "// a (smile :(\nint f(int x) { return x; }",
    ),
    "java": (
        "class A { static <T extends Comparable<T>> List<T> f(List<T> x) { return x; } }",
        "class A { int[] f(@Size(min = g(1)) int[] x) throws Exception { return x; } }",
        "class A { char q = '\\''; char d = '\"'; int f(int x) { return x; } }",
    ),
    "go": (
        "func f[T any](x T) T { return x }",
        "var f = func(x int) int { return x }",
        'var q = `" /* `\nfunc f(x int) int { return x }',
    ),
    "rust": (
        "/* a /* b */ ' \" */\nfn f(x: i32) -> i32 { x }",
        "pub(crate) fn f<'a>(x: &'a str) -> &'a str { x }",
        'const R: &str = r##"a "# "##;\nfn f(x: i32) -> i32 { x }',
    ),
    "javascript": (
        "function *f() {}",
        "f = function (x) { return x };",
        "f = x => x",
        "class A { static f(x) { return x } }",
        "const { f } = { f: x => x };",
        "var a = 1, f = x => x;",
        "globalThis.f = x => x;",
        "const o = { f(x) { return x } };",
        "let re = /`/;\nfunction f(x) { return x }",
        "let re = /[/*]/g;\nfunction f(x) { return x }",
        "s.match(/[`]/) || 1;\nvar f = x => x",
        "let half = a / b; let c = 'x'; /* ` */\nfunction f(x) { return x / 2 }",
    ),
}
DEFINES_NOTHING = {
    "cpp": (
        "int f(int x);\n",
        "else if (f(x)) {",
        "while (a>f(x)) {",
        'const char* p = R"(\nint f(int x) { return 1; }\n)";',
    ),
    "java": ("class A { int g(int x) { return f(x); } }", "/** int f(int x) { */ class A {}"),
    "go": ("func g(x int) int { return f(x) }", "var q = `\nfunc f(x int) {}\n`"),
    "rust": ("/* /* */ fn f(x: i32) {} */", 'const R: &str = r#"fn f() {}"#;'),
    "javascript": (
        "const f = require('x');",
        "const { f } = require('x');",
        "if (f(x)) {\n}",
        "if (f == 1) {}",
        "f(x);",
        "const s = 'function f(x) {}';",
        "const r = /function f(x)/;",
    ),
}


@pytest.mark.parametrize(
    ("language", "code"), [(name, code) for name, codes in DEFINES_F.items() for code in codes]
)
def test_a_definition_is_seen(language: str, code: str) -> None:
    assert language_named(language).defines(code, "f")


@pytest.mark.parametrize(
    ("language", "code"),
    [(name, code) for name, codes in DEFINES_NOTHING.items() for code in codes],
)
def test_what_only_uses_or_mentions_a_function_does_not_define_it(language: str, code: str) -> None:
    assert not language_named(language).defines(code, "f")


@pytest.mark.parametrize(
    ("language", "code"), [(name, code) for name, codes in DEFINES_F.items() for code in codes]
)
def test_such_a_definition_is_extracted_and_no_stub_is_put_before_it(
    language: str, code: str
) -> None:
    task = Task("t", "", (Exchange("", ""),), "f", language=language, stub="STUB OF THE TASK {\n")
    use = f"```{language}\nf(1);\n```"
    reply = f"It's done:\n\n```{language}\n{code}\n```\n\nCall it (as in the tests):\n\n{use}\n"
    extracted = program(task, reply) or ""
    assert "STUB" not in extracted
    assert code.split("\n")[-1] in extracted


def test_flat_code_has_the_same_length_and_only_outer_parentheses() -> None:
    code = "int f(a(b), {c; d}) { g((h)); } ( (x)"
    assert flat(code) == "int f(a b ,  c  d ) { g( h ); } ( (x)"


def test_a_program_that_takes_a_parser_too_much_memory_is_not_compared() -> None:
    pytest.importorskip("tree_sitter_java")
    assert syntax_of("class A { boolean b = " + "a<" * 30_000 + "a; }", "java") is None
    assert syntax_of("int a;" * LARGEST, "cpp") is None
    assert syntax_of("class A { boolean b = a < b; }", "java") is not None
