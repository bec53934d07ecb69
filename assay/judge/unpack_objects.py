"""What arrives from the program: data, and objects of classes that are made here after its own.

The sender may be hostile: whatever it claims of a class, no code of its choice runs, and nothing of
the test's is compared by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from assay.judge import remote
from assay.judge.codec import SHOWN, STEERING, Json, Unpacker, error_type, exception
from assay.judge.codec_types import (
    BUILTINS,
    COLLAPSE,
    MUTABLE,
    CodecError,
    TooLargeError,
    plain_numpy,
    rebuild_numpy,
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

if TYPE_CHECKING:
    from assay.judge.proxy import Connection

SHOWING = ("__str__", "__repr__", "__format__")
IMMUTABLE = {kind.__name__: kind for kind, _ in COLLAPSE if kind not in MUTABLE}


class Arrivals:
    """Rebuilds values, objects and exceptions of one program."""

    def __init__(self, connection: Connection) -> None:
        self.identity = False
        """Whether the test looks at the identity of objects; then an object stays the same one."""
        self.takes_objects = True
        """Whether there may be classes of the program's, and so objects."""
        self.may_stop = False
        """Whether the last request may raise StopIteration without saying more than it should."""
        self.flattened = False
        """Whether a value of numpy's has become Python's."""
        self.members = Counter[RemoteRef]()
        """How often the program has sent each member of an Enum."""
        self.running: dict[int, tuple[RemoteRef, Any]] = {}
        """By id: generators and coroutines that stand for the program's."""
        self._connection = connection
        self._made = False
        self._objects: dict[int, Any] = {}
        self._types: dict[int, RemoteClass] = {}
        self._unpacker = Unpacker({
            "opaque": Opaque, "handle": self._handle, "class": self._type, "graph": self._graph,
            "subclass": self._subclass, "error": self.error, "builtin": self._builtin,
            "lazy": partial(self._run, remote.items), "callback": connection.own_function,
            "coroutine": partial(self._run, remote.awaited), "shared": self._shared,
        })  # fmt: skip
        self._data_unpacker = Unpacker({"opaque": Opaque})

    def keep_numpy(self, keep: bool) -> None:
        """Whether values of numpy's stay so; else they become Python's."""

        def array(parts: Json) -> Any:
            value = rebuild_numpy(parts)
            if value.size == 0:  # broadcast over a test's array, it leaves nothing to compare
                self._connection.forgeable = True
            self.flattened |= not keep
            return value if keep else plain_numpy(value)

        self._unpacker.foreign["numpy"] = self._data_unpacker.foreign["numpy"] = array

    def value(self, data: Json, made: bool = False, only_data: bool = False) -> Any:
        """A value as the program packed it; `made`: the test constructs it; `only_data`: an object
        in it is opaque. Raises CandidateFailed where it is too large or malformed.
        """
        before, self._made = self._made, made
        try:
            return (self._data_unpacker if only_data else self._unpacker).value(data)
        except (TooLargeError, MemoryError) as error:
            raise self._connection.requests.fail("output", str(error)) from None
        except CodecError as error:
            raise self._connection.requests.fail("forbidden", str(error)) from None
        finally:
            self._made = before

    def error(self, parts: list[Json]) -> BaseException:
        """An exception of the program's, rebuilt. Raises CodecError."""
        names, arguments, name, text, own, cause = parts
        text = str(text)[:SHOWN]
        error = exception(names, arguments, f"{str(name)[:100]}: {text}")
        ends = self.may_stop and isinstance(error, StopIteration | StopAsyncIteration)
        if isinstance(error, STEERING) and not ends:
            self._connection.forgeable = True
        if own is not None:
            number, kind = own[0], self._type(own[1])
            if not issubclass(kind, Exception) or type(number) is not int:
                raise CodecError("malformed exception")
            made: BaseException = remote.make(kind, self._new_ref(number, kind))
            BaseException.__dict__["args"].__set__(made, error.args)
            object.__setattr__(made, "_text", text)
            error = made
        error.__cause__ = self.error(cause) if cause else None
        return error

    def _type(self, parts: Json) -> RemoteClass:
        """A class of ours for a class of the program's: its number, name, special methods, whether
        it holds mutable data, bases, and the members of an Enum.
        """
        number, name, own, is_data, bases, members = parts
        if number in self._types:
            return self._types[number]
        named = type(number) is int and type(name) is str and type(own) is list
        if not (named and self.takes_objects):
            raise CodecError("malformed class")
        made = tuple(self._base(base) for base in bases)
        if not any(issubclass(base, Attributes) for base in made):
            error = any(issubclass(base, BaseException) for base in made)
            made = (RemoteError if error else RemoteValue if made else Remote, *made)
        methods = frozenset(one for one in own if type(one) is str and one in METHODS)
        namespace = {
            "_ref": RemoteRef(self._connection, number), "_own": methods,
            "_is_data": is_data is True, "__doc__": Attributes.__dict__["__doc__"],
        }  # fmt: skip
        usable = methods.intersection(METHODS if issubclass(made[0], Remote) else SHOWING)
        if not issubclass(made[0], RemoteError):
            namespace |= {one: METHODS[one] for one in usable}
        kind = type.__new__(RemoteClass, name, made, namespace)
        self._types[number] = kind
        if members:
            self._enumerate(kind, members)
        return kind

    def use_own_methods(self, kind: RemoteClass) -> None:
        """Let data of a class that the test names use that class's own methods; all other data is
        only data. It is compared as the data that it is.
        """
        for base in kind.__mro__:
            if issubclass(base, RemoteValue):
                for one in base.__dict__.get("_own", frozenset()).difference(remote.SEEN):
                    type.__setattr__(base, one, METHODS[one])

    def _enumerate(self, kind: RemoteClass, members: Json) -> None:
        """Make all members of an Enum, so that a test which names one asks nothing of the program,
        and members are compared here.
        """
        made = {number: remote.make(kind, self._new_ref(number, kind)) for _, number in members}
        if len(made) < len(members):  # an alias: a program could make all members one
            self._connection.forgeable = True
        for name in ("__eq__", "__ne__", "__hash__"):
            type.__setattr__(kind, name, getattr(object, name))
        named = {str(name): made[number] for name, number in members}
        type.__setattr__(kind, "_members", named)
        self._objects |= made

    def _base(self, base: Json) -> type:
        if type(base) is list:
            return self._type(base)
        if base in IMMUTABLE:
            return IMMUTABLE[base]
        kind = error_type(base)
        if kind is None:
            raise CodecError("unknown base class")
        if issubclass(kind, STEERING):
            self._connection.forgeable = True
        return kind

    def _handle(self, parts: Json) -> Any:
        number, kind = parts
        made = self._type(kind)
        if type(number) is not int:
            raise CodecError("malformed handle")
        if number in self._objects:
            if "_members" in made.__dict__:
                self.members[remote.ref_of(self._objects[number])] += 1
            else:
                self._connection.forgeable = True
            return self._objects[number]
        handle = remote.make(made, self._new_ref(number, made))
        if self.identity:
            self._objects[number] = handle
        return handle

    def _subclass(self, parts: Json) -> Any:
        """An instance of a subclass of a data type: data, unless the test has named the class."""
        number, kind, data = parts
        plain, made = self._unpacker.inner(data), self._type(kind)
        ref = self._new_ref(number, made)
        if issubclass(made, RemoteValue) and issubclass(made, type(plain)):
            return remote.make(made, ref, plain)
        return (
            remote.make(made, ref) if ref.kind.made_by_test and issubclass(made, Remote) else plain
        )

    def _new_ref(self, number: Any, kind: Any) -> RemoteRef:
        return RemoteRef(self._connection, number, remote.ref_of(kind), self._made)

    def _shared(self, parts: Json) -> Any:
        shared = self._connection.shared
        if self.identity and shared.new.isdisjoint(parts):
            self._connection.forgeable = True
        return shared.rebuild(parts)

    def _builtin(self, name: Json) -> Any:
        """A function or class of Python's; an `except` of some catches the test's own assertion."""
        found = BUILTINS[name]
        if found is type and not self.takes_objects:
            return Opaque(name)  # it makes classes, which may do more than data does
        if isinstance(found, type) and issubclass(AssertionError, found) and found is not object:
            self._connection.forgeable = True
        return found

    def _run(self, kind: Callable[[RemoteRef], Any], number: Json) -> Any:
        """A generator or coroutine that stands for one of the program's."""
        ref = RemoteRef(self._connection, number)
        made = kind(ref)
        self.running[id(made)] = ref, made
        return made

    def _graph(self, rows: Json) -> Any:
        connection, on_change = self._connection, partial(self._connection.changes.add, "arguments")
        return connection.nodes.unpack(rows, self._unpacker, connection.mutates, on_change)


class Opaque:
    """An object that a call returned and that is no data: equal only to itself; its truth value is
    what the program sent.
    """

    def __init__(self, parts: Json) -> None:
        name, truth = parts if type(parts) is list and len(parts) == 2 else (parts, None)
        self._name = str(name)[:100]
        self._truth = truth if type(truth) is bool else None

    def __repr__(self) -> str:
        return f"<a {self._name} of the candidate's>"

    def __bool__(self) -> bool:
        if self._truth is None:
            raise TypeError(f"{self!r} is no data")
        return self._truth
