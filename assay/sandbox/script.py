"""Runs a whole program of Python with real standard streams, and exits as Python would."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
import types
from types import CodeType
from typing import Any, NoReturn

from assay.sandbox.ending import NO_PROGRAM
from assay.sandbox.sockets import FramedSocket

SHOWN = 1000
"""Characters of the compiler's error that are reported."""
FLUSH_FAILED = 120
"""CPython's status when standard output cannot be flushed."""


def serve(sock: FramedSocket, source: bytes, stdin: int, stdout: int) -> NoReturn:
    """Become a program; or answer with the compiler's error, and end. Raises ConnectionError."""
    try:
        code = compiled(source)
    except Exception as error:  # noqa: BLE001  the compiler raises half a dozen kinds
        text = f"{type(error).__name__}: {error}"[:SHOWN]
        sock.send(NO_PROGRAM + text.encode("utf-8", "replace"))
        os._exit(0)
    sock.stream.close()
    for descriptor, standard in ((stdin, 0), (stdout, 1)):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    run_as_main(code)


def compiled(source: bytes) -> CodeType:
    """The program's code. Raises what the compiler raises."""
    text = source.decode("utf-8", "surrogatepass")
    return compile(text, "<program>", "exec", dont_inherit=True)


def run_as_main(code: CodeType) -> NoReturn:
    """Run the program as `__main__`, then wait for its threads and run its exit handlers."""
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    sys.argv = ["program.py"]
    status = execute(code, module.__dict__)
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    flushed = flushes("stdout")
    module.__dict__.clear()
    gc.collect()  # writes the buffers of files that the program did not close
    flushes("__stdout__")  # as its finalizer would: a failure does not count
    os._exit(status if flushed else FLUSH_FAILED)


def execute(code: CodeType, names: dict[str, Any]) -> int:
    """Run the program's code; returns its exit status."""
    try:
        exec(code, names)
    except SystemExit as end:
        return status_of(end)
    except BaseException as error:  # noqa: BLE001  the program's own code: whatever it raises ends it
        trace = error.__traceback__ and error.__traceback__.tb_next
        with contextlib.suppress(BaseException):  # the hook may be the program's own
            sys.excepthook(type(error), error.with_traceback(trace), trace)
        return 1
    return 0


def flushes(name: str) -> bool:
    """Whether a stream of `sys`, which may be any object by now, is flushed or closed."""
    try:
        stream = getattr(sys, name, None)
        if stream is not None and not getattr(stream, "closed", False):
            stream.flush()
    except Exception:  # noqa: BLE001  the program may have put any object there
        return False
    return True


def status_of(end: SystemExit) -> int:
    """The exit status that Python gives to a SystemExit; a text is printed."""
    if end.code is None or isinstance(end.code, int):
        return (end.code or 0) & 0xFF
    sys.stderr.write(f"{end.code}\n")
    return 1
