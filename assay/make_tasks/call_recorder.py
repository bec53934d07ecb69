"""Records which functions of a package a test calls, each as an expression that can be run again.

It runs beside the package, in the package's interpreter (Python 3.8 or newer), and uses nothing but
the standard library. A value is written as what makes it: a literal, a name to import, or the
result of an earlier call. A call with any other value has no expression.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import importlib
import inspect
import io
import re
import sys
from collections import OrderedDict, deque
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

MOST_STEPS, MOST_CHARACTERS = 200, 400
PLAIN = (type(None), bool, int, str, bytes, float, complex, type(Ellipsis))
REPRS = (*PLAIN, range, slice, bytearray)
ITERATORS: tuple[Any, ...] = tuple({type(iter(value)) for value in ("", b"", range(1), *[[], ()])})
BRACKETS = {list: "[]", tuple: "()", set: "{}"}
PRINTED = ("datetime", "decimal", "fractions", "pathlib", "uuid", "ipaddress")
"""Modules whose objects print as what makes them."""
BINARY = {
    "__getitem__": "{0}[{1}]", "__eq__": "{0} == {1}", "__ne__": "{0} != {1}",
    "__lt__": "{0} < {1}", "__le__": "{0} <= {1}", "__gt__": "{0} > {1}", "__ge__": "{0} >= {1}",
    "__add__": "{0} + {1}", "__radd__": "{1} + {0}", "__sub__": "{0} - {1}",
    "__mul__": "{0} * {1}", "__rmul__": "{1} * {0}", "__or__": "{0} | {1}", "__and__": "{0} & {1}",
    "__xor__": "{0} ^ {1}", "__contains__": "{1} in {0}", "__mod__": "{0} % {1}",
    "__truediv__": "{0} / {1}", "__floordiv__": "{0} // {1}", "__pow__": "{0} ** {1}",
    "__getattr__": "getattr({0}, {1})", "__len__": "len({0})", "__str__": "str({0})",
    "__repr__": "repr({0})", "__bool__": "bool({0})", "__hash__": "hash({0})",
    "__int__": "int({0})", "__float__": "float({0})", "__neg__": "-{0}", "__iter__": "iter({0})",
    "__next__": "next({0})", "__invert__": "~{0}", "__abs__": "abs({0})", "__bytes__": "bytes({0})",
}  # fmt: skip
"""How calls of special methods are written."""
DOING = {
    "__setitem__": "{0}[{1}] = {2}", "__delitem__": "del {0}[{1}]",
    "__setattr__": "setattr({0}, {1}, {2})", "__delattr__": "delattr({0}, {1})",
    "__iadd__": "{0} += {1}", "__ior__": "{0} |= {1}",
}  # fmt: skip
"""How those are written that are statements."""


class UnwritableError(Exception):
    """A value is no literal, no name of a module and no result of a call."""


class Step:
    """One call: how it is written, and what it needs."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.text, self.name, self.kind = "", "", ""
        self.imports: set[str] = set()
        self.needs: set[int] = set()
        self.is_statement = False

    def data(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "text": self.text, "name": self.name, "kind": self.kind, "needs": sorted(self.needs),
            "imports": sorted(self.imports), "is_statement": self.is_statement,
        }  # fmt: skip


class Recorder:
    """Records the calls of functions of some source files by code outside of them."""

    def __init__(self, files: set[str]) -> None:
        self._files = files
        self._modules: list[ModuleType] = []
        self._forget()

    def _forget(self) -> None:
        self._steps: list[Step] = []
        self._numbers: dict[int, int] = {}
        """Steps by the id of what they return, or make."""
        self._alive: list[Any] = []
        """Objects whose ids stand in `_numbers`, and frames: an id is not used again."""
        self._active: FrameType | None = None
        self._generators: set[int] = set()

    def record(self, work: Callable[[], object]) -> list[dict[str, Any]]:
        """The calls while `work` runs, in their order."""
        self._forget()
        modules = list(sys.modules.items())
        self._modules = sorted(
            (module for _, module in modules if self._is_ours(getattr(module, "__file__", ""))),
            key=lambda module: (module.__name__.count("."), module.__name__),
        )
        sys.setprofile(self._profile)
        try:
            work()
        finally:
            sys.setprofile(None)
        steps = [step.data() for step in self._steps]
        self._forget()
        return steps

    def _is_ours(self, file: Any) -> bool:
        return isinstance(file, str) and file in self._files

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "return" and frame is self._active:
            self._active = None
            self._returned(frame, arg)
        elif event == "call" and self._active is None:
            code = frame.f_code
            if not self._is_ours(frame.f_globals.get("__file__")) or code.co_name[0] == "<":
                return
            self._active = frame
            is_new = id(frame) not in self._generators
            if is_new and len(self._steps) < MOST_STEPS:
                self._called(frame, code)

    def _called(self, frame: FrameType, code: CodeType) -> None:
        self._alive.append(frame)
        is_generator = bool(code.co_flags & inspect.CO_GENERATOR)
        if is_generator:
            self._generators.add(id(frame))
        step = Step(len(self._steps))
        step.kind = "generator" if is_generator else ""
        step.name = getattr(code, "co_qualname", code.co_name)
        self._steps.append(step)
        sys.setprofile(None)  # what is looked at may run code of the package
        try:
            if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
                raise UnwritableError
            step.text = self._call(step, frame, code)
        except Exception:  # noqa: BLE001  objects of the package may raise anything
            step.text = ""
            if step.kind == "part":
                self._steps.pop()
        finally:
            sys.setprofile(self._profile)

    def _returned(self, frame: FrameType, result: Any) -> None:
        if id(frame) in self._generators or not self._steps or self._alive[-1] is not frame:
            return
        step = self._steps[-1]
        if step.kind == "object":
            result = frame.f_locals[frame.f_code.co_varnames[0]]
        if not isinstance(result, PLAIN) and id(result) not in self._numbers:
            self._numbers[id(result)] = step.number
            self._alive[-1:] = [result, frame]

    def _call(self, step: Step, frame: FrameType, code: CodeType) -> str:
        local = frame.f_locals
        names = code.co_varnames[: code.co_argcount]
        owner = local.get(names[0]) if names else None
        method = self._method(owner, code) if names else None
        if method is None:
            function, text = self._function(frame, code)
            self._import(step, text)
            return f"{text.partition(':')[2]}({self._arguments(step, frame, code, function, 0)})"
        name, raw = method
        if name in ("__init__", "__new__"):
            return self._creation(step, owner, frame, code, raw)
        if isinstance(raw, property):
            return f"{self._value(step, owner)}.{name}"
        if name == "__call__":
            receiver = self._value(step, owner)
            return f"{receiver}({self._arguments(step, frame, code, raw, 1)})"
        if name in BINARY or name in DOING:
            parts = [self._value(step, local[part]) for part in names]
            step.is_statement = name in DOING
            return (BINARY.get(name) or DOING[name]).format(*parts)
        if name.startswith("__"):
            raise UnwritableError
        arguments = self._arguments(step, frame, code, raw, 1)
        return f"{self._value(step, owner)}.{name}({arguments})"

    def _creation(self, step: Step, owner: Any, frame: FrameType, code: CodeType, raw: Any) -> str:
        if id(owner) in self._numbers:
            step.kind = "part"  # of what __new__ or another __init__ has begun
            raise UnwritableError
        is_new = isinstance(owner, type)
        step.kind = "" if is_new else "object"
        kind = owner if is_new else type(owner)
        step.name = kind.__name__
        class_name = self._value(step, kind)
        return f"{class_name}({self._arguments(step, frame, code, raw, 1)})"

    def _method(self, owner: Any, code: CodeType) -> tuple[str, Any] | None:
        """The name under which the class of the first argument has this code, and the attribute."""
        for kind in (type(owner), owner) if isinstance(owner, type) else (type(owner),):
            for base in kind.__mro__:
                for name, raw in list(vars(base).items()):
                    inner = getattr(raw, "fget", None) or getattr(raw, "__func__", raw)
                    if getattr(inner, "__code__", None) is code and not isinstance(
                        raw, staticmethod
                    ):
                        return name, raw if isinstance(raw, property) else inner
        return None

    def _function(self, frame: FrameType, code: CodeType) -> tuple[Any, str]:
        """A function of a module that runs this code, and its `module:name`."""
        for module in self._modules:
            for name, value in list(vars(module).items()):
                if isinstance(value, type) and value.__module__ == module.__name__:
                    for inside, raw in list(vars(value).items()):
                        if isinstance(raw, staticmethod) and raw.__func__.__code__ is code:
                            return raw.__func__, f"{module.__name__}:{name}.{inside}"
                inner = getattr(value, "__wrapped__", value)
                for function in (value, inner):
                    if isinstance(function, FunctionType) and function.__code__ is code:
                        cells = function.__closure__ or ()
                        if all(frame.f_locals.get(free) is cells[place].cell_contents
                               for place, free in enumerate(code.co_freevars)):  # fmt: skip
                            return function, f"{module.__name__}:{name}"
        raise UnwritableError

    def _arguments(
        self, step: Step, frame: FrameType, code: CodeType, function: Any, skipped: int
    ) -> str:
        """The arguments as they are written; those that are the defaults are left out."""
        local, count = frame.f_locals, code.co_argcount
        defaults = getattr(function, "__defaults__", None) or ()
        first = count - len(defaults)
        default_of = {code.co_varnames[first + at]: value for at, value in enumerate(defaults)}
        default_of.update(getattr(function, "__kwdefaults__", None) or {})
        rest = code.co_varnames[count + code.co_kwonlyargcount :]
        more = local[rest[0]] if code.co_flags & inspect.CO_VARARGS else ()
        has_keywords = code.co_flags & inspect.CO_VARKEYWORDS
        keywords = local[rest[bool(code.co_flags & inspect.CO_VARARGS)]] if has_keywords else {}
        parts: list[str] = []
        words: list[str] = []
        is_word = False
        for place, name in enumerate(code.co_varnames[: count + code.co_kwonlyargcount]):
            value, is_word = local[name], is_word or place >= count
            if place < skipped:
                continue
            if name in default_of and value is default_of[name] and (is_word or not more):
                is_word = True  # what follows is no longer passed by its place
                continue
            text = self._value(step, value)
            (words if is_word else parts).append(f"{name}={text}" if is_word else text)
        parts += [self._value(step, value) for value in more] + words
        parts += [f"{name}={self._value(step, value)}" for name, value in keywords.items()]
        return ", ".join(parts)

    def _value(self, step: Step, value: Any, depth: int = 0) -> str:
        """How a value is written, the result of a step as its number between null characters.
        Raises UnwritableError.
        """
        kind: Any = type(value)
        if depth > 6:
            raise UnwritableError
        if kind in REPRS:
            text = repr(value)
            if text in ("nan", "inf", "-inf"):
                text = f"float('{text}')"
        elif kind in BRACKETS and (value or kind is not set):
            inside = ", ".join(self._value(step, part, depth + 1) for part in value)
            inside += "," * (kind is tuple and len(value) == 1)
            text = f"{BRACKETS[kind][0]}{inside}{BRACKETS[kind][1]}"
        elif kind is dict:
            pairs = [(self._value(step, key, depth + 1), self._value(step, part, depth + 1))
                     for key, part in value.items()]  # fmt: skip
            text = "{" + ", ".join(f"{key}: {part}" for key, part in pairs) + "}"
        elif kind in (set, frozenset):
            text = f"{kind.__name__}({self._value(step, list(value), depth)})"
        elif id(value) in self._numbers:
            step.needs.add(self._numbers[id(value)])
            text = f"\0{self._numbers[id(value)]}\0"
        else:
            text = self._other(step, value, depth)
        if len(text) > MOST_CHARACTERS:
            raise UnwritableError
        return text

    def _other(self, step: Step, value: Any, depth: int) -> str:
        if isinstance(value, re.Pattern):
            step.imports.add("import re")
            flags = value.flags & ~(re.UNICODE if isinstance(value.pattern, str) else 0)
            return f"re.compile({value.pattern!r}{f', {flags}' if flags else ''})"
        if isinstance(value, ITERATORS):
            return f"iter({self._value(step, list(copy.copy(value)), depth)})"
        if type(value) in (io.StringIO, io.BytesIO) and not value.tell():
            step.imports.add("import io")
            return f"io.{type(value).__name__}({value.getvalue()!r})"
        if type(value) in (OrderedDict, deque):
            step.imports.add(f"from collections import {type(value).__name__}")
            plain = dict(value) if isinstance(value, dict) else list(value)
            return f"{type(value).__name__}({self._value(step, plain, depth)})"
        if isinstance(value, ModuleType):
            step.imports.add(f"import {value.__name__}")
            return value.__name__
        if isinstance(value, MethodType) and depth == 0:
            return f"{self._value(step, value.__self__, 1)}.{value.__func__.__name__}"
        module = type(value).__module__
        if module in PRINTED and "<" not in repr(value):
            step.imports.add(f"import {module}" if module in ("datetime", "uuid")
                             else f"from {module} import {type(value).__name__}")  # fmt: skip
            return repr(value)
        text = self._constant(value)
        self._import(step, text)
        return text.partition(":")[2]

    def _constant(self, value: Any) -> str:
        """The `module:name` of a value that a module of the package, or Python, holds."""
        for module in self._modules:
            for name, other in list(vars(module).items()):
                if other is value and not name.startswith("__"):
                    return f"{module.__name__}:{name}"
        home = str(getattr(value, "__module__", ""))
        name = str(getattr(value, "__qualname__", ""))
        if name and getattr(builtins, name, None) is value:
            return f"builtins:{name}"
        is_standard = home == "builtins" or home.partition(".")[0] in getattr(
            sys, "stdlib_module_names", ("collections", "operator", "math", "functools", "io")
        )
        for place in (home.lstrip("_"), home) if is_standard and name else ():
            with contextlib.suppress(ImportError):  # most of C's modules have one in Python
                if getattr(importlib.import_module(place), name, 0) is value:
                    return f"{place}:{name}"
        raise UnwritableError

    def _import(self, step: Step, text: str) -> None:
        module, _, name = text.partition(":")
        if module != "builtins":
            step.imports.add(f"from {module} import {name.partition('.')[0]}")
