"""Objects that arrive from the program, of classes that are made here after its own.

The sender may be hostile: whatever it claims of a class, no code of its choice runs, and nothing of
the test's is compared by it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from assay.judge import remote
from assay.judge.codec import STEERING, Json, error_type
from assay.judge.codec_types import (
    COLLAPSE,
    MUTABLE,
    CodecError,
)
from assay.judge.remote import (
    METHODS,
    Attributes,
    Remote,
    RemoteClass,
    RemoteError,
    RemoteRef,
    RemoteValue,
)
from assay.judge.requests import RemoteProgram

SHOWING = ("__str__", "__repr__", "__format__")
IMMUTABLE = {kind.__name__: kind for kind, _ in COLLAPSE if kind not in MUTABLE}


class Objects:
    """Rebuilds the objects of one program, and its classes as classes of ours."""

    def __init__(
        self,
        connection: RemoteProgram,
        note: Callable[[Json], object],
        inner: Callable[[Json], Any],
    ) -> None:
        """note: takes down what may do more there than here. inner: rebuilds a part of a value."""
        self._connection, self._note, self._inner = connection, note, inner
        self._objects: dict[int, Any] = {}
        self._types: dict[int, RemoteClass] = {}
        self.tags = {"handle": self._handle, "class": self._class, "subclass": self._subclass}

    def error(self, described: Json, plain: BaseException, text: str) -> BaseException:
        """An exception of the program's own class, from its number and class, with the arguments of
        a plain one. Raises CodecError.
        """
        number, kind = described[0], self._type(described[1])
        if not issubclass(kind, Exception) or type(number) is not int:
            raise CodecError("malformed exception")
        rebuilt: BaseException = remote.make(kind, self._new_ref(number, kind))
        BaseException.__dict__["args"].__set__(rebuilt, plain.args)
        object.__setattr__(rebuilt, "_text", text)
        return rebuilt

    def _type(self, parts: Json) -> RemoteClass:
        """A class of ours for a class of the program's: its number, name, special methods, whether
        it holds mutable data, bases, and the members of an Enum.
        """
        number, name, names, is_data, bases, members = parts
        if number in self._types:
            return self._types[number]
        if (type(number), type(name), type(names)) != (int, str, list):
            raise CodecError("malformed class")
        above = tuple(self._base(base) for base in bases)
        if not any(issubclass(base, Attributes) for base in above):
            error = any(issubclass(base, BaseException) for base in above)
            above = (RemoteError if error else RemoteValue if above else Remote, *above)
        methods = METHODS.keys() & {method for method in names if type(method) is str}
        namespace = {
            "_ref": RemoteRef(self._connection, number), "_own": methods,
            "_is_data": is_data is True, "__doc__": Attributes.__dict__["__doc__"],
        }  # fmt: skip
        usable = methods.intersection(METHODS if issubclass(above[0], Remote) else SHOWING)
        if not issubclass(above[0], RemoteError):
            namespace |= {name_of_method: METHODS[name_of_method] for name_of_method in usable}
        kind = type.__new__(RemoteClass, name, above, namespace)
        self._types[number] = kind
        if members:
            self._enumerate(kind, members)
        return kind

    def _class(self, parts: Json) -> RemoteClass:
        kind = self._type(parts)
        self._connection.answered[remote.ref_of(kind)] += 1
        return kind

    def _enumerate(self, kind: RemoteClass, members: Json) -> None:
        """Make all members of an Enum, so that a test which names one asks nothing of the program,
        and members are compared here.
        """
        by_number = {
            number: remote.make(kind, self._new_ref(number, kind)) for _, number in members
        }
        if len(by_number) < len(members):  # an alias: a program could make all members one
            self._connection.forgeable = True
        for name in ("__eq__", "__ne__", "__hash__"):
            type.__setattr__(kind, name, getattr(object, name))
        by_name = {str(name): by_number[number] for name, number in members}
        type.__setattr__(kind, "_members", by_name)
        self._objects |= by_number

    def _base(self, base: Json) -> type:
        if type(base) is list:
            return self._type(base)
        kind: type | None = IMMUTABLE.get(base) or error_type(base)
        if kind is None:
            raise CodecError("unknown base class")
        if issubclass(kind, STEERING):
            self._connection.forgeable = True
        return kind

    def _handle(self, parts: Json) -> Any:
        number, kind, *foreign = parts
        kind_here = self._type(kind)
        self._note([kind_here.__name__, None, *foreign])
        if type(number) is not int:
            raise CodecError("malformed handle")
        if number in self._objects:
            if "_members" in kind_here.__dict__:
                self._connection.answered[remote.ref_of(self._objects[number])] += 1
            else:
                self._connection.forgeable = True
            return self._objects[number]
        handle = remote.make(kind_here, self._new_ref(number, kind_here))
        if self._connection.job["identity"]:
            self._objects[number] = handle
        return handle

    def _subclass(self, parts: Json) -> Any:
        """An instance of a subclass of a data type: data, unless the test has named the class."""
        number, kind, data = parts
        plain, kind_here = self._inner(data), self._type(kind)
        ref = self._new_ref(number, kind_here)
        if issubclass(kind_here, RemoteValue) and issubclass(kind_here, type(plain)):
            return remote.make(kind_here, ref, plain)
        return (
            remote.make(kind_here, ref)
            if ref.kind.made_by_test and issubclass(kind_here, Remote)
            else plain
        )

    def _new_ref(self, number: Any, kind: Any) -> RemoteRef:
        return RemoteRef(
            self._connection, number, remote.ref_of(kind), self._connection.made_by_test
        )
