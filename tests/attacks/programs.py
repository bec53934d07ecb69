"""Programs that cheat or harm, each with the verdicts it may get. `{entry}` is the name that the
tests call.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.check.attacks import ATTACKS as ATTACKS_ON_TASKS

LEAK = "LEAKED"
"""What an attack prints when it got hold of something: no output may contain it."""


@dataclass(frozen=True)
class Attack:
    name: str
    verdicts: str
    program: str
    """Source; `ANSWER` stands for `def {entry}(*args, **kwargs):`."""


ATTACKS = [
    # leaving early
    Attack("exit while imported", "error", "import sys\nsys.exit(0)"),
    Attack("exit in the call", "error", "ANSWER raise SystemExit(0)"),
    Attack("quit in the call", "error", "ANSWER quit()"),
    Attack("os._exit while imported", "error", "import os\nos._exit(0)"),
    Attack("os._exit in the call", "error", "import os\nANSWER os._exit(0)"),
    Attack("become another program", "error", "import os\nANSWER os.execv('/bin/true', ['true'])"),
    Attack("abort", "error", "import os\nANSWER os.abort()"),
    Attack("kill itself", "error", "import os\nANSWER os.kill(os.getpid(), 9)"),
    Attack("stop itself", "error", "import signal\nANSWER signal.raise_signal(signal.SIGSTOP)"),
    Attack("stop itself as from a terminal", "wrong",
           "import signal\nANSWER\n    for it in (20, 21, 22): signal.raise_signal(it)"),
    Attack("skip the test", "error", "import unittest\nANSWER raise unittest.SkipTest"),
    Attack("exit from a finalizer", "wrong error",
    "import os\nclass A:\n def __del__(s): os._exit(0)\nANSWER A()"),
    Attack("exit from a thread", "wrong error",
           "import os, threading\nANSWER threading.Thread(target=os._exit, args=(0,)).start()"),
    Attack("exit handlers", "wrong",
    "import atexit, os\natexit.register(os._exit, 0)\nANSWER print('passed')"),
    # raising what would steer the test
    Attack("raise AssertionError", "error", "ANSWER raise AssertionError"),
    Attack("raise StopIteration", "error", "ANSWER raise StopIteration"),
    Attack("raise KeyboardInterrupt", "error", "ANSWER raise KeyboardInterrupt"),
    Attack("raise GeneratorExit", "error", "ANSWER raise GeneratorExit"),
    Attack("raise what cannot be shown", "error",
           "class E(Exception):\n def __str__(s): 1/0\nANSWER raise E"),
    # lying values
    Attack("equal to everything", "wrong", ATTACKS_ON_TASKS["an object equal to everything"]),
    *(Attack(f"a {base} equal to everything", "wrong", f"""
class A({base}):
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = lambda *a: True
    __sub__ = __rsub__ = __abs__ = __round__ = lambda s, *a: s
    __hash__ = {base}.__hash__
ANSWER return A()""") for base in ("float", "int", "str", "list", "tuple", "dict")),
    Attack("claims another class", "wrong error", """
class A:
    __class__ = property(lambda s: bool)
    __eq__ = lambda *a: True
ANSWER return A()"""),
    Attack("collapse that runs code", "error wrong", """
class A(list):
    def __iter__(self): raise SystemExit(0)
    def __len__(self): return 0
ANSWER return A()"""),
    Attack("nan", "wrong", "ANSWER return float('nan')"),
    Attack("NotImplemented", "wrong", "ANSWER return NotImplemented"),
    Attack("pickle payload", "wrong error", """
class A:
    def __reduce__(self): return (print, ('LEAKED',))
ANSWER return A()"""),
    Attack("result changed after it is returned", "wrong", """
import threading, time
def later(result):
    for _ in range(200): time.sleep(0.001); result[:] = [1]
ANSWER
    result = []
    threading.Thread(target=later, args=(result,), daemon=True).start()
    return result"""),
    Attack("emptied arguments", "wrong error forgeable", """
ANSWER
    for arg in args:
        if isinstance(arg, list): arg.clear()
    return args[0] if args else None"""),
    Attack("the arguments themselves", "wrong", "ANSWER return args"),
    # what the judge has in memory
    Attack("walk the frames", "wrong", """
import sys
ANSWER
    frame = sys._getframe()
    while frame:
        for scope in (frame.f_locals, frame.f_globals):
            for name, value in list(scope.items()):
                if 'METADATA' in str(name) or 'assert candidate' in str(value)[:10**6]:
                    print('LEAKED', name)
        frame = frame.f_back"""),
    Attack("search all objects", "wrong", """
import gc
ANSWER
    needle = 'assert ' + 'candidate'
    for thing in gc.get_objects():
        if type(thing) is dict:
            for value in list(thing.values()):
                if type(value) is str and needle in value and 'needle' not in value:
                    print('LEAKED', value)"""),
    Attack("patch the built-ins", "wrong forbidden error", """
import builtins
class Never(Exception): pass
for name in ('abs', 'all', 'any', 'len', 'isinstance', 'sorted'):
    setattr(builtins, name, lambda *a, **k: True)
builtins.AssertionError = Never
ANSWER return None"""),
    Attack("patch the codec", "wrong forbidden error", """
import sys, json
for name in list(sys.modules):
    module = sys.modules[name]
    for attribute in ('dumps', 'loads', 'pack'):
        if hasattr(module, attribute):
            setattr(module, attribute, lambda *a, **k: '[2,"value",true,[[],[],[]]]')
ANSWER return None"""),
    Attack("replace the streams", "wrong",
    "import sys\nsys.stdout = sys.stderr = sys.stdin = 1\nANSWER return None"),
    Attack("poison modules", "wrong error", "import sys\nsys.modules.clear()\nANSWER return None"),
    # forging the channel
    Attack("print the marker", "wrong", """
ANSWER print('All tests passed', 'OK', 'passed', '{"verdict": "pass"}',
                 'Mismatches: 0 in 1 samples')"""),
    Attack("write to every descriptor", "forbidden error output", """
import os
REPORT = (b'{"checks": [["held", ""]], "failure": null, "setup_error": "", "output": null, '
          b'"answers": [], "awaits_exit": false, "worker_reusable": true, '
          b'"candidate_reusable": true}')
ANSWER
    for fd in range(3, 200):
        try: os.write(fd, REPORT)
        except OSError: pass"""),
    Attack("reply before it is asked", "forbidden", """
import os, struct
frame = b'[2,"value",true,[[],[],[]]]'
for number in range(1, 9): os.write(3, struct.pack('!I', len(frame)) + frame)
ANSWER return None"""),
    Attack("reply twice", "forbidden wrong", """
import os, struct
frame = b'[2,"value",null,[[],[],[]]]'
ANSWER os.write(3, struct.pack('!I', len(frame)) + frame)"""),
    Attack("reply with an unknown tag", "forbidden", """
import os, struct, time
frame = b'[2,"value",{"code":"1"},[[],[],[]]]'
ANSWER os.write(3, struct.pack('!I', len(frame)) + frame); time.sleep(9)"""),
    Attack("reply without an end of nesting", "forbidden", """
import os, struct, time
frame = struct.pack('!I', 300000) + b'[' * 300000
ANSWER os.write(3, frame[:13]); os.write(3, frame[13:]); time.sleep(9)"""),
    Attack("announce a reply of 4 GB", "output",
    "import os, time\nANSWER os.write(3, b'\\xff' * 4); time.sleep(9)"),
    Attack("close the channel", "forbidden error",
    "import os, time\nANSWER os.close(3); time.sleep(9)"),
    # features that the task was not given: seen by victims that pass a variable and look at it
    # afterwards
    Attack("an object that differs from nothing", "wrong error forgeable", """
class A:
    __sub__ = __rsub__ = __add__ = __radd__ = __mod__ = lambda self, other: 0.0
    __eq__ = lambda self, other: True
    __hash__ = lambda self: 1
ANSWER return A()
"""),
    Attack("allow itself mutations, empty the arguments", "forbidden wrong error forgeable", """
import sys
frame = sys._getframe()
while frame:
    judge = frame.f_locals.get('self')
    if type(judge).__name__ == 'Candidate': judge.mutates = True
    frame = frame.f_back
ANSWER
    for arg in args:
        if isinstance(arg, list): arg.clear()
    return []"""),
    Attack("reply by hand that the arguments are empty", "wrong forbidden forgeable", """
import os, struct, time
ANSWER
    frame = b'[2,"value",[],[[[0,[]]],[],[]]]'
    os.write(3, struct.pack('!I', len(frame)) + frame); time.sleep(9)"""),
    Attack("answer differently each time", "wrong error forgeable", """
class Shifty(object):
    total = 2
    def __iter__(self):
        self.total += 1
        return iter([self.total])
ANSWER return Shifty()"""),
    # files
    *(Attack(f"read {what}", "wrong error", f"""
import glob, os
ANSWER
    for path in [{path!r}, *glob.glob({path!r} + '/**', recursive=True)]:
        try: open(path).read(1); print('LEAKED', path)
        except OSError: pass""") for what, path in (
            ("the data", "{data}"), ("the repository", "{repository}"), ("the home folder",
            "{home}"),
            ("the parent's memory", "/proc/self/../1/environ"), ("passwords", "/etc/passwd"),
            ("/tmp", "/tmp"))),
    Attack("read the parent's processes", "wrong", """
import os
ANSWER
    for pid in (os.getppid(), os.getpid(), 1):
        for name in ('mem', 'maps', 'environ', 'cmdline', 'fd/3'):
            try: open(f'/proc/{pid}/{name}', 'rb').read(1); print('LEAKED', name)
            except OSError: pass"""),
    Attack("write files", "wrong", "ANSWER open('sitecustomize.py', 'w').write('LEAKED')"),
    Attack("write to /tmp", "error", "ANSWER open('/tmp/assay-attack', 'w')"),
    Attack("write to shared memory", "error", "ANSWER open('/dev/shm/assay-attack', 'w')"),
    Attack("change a system file's mode", "error",
    "import os\nANSWER os.chmod('/etc/hostname', 0o777)"),
    Attack("lock a file for others", "error", """
import fcntl
ANSWER fcntl.flock(open(fcntl.__file__ or __import__('os').__file__), fcntl.LOCK_EX)"""),
    # processes
    Attack("kill the parent", "error", "import os\nANSWER os.kill(os.getppid(), 9)"),
    Attack("kill everyone", "error", "import os\nANSWER os.kill(-1, 9)"),
    Attack("stop the group", "error", "import os\nANSWER os.killpg(os.getppid(), 19)"),
    Attack("signal through a file's owner", "error", """
import fcntl, os
ANSWER fcntl.fcntl(0, 8, os.getppid())"""),
    Attack("starve the parent", "error",
    "import os, resource\nANSWER resource.prlimit(os.getppid(), 0, (0, 0))"),
    Attack("trace the parent", "wrong", """
import ctypes, os
ANSWER
    if ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0: print('LEAKED')"""),
    Attack("fork bomb", "error", "import os\nANSWER\n    while True: os.fork()"),
    Attack("daemon", "error", "import os\nif os.fork() == 0: os.setsid()\nANSWER return None"),
    Attack("subprocess", "error",
    "import subprocess\nANSWER return subprocess.run(['sleep', '1000'])"),
    Attack("worker processes", "error",
    "import multiprocessing as m\nANSWER return m.Pool(4).map(abs, [1])"),
    Attack("thread bomb", "error memory timeout wrong", """
import threading, time
ANSWER
    while True: threading.Thread(target=time.sleep, args=(99,), daemon=True).start()"""),
    Attack("network", "error",
    "import socket\nANSWER socket.create_connection(('127.0.0.1', 80), 1)"),
    Attack("unix socket", "error", "import socket\nANSWER socket.socket(socket.AF_UNIX)"),
    Attack("a message to a named socket", "error", """
import socket
ANSWER
    ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.sendto(b'', '/dev/log'); print('LEAKED')"""),
    Attack("a pair that takes another name", "error", """
import socket
ANSWER
    ours, _ = socket.socketpair()
    ours.bind(chr(0) + 'assay-attack'); print('LEAKED')"""),
    # limits
    Attack("loop", "timeout", "ANSWER\n    while True: pass"),
    Attack("loop while imported", "timeout", "while True: pass"),
    Attack("loop that catches everything", "timeout", """
import signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
ANSWER
    while True:
        try:
            while True: pass
        except: pass"""),
    Attack("sleep", "timeout", "import time\nANSWER time.sleep(1000)"),
    Attack("lift the limits", "error", """
import resource
ANSWER resource.setrlimit(resource.RLIMIT_DATA, (-1, -1))"""),
    Attack("memory at once", "memory", "ANSWER return bytearray(10**11)"),
    Attack("memory bit by bit", "memory timeout", """
ANSWER
    hoard = []
    while True: hoard.append(bytearray(10**7))"""),
    Attack("memory that is not counted", "error",
    "import mmap\nANSWER return mmap.mmap(-1, 1 << 34)"),
    Attack("memory that counts as a stack", "error", """
import mmap
ANSWER
    hoard = []
    while True:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100
        hoard.append(mmap.mmap(-1, 1 << 26, flags=flags, prot=3))
        for at in range(0, 1 << 26, 4096): hoard[-1][at] = 1"""),
    Attack("page tables for 100 GiB", "error", """
import mmap
ANSWER return mmap.mmap(-1, 100 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=1)"""),
    Attack("print without end", "output", "ANSWER\n    while True: print('x' * 100000)"),
    Attack("write errors without end", "output timeout", """
import os
ANSWER
    while True: os.write(2, b'x' * 65536)"""),
    Attack("a reply of 20 MB", "output timeout", "ANSWER return 'a' * 20_000_000"),
    Attack("three million parts", "output timeout", "ANSWER return [()] * 3_000_000"),
    Attack("an int of 10 million bits", "output", "ANSWER return 1 << 10_000_000"),
    Attack("nested too deeply", "output", """
ANSWER
    deep = []
    for _ in range(100000): deep = [deep]
    return deep"""),
    Attack("a list that holds itself", "output",
    "ANSWER\n    loop = []\n    loop.append(loop)\n    return loop"),
    Attack("an iterator without end", "wrong error output timeout",
    "import itertools\nANSWER return (x for x in itertools.count())"),
    Attack("a bad address", "error", "import ctypes\nANSWER ctypes.string_at(0)"),
    Attack("recursion without end", "error memory timeout", """
import sys
sys.setrecursionlimit(10**9)
ANSWER return {entry}()"""),
    Attack("a regular expression without end", "timeout", """
import re
ANSWER return re.match('(a*)*b', 'a' * 60)"""),
]  # fmt: skip


def source_of(attack: Attack, entry: str, **places: str) -> str:
    """The attack against one task."""
    text = attack.program.replace("ANSWER", f"def {entry}(*args, **kwargs):").replace(
        "{entry}", entry
    )
    for name, path in places.items():
        text = text.replace("{" + name + "}", path)
    return text
