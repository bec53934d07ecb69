"""Objects that arrive from the program, of classes that are made here after its own.

The sender may be hostile: whatever it claims of a class, no code of its choice runs, and nothing of
the test's is compared by it.
"""

from __future__ import annotations

import numbers
from collections import abc
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from assay.judge.codec import STEERING, Json, Unpacker, error_type
from assay.judge.codec_types import (
    COLLAPSE,
    MUTABLE,
    VIEWS,
    CodecError,
)
from assay.judge.objects import remote
from assay.judge.objects.committed import Parameters, plain_copy
from assay.judge.objects.remote import (
    METHODS,
    SHOWING,
    Attributes,
    Remote,
    RemoteClass,
    RemoteError,
    RemoteRef,
    RemoteValue,
)
from assay.judge.requests import RemoteProgram
from assay.judge.worker_messages import SUBCLASSES

IMMUTABLE = {kind.__name__: kind for kind, _ in COLLAPSE if kind not in MUTABLE}
LOOKS_LIKE: dict[Json, type] = {kind.__name__: kind for kind in (*MUTABLE[:5], *VIEWS)}
ABSTRACT: dict[Json, Any] = {name: getattr(abc, name) for name in abc.__all__} | {
    "Number": numbers.Number
}
"""Abstract classes of which a class of the program's may be. None of them makes plain data compare
itself by an object's attributes, as numbers.Rational does."""


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
        self._members: dict[int, Any] = {}
        """By number: the members of Enums, as a test names them."""
        self._data: dict[int, Any] = {}
        """Of those that are data too: that."""
        self._objects: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._numbers = set[int]()
        """By number: the objects that a test has that looks at identity; and all that it had."""
        self._types: dict[int, RemoteClass] = {}
        self._plain = Unpacker()
        self.tags = {"handle": self._handle, "class": self._class, "subclass": self._subclass}

    def error(self, described: Json, plain: BaseException, text: str) -> BaseException:
        """An exception of the program's own class, from its number and class, with the arguments of
        a plain one. Raises CodecError.
        """
        number, kind = described[0], self._type(described[1])
        if not issubclass(kind, Exception) or type(number) is not int:
            raise CodecError("malformed exception")
        is_group = isinstance(plain, ExceptionGroup)
        if issubclass(kind, ExceptionGroup) is not is_group:
            raise CodecError("a group without its parts")
        data = plain.args if is_group else ()
        rebuilt: BaseException = remote.make(kind, self._new_ref(number, kind), *data)
        BaseException.__dict__["args"].__set__(rebuilt, plain.args)
        object.__setattr__(rebuilt, "_text", text)
        return rebuilt

    def _type(self, parts: Json) -> RemoteClass:
        """A class of ours for a class of the program's, from what `ClassTable.describe` says."""
        number, name, names, of_data, bases, members, decides, abstract, parameters = parts
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
            "_of_data": of_data, "__doc__": Attributes.__dict__["__doc__"],
            "_decides": decides is True, "_parameters": Parameters(parameters, self._plain.value),
        }  # fmt: skip
        if of_data in LOOKS_LIKE:  # so that `isinstance` takes it for one, and C code does not
            base = LOOKS_LIKE[of_data]
            plain = type(name, (base,), {}) if base in MUTABLE else base
            namespace["__class__"] = property(lambda _: plain)
        elif bases_of_python := [ABSTRACT[it] for it in abstract if it in ABSTRACT]:
            # not the class itself: its own `__subclasscheck__` would be asked about all classes
            plain = type(name, (), {})
            for abstract_class in bases_of_python:
                abstract_class.register(plain)
            namespace["__class__"] = property(lambda _: plain)
        usable = methods.intersection(METHODS if issubclass(above[0], Remote) else SHOWING)
        if not issubclass(above[0], RemoteError):
            namespace |= {name_of_method: METHODS[name_of_method] for name_of_method in usable}
        if issubclass(above[0], RemoteValue):  # a field may be named as a method of tuples is
            fields = {*namespace["_parameters"].names} & {"count", "index"}
            namespace |= {field: remote.field(field) for field in fields}
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
        by_name: dict[str, Any] = {}
        by_number: dict[int, Any] = {}
        values: list[tuple[Any, Any]] = []
        for name, number, data, value in members:
            if type(number) is not int:
                raise CodecError("malformed member")
            if number not in by_number:
                by_number[number] = self._member(kind, number, data)
                values += [(self._plain.value(it), by_number[number]) for it in value]
            by_name[str(name)] = by_number[number]
        if len(set(by_number.values())) < len(by_name) or repeats([it for it, _ in values]):
            self._connection.forgeable = True  # an alias: a program could make all members one
        type.__setattr__(kind, "_members", by_name)
        type.__setattr__(kind, "_values", values)
        self._members |= by_number

    def _answered(self, number: int) -> Any:
        """A member of an Enum that the program has answered: another object than the test has that
        names it, for two answers are the program's word. A test whose `is` is not noticed gets
        that of the test.
        """
        member = self._members[number]
        if self._connection.job["identity"]:
            self._connection.answered[remote.ref_of(member)] += 1
            self._connection.forgeable |= number in self._numbers
            self._numbers.add(number)
            return member
        kind = type(member)
        data = [it for it in [self._data.get(number)] if it is not None]
        ref = self._new_ref(number, kind)
        self._connection.answered[ref] = 1
        return remote.make(kind, ref, *data)

    def _member(self, kind: RemoteClass, number: int, data: Json) -> Any:
        """A member of an Enum, of which the data is compared; of one without, itself is."""
        if issubclass(kind, RemoteValue):
            plain = self._plain.value(data)
            if not issubclass(kind, type(plain)):
                raise CodecError("a member without its data")
            self._data[number] = plain
            return remote.make(kind, self._new_ref(number, kind), plain)
        type.__setattr__(kind, "__eq__", remote.same_member)
        type.__setattr__(kind, "__ne__", object.__ne__)
        type.__setattr__(kind, "__hash__", lambda member: hash(remote.ref_of(member).target))
        return remote.make(kind, self._new_ref(number, kind))

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
        number, kind, *more = parts
        kind_here = self._type(kind)
        self._note([kind_here.__name__, None, *more[:1]])
        if type(number) is not int:
            raise CodecError("malformed handle")
        is_member = "_members" in kind_here.__dict__
        if is_member and number in self._members:
            return self._answered(number)
        self._note_expected(number)
        if (present := self._objects.get(number)) is not None:
            self._connection.forgeable = True
            self._commit(present, kind_here, more[1:])
            return present
        if number in self._numbers:  # the test has looked at it before, maybe at its `id`
            self._connection.forgeable = True
        handle = remote.make(kind_here, self._new_ref(number, kind_here))
        remote.ref_of(handle).is_dropped = not is_member
        self._commit(handle, kind_here, more[1:])
        if is_member:  # of more than one flag
            self._members[number] = handle
        elif self._connection.job["identity"]:
            self._objects[number] = handle
            self._numbers.add(number)
        return handle

    def _note_expected(self, number: int) -> None:
        """Note that the program answers with what a test has constructed and given to nothing."""
        program = self._connection
        program.forgeable |= program.expected.arrives(number) and not program.made_by_test

    def _commit(self, handle: Any, kind: RemoteClass, states: list[Json]) -> None:
        """Note what the program says that an object is, now that it answers with it."""
        parameters = kind.__dict__["_parameters"]
        for state in states:
            now = self._new_ref(0, kind).committed
            now.state = parameters.committed(state, self._plain.value)
            remote.ref_of(handle).committed = now

    def _subclass(self, parts: Json) -> Any:
        """An instance of a subclass of a data type. Of one that can change it is data, unless the
        test has named the class or needs what data has not.
        """
        number, kind, data = parts
        plain, kind_here = self._inner(data), self._type(kind)
        if type(number) is not int:
            raise CodecError("malformed handle")
        if number in self._members and "_members" in kind_here.__dict__:
            return self._answered(number)
        self._note_expected(number)
        ref = self._new_ref(number, kind_here)
        if issubclass(kind_here, RemoteValue) and issubclass(kind_here, type(plain)):
            if type(plain) is tuple:
                parameters = kind_here.__dict__["_parameters"]
                ref.committed.state = parameters.committed(plain, plain_copy)
            return remote.make(kind_here, ref, plain)
        if issubclass(kind_here, Remote):
            if ref.kind.made_by_test or self._connection.job["subclasses"]:
                return remote.make(kind_here, ref)
            self._connection.changes.add(SUBCLASSES)
        return plain

    def _new_ref(self, number: Any, kind: Any) -> RemoteRef:
        return RemoteRef(
            self._connection, number, remote.ref_of(kind), self._connection.made_by_test
        )


def repeats(values: list[Any]) -> bool:
    """Whether two of these are equal."""
    keys = set[Any]()
    for value in values:
        try:
            keys.add(value)
        except TypeError:  # it is or holds a list, say
            keys.add(repr(value))
    return len(keys) < len(values)
