"""Objects and classes of the program as a test sees them: whatever a test does to one is a request.

Nothing of the program's runs here. A class of it becomes a class of ours with the same name, so
that `isinstance`, `except` and `type` work. Plain data of the test is compared with data only,
never by the program's own methods; where two objects of the program's are compared, only the
program can decide, which `RemoteProgram.forgeable` notes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from typing import Any, cast

from assay.judge.codec import Json
from assay.judge.codec_types import COLLAPSE, TYPES
from assay.judge.operations import COMPARISONS, OF_OBJECTS, OPERATIONS, REFLECTED
from assay.judge.requests import RemoteProgram

DATA = frozenset((int, float, str, bool, list, *TYPES, *(base for base, _ in COLLAPSE)))
OF_DATA = frozenset(name for kind in DATA for name in dir(kind))
"""Names of attributes that data has."""
UNCOMPARED = ("__getitem__", "__format__", "__round__")
"""Operations of which the operand is no expected value, but an index, a format, digits."""
SEEN = (*COMPARISONS, "__hash__")
"""Operations that are noted where two objects are compared, and a hash, which decides nothing."""
SAME = ("__iter__", "__enter__", "__copy__", "__deepcopy__")
"""Operations that answer with an object that is as much under test."""
ITEMS = 2_000_000
CHUNK_AFTER, CHUNK = 32, 1024
"""So many items of an iterator are asked for one by one; then twice as many each time, at most
CHUNK."""


class RemoteRef:
    """Where an object of the program is, and what the test has shown of what it takes it for."""

    __slots__ = (
        "connection",
        "has_test_data",
        "kind",
        "made_by_test",
        "name",
        "packed",
        "target",
        "used_as_object",
    )

    def __init__(
        self,
        connection: RemoteProgram,
        target: int | str,
        kind: RemoteRef | None = None,
        made_by_test: bool = False,
    ) -> None:
        self.connection, self.target = connection, target
        """`target`: its number, or its name in the program."""
        self.packed: Json = {"handle" if type(target) is int else "function": target}
        """What is sent for it."""
        self.kind = kind or self
        """Its class."""
        self.name = ""
        """By which the test has asked for this class first."""
        self.made_by_test = made_by_test
        """Whether the test has constructed it, or has named this class."""
        self.used_as_object = False
        """Whether the test has done with one of this class what it cannot do with data."""
        self.has_test_data = False
        """Whether an operation with data of the test answered it."""

    def shows(self, name: str) -> bool:
        """Whether data has no such operation or attribute, so that the test expects an object."""
        numpy = getattr(sys.modules.get("numpy"), "ndarray", None)
        if name in OF_OBJECTS or not (name[:2] == "__" or name in OF_DATA or hasattr(numpy, name)):
            self.kind.used_as_object = True
            return True
        return False

    def ask(self, name: str, *operands: Any) -> Any:
        """What an operation on it answers."""
        packed = [self.packed, *map(self.connection.packer.pack, operands)]
        return self.connection.ask("operate", name, packed)

    def decides(self, has_test_data: bool) -> bool:
        """Whether what an operation has answered is the program's word, and not of an object under
        test. `has_test_data`: of the operation.
        """
        return self.kind.used_as_object + self.made_by_test + (not has_test_data) < 2


def ref_of(remote: object) -> RemoteRef:
    """Where an object or class of the program is. Raises AttributeError for anything else."""
    look = type if isinstance(remote, type) else object
    ref: RemoteRef = look.__getattribute__(remote, "_ref")
    return ref


def is_remote(value: object) -> bool:
    """Whether it is an object or class of the program's."""
    return isinstance(value, Attributes | RemoteClass)


def operate(remote: object, name: str, *operands: Any) -> Any:
    """Carry out an operation where the object is."""
    ref = ref_of(remote)
    has_test_data = ref.has_test_data or not (name in UNCOMPARED or all(map(is_remote, operands)))
    answer = ref.connection.ask("operate", name, [*map(ref.connection.packer.pack, operands)])
    if isinstance(answer, Remote):
        ref_of(answer).has_test_data = has_test_data
        ref_of(answer).made_by_test |= ref.made_by_test and name in SAME
    elif name not in SEEN:
        note(ref, name, has_test_data)
    return answer


def note(ref: RemoteRef, name: str, has_test_data: bool) -> None:
    """Note an operation or attribute that data may have too."""
    if not ref.shows(name):
        ref.connection.doubtful.add((ref, has_test_data))
        if ref.connection.answered[ref]:  # sent where data may be expected
            ref.connection.forgeable = True


def read(remote: object, name: str) -> Any:
    """An attribute."""
    ref = ref_of(remote)
    if name.startswith("__array"):  # with these, numpy would let the program compare
        ref.connection.doubts[True] = f"this test uses a {type(remote).__name__} object as an array"
        raise AttributeError(name)
    if name == "__signature__":
        return signature(ref.ask("signature"))
    answer = ref.ask("getattr", name)
    if name[:2] != "__" or name in METHODS:
        # a method like one of data's is called with data of the test
        note(ref, name, ref.has_test_data or (is_remote(answer) and not ref.made_by_test))
    return answer


def write(remote: object, name: str, value: Any) -> None:
    """Set an attribute."""
    ref_of(remote).shows(name)
    ref_of(remote).ask("setattr", name, value)


def signature(rows: list[Any]) -> Any:
    """An inspect.Signature of [name, kind, [default]] for each parameter."""
    import inspect

    kinds = list(inspect._ParameterKind)
    return inspect.Signature([
        inspect.Parameter(name, kinds[kind], default=default[0] if default else inspect._empty)
        for name, kind, default in rows
    ])  # fmt: skip


def forwarding(name: str) -> Callable[..., Any]:
    """The special method that carries out an operation there."""
    if name in COMPARISONS:
        return lambda self, other: compared(self, name, other)
    if name in REFLECTED:
        return lambda self, other: operate(self, REFLECTED[name], other, self)
    return lambda self, *operands: operate(self, name, self, *operands)


def compared(remote: object, name: str, other: object) -> Any:
    """Two objects of the program's are compared by it; with data, only what is data in the object
    is compared, and here.
    """
    ref, kind = ref_of(remote), type(remote)
    if is_remote(other):
        ref.connection.forgeable = True
        return operate(remote, name, remote, other)
    if kind.__dict__.get("_is_data"):
        return OPERATIONS[name](ref.ask("plain"), other)
    alike = kind.__name__ == type(other).__name__ and type(other) not in DATA
    under_test = ref.made_by_test or ref.kind.used_as_object
    if name in kind.__dict__.get("_own", ()) and (alike or under_test):
        ref.connection.doubts[True] = f"this test compares a {kind.__name__} object with plain data"
    return NotImplemented


def call(remote: object, *arguments: Any, **keywords: Any) -> Any:
    """Call an object."""
    ref_of(remote).shows("__call__")
    return ref_of(remote).connection.call(ref_of(remote).target, arguments, keywords)


def swallows(remote: object, kind: Any, answer: Any) -> bool:
    """Whether the program swallows the exception of a `with` block, and so skips the rest of it."""
    swallowed = kind is not None and bool(answer)
    if swallowed:
        ref_of(remote).connection.forgeable = True
    return swallowed


def leave(remote: object, *about: Any) -> bool:
    """Leave a `with` block."""
    return swallows(remote, about[0], operate(remote, "__exit__", remote, *about))


async def enter_later(remote: object) -> Any:
    """Enter an `async with` block."""
    entered = await operate(remote, "__aenter__", remote)
    if is_remote(entered):
        ref_of(entered).made_by_test |= ref_of(remote).made_by_test
    return entered


async def leave_later(remote: object, *about: Any) -> bool:
    """Leave an `async with` block."""
    return swallows(remote, about[0], await operate(remote, "__aexit__", remote, *about))


METHODS: dict[str, Callable[..., Any]] = {
    **{name: forwarding(name) for name in (*OPERATIONS, *REFLECTED)},
    "__call__": call,
    "__await__": lambda self: awaited(ref_of(self)).__await__(),
    "__exit__": leave,
    "__aenter__": enter_later,
    "__aexit__": leave_later,
}
OF_ALL = [*METHODS.keys() & vars(object), "__bool__", "__copy__", "__deepcopy__"]
"""What every object has; the rest is there where the program's class defines it."""


class RemoteClass(type):
    """A class of the program."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> RemoteClass:
        """A class statement of ours; one of the test's cannot be judged."""
        for base in bases:
            if "_ref" in base.__dict__:
                connection = ref_of(base).connection
                raise connection.cannot(
                    f"this test derives a class from the program's {base.__name__}"
                )
        return super().__new__(mcs, name, bases, namespace)

    def __call__(cls, *arguments: Any, **keywords: Any) -> Any:
        """Make an object of it."""
        ref = ref_of(cls)
        ref.made_by_test = True
        if "_members" in cls.__dict__:  # the program says which member has a value
            ref.connection.forgeable = True
        # not where the program has put a class where the test expects data or a function
        made_by_test = ref.name.lstrip("_")[:1].isupper() and not ref.connection.answered[ref]
        return ref.connection.call(ref.target, arguments, keywords, made_by_test)

    def __getattr__(cls, name: str) -> Any:
        if "_ref" not in cls.__dict__:
            raise AttributeError(name)
        return cls._member(name) if name in cls.__dict__.get("_members", ()) else read(cls, name)

    def _member(cls, name: str) -> Any:
        ref_of(cls.__dict__["_members"][name]).made_by_test = True
        return cls.__dict__["_members"][name]

    def __setattr__(cls, name: str, value: Any) -> None:
        write(cls, name, value)

    @property
    def __doc__(cls) -> Any:  # type: ignore[override]
        return read(cls, "__doc__") if "_ref" in cls.__dict__ else None

    def __getitem__(cls, key: Any) -> Any:
        if key in cls.__dict__.get("_members", ()):
            return cls._member(key)
        return operate(cls, "__getitem__", cls, key)


for _name in ("__iter__", "__len__", "__contains__", "__reversed__", "__bool__"):  # of an Enum
    setattr(RemoteClass, _name, METHODS[_name])


class Attributes(metaclass=RemoteClass):
    """Whatever is of the program's: its attributes are requests."""

    _own = frozenset[str]()
    """Special methods that the program's class defines."""

    def __getattr__(self, name: str) -> Any:
        return read(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__") and isinstance(self, BaseException):
            object.__setattr__(self, name, value)  # of Python's own, such as __traceback__
        else:
            write(self, name, value)

    def __delattr__(self, name: str) -> None:
        ref_of(self).ask("delattr", name)

    @property
    def __doc__(self) -> Any:  # type: ignore[override]
        return read(self, "__doc__")


class RemoteError(Attributes):
    """An exception of the program's own class."""

    def __str__(self) -> str:
        return str(object.__getattribute__(self, "_text"))


class RemoteValue(Attributes):
    """Data with attributes: a named tuple, a member of an IntEnum."""

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Attributes):
            ref_of(self).connection.forgeable = True
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return super().__hash__()


class Remote(Attributes):
    """Any other object."""

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        return read(self, "__dict__")


for _name in OF_ALL:
    type.__setattr__(Remote, _name, METHODS[_name])


class Function(Remote):  # noqa: D101  its docstring is that of the program's function
    __doc__ = Attributes.__dict__["__doc__"]
    __call__ = call


def make(kind: type, ref: RemoteRef, *data: Any) -> Any:
    """An object of the program's; of a class with data in it, `data` is that."""
    instance = kind.__new__(kind, *data)
    object.__setattr__(instance, "_ref", ref)
    return instance


def take_name(kind: RemoteClass, name: str) -> None:
    """Note by what name a test has asked for a class. Data of that class may use the class's own
    methods; all other data is only data. It is compared as the data that it is.
    """
    ref = ref_of(kind)
    ref.made_by_test, ref.name = True, ref.name or name
    ref.connection.answered[ref] -= ref.name == name
    for base in kind.__mro__:
        if issubclass(base, RemoteValue):
            for name_of_own in base.__dict__.get("_own", frozenset()).difference(SEEN):
                type.__setattr__(base, name_of_own, METHODS[name_of_own])


async def awaited(ref: RemoteRef) -> Any:
    """A coroutine of the program's, which runs there to its end when it is awaited here."""
    return ref.ask("await")


def items(ref: RemoteRef) -> Generator[Any, Any, Any]:
    """What an iterator of the program's yields, as far as it is read."""
    connection, count, position, sent, talks = ref.connection, 0, -1, None, False
    while True:
        # a test that asks for nothing between many items could not tell when each was made
        undisturbed = count >= CHUNK_AFTER and position == connection.requests.number and not talks
        many = min(count, CHUNK) if undisturbed else 1
        packed = connection.packer.pack(sent)
        values, ended, value = connection.ask("items", ref.target, many, packed)
        position, count = connection.requests.number, count + len(values)
        if count > ITEMS:
            raise connection.requests.fail("output", f"an iterator yields more than {ITEMS} items")
        for item in cast("list[Any]", values):
            try:
                sent = yield item
            except Exception as error:  # noqa: BLE001  thrown by the test, into the program's
                sent = error
            talks = talks or sent is not None
        if ended:
            return value
