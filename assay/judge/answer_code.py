"""Notices in the worker that what a program has answered is about to run as code beside the tests,
as in `eval(f(x))`, and tells the supervisor before it runs.

No code in this process can take that back, so it does not matter what the answer's code does to
the hook afterwards. Code that is not an answer's: whatever ran before the first answer, the pieces
of the data set, literals of theirs, what an import loads from the libraries, and what the standard
library makes of names that it has checked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import assay
from assay.judge.codec_types import BUILTINS, TYPES
from assay.sandbox.ending import ANSWER_RAN
from assay.sandbox.sockets import framed

CALLER = sys._getframe
WRITE, MARK = os.write, framed(ANSWER_RAN)
OURS = os.path.dirname(os.path.dirname(assay.__file__))  # noqa: PTH120  pathlib loads slowly
LIBRARIES = tuple(f"{os.path.abspath(folder)}/" for folder in [OURS, *sys.path] if folder)  # noqa: PTH100
IMPORT = "<frozen importlib._bootstrap"
FROZEN = "<frozen "
PIECES = ("/assay/judge/test_code.py", "/assay/judge/kinds/calls.py")
"""Files that run the pieces of the data set, and nothing else."""
RUN_DOCTEST = "/assay/judge/kinds/test_functions.py"
"""Where examples of the data set are run, by Python's doctest."""
SAFE = {
    ("collections/__init__.py", "namedtuple"),
    ("dataclasses.py", "_create_fn"),
    ("unittest/mock.py", "_set_signature"),
    ("ast.py", "literal_eval"),
}
"""Functions that compile a text of their own, in which an answer can be no more than a name; or
that run nothing of it."""
STARTS = {
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "pty.spawn",
    "subprocess.Popen", "sqlite3.load_extension", "cpython.run_command", "cpython.run_file",
    "ctypes.dlopen", "ctypes.dlsym", "ctypes.dlsym/handle", "ctypes.call_function",
    "ctypes.cdata", "ctypes.cdata/buffer", "ctypes.string_at", "ctypes.wstring_at",
}  # fmt: skip
"""Events after which other code than Python's runs, or memory is read by its address."""
IMMUTABLE, HEAP = 1 << 8, 1 << 9
"""Flags of a type: a pickle could put its own `==` into a class that has the second alone."""
PLAIN = {
    *((kind.__module__, kind.__qualname__) for kind in (object, *BUILTINS.values(), *TYPES)
      if isinstance(kind, type) and kind is not type
      and kind.__flags__ & (IMMUTABLE | HEAP) != HEAP),
    *((f"numpy.{core}.multiarray", name) for core in ("core", "_core")
      for name in ("_reconstruct", "scalar")),
    ("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode"),
}  # fmt: skip
"""What a pickle of data names."""


class AnswerCode:
    """Watches one worker, whose socket to the supervisor has this descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._has_answer: Callable[[], bool] = bool
        self._has_marked = self._compiled = False
        """Whether a text that may be an answer's has been compiled."""
        self._rules: dict[str, Callable[[tuple[Any, ...], FrameType], bool]] = {
            "compile": self._on_compile, "exec": self._on_exec, "import": on_import,
            "marshal.loads": is_foreign_load, "marshal.load": is_foreign_load,
            "pickle.find_class": on_find_class, "code.__new__": is_no_library,
            "function.__new__": lambda _, caller: self._compiled and not is_importing(caller),
            "object.__setattr__": lambda it, _: self._compiled and it[1] == "__code__",
            **dict.fromkeys(STARTS, on_start),
        }  # fmt: skip

    def start(self) -> None:
        """Watch from now on, for as long as the process lives."""
        rules, caller = self._rules, CALLER

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event in rules and self.is_watching and rules[event](arguments, caller(1)):
                self.tell()

        sys.addaudithook(hook)

    def begin(self, has_answer: Callable[[], bool]) -> None:
        """A job begins; `has_answer` says whether its program may have answered yet."""
        self._has_answer, self._has_marked, self._compiled = has_answer, False, False

    @property
    def is_watching(self) -> bool:
        """Whether the program may have answered, and nothing has been said yet."""
        return self._has_answer() and not self._has_marked

    def tell(self) -> None:
        """Tell the supervisor that code of an answer may run."""
        if not self._has_marked:
            WRITE(self._descriptor, MARK)
            self._has_marked = True

    def _on_compile(self, arguments: tuple[Any, ...], caller: FrameType) -> bool:
        """Note the text, unless it is the data set's or a library's. A package that parses it may
        go on to act on it without compiling anything.
        """
        source, filename = arguments
        path = caller.f_code.co_filename
        if path.startswith(IMPORT) or "/importlib/" in path:
            return not is_library(str(filename))
        if is_trusted(caller) or is_importing(caller) or is_literal(source, caller):
            return False
        self._compiled = True
        return is_package(caller)

    def _on_exec(self, arguments: tuple[Any, ...], caller: FrameType) -> bool:
        if caller.f_code.co_filename.startswith(IMPORT) or is_trusted(caller):
            return False
        runs_module = caller.f_code.co_filename == "<frozen runpy>"
        return (self._compiled or runs_module) and not is_importing(caller)


def is_library(path: str) -> bool:
    """Whether a file is the standard library's or a package's."""
    return path.startswith((FROZEN, *LIBRARIES))


def is_no_library(_: tuple[Any, ...], caller: FrameType) -> bool:
    """Whether the caller is neither."""
    return not is_library(caller.f_code.co_filename)


def is_package(caller: FrameType) -> bool:
    """Whether a package parses a text, itself or through the library's `ast`."""
    frame = next(
        (it for it in frames(caller) if not it.f_code.co_filename.endswith("/ast.py")), None
    )
    path = frame.f_code.co_filename if frame else ""
    return is_library(path) and ("/site-packages/" in path or "/dist-packages/" in path)


def is_trusted(caller: FrameType) -> bool:
    """Whether the caller runs pieces of the data set, or is of the functions that are SAFE. What
    parses for one of them is that one.
    """
    for frame in frames(caller):
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if not is_library(path):
            return False
        if path.endswith(PIECES) or any(path.endswith(f"/{it}") for it, of in SAFE if of == name):
            return True
        if path.endswith(RUN_DOCTEST) and name == "run_doctest":
            return True
        if not (path.endswith("/doctest.py") or (path.endswith("/ast.py") and name == "parse")):
            return False
    return False


def frames(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and its callers."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def is_importing(caller: FrameType) -> bool:
    """Whether a library runs this while it is imported: then no answer has reached it."""
    for frame in frames(caller):
        path = frame.f_code.co_filename
        if path.startswith(IMPORT):
            return True
        if not is_library(path):
            return False
    return False


def is_literal(source: object, caller: FrameType) -> bool:
    """Whether a text is a literal of the code of the data set's that has it compiled; no name,
    which may be that of an expected value.
    """
    if isinstance(source, bytes):
        source = source.decode("utf-8", "replace")
    if not isinstance(source, str):
        return False
    text = "".join(source.split())
    code = code_of_data(caller)
    return code is not None and not text.isidentifier() and text in literals(code)


def code_of_data(caller: FrameType) -> CodeType | None:
    """The innermost code that runs and is no library's."""
    codes = (it.f_code for it in frames(caller))
    return next((code for code in codes if not is_library(code.co_filename)), None)


def literals(code: CodeType) -> Iterator[str]:
    """The texts in some code, without blanks."""
    constants = [*code.co_consts]
    for constant in constants:
        if isinstance(constant, str):
            yield "".join(constant.split())
        elif isinstance(constant, CodeType):
            constants += constant.co_consts
        elif isinstance(constant, tuple | frozenset):
            constants += constant


def names_in(code: CodeType) -> set[str]:
    """The names in some code, as literals too."""
    return {*literals(code), *code.co_names, *code.co_varnames}


def on_import(arguments: tuple[Any, ...], caller: FrameType) -> bool:
    """Whether a file outside the libraries is loaded, or the data set's code imports by another
    name than stands in it.
    """
    name, filename, *_ = arguments
    if filename and not is_library(str(filename)):
        return True
    code = caller.f_code
    return not is_library(code.co_filename) and name not in code.co_names


def is_foreign_load(_: tuple[Any, ...], caller: FrameType) -> bool:
    """Whether code is loaded from its bytes, other than a library's by an import."""
    if not caller.f_code.co_filename.startswith(IMPORT):
        return not is_importing(caller)
    return not is_library(str(caller.f_locals.get("bytecode_path")))


def on_start(arguments: tuple[Any, ...], caller: FrameType) -> bool:
    """Whether what starts, or what address is read, stands in no code of the data set's."""
    if is_importing(caller):
        return False
    code = code_of_data(caller)
    texts = names_in(code) if code else set[str]()
    numbers = {-1, *code.co_consts} if code else set[object]()
    for value in arguments:
        for part in value if isinstance(value, list | tuple) else [value]:
            text = os.fsdecode(part) if isinstance(part, bytes) else part
            if isinstance(text, str) and "".join(text.split()) not in texts:
                return True
            if isinstance(part, int) and part not in numbers:
                return True
    return False


def on_find_class(arguments: tuple[Any, ...], caller: FrameType) -> bool:
    """Whether a pickle names what is more than data."""
    module, name = arguments
    return (module.replace("__builtin__", "builtins"), name) not in PLAIN and not is_importing(
        caller
    )
