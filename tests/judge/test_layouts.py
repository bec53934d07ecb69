"""Programs as people lay them out: standard streams opened as files, files of their own, and Java
in any type, package or order.
"""

from __future__ import annotations

import pytest

from assay.judge import Job
from assay.types import Call, Check, Exchange, OwnTests, Task, Verdict
from tests.judge.opened import judge_all, take_walls_away
from tests.judge.test_languages import INSTALLED

ADDS = (
    'const [a, b] = fs.readFileSync("/dev/stdin", "utf8").split(" ").map(Number);'
    " console.log(a + b)"
)
JAVA = (
    "static void main(String[] a) { Scanner in = new Scanner(System.in);"
    " System.out.println(in.nextInt() + in.nextInt()); }"
)
OPENS = {
    "javascript": f'const fs = require("fs");\n{ADDS}',
    "typescript": f'import fs from "fs";\n{ADDS}',
    "c": '#include <stdio.h>\nint main() { int a, b; FILE *in = fopen("/dev/stdin", "r");'
    ' FILE *out = fopen("/dev/stdout", "w"); fscanf(in, "%d %d", &a, &b);'
    ' fprintf(out, "%d\\n", a + b); fclose(out);'
    ' out = fopen("/dev/stderr", "w"); return out == 0; }',
    "python": 'a, b = map(int, open("/dev/stdin").read().split())\n'
    'print(a + b, file=open("/dev/stdout", "w"))',
    "go": 'package main\nimport ("fmt"; "os")\nfunc main() { f, e := os.Open("/dev/stdin");'
    " if e != nil { panic(e) }; var a, b int; fmt.Fscan(f, &a, &b); fmt.Println(a + b) }",
    "rust": 'fn main() { let s = std::fs::read_to_string("/dev/stdin").unwrap();'
    " let v: i64 = s.split_whitespace().map(|w| w.parse::<i64>().unwrap()).sum();"
    ' println!("{}", v); }',
    "java": "import java.util.*;\nclass Main {"
    " public static void main(String[] a) throws Exception {"
    ' Scanner in = new Scanner(new java.io.File("/dev/stdin"));'
    " System.out.println(in.nextInt() + in.nextInt()); } }",
}
FILES = {
    "python": "import os\nname = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'own')\n"
    "open(name, 'w').write(str(sum(map(int, input().split()))))\nprint(open(name).read())",
}
COPIES = {
    "c": "#include <stdio.h>\nint main(void) { int a, b; FILE *f = tmpfile(); if (!f) return 1;"
    ' scanf("%d %d", &a, &b); fprintf(f, "%d", a + b); rewind(f); fscanf(f, "%d", &a);'
    ' printf("%d\\n", a); }',
    "cpp": "#include <filesystem>\n#include <fstream>\n#include <iostream>\nint main() {"
    ' int a, b; std::cin >> a >> b; std::ofstream("x") << a + b << std::endl;'
    ' std::filesystem::copy_file("x", "y"); std::cout << std::ifstream("y").rdbuf(); }',
    "rust": "use std::fs;\nfn main() { let mut s = String::new();"
    " std::io::stdin().read_line(&mut s).unwrap();"
    " let v: i64 = s.split_whitespace().map(|w| w.parse::<i64>().unwrap()).sum();"
    ' fs::write("x", v.to_string()).unwrap(); fs::copy("x", "y").unwrap();'
    ' println!("{}", fs::read_to_string("y").unwrap()); }',
    "javascript": 'const fs = require("fs");\n'
    'const [a, b] = fs.readFileSync(0, "utf8").split(" ").map(Number);'
    ' fs.writeFileSync("x", String(a + b)); fs.copyFileSync("x", "y");'
    ' console.log(fs.readFileSync("y", "utf8"))',
    "java": "import java.nio.file.*;\nclass Main {"
    " public static void main(String[] a) throws Exception {"
    ' var in = new java.util.Scanner(System.in); var x = Path.of("x"); var y = Path.of("y");'
    ' Files.writeString(x, "" + (in.nextInt() + in.nextInt()));'
    " Files.copy(x, y, StandardCopyOption.COPY_ATTRIBUTES);"
    " System.out.println(Files.readString(y)); } }",
    "go": 'package main\nimport ("fmt"; "os")\nfunc main() { var a, b int; fmt.Scan(&a, &b);'
    ' f, e := os.Create("y"); if e == nil { e = f.Chmod(0644) }; if e != nil { panic(e) };'
    ' fmt.Fprint(f, a + b); s, _ := os.ReadFile("y"); fmt.Println(string(s)) }',
    "ruby": 'require "fileutils"\nFile.write("x", gets.split.sum(&:to_i))\n'
    'FileUtils.cp("x", "y")\nputs File.read("y")',
    "python": "import shutil\nopen('x', 'w').write(str(sum(map(int, input().split()))))\n"
    "shutil.copy2('x', 'y')\nprint(open('y').read())",
}
"""Each copies a file, and the one in C opens a temporary one."""
NEEDS = {"C": {"c", "cpp"}}
"""What a tier lacks: a /tmp of one's own; modes of open files, without which libstdc++'s copies
cannot be read."""
LAYOUTS = {
    "abstract": f"public abstract class Sum {{ public {JAVA} }}",
    "record": f"public record Sum(int a) {{ public {JAVA} }}",
    "enum": f"public enum Sum {{ A; public {JAVA} }}",
    "interface": f"public interface Sum {{ {JAVA} }}",
    "strictfp": f"public strictfp class Sum {{ public {JAVA} }}",
    "annotated": f'@SuppressWarnings("all") public class Sum {{ public {JAVA} }}',
    "tabs": f"\tpublic\tfinal\tclass\tSum\t{{ public {JAVA} }}",
    "a comment that names another": f"// public class Other\npublic class Sum {{ public {JAVA} }}",
    "main in a class that is not public": f"class Sum {{ public {JAVA} }}",
    "main beside a public class": f"public class Other {{}}\nclass Sum {{ public {JAVA} }}",
    "final arguments": f"class Sum {{ public {JAVA.replace('String[] a', 'final String... a')} }}",
}

FEW = ["record", "main beside a public class"]
"""Those of `make test`: each takes two seconds of the compiler."""


def adds(language: str, stdin: str = "1 2\n", stdout: str = "3\n") -> Task:
    return Task("sum", "", (Exchange(stdin, stdout),), "", language=language)


def assert_all_pass(programs: dict[str, str]) -> None:
    there = [name for name in programs if name in INSTALLED]
    executions = judge_all([Job(adds(name), programs[name]) for name in there])
    failed = {
        name: one.detail for name, one in zip(there, executions, strict=True) if not one.passed
    }
    assert not failed


@pytest.fixture(params=["A", pytest.param("C", marks=pytest.mark.long)])
def tier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The tier as which this machine is taken."""
    take_walls_away(monkeypatch, request.param)
    return str(request.param)


@pytest.mark.long
@pytest.mark.usefixtures("tier")
def test_programs_open_their_standard_streams_as_files() -> None:
    assert_all_pass(OPENS)


@pytest.mark.long
def test_programs_copy_files_and_open_temporary_ones(tier: str) -> None:
    assert_all_pass({name: one for name, one in COPIES.items() if name not in NEEDS.get(tier, ())})


def test_programs_write_files_beside_their_own() -> None:
    assert_all_pass(FILES)


def test_a_function_knows_the_file_that_it_is_in() -> None:
    where = "import os\nHERE = os.path.dirname(os.path.abspath(__file__))\n"
    plain = f"{where}def add(a, b): return a + b if os.path.isdir(HERE) else 0"
    keeps = (
        f"{where}def add(a, b):\n    with open(os.path.join(HERE, 'own'), 'w') as file:\n"
        "        file.write(str(a + b))\n    return int(open('own').read())"
    )
    for check in (Call("[1, 2]", "3"), Check("assert add(1, 2) == 3")):
        (execution,) = judge_all([Job(Task("add", "", (check,), "add"), plain)])
        assert execution.verdict is Verdict.PASS, execution.detail
    mentions = Check("import os\nassert add(1, 2) == 3\nassert os.path.exists('own')")
    (execution,) = judge_all([Job(Task("add", "", (mentions,), "add"), keeps)])
    assert execution.verdict is Verdict.PASS, execution.detail


@pytest.mark.skipif("java" not in INSTALLED, reason="needs java")
@pytest.mark.parametrize(
    ("package", "names"),
    [
        pytest.param("package a.b;\n", FEW, id="few, in a package", marks=pytest.mark.long),
        pytest.param("", [*LAYOUTS], id="all", marks=pytest.mark.long),
        pytest.param("package a.b;\n", [*LAYOUTS], id="all, in a package", marks=pytest.mark.long),
    ],
)
def test_java_runs_in_any_layout_with_one_main(package: str, names: list[str]) -> None:
    programs = {name: f"{package}import java.util.*;\n{LAYOUTS[name]}" for name in names}
    executions = judge_all([Job(adds("java"), text) for text in programs.values()])
    failed = {
        name: one.detail for name, one in zip(programs, executions, strict=True) if not one.passed
    }
    assert not failed


@pytest.mark.long
@pytest.mark.skipif("java" not in INSTALLED, reason="needs java")
def test_java_tests_that_assert_fail_a_wrong_program() -> None:
    main = "class Main { public static void main(String[] a) { assert Sum.add(1, 2) == 3; } }"
    task = Task("add", "", (OwnTests(main),), "add", language="java")
    source = "class Sum {{ static int add(int a, int b) {{ return {}; }} }}\n"
    right, wrong = judge_all([Job(task, source.format(what)) for what in ("a + b", "a - b")])
    assert right.verdict is Verdict.PASS
    assert not wrong.passed


@pytest.mark.skipif("javascript" not in INSTALLED, reason="needs node")
@pytest.mark.parametrize(
    "source",
    [
        "export function add(a, b) { return a + b }",
        "export default async function other() {}\nexport const add = (a, b) => a + b",
        "function add(a, b) { return a + b }\nexport { add };",
        "function add(a, b) { return a + b }\nexport default add;",
    ],
)
def test_a_function_that_a_module_exports_is_called(source: str) -> None:
    tests = OwnTests('const assert = require("assert"); assert.equal(add(1, 2), 3);')
    for check in (Call("[1, 2]", "3"), tests):
        task = Task("add", "", (check,), "add", language="javascript")
        (execution,) = judge_all([Job(task, source)])
        assert execution.verdict is Verdict.PASS, execution.detail


@pytest.mark.long
@pytest.mark.skipif("rust" not in INSTALLED, reason="needs rustc")
def test_a_sum_that_overflows_panics_in_rust_as_where_its_tests_are_run() -> None:
    source = OPENS["rust"].replace("i64", "i8")
    small, large = adds("rust"), adds("rust", "100 100\n", "-56\n")
    debug = f"{source[:-1]} debug_assert!(v < 0); }}"
    own = OwnTests("fn main() { assert_eq!(add(i32::MAX, 1), i32::MIN); }")
    tested = Task("add", "", (own,), "add", language="rust")
    jobs = [Job(small, source), Job(large, source), Job(small, debug)]
    jobs.append(Job(tested, "fn add(a: i32, b: i32) -> i32 { a + b }"))
    right, *panics = judge_all(jobs)
    assert right.verdict is Verdict.PASS
    for one, why in zip(panics, ("overflow", "assertion", "overflow"), strict=True):
        assert one.verdict is Verdict.ERROR
        assert why in one.detail
