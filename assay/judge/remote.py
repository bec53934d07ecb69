"""Objects and classes of the program as a test sees them: whatever a test does to one is a request.

Nothing of the program's runs here. A class of it becomes a class of ours with the same name, so
that `isinstance`, `except` and `type` work. Plain data of the test is compared with data only,
never by the program's own methods; where two objects of the program's are compared, only the
program can decide, which `Connection.forgeable` notes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, cast

from assay.judge.codec import Json
from assay.judge.codec_types import COLLAPSE, TYPES
from assay.judge.operations import COMPARISONS, OF_OBJECTS, OPERATIONS, REFLECTED

if TYPE_CHECKING:
    from assay.judge.proxy import Connection

OF_DATA = frozenset(
    name for kind in (*TYPES, *(base for base, _ in COLLAPSE)) for name in dir(kind)
)
"""Names of attributes that data has."""
UNCOMPARED = ("__getitem__", "__format__", "__round__")
"""Operations of which the operand is no expected value, but an index, a format, digits."""
SEEN = (*COMPARISONS, "__hash__")
"""Operations that are noted where two objects are compared, and a hash, which decides nothing."""
ITEMS = 2_000_000
CHUNK_AFTER, CHUNK = 32, 1024
"""So many items of an iterator are asked for one by one; then twice as many each time, at most
CHUNK."""


class Place:
    """Where an object of the program is, and what the test has shown of what it takes it for."""

    __slots__ = ("connection", "informed", "kind", "made", "packed", "shown", "target")

    def __init__(
        self,
        connection: Connection,
        target: int | str,
        kind: Place | None = None,
        made: bool = False,
    ) -> None:
        self.connection, self.target = connection, target
        """`target`: its number, or its name in the program."""
        self.packed: Json = {"handle" if type(target) is int else "function": target}
        """What is sent for it."""
        self.kind = kind or self
        """The place of its class."""
        self.made = made
        """Whether the test has constructed it, or has named this class."""
        self.shown = False
        """Whether the test has done with it, or with one of this class, what it cannot do with
        data."""

        self.informed = False
        """Whether it has got data of the test: an operation with such data answered it."""

    def shows(self, name: str) -> bool:
        """Whether data has no such operation or attribute, so that the test expects an object."""
        numpy = getattr(sys.modules.get("numpy"), "ndarray", None)
        if name in OF_OBJECTS or not (name[:2] == "__" or name in OF_DATA or hasattr(numpy, name)):
            self.shown = self.kind.shown = True
        return self.shown

    def ask(self, name: str, *operands: Any) -> Any:
        """What an operation on it answers."""
        packed = [self.packed, *map(self.connection.packer.pack, operands)]
        return self.connection.ask("operate", name, packed)

    def decides(self, informed: bool) -> bool:
        """Whether data that an operation has answered is believed as if it were of data itself."""
        return not self.shown and self.kind.shown + self.made + (not informed) < 2


def place_of(remote: object) -> Place:
    """Where an object or class of the program is. Raises AttributeError for anything else."""
    look = type if isinstance(remote, type) else object
    place: Place = look.__getattribute__(remote, "_place")
    return place


def is_remote(value: object) -> bool:
    """Whether it is an object or class of the program's."""
    return isinstance(value, Attributes | RemoteClass)


def operate(remote: object, name: str, *operands: Any) -> Any:
    """Carry out an operation where the object is."""
    place = place_of(remote)
    informed = place.informed or not (name in UNCOMPARED or all(map(is_remote, operands)))
    answer = place.connection.ask("operate", name, [*map(place.connection.packer.pack, operands)])
    if isinstance(answer, Remote):
        place_of(answer).informed = informed
        place_of(answer).made |= place.made and name in ("__iter__", "__enter__")
    elif name not in SEEN:
        if place in place.connection.arrivals.members:  # sent where data may be expected
            place.connection.forgeable = True
        if not place.shows(name):
            place.connection.doubtful.add((place, informed))
    return answer


def read(remote: object, name: str) -> Any:
    """An attribute."""
    place = place_of(remote)
    if name.startswith("__array"):  # with these, numpy would let the program compare
        place.connection.doubt = f"this test uses a {type(remote).__name__} object as an array"
        raise AttributeError(name)
    if name == "__signature__":
        return signature(place.ask("signature"))
    answer = place.ask("getattr", name)
    if not (place.shows(name) or name[:2] == "__"):
        # a method like one of data's is called with data of the test
        informed = place.informed or (is_remote(answer) and not place.made)
        place.connection.doubtful.add((place, informed))
    return answer


def write(remote: object, name: str, value: Any) -> None:
    """Set an attribute."""
    place_of(remote).shows(name)
    place_of(remote).ask("setattr", name, value)


def signature(rows: list[Any]) -> Any:
    """An inspect.Signature of [name, kind, [default]] for each parameter."""
    import inspect

    kinds = list(inspect._ParameterKind)
    return inspect.Signature([
        inspect.Parameter(name, kinds[kind], default=default[0] if default else inspect._empty)
        for name, kind, default in rows
    ])  # fmt: skip


def forwarding(name: str, operation: str) -> Callable[..., Any]:
    """The special method that carries out an operation there."""
    if name in COMPARISONS:
        return lambda self, other: compared(self, name, other)
    if name in REFLECTED:
        return lambda self, other: operate(self, operation, other, self)
    return lambda self, *operands: operate(self, name, self, *operands)


def compared(remote: object, name: str, other: object) -> Any:
    """Two objects of the program's are compared by it; with data, only what is data in the object
    is compared, and here.
    """
    place, kind = place_of(remote), type(remote)
    if is_remote(other):
        place.connection.forgeable = True
        return operate(remote, name, remote, other)
    if kind.__dict__.get("_is_data"):
        return OPERATIONS[name](place.ask("plain"), other)
    if name in kind.__dict__.get("_own", ()) and (place.made or place.shown or place.kind.shown):
        place.connection.doubt = f"this test compares a {kind.__name__} object with plain data"
    return NotImplemented


def call(remote: object, *arguments: Any, **named: Any) -> Any:
    """Call an object."""
    place_of(remote).shows("__call__")
    return place_of(remote).connection.call(place_of(remote).target, arguments, named)


def swallows(remote: object, kind: Any, answer: Any) -> bool:
    """Whether the program swallows the exception of a `with` block, and so skips the rest of it."""
    swallowed = kind is not None and bool(answer)
    if swallowed:
        place_of(remote).connection.forgeable = True
    return swallowed


def leave(remote: object, *about: Any) -> bool:
    """Leave a `with` block."""
    return swallows(remote, about[0], operate(remote, "__exit__", remote, *about))


async def enter_later(remote: object) -> Any:
    """Enter an `async with` block."""
    entered = await operate(remote, "__aenter__", remote)
    if is_remote(entered):
        place_of(entered).made |= place_of(remote).made
    return entered


async def leave_later(remote: object, *about: Any) -> bool:
    """Leave an `async with` block."""
    return swallows(remote, about[0], await operate(remote, "__aexit__", remote, *about))


METHODS: dict[str, Callable[..., Any]] = {
    **{name: forwarding(name, name) for name in OPERATIONS},
    **{name: forwarding(name, operation) for name, operation in REFLECTED.items()},
    "__call__": call,
    "__await__": lambda self: awaited(place_of(self)).__await__(),
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
            if "_place" in base.__dict__:
                connection = place_of(base).connection
                raise connection.cannot(
                    f"this test derives a class from the program's {base.__name__}"
                )
        return super().__new__(mcs, name, bases, namespace)

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        """Make an object of it."""
        place = place_of(cls)
        place.made = True
        if "_members" in cls.__dict__:  # the program says which member has a value
            place.connection.forgeable = True
        return place.connection.call(place.target, arguments, named, made=True)

    def __getattr__(cls, name: str) -> Any:
        if "_place" not in cls.__dict__:
            raise AttributeError(name)
        return cls._member(name) if name in cls.__dict__.get("_members", ()) else read(cls, name)

    def _member(cls, name: str) -> Any:
        place_of(cls.__dict__["_members"][name]).made = True
        return cls.__dict__["_members"][name]

    def __setattr__(cls, name: str, value: Any) -> None:
        write(cls, name, value)

    @property
    def __doc__(cls) -> Any:  # type: ignore[override]
        return read(cls, "__doc__") if "_place" in cls.__dict__ else None

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
        place_of(self).ask("delattr", name)

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
            place_of(self).connection.forgeable = True
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


def make(kind: type, place: Place, *data: Any) -> Any:
    """An object of the program's; of a class with data in it, `data` is that."""
    made = kind.__new__(kind, *data)
    object.__setattr__(made, "_place", place)
    return made


async def awaited(place: Place) -> Any:
    """A coroutine of the program's, which runs there to its end when it is awaited here."""
    return place.ask("await")


def items(place: Place) -> Generator[Any, Any, Any]:
    """What an iterator of the program's yields, as far as it is read."""
    connection, count, asked, sent, talks = place.connection, 0, -1, None, False
    while True:
        # a test that asks for nothing between many items could not tell when each was made
        undisturbed = count >= CHUNK_AFTER and asked == connection.requests.number and not talks
        many = min(count, CHUNK) if undisturbed else 1
        packed = connection.packer.pack(sent)
        found, ended, value = connection.ask("items", place.target, many, packed)
        asked, count = connection.requests.number, count + len(found)
        if count > ITEMS:
            raise connection.requests.fail("output", f"an iterator yields more than {ITEMS} items")
        for item in cast("list[Any]", found):
            sent = yield item
            talks = talks or sent is not None
        if ended:
            return value
