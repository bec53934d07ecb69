"""Programs that try to use more memory than they may: what no limit of one process counts, and what
a look at the process's main thread does not show. Each on tiers A and C.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.judge import Job
from assay.languages import language_named
from assay.sandbox.limits import Limits
from assay.types import Exchange, Execution, Task, Verdict
from tests.attacks import hungry
from tests.judge.jobs import task
from tests.judge.opened import judge_all, take_walls_away
from tests.judge.test_languages import INSTALLED
from tests.sandbox.test_launch import WITHOUT

LIMITS = Limits(memory_mb=64, stack_mb=16, cpu_seconds=1, wall_seconds=10)
WANTED_MB = 1500
"""What each attack takes, in small steps, where nothing stops it."""
MOST_MB = 700
"""Far more than a program that is seen in time can take, and far less than it wants."""

NATIVE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
void *(*volatile fill)(void *, int, size_t) = memset;
void grow(char *at) {
  for (int step = 0; step < WANTED / 5; step++) {
    fill(at ? at + step * (5L << 20) : malloc(5 << 20), 1, 5 << 20);
    usleep(2000);
  }
}
void *grows(void *_) { usleep(50000); grow(0); puts("ok"); fflush(stdout); _exit(0); }
void *spins(void *_) { for (;;) ; }
void *ends(void *_) { grows(0); return 0; }
int main() {
  int which;
  pthread_t thread;
  if (scanf("%d", &which) != 1) return 1;
  switch (which) {
    ATTACKS
  }
  puts("ok");
  return 0;
}
"""
ATTACKS = {
    "the main thread exits": "pthread_create(&thread, 0, grows, 0); syscall(SYS_exit, 0);",
    "the main thread returns to pthread_exit": "pthread_create(&thread, 0, grows, 0);"
    " pthread_exit(0);",
    "two threads exit": "pthread_create(&thread, 0, ends, 0); pthread_create(&thread, 0, spins, 0);"
    " syscall(SYS_exit, 0);",
    "a moved stack": "{ char here[9]; long at = ((long)here & ~4095L) - 8192; *(char *)at = 1;"
    " char *all = mremap((void *)at, 4096, WANTED * (1L << 20), MREMAP_MAYMOVE);"
    " if (all == MAP_FAILED) return 2; grow(all); }",
    "huge pages": "{ char *all = mmap(0, WANTED * (1L << 20), 3, MAP_PRIVATE | MAP_ANONYMOUS, -1,"
    " 0); madvise(all, WANTED * (1L << 20), MADV_HUGEPAGE); grow(all); }",
}
THREADS = (
    "for (int n = 1; n < 60000; n++) { static char stacks[60001 * 512L]; long got; char *stack ="
    ' (char *)((long)(stacks + n * 512) & ~15L); asm volatile("syscall; test %%rax, %%rax; jnz 1f;'
    ' 2: mov $34, %%rax; syscall; jmp 2b; 1:" : "=a"(got) : "a"(56L), "D"(0x50f00L), "S"(stack),'
    ' "d"(0L), "r"(0L) : "rcx", "r11", "r10", "r8", "memory"); if (got < 0) return 3; }'
    " usleep(500000);"
)
"""Threads that wait, all with their stacks in a few MiB."""


def ended_native(bodies: list[str]) -> list[Execution]:
    """How each body of a main function in C ends; all are compiled at once."""
    if "c" not in INSTALLED:
        pytest.skip("needs gcc")
    source = native(bodies)
    tasks = [Task(f"{at}", "", (Exchange(f"{at}", "ok"),), "", language="c")
             for at in range(len(bodies))]  # fmt: skip
    return judge_all([Job(task, source) for task in tasks], LIMITS)


def native(bodies: list[str]) -> str:
    """One program in C with all the bodies, which reads the number of the one to run."""
    cases = "".join(f"case {at}: {body} break;\n" for at, body in enumerate(bodies))
    return NATIVE.replace("ATTACKS", cases).replace("WANTED", str(WANTED_MB))


@pytest.fixture(params=WITHOUT)
def tier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    take_walls_away(monkeypatch, request.param)
    return str(request.param)


def assert_bounded(runs: list[Execution]) -> None:
    seen = [(run.verdict, run.detail) for run in runs]
    assert {run.verdict for run in runs} == {Verdict.MEMORY}, seen
    assert max(run.memory_mb for run in runs) < MOST_MB, seen


@pytest.mark.usefixtures("tier")
def test_a_native_program_cannot_hide_what_it_uses() -> None:
    assert_bounded(ended_native([*ATTACKS.values()]))


def test_threads_with_tiny_stacks_are_bounded(tier: str) -> None:
    (run,) = ended_native([THREADS])
    assert run.verdict is (Verdict.ERROR if tier == "A" else Verdict.MEMORY), run.detail


@pytest.mark.usefixtures("tier")
def test_a_program_whose_main_thread_has_ended_has_its_time_limit() -> None:
    (run,) = ended_native(["pthread_create(&thread, 0, spins, 0); syscall(SYS_exit, 0);"])
    assert run.verdict is Verdict.TIMEOUT, run.detail
    assert run.cpu_seconds < LIMITS.cpu_seconds + 1


MOVED = f"""
import ctypes, time
libc = ctypes.CDLL(None)
libc.mremap.restype = ctypes.c_size_t
libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
low = (ctypes.c_void_p.in_dll(libc, "__libc_stack_end").value & ~4095) - 26 * 4096
for at in range(low, low - 40 * 4096, -4096):
    moved = libc.mremap(at, 4096, {WANTED_MB} << 20, 1)
    if moved != 2**64 - 1:
        break
else:
    raise SystemExit("no page of the stack can be moved")
for step in range({WANTED_MB} // 5):
    libc.memset(moved + 4096 + step * (5 << 20), 1, (5 << 20) - 4096)
    time.sleep(0.002)
"""


@pytest.mark.usefixtures("tier")
def test_a_stack_that_was_moved_is_memory_in_python_too() -> None:
    printing = Task("ok", "", (Exchange("", "ok"),), "")
    jobs = [Job(printing, f"{before}{MOVED}print('ok')") for before in ("", "import tempfile\n")]
    assert_bounded(judge_all(jobs, LIMITS))


FILLS = f"""
import resource, threading, time
RESERVES
_, most = resource.getrlimit(resource.RLIMIT_DATA)
resource.setrlimit(resource.RLIMIT_DATA, (most, most))
kept = []
for step in range({WANTED_MB} // 5):
    kept.append(bytes(b"1") * (5 << 20))
    time.sleep(0.002)
print('ok')
"""
RESERVES = {
    "the limit": "",
    "stacks": "threading.stack_size(2**29)",
    "threads": "threading.stack_size(2**29); started = threading.Event()\n"
    "for _ in range(2): threading.Thread(target=started.wait, daemon=True).start()",
    "threads of the C module": "import _thread; _thread.stack_size(2**28)\n"
    "_thread.start_new_thread(time.sleep, (9,))",
}
"""By which warm Python may reserve more than it may use."""


@pytest.mark.usefixtures("tier")
def test_what_warm_python_may_reserve_it_may_not_use() -> None:
    printing = Task("ok", "", (Exchange("", "ok"),), "")
    programs = [FILLS.replace("RESERVES", how) for how in RESERVES.values()]
    assert_bounded(judge_all([Job(printing, program) for program in programs], LIMITS))


HIDDEN = {
    "open": "",
    "mapped": "mmap(0, 4096, PROT_READ, MAP_SHARED, file, 0); close(file);",
    "sent to itself": "{ char room[CMSG_SPACE(sizeof file)] = {0}; struct iovec io = {bytes, 1};"
    " struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = room,"
    " .msg_controllen = sizeof room}; struct cmsghdr *h = CMSG_FIRSTHDR(&m);"
    " h->cmsg_level = SOL_SOCKET; h->cmsg_type = SCM_RIGHTS; h->cmsg_len = CMSG_LEN(sizeof file);"
    " memcpy(CMSG_DATA(h), &file, sizeof file); if (sendmsg(ends[0], &m, 0) < 0) return 4;"
    " close(file); }",
}
NAMELESS = (
    "{ static char bytes[1 << 20]; int ends[2]; socketpair(AF_UNIX, SOCK_STREAM, 0, ends);"
    ' for (int n = 0; n < 25; n++) { int file = open("f", O_CREAT | O_RDWR, 0600);'
    ' unlink("f"); for (int mb = 0; mb < 60; mb++) { if (write(file, bytes, 1 << 20) < 0) return'
    " 3; usleep(500); } HIDES } }"
)


def test_files_without_names_are_bounded(tier: str) -> None:
    runs = ended_native([NAMELESS.replace("HIDES", how) for how in HIDDEN.values()])
    *kept, sent = [run.verdict for run in runs]
    full = Verdict.ERROR if tier == "A" else Verdict.MEMORY  # a file system of its own says so
    assert (kept, sent) == ([full] * 2, Verdict.ERROR), [run.detail for run in runs]


@pytest.mark.long
@pytest.mark.usefixtures("tier")
@pytest.mark.parametrize("language", hungry.PROGRAMS)
def test_no_language_takes_more_than_its_memory_and_its_runtimes(language: str) -> None:
    if language not in INSTALLED:
        pytest.skip(f"needs the tools of {language}")
    source, ways = hungry.PROGRAMS[language]
    tasks = [Task(f"{at}", "", (Exchange(f"{at}", "ok"),), "", language=language)
             for at in range(ways)]  # fmt: skip
    patient = replace(LIMITS, cpu_seconds=5)  # a runtime's start takes a second on a slow machine
    runs = judge_all([Job(task, source) for task in tasks], patient)
    seen = [(run.verdict, run.detail, run.memory_mb) for run in runs]
    assert {run.verdict for run in runs} <= {Verdict.MEMORY, Verdict.ERROR}, seen
    assert runs[0].verdict is Verdict.MEMORY
    runtime_mb = language_named(language).runtime_mb
    assert max(run.memory_mb for run in runs) < MOST_MB + runtime_mb, seen


IN_ITS_FOLDER = """
def f():
    import mmap, os, time
    kept = []
    for n in range(25):
        kept.append(open(f"f{n}", "w+b", buffering=0))
        for mb in range(60):
            kept[-1].write(bytes(1 << 20))
            time.sleep(0.0005)
        HIDES
    return "x"
"""
HIDES = {
    "files": "kept.pop().close()",
    "removed files": "os.unlink(f'f{n}')",
    "mapped files": "os.unlink(f'f{n}'); kept.append(mmap.mmap(kept[-1].fileno(), 0));"
    " kept.pop(-2).close()",
    "renamed files": "os.makedirs(f'd/{n}'); os.rename(f'f{n}', f'd/{n}/x'); kept.pop().close()",
}


@pytest.mark.parametrize("how", HIDES)
def test_files_of_warm_python_are_bounded(tier: str, how: str) -> None:
    shared = task("f", "open('in', 'w').write('x')\nassert f() == open('in').read()")
    (run,) = judge_all([Job(shared, IN_ITS_FOLDER.replace("HIDES", HIDES[how]))], LIMITS)
    full = Verdict.ERROR if tier == "A" else Verdict.MEMORY  # a file system of its own says so
    assert run.verdict is full, (run.verdict, run.detail)
