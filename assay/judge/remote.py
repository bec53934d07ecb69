"""Objects and classes of the program as a test sees them: whatever a test does to one is a request.

Nothing of the program's runs here. A class of it becomes a class of ours with the same name, so
that `isinstance`, `except` and `type` work. Plain data of the test is compared with data only,
never by the program's own methods; where two objects of the program's are compared, only the
program can decide, which `Connection.trust` notes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from assay.judge.codec import Json
from assay.judge.codec_types import COLLAPSE
from assay.judge.operations import ARITHMETIC, COMPARISONS, OPERATIONS, REFLECTED

if TYPE_CHECKING:
    from assay.judge.proxy import Connection

LIKE_DATA = {"__len__", "__iter__", "__next__", "__getitem__", "__bool__", "__reversed__"}
"""Operations with which a test reads data as well as objects."""
OF_DATA = frozenset(name for kind, _ in COLLAPSE for name in dir(kind) if name[0] != "_")
ITEMS = 2_000_000
CHUNK_AFTER, CHUNK = 32, 1024
"""So many items of an iterator are asked for one by one; then twice as many each time, at most
CHUNK."""


class Place(NamedTuple):
    """Where an object of the program is."""

    connection: Connection
    target: int | str
    """Its number, or its name in the program."""
    expected: bool
    """Whether the test constructed it or reached into it, so that it cannot stand for data."""


def place_of(remote: object) -> Place:
    """Where an object or class of the program is. Raises AttributeError for anything else."""
    look = type if isinstance(remote, type) else object
    place: Place = look.__getattribute__(remote, "_place")
    return place


def ask(remote: object, kind: str, *parts: Json) -> Any:
    """The answer to one request about an object."""
    place = place_of(remote)
    return place.connection.ask(kind, place.target, *parts, expected=place.expected)


def operate(remote: object, name: str, *operands: Any) -> Any:
    """Carry out an operation where the object is."""
    connection, _, expected = place_of(remote)
    # a test that subtracts what it expects would tell the program that, and believe the answer
    told = name in ARITHMETIC and not all(isinstance(one, Attributes) for one in operands)
    as_data = name in LIKE_DATA and not connection.knows(type(remote))
    if not expected and (name == "__contains__" or told or as_data):
        connection.trust("own_methods")
    packed = [connection.packer.pack(operand) for operand in operands]
    return connection.ask("operate", name, packed, expected=expected)


def read(remote: object, name: str) -> Any:
    """An attribute."""
    connection, target, expected = place_of(remote)
    if name == "__signature__":
        return signature(connection.ask("signature", target))
    if name in OF_DATA and not (expected or connection.knows(type(remote))):
        connection.trust("own_methods")
    return connection.ask("get", target, name, expected=expected or name not in OF_DATA)


def write(remote: object, name: str, value: Any) -> None:
    """Set an attribute."""
    ask(remote, "set", name, place_of(remote).connection.packer.pack(value))


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
    connection, _, expected = place_of(remote)
    if isinstance(other, Attributes | RemoteClass):
        connection.trust("own_equality" if name in ("__eq__", "__ne__") else "own_order")
        return operate(remote, name, remote, other)
    if type(remote).__dict__.get("_is_data"):
        return OPERATIONS[name](ask(remote, "plain"), other)
    if name in type(remote).__dict__.get("_own", ()) and (
        expected or connection.knows(type(remote))
    ):
        connection.doubt = f"this test compares a {type(remote).__name__} object with plain data"
    return NotImplemented


METHODS: dict[str, Callable[..., Any]] = {
    name: forwarding(name, operation)
    for name, operation in {**{name: name for name in OPERATIONS}, **REFLECTED}.items()
}


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
        connection, target, expected = place_of(cls)
        if "_members" in cls.__dict__:  # the program says which member has a value
            connection.trust("own_equality")
        return connection.call(target, arguments, named, expected)

    def __getattr__(cls, name: str) -> Any:
        if "_place" not in cls.__dict__:
            raise AttributeError(name)
        return read(cls, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        write(cls, name, value)

    @property
    def __doc__(cls) -> Any:  # type: ignore[override]
        return read(cls, "__doc__") if "_place" in cls.__dict__ else None

    def __getitem__(cls, key: Any) -> Any:
        members = cls.__dict__.get("_members", {})
        return members[key] if key in members else operate(cls, "__getitem__", cls, key)


for _name in ("__iter__", "__len__", "__contains__", "__reversed__"):  # of an Enum
    setattr(RemoteClass, _name, METHODS[_name])


class Attributes(metaclass=RemoteClass):
    """Whatever is of the program's: its attributes are requests."""

    _own: frozenset[str] = frozenset()
    """Special methods that the program's class defines."""

    def __getattr__(self, name: str) -> Any:
        return read(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__") and isinstance(self, BaseException):
            object.__setattr__(self, name, value)  # of Python's own, such as __traceback__
        else:
            write(self, name, value)

    def __delattr__(self, name: str) -> None:
        ask(self, "delete", name)

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
            place_of(self).connection.trust("own_equality")
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return super().__hash__()

    def __repr__(self) -> str:
        return str(operate(self, "__repr__", self))


class Remote(Attributes):
    """Any other object."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call it."""
        connection, target, _ = place_of(self)
        return connection.call(target, arguments, named, expected=False)

    def __await__(self) -> Generator[Any, None, Any]:
        return awaited(place_of(self)).__await__()

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        return read(self, "__dict__")


for _name, _method in METHODS.items():
    type.__setattr__(Remote, _name, _method)


def make(kind: type, place: Place, *data: Any) -> Any:
    """An object of the program's; of a class with data in it, `data` is that."""
    made = kind.__new__(kind, *data)
    object.__setattr__(made, "_place", place)
    return made


async def awaited(place: Place) -> Any:
    """A coroutine of the program's, which runs there to its end when it is awaited here."""
    return place.connection.ask("await", place.target, expected=place.expected)


def items(place: Place) -> Generator[Any, Any, None]:
    """What an iterator of the program's yields, as far as it is read."""
    connection, target, expected = place
    count, asked, sent, talks = 0, -1, None, False
    while True:
        # a test that asks for nothing between many items could not tell when each was made
        undisturbed = count >= CHUNK_AFTER and asked == connection.requests.number and not talks
        many = min(count, CHUNK) if undisturbed else 1
        packed = connection.packer.pack(sent)
        found, ended = connection.ask("items", target, many, packed, expected=expected)
        asked, count = connection.requests.number, count + len(found)
        if count > ITEMS:
            raise connection.requests.fail("output", f"an iterator yields more than {ITEMS} items")
        for item in cast("list[Any]", found):
            sent = yield item
            talks = talks or sent is not None
        if ended:
            return
