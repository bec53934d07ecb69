"""Programs in other languages read and print, and are judged as Python's are."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from assay.errors import DataError
from assay.judge import Job, Judge
from assay.judge import judge_all as judge_alone
from assay.judge.builds import Builds
from assay.languages import language_named, languages, tool_path
from assay.sandbox.isolation import probe_isolation
from assay.sandbox.limits import Limits
from assay.sandbox.program import ENVIRONMENT, Program, Result
from assay.tasks import task_from_dict
from assay.types import Cause, Check, Exchange, Task, Verdict
from tests.judge.jobs import programs_run
from tests.judge.opened import judge_all, with_judge


def is_there(name: str) -> bool:
    language = language_named(name)
    try:
        return all(language.locate(tool) for tool in language.tools)
    except DataError:
        return False


INSTALLED = [name for name in languages if is_there(name)]
TIERS = {"A": (), "C": ("namespaces", "user", "group")}
"""Walls that are left out, to run as on a machine of that tier."""
SUM = Task("sum", "", (Exchange("1 2\n", "3\n"), Exchange("5 6", "11")), "", language="cpp")
ADDS = "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b; }"
PROGRAMS = {
    "go": (
        'package main\n\nimport "fmt"\n\n'
        "func main() { var a, b int; fmt.Scan(&a, &b); fmt.Println(a + b) }",
        "package main\n\nfunc main() { var a []int; _ = a[len(a)] }",
        "package main\n\nfunc main() { var a [][]byte; for { b := make([]byte, 1<<20);"
        " for i := range b { b[i] = 1 }; a = append(a, b) } }",
        r"status 2: panic: runtime error: index out of range \[0\]",
    ),
    "rust": (
        "use std::io::*;\nfn main() { let mut s = String::new(); stdin().read_to_string(&mut s)"
        ".unwrap(); let mut w = s.split_whitespace().map(|w| w.parse::<i64>().unwrap());"
        ' println!("{}", w.next().unwrap() + w.next().unwrap()); }',
        'fn main() { let a: Vec<i32> = Vec::new(); println!("{}", a[a.len()]); }',
        "fn main() { let mut a = Vec::new(); while a.len() < 1 << 20 { a.push(vec![1u8; 1 << 20]) }"
        ' println!("{}", a.len()); }',
        r"status 101: thread 'main' panicked at",
    ),
    "java": (
        "import java.util.*;\npublic class Solution { public static void main(String[] args)"
        " { Scanner in = new Scanner(System.in);"
        " System.out.println(in.nextInt() + in.nextInt()); } }",
        "class Main { public static void main(String[] a) { System.out.println(a[0]); } }",
        "import java.util.*;\nclass Main { public static void main(String[] a)"
        " { List<byte[]> l = new ArrayList<>(); for (;;) l.add(new byte[1 << 20]); } }",
        r'status 1: Exception in thread "main" java.lang.ArrayIndexOutOfBounds',
    ),
    "typescript": (
        'import * as fs from "fs";\n'
        'const [a, b]: number[] = fs.readFileSync(0, "utf8").split(" ").map(Number);\n'
        "console.log(a + b);",
        'const f = (n: number): number => { throw new TypeError("no") };\nf(1);',
        "const a: number[][] = []; for (;;) a.push(new Array(1 << 17).fill(1.5));",
        r"status 1: TypeError: no",
    ),
    "verilog": (
        "module main; integer a, b, n; initial begin"
        ' n = $fscanf(32\'h8000_0000, "%d %d", a, b); $display("%0d", a + b); end endmodule',
        'module main; initial $fatal(1, "no"); endmodule',
        "module main; reg [63:0] m [0:(1<<27)-1]; integer i;"
        " initial for (i = 0; i < 1<<27; i = i + 1) m[i] = i; endmodule",
        r"status 1",
    ),
}
"""Of each language: a program that adds, one that raises, one that fills memory, and what is said
of the second.
"""
needs_cpp = pytest.mark.skipif("cpp" not in INSTALLED, reason="needs g++")


DETECTS_MODULES = (20, 19)
"""The version of node that takes a file with imports for a module."""
QUICK = {("python", "A"), ("c", "A"), ("cpp", "A"), ("javascript", "A"), ("javascript", "C"),
         ("verilog", "A")}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "tier"),
    [
        pytest.param(name, tier, marks=[] if (name, tier) in QUICK else [pytest.mark.long])
        for name in INSTALLED
        for tier in TIERS
    ],
)
def test_a_language_says_hello_and_its_lazy_programs_do_not(
    name: str, tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = probe_isolation()
    walls = tuple(wall for wall in found.walls if wall not in TIERS[tier])
    monkeypatch.setattr("assay.judge.judge.probe_isolation", lambda: replace(found, walls=walls))
    language = language_named(name)
    task = Task(name, "", (Exchange("", "hello\n"),), "", language=name)
    hello, broken, *lazy = judge_alone(
        [Job(task, source) for source in (language.hello, "((", *language.lazy.values())]
    )
    assert hello.verdict is Verdict.PASS, hello
    wrong = Verdict.ERROR if language.is_code else Verdict.WRONG  # any text is an answer
    assert broken.verdict in (Verdict.COMPILE, wrong)
    assert {execution.verdict for execution in lazy} <= {Verdict.WRONG}


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name in INSTALLED])
def test_a_program_adds_loops_raises_and_fills_memory(name: str) -> None:
    adds, raises, fills, error = PROGRAMS[name]
    task = Task(name, "", (Exchange("20 22\n", "42\n"),), "", language=name)
    right, wrong, raised, filled = judge_alone(
        [Job(task, source) for source in (adds, adds.replace("+", "-"), raises, fills)],
        Limits(cpu_seconds=2, memory_mb=256),
    )
    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.WRONG), (right, wrong)
    assert raised.verdict is Verdict.ERROR
    assert re.search(error, raised.detail), raised.detail
    assert filled.verdict in (Verdict.ERROR, Verdict.MEMORY)
    assert filled.memory_mb < 256 + 1024


def test_a_source_of_go_keeps_the_imports_that_it_uses() -> None:
    block = 'import (\n\t"fmt" // for "os."\n\tr "math/rand"\n\t"sync"\n)\n'
    more = 'import "container/list"\nimport "github.com/stretchr/testify/assert"\n'
    body = 'func f() { r.Int(); list.New(); sort.Ints(nil); assert.New(); fmt.Print("sync.") }\n'
    source = language_named("go").with_imports(f"package f\n\n{block}{more}{body}")
    assert source.endswith(body)
    lines = {line for line in source.split("\n") if line.startswith("import")}
    assert lines == {'import fmt "fmt"', 'import r "math/rand"', 'import list "container/list"',
                     'import sort "sort"'}  # fmt: skip


@pytest.mark.long
@pytest.mark.skipif("typescript" not in INSTALLED, reason="needs tsc")
def test_a_module_of_typescript_may_await_at_its_top_level() -> None:
    version = re.findall(r"\d+", language_named("javascript").versions()[0])
    if tuple(map(int, version[:2])) < DETECTS_MODULES:
        pytest.skip("this node takes no module")
    reads = 'import * as readline from "node:readline";\nlet sum: number = 0;\n'
    lines = "for await (const line of readline.createInterface({ input: process.stdin }))\n"
    adds = f"{reads}{lines}  for (const n of line.split(' ')) sum += +n;\nconsole.log(sum);\n"
    task, hashbang = replace(SUM, language="typescript"), "#!/usr/bin/env ts-node\n"
    reads = 'import * as fs from "node:fs";\nconst text: string = fs.readFileSync(0, "utf8");\n'
    returns = f"{reads}console.log(eval(text.trim().replace(' ', '+')));\nreturn;\n"
    right, wrong, broken, script = judge_all(
        [Job(task, hashbang + adds), Job(task, adds.replace("+=", "-=")), Job(task, adds + "(("),
         Job(task, hashbang + returns)]
    )  # fmt: skip
    verdicts = (right.verdict, wrong.verdict, broken.verdict)
    assert verdicts == (Verdict.PASS, Verdict.WRONG, Verdict.COMPILE), (right, wrong, broken)
    assert script.verdict is Verdict.PASS, script


@pytest.mark.long
@needs_cpp
def test_verdicts_are_those_of_python() -> None:
    programs = {
        ADDS: (Verdict.PASS, 2, ""),
        ADDS.replace("+", "-"): (Verdict.WRONG, 0, "test 1: line 1 is '-1', not '3'"),
        "int main() { return 3; }": (Verdict.ERROR, 0, "test 1: exited with status 3"),
        "int main() { *(volatile int *)0 = 1; }": (Verdict.ERROR, 0, "test 1: killed by SIGSEGV"),
        "int main() { for (;;); }": (Verdict.TIMEOUT, 0, "used more than"),
        "int main() { retrun 0; }": (Verdict.COMPILE, 0, "main.cpp:1:14: error: 'retrun'"),
    }
    for execution, (verdict, passed, detail) in zip(
        judge_all([Job(SUM, source) for source in programs], Limits(cpu_seconds=0.5)),
        programs.values(), strict=True,
    ):  # fmt: skip
        assert (execution.verdict, execution.passed, execution.total) == (verdict, passed, 2)
        assert detail in execution.detail.replace("\u2018", "'").replace("\u2019", "'")


@pytest.mark.skipif("javascript" not in INSTALLED, reason="needs node")
def test_no_typescript_program_is_judged_where_only_node_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without the compiler, which node loads, no program would seem to compile."""
    (tmp_path / "node").symlink_to(tool_path("node", ""))
    monkeypatch.setitem(ENVIRONMENT, "PATH", str(tmp_path))
    job = Job(replace(SUM, language="typescript"), language_named("typescript").hello)
    with pytest.raises(DataError, match=r"tsc is not installed; .* apt install node-typescript"):
        judge_alone([job])


@pytest.mark.long
@pytest.mark.skipif("java" not in INSTALLED, reason="needs a JDK")
def test_a_java_program_need_not_wait_for_a_random_number() -> None:
    """Its seed comes from the system: the JVM alone takes seconds for one, jar as well."""
    source = """public class Main { public static void main(String[] a) {
        System.out.println(new java.security.SecureRandom().nextInt(1)); } }"""
    task = Task("seed", "", (Exchange("", "0\n"),), "", language="java")
    (execution,) = judge_alone([Job(task, source)], Limits(cpu_seconds=1))
    assert execution.verdict is Verdict.PASS, execution


@needs_cpp
def test_equal_programs_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = programs_run(monkeypatch)
    tasks = [replace(SUM, id=str(n), checks=(Exchange(f"{n} {n}", f"{2 * n}"),)) for n in range(8)]
    assert {one.verdict for one in judge_all([Job(task, ADDS) for task in tasks])} == {Verdict.PASS}
    assert [program.fetch for program in runs].count(("program",)) == 1
    assert len(runs) == 9


@pytest.mark.long
@needs_cpp
def test_a_program_without_a_task_may_be_of_any_language() -> None:
    async def run(judge: Judge) -> tuple[str, Verdict]:
        run = await judge.execute(ADDS, "20 22", language="c++")
        broken = await judge.execute("int main(", language="cpp")
        return run.execution.output, broken.execution.verdict

    assert with_judge(run) == ("42", Verdict.COMPILE)


def test_an_unknown_language_and_tests_that_it_cannot_have_are_refused() -> None:
    with pytest.raises(DataError, match="the language 'lua' cannot be judged; known:"):
        task_from_dict({"exchanges": [{"stdin": "", "stdout": ""}], "language": "lua"})
    asserts = Task("f", "", (Check("assert f()"),), "f", language="c")
    (refused,) = judge_all([Job(asserts, "int f() { return 1; }")])
    assert (refused.verdict, refused.cause) == (Verdict.UNJUDGED, Cause.TASK)


def test_a_tool_that_is_absent_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(program: Program) -> Result:
        raise AssertionError(program)

    absent = replace(language_named("cpp"), compile=("no-such-g++", "main.cpp"))
    with pytest.raises(DataError, match=r"no-such-g\+\+ is not installed; .* apt install g\+\+"):
        asyncio.run(Builds(nothing).build(absent, ADDS))


SAYS_OK = "int main() { std::cout << (works() ? 3 : 4); }"
STANDARDS = {
    "concepts": "template <std::integral T> bool f(T) { return true; }\n"
    "bool works() { return f(1); }",
    "ranges": "bool works() { std::vector<int> v{2, 1}; std::ranges::sort(v); return v[0] == 1; }",
    "spaceship": "struct P { int a; auto operator<=>(const P&) const = default; };\n"
    "bool works() { return P{1} < P{2}; }",
    "designated, contains": "struct P { int a, b; };\n"
    "bool works() { return P{.a = 1, .b = 2}.b == 2 && std::set<int>{1}.contains(1); }",
    "C++23": "bool works() { return std::string(\"ab\").contains('a'); }",
    "char8_t": 'const char* text = u8"a";\nbool works() { return text[0] == 97; }',
    "names": "using namespace std;\nint midpoint = 3; struct span {};\n"
    "bool works() { span s; (void)s; return midpoint == 3; }",
    "aggregate": "struct A { A() = delete; };\nbool works() { A a{}; (void)a; return true; }",
}
"""What only the newest standard has, and at the end what only C++17 takes."""
needs_new_cpp = pytest.mark.skipif(
    "cpp" not in INSTALLED or language_named("cpp").title_here() < "C++23",
    reason="needs a g++ that knows C++23",
)


@needs_new_cpp
@pytest.mark.parametrize("form", ["C++23", "char8_t"])
def test_cpp_of_any_standard_is_compiled(form: str) -> None:
    task = replace(SUM, checks=(Exchange("", "3"),))
    (execution,) = judge_all([Job(task, f"#include <iostream>\n{STANDARDS[form]}\n{SAYS_OK}")])
    assert execution.verdict is Verdict.PASS, execution.detail


@needs_new_cpp
@pytest.mark.long
def test_every_form_of_each_standard_is_compiled() -> None:
    task = replace(SUM, checks=(Exchange("", "3"),))
    programs = [f"#include <bits/stdc++.h>\n{form}\n{SAYS_OK}" for form in STANDARDS.values()]
    assert {run.verdict for run in judge_all([Job(task, one) for one in programs])} == {
        Verdict.PASS
    }


@needs_new_cpp
def test_a_program_of_no_standard_fails_by_the_newest() -> None:
    (execution,) = judge_all(
        [Job(SUM, "int main() { auto f = []<typename T>(T) {}; f(1) + g(); }")]
    )
    assert execution.verdict is Verdict.COMPILE
    assert "typename" not in execution.detail
