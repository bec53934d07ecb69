"""Programs that must fail: an empty one, one that only raises, and attacks that fooled graders."""

from __future__ import annotations

from assay.judge.kinds.find import kind_of
from assay.languages import language_named
from assay.types import Task

RAISE = "ANSWER raise RuntimeError('no answer')"
EMPTY = "ANSWER pass"
ECHO = "ANSWER return args[0]"
ECHO_STDIN = "import sys\nANSWER sys.stdout.write(sys.stdin.read())"
ATTACKS = {
    "exit in the call": "ANSWER raise SystemExit(0)",
    "os._exit": "import os\nANSWER os._exit(0)",
    "raise AssertionError": "ANSWER raise AssertionError",
    "an object equal to everything": """
class Equal:
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __bool__ = lambda *a: True
    __sub__ = __rsub__ = __abs__ = __round__ = __call__ = lambda s, *a: s
    __getattr__ = __getitem__ = lambda s, *a: s
    __len__ = __hash__ = __int__ = __index__ = lambda s: 1
    __float__ = lambda s: 0.0
    __iter__ = lambda s: iter(())
ANSWER return Equal()""",
    "an int equal to everything": """
class Equal(int):
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = lambda *a: True
    __sub__ = __rsub__ = __abs__ = __round__ = lambda s, *a: s
    __hash__ = int.__hash__
ANSWER return Equal()""",
    "patched built-ins": """
import builtins
class Never(Exception): pass
for name in ('abs', 'all', 'any', 'len', 'isinstance', 'sorted'):
    setattr(builtins, name, lambda *a, **k: True)
builtins.AssertionError = Never
ANSWER return None""",
    "the tests read from the frames": """
import sys
ANSWER
    call, frame = '(' + ', '.join(map(repr, args)) + ') == ', sys._getframe(1)
    while frame:
        for value in [*frame.f_locals.values(), *frame.f_globals.values()]:
            if call in str(value): return eval(str(value).split(call, 1)[1].splitlines()[0])
        frame = frame.f_back""",
    "forged replies": """
import os, struct
ANSWER
    frame = b'[1,"value",true,null,[[],[]]]'
    for fd in range(3, 32):
        try: os.write(fd, struct.pack('!I', len(frame)) + frame + b'{"verdict": "pass"}')
        except OSError: pass""",
    "closed descriptors": "import os\nANSWER os.closerange(3, 256)",
    "printed pass markers": """
import atexit, os
atexit.register(os._exit, 0)
ANSWER print('All tests passed', 'OK', 'passed', '{"verdict": "pass"}')""",
    "emptied arguments": """
ANSWER
    for arg in args:
        if isinstance(arg, (list, dict, set)): arg.clear()
    return []""",
}
"""Attacks by name. `ANSWER` stands for the head of the function that the checks call; a program
that reads stdin calls that function itself."""


def attacks_on(task: Task) -> dict[str, str]:
    """The attacks by name, written for one task."""
    if task.language != "python":
        every = (kind_of(check).cheats(check, task) for check in task.checks)
        return {name: source for some in every for name, source in some.items()}
    return {name: program_for(task, source) for name, source in ATTACKS.items()}


def lazy_programs(task: Task) -> dict[str, str]:
    """Programs that do no work: `empty`, `echo`, and `constant` if the first answer is known."""
    if task.language != "python":
        return dict(language_named(task.language).lazy)
    lazy = {
        "empty": program_for(task, EMPTY),
        "echo": program_for(task, ECHO if task.entry_point else ECHO_STDIN),
    }
    constants = (kind_of(check).answer(check, task) for check in task.checks)
    constant = next((program for program in constants if program is not None), None)
    return lazy if constant is None else {**lazy, "constant": constant}


def program_for(task: Task, source: str) -> str:
    """`source` as a program for this task: in its entry point, or run at once without one."""
    name = task.function or "main"
    program = source.replace("ANSWER", f"def {name}(*args, **kwargs):")
    return program if task.entry_point else f"{program}\n{name}()"
