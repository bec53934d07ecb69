"""Programs may reserve large stacks; what they use is limited."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from assay.judge import Job
from assay.types import Exchange, Execution, Task, Verdict
from tests.judge.opened import judge_all
from tests.judge.test_languages import INSTALLED


def ended(
    programs: Sequence[str], language: str = "python", inputs: Sequence[str] = ("",)
) -> list[Execution]:
    """How programs end that should print ok for each input."""
    if language not in INSTALLED:
        pytest.skip(f"needs the tools of {language}")
    tasks = [Task("ok", "", (Exchange(stdin, "ok"),), "", language=language) for stdin in inputs]
    return judge_all([Job(task, program) for task in tasks for program in programs])


DEEP = """\
import sys, threading
{}
sys.setrecursionlimit(10**6)
def f(n):
    return 0 if n == 0 else 1 + f(n - 1)
def main():
    print('ok' if f(50_000) == 50_000 else 'no')
{}
"""
IN_THREAD = "thread = threading.Thread(target=main); thread.start(); thread.join()"
FOLDER = "import tempfile\n"
"""Has a program run in a folder, by exec."""
RAISES = [
    "import resource; resource.setrlimit(resource.RLIMIT_STACK, (-1, -1))",
    "import resource; resource.setrlimit(resource.RLIMIT_STACK, (2**29, -1))",
    "import resource; resource.setrlimit(3, (2**29, resource.getrlimit(3)[1]))",
    "import resource; resource.prlimit(0, resource.RLIMIT_STACK, (2**30, 2**30))",
]


def test_python_may_ask_for_more_stack_in_each_way() -> None:
    programs = [DEEP.format(how, "main()") for how in RAISES]
    programs += [
        DEEP.format(f"threading.stack_size({size})", IN_THREAD)
        for size in (2**15, 2**26, 2**28, 2**29, 2**30, 2**31)
    ]
    programs.append(DEEP.format("import _thread; _thread.stack_size(2**29)", IN_THREAD))
    runs = ended([*programs, FOLDER + programs[0], FOLDER + programs[7]])
    assert [(run.verdict, run.detail) for run in runs] == [(Verdict.PASS, "")] * len(runs)


MANY = """\
import sys, threading
threading.stack_size({size})
sys.setrecursionlimit(10**6)
all_there, depths = threading.Barrier({threads}), []
def f(n):
    return 0 if n == 0 else 1 + f(n - 1)
def main():
    all_there.wait()
    depths.append(f(20_000))
threads = [threading.Thread(target=main) for _ in range({threads})]
for thread in threads: thread.start()
for thread in threads: thread.join()
print('ok' if depths == [20_000] * {threads} else 'no')
"""


def test_several_threads_of_python_may_reserve_large_stacks() -> None:
    sizes = [(2**29, 2), (2**30, 3), (2**26, 16), (2**31, 8)]
    programs = [MANY.format(size=size, threads=threads) for size, threads in sizes]
    runs = ended([*programs, FOLDER + programs[0]])
    assert [(run.verdict, run.detail) for run in runs] == [(Verdict.PASS, "")] * len(runs)


def test_the_size_of_threads_is_checked_as_pythons() -> None:
    wrong = "import threading\ntry:\n    threading.stack_size({})\nexcept {}:\n    print('ok')"
    runs = ended([wrong.format("1000", "ValueError"), wrong.format("'1'", "TypeError"),
                  wrong.format("-1", "ValueError")])  # fmt: skip
    assert {run.verdict for run in runs} == {Verdict.PASS}


CPP = """\
#include <cstring>
#include <cstdlib>
#include <iostream>
#include <sys/resource.h>
#include <thread>
#include <vector>
#include <atomic>
long deep(long n) {{ volatile char b[64]; b[n % 64] = 1; return n ? deep(n - 1) + b[n % 64] : 0; }}
void *(*volatile fill)(void *, int, size_t) = memset;
int main() {{
  int which;
  std::cin >> which;
  {}
  std::cout << "ok";
}}
"""


def ended_cpp(bodies: Sequence[str]) -> list[Execution]:
    """How each body of a main function ends; all are compiled at once."""
    cases = "".join(f"if (which == {at}) {{ {body} }}\n" for at, body in enumerate(bodies))
    return ended([CPP.format(cases)], "cpp", [str(at) for at in range(len(bodies))])


SETS = (
    "rlimit r; getrlimit(RLIMIT_STACK, &r); r.rlim_cur = {}; if (r.rlim_cur > r.rlim_max)"
    " r.rlim_max = r.rlim_cur; if (setrlimit(RLIMIT_STACK, &r)) return 1;"
    " if (deep(1000000) != 1000000) return 2;"
)
THREADS = (
    "std::atomic<int> n{0}; std::vector<std::thread> all; for (int i = 0; i < 24; i++)"
    " all.emplace_back([&] { n++; while (n < 24) std::this_thread::yield(); });"
    " for (auto &one : all) one.join();"
)


def test_a_compiled_program_may_reserve_stacks_for_recursion_and_threads() -> None:
    bodies = [SETS.format("512L << 20"), SETS.format("RLIM_INFINITY"), THREADS,
              "if (deep(2000000) != 2000000) return 1;", "malloc(2L << 30);"]  # fmt: skip
    runs = ended_cpp(bodies)
    assert [(run.verdict, run.detail) for run in runs] == [(Verdict.PASS, "")] * len(runs)


USES = {
    "heap": "fill(malloc(800L << 20), 1, 800L << 20);",
    "in pieces": "for (int i = 0; i < 90; i++) fill(malloc(10 << 20), 1, 10 << 20);",
    "stack and heap": "fill(malloc(500L << 20), 1, 500L << 20); deep(3000000);",
    "stacks of threads": "std::vector<std::thread> all; for (int i = 0; i < 8; i++)"
    " all.emplace_back([] { fill(alloca(120 << 20), 1, 120 << 20); });"
    " for (auto &one : all) one.join();",
    "endless": "for (;;) fill(malloc(1 << 20), 1, 1 << 20);",
}


def test_a_program_that_uses_more_than_its_memory_never_passes() -> None:
    runs = ended_cpp([*USES.values()])
    assert {run.verdict for run in runs} == {Verdict.MEMORY}, [run.detail for run in runs]
    assert max(run.memory_mb for run in runs) < 2048


def test_an_interpreter_in_a_folder_is_held_to_what_it_uses() -> None:
    fills = "x = [bytearray(b'1') * 2**20 for _ in range(800)]\nprint('ok')"
    caught = f"try:\n    {fills.splitlines()[0]}\nexcept MemoryError:\n    pass\nprint('ok')"
    *runs, warm = ended([FOLDER + fills, FOLDER + caught, fills])
    assert {run.verdict for run in runs} == {Verdict.MEMORY}, [run.detail for run in runs]
    assert "MemoryError" in warm.detail


@pytest.mark.long
@pytest.mark.parametrize("size", ["1L << 29", "1L << 30"])
def test_a_thread_of_java_may_reserve_its_stack(size: str) -> None:
    program = (
        "class Main { static int f(int n) { return n == 0 ? 0 : 1 + f(n - 1); }"
        " public static void main(String[] a) throws Exception { Thread t = new Thread(null,"
        ' () -> System.out.println(f(1000000) == 1000000 ? "ok" : "no"), "", SIZE);'
        " t.start(); t.join(); } }"
    ).replace("SIZE", size)
    fills = (
        "import java.util.*; class Main { public static void main(String[] a) { List<byte[]> l ="
        " new ArrayList<>(); for (int i = 0; i < 3000; i++) { byte[] b = new byte[1 << 20];"
        ' Arrays.fill(b, (byte) 1); l.add(b); } System.out.println("ok"); } }'
    )
    deep, full = ended([program, fills], "java")
    assert deep.verdict is Verdict.PASS
    assert full.verdict in (Verdict.MEMORY, Verdict.ERROR)


@pytest.mark.long
def test_a_thread_of_rust_may_reserve_its_stack() -> None:
    program = (
        "fn f(n: u64) -> u64 { if n == 0 { 0 } else { let a = [n; 8]; 1 + f(a[n as usize % 8] - 1)"
        " } }\nfn main() { let t = std::thread::Builder::new().stack_size(1 << 30).spawn(|| {"
        ' println!("{}", if f(400000) == 400000 { "ok" } else { "no" }); }).unwrap();'
        " t.join().unwrap(); }"
    )
    (run,) = ended([program], "rust")
    assert run.verdict is Verdict.PASS, run.detail


def test_to_set_the_stacks_limit_changes_no_limit_and_opens_no_other() -> None:
    program = """\
import resource
before = {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource)
          if name.startswith("RLIMIT")}
resource.setrlimit(resource.RLIMIT_STACK, (2**40, 2**40))
for other in (resource.RLIMIT_DATA, resource.RLIMIT_AS):
    try:
        resource.setrlimit(other, (2**40, 2**40))
    except (OSError, ValueError):
        continue
    raise SystemExit(f"raised {other}")
after = {name: resource.getrlimit(getattr(resource, name)) for name in before}
print("ok" if before == after else after)
"""
    runs = ended([program, FOLDER + program])
    assert [(run.verdict, run.detail) for run in runs] == [(Verdict.PASS, "")] * 2
