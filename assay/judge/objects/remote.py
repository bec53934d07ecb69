"""Objects and classes of the program as a test sees them: whatever a test does to one is a request.

Nothing of the program's runs here. A class of it becomes a class of ours with the same name, so
that `isinstance`, `except` and `type` work. Plain data of the test is compared with data only,
never by the program's own methods; where two objects of the program's are compared, only the
program can decide, which `RemoteProgram.forgeable` notes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from itertools import chain, repeat
from typing import Any, cast

from assay.judge.codec import Json
from assay.judge.codec_types import BUILTINS, COLLAPSE, TYPES, VIEWS, CodecError
from assay.judge.objects.committed import Commitment, decides_here
from assay.judge.objects.operations import COMPARISONS, OF_OBJECTS, OPERATIONS, REFLECTED
from assay.judge.requests import RemoteProgram

DATA = frozenset((int, float, str, bool, list, *TYPES, *(base for base, _ in COLLAPSE)))
OF_DATA = frozenset(name for kind in DATA for name in dir(kind))
"""Names of attributes that data has."""
OF_VIEWS = {kind.__name__ for kind in VIEWS}
ASKED_ABOUT = {*DATA, *BUILTINS.values()}
"""Types of values that can be sent for the program's class to decide about."""
VALUES = (int, float, str, bool, bytes, tuple)
"""Types of values by which a test asks for a member of an Enum."""
UNCOMPARED = ("__getitem__", "__format__", "__round__")
"""Operations of which the operand is no expected value, but an index, a format, digits."""
SEEN = (*COMPARISONS, "__hash__")
"""Operations that are noted where two objects are compared, and a hash, which decides nothing."""
SHOWING = ("__str__", "__repr__", "__format__")
"""Operations that show an object. None of these gives the program an object that it may answer."""
EQUAL = COMPARISONS[:2]
INSPECTED = ("__code__", "__dataclass_fields__")
"""What a library reads to inspect code or a class that the test has named or made. Of an answer a
library may read it too, as pprint does, and that leaves nothing open."""
SAME = ("__iter__", "__enter__", "__copy__", "__deepcopy__")
"""Operations that answer with an object that is as much under test."""
ITEMS = 2_000_000
SLICES = 0.001, 0.002, 0.004, 0.008, 0.016
"""Seconds for which a coroutine runs there before the test's other tasks go on; then as the last.
"""
CHUNK_AFTER, CHUNK = 32, 1024
"""So many items of an iterator are asked for one by one; then twice as many each time, at most
CHUNK."""


class RemoteRef:
    """Where an object of the program is, and what the test has shown of what it takes it for."""

    __slots__ = (
        "committed",
        "connection",
        "has_test_data",
        "is_dropped",
        "kind",
        "made_by_test",
        "name",
        "owner",
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
        self.owner: RemoteRef | None = None
        """Of a method: the object or class of which it was read."""
        self.committed = Commitment(connection.epoch, connection.requests.number, None)
        self.is_dropped = False
        """Whether the program lets it go when the test has it no more."""

    def __del__(self) -> None:
        if self.is_dropped and type(self.target) is int:
            self.connection.dropped.append(self.target)

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

    def is_fresh(self) -> bool:
        """Whether a function or class by its name has answered it just now. Then its truth says no
        more than True or False in its place would.
        """
        is_latest = self.connection.epoch == self.committed.epoch
        return is_latest and self.committed.arrived == self.connection.by_name


def ref_of(remote: object) -> RemoteRef:
    """Where an object or class of the program is. Raises AttributeError for anything else."""
    look = type if isinstance(remote, type) else object
    ref: RemoteRef = look.__getattribute__(remote, "_ref")
    return ref


def is_remote(value: object) -> bool:
    """Whether it is an object or class of the program's."""
    return type(value) is RemoteClass or type(type(value)) is RemoteClass


def operate(remote: object, name: str, *operands: Any) -> Any:
    """Carry out an operation where the object is."""
    ref = ref_of(remote)
    has_test_data = ref.has_test_data or not (name in UNCOMPARED or all(map(is_remote, operands)))
    keeps = name in SEEN or name in SHOWING or name == "__bool__"
    packed = [
        ref_of(it).packed if keeps and is_remote(it) else ref.connection.packer.pack(it)
        for it in operands
    ]
    is_answer = name == "__bool__" and ref.is_fresh()
    answer = ref.connection.ask("operate", name, packed)
    if isinstance(answer, Remote):
        ref_of(answer).has_test_data = has_test_data
        ref_of(answer).made_by_test |= ref.made_by_test and name in SAME
    elif name not in SEEN and not is_answer:
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
        return array_method(ref, name)
    if name == "__signature__":
        return signature(ref.ask("signature"))
    expected = ref.connection.expected
    expected.owner = ref.target
    try:
        answer = ref.ask("getattr", name)
    finally:
        expected.owner = ""
    if name in INSPECTED and (ref.made_by_test or type(ref.target) is str):
        ref.connection.doubts[True] = "this test inspects the program's code, which stays there"
    if callable(answer) and not isinstance(answer, RemoteValue):  # a method gets the object
        expected.give(ref.target)
    if name[:2] != "__" or name == "__dict__":
        position = ref.committed.arrived, ref.connection.epoch
        ref.connection.forgeable |= expected.reads_alike(ref.target, *position, name, answer)
    if is_remote(answer) and callable(answer):
        ref_of(answer).owner = ref
    if ref.has_test_data:
        ref.connection.informed.add(ref)
    if name[:2] != "__" or name in METHODS:
        # a method like one of data's is called with data of the test
        note(ref, name, ref.has_test_data or (is_remote(answer) and not ref.made_by_test))
    return answer


def array_method(ref: RemoteRef, name: str) -> Callable[..., Any]:
    """What gives numpy an object as an array, which is compared here. Raises AttributeError for
    numpy's other methods, and for what is no array.
    """
    array = as_array(ref) if name == "__array__" else None
    if array is None:
        raise AttributeError(name)
    return lambda *_, **__: array


def as_array(ref: RemoteRef) -> Any:
    """An object as an array of data; None where it is none."""
    array = ref.ask("array")
    ref.connection.forgeable |= array is not None  # another time it may be another one
    return array


def field(name: str) -> property:
    """The attribute of that name."""
    return property(lambda self: read(self, name))


def write(remote: object, name: str, value: Any) -> None:
    """Set an attribute."""
    ref, pack = ref_of(remote), ref_of(remote).connection.packer.pack
    ref.shows(name)
    if is_remote(value):
        ref.connection.expected.put(ref_of(value).target, ref.target)
    packed = ref_of(value).packed if is_remote(value) else pack(value)
    ref.connection.ask("operate", "setattr", [ref.packed, pack(name), packed])


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
        says = operate(remote, name, remote, other)
        ref.connection.forgeable |= not decided_here(remote, name, other, says)
        return says
    if kind.__dict__.get("_of_data"):
        if kind.__dict__["_of_data"] in OF_VIEWS:  # which may show something else each time
            ref.connection.doubtful.add((ref, False))
        return OPERATIONS[name](ref.ask("plain"), other)
    if name in kind.__dict__.get("_own", ()) and other is not None:
        alike = kind.__name__ == type(other).__name__ and type(other) not in DATA
        is_library = kind.__name__ in ref.connection.foreign
        if is_library and not alike and (array := as_array(ref)) is not None:
            return OPERATIONS[name](array, other)
        if ref.made_by_test:
            what = f"this test compares a {kind.__name__} object with plain data"
            ref.connection.doubts[True] = what
        # an object into which the test has put data may be the difference from what is expected
        elif (alike or ref.kind.used_as_object) and (name in EQUAL or not ref.has_test_data):
            return word_on(remote, name, other)
    return NotImplemented


def word_on(remote: object, name: str, other: object) -> Any:
    """How the program compares an answer that the test has not made with plain data. Where it says
    no, it is wrong by its own word; where it says yes, that may be a lie.
    """
    ref, packer = ref_of(remote), ref_of(remote).connection.packer
    packer.quiet = True
    try:
        packed = [ref.packed, packer.pack(other)]
    except CodecError:  # as of a library's object, which the test has too
        if type(other).__module__ != "checks":
            ref.connection.doubts[True] = f"this test compares a {type(other).__name__} object"
        return NotImplemented
    finally:
        packer.quiet = False
    ref.connection.forgeable = True
    return ref.connection.ask("operate", name, packed)


def decided_here(remote: object, name: str, other: object, says: object) -> bool:
    """Whether two objects of the program's compare as it says by what was known of them as data."""
    if type(remote) is not type(other) or isinstance(remote, type):
        return False
    epoch = ref_of(remote).connection.epoch
    both = ref_of(remote).committed, ref_of(other).committed
    return decides_here(OPERATIONS[name], *both, epoch, says)


def stand_for_one(first: object, other: object) -> bool:
    """Whether two of the test's objects stand for one of the program's."""
    if type(first) is not type(other) or not is_remote(first) or isinstance(first, type):
        return False
    return ref_of(first).target == ref_of(other).target


def is_named(first: Any, other: Any) -> bool:
    """Whether the two are a member of an Enum, of which the test has named one."""
    members = type(first).__dict__.get("_members", {}).values()
    return any(first is it or other is it for it in members)


def same_member(first: Any, other: object) -> Any:
    """Whether the two are one member of an Enum: its `==`."""
    if type(first) is not type(other):
        return NotImplemented
    if first is other:
        return True
    if not stand_for_one(first, other):
        return False
    if not is_named(first, other):  # two answers of the program's
        ref_of(first).connection.forgeable = True
    return True


def passed_for(value: Any) -> Any:
    """What the test has constructed an object of; any other value as it is. Raises CodecError."""
    if not is_remote(value):
        return value
    committed = ref_of(value).committed
    if committed.passed is None or committed.epoch != ref_of(value).connection.epoch:
        raise CodecError("not known here")
    return ["an object of the class", ref_of(type(value)).target, [*committed.passed.items()]]


def call(remote: object, *arguments: Any, **keywords: Any) -> Any:
    """Call an object."""
    ref = ref_of(remote)
    ref.shows("__call__")
    owner = ref.owner or (None if is_function(remote) else ref)
    if owner and not all(is_remote(it) or callable(it) for it in (*arguments, *keywords.values())):
        ref.connection.informed.add(owner)
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


def take_member(member: Any) -> Any:
    """A member of an Enum that the test has named, which counts as a request."""
    ref = ref_of(member)
    ref.made_by_test = True
    ref.connection.requests.count += 1
    return member


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
        if "_members" in cls.__dict__:
            if len(arguments) == 1 and not keywords and type(arguments[0]) in VALUES:
                for value, member in cls.__dict__["_values"]:
                    if value == arguments[0]:
                        return take_member(member)
            ref.connection.forgeable = True  # the program says which member has this value
        # not where the program has put a class where the test expects data or a function
        made_by_test = ref.name.lstrip("_")[:1].isupper() and not ref.connection.answered[ref]
        passed = cls.__dict__["_parameters"].bound(arguments, keywords, passed_for)
        constructed = ref.connection.requests.number + 1
        has_data = not all(is_remote(it) or callable(it) for it in (*arguments, *keywords.values()))
        expected, answer = ref.connection.expected, None
        expected.begin()
        try:
            answer = ref.connection.call(
                ref.target, arguments, keywords, made_by_test, constructs=passed is not None
            )
        finally:
            target = ref_of(answer).target if is_remote(answer) else None
            expected.end(target, constructed, has_data)
        if passed is not None and is_remote(answer) and ref_of(answer).kind is ref:
            committed = ref_of(answer).committed
            committed.passed, committed.constructed = passed, constructed
        return answer

    def __instancecheck__(cls, value: Any) -> bool:
        return bool(type.__instancecheck__(cls, value)) or cls._says("isinstance", value)

    def __subclasscheck__(cls, kind: Any) -> bool:
        return bool(type.__subclasscheck__(cls, kind)) or cls._says("issubclass", kind)

    def _says(cls, name: str, value: object) -> bool:
        """Whether the program's class says that something is an instance of it, or a subclass."""
        if "_ref" not in cls.__dict__:
            return False
        ref, kind = ref_of(cls), value if isinstance(value, type) else type(value)
        if kind.__module__ == "checks":  # whatever the program's class is, it cannot look at it
            what = f"this test asks whether its own {kind.__name__} is a {cls.__name__}"
            ref.connection.doubts[True] = what
        if not (cls.__dict__["_decides"] and (is_remote(value) or kind in ASKED_ABOUT)):
            return False
        says = ref.ask(name, value) is True
        ref.connection.forgeable |= says
        return says

    def __getattr__(cls, name: str) -> Any:
        if "_ref" not in cls.__dict__:
            raise AttributeError(name)
        return cls._member(name) if name in cls.__dict__.get("_members", ()) else read(cls, name)

    def _member(cls, name: str) -> Any:
        return take_member(cls.__dict__["_members"][name])

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
        if type(other) is type(self) and "_members" in type(self).__dict__:
            return bool(same_member(self, other))
        equal = super().__eq__(other)
        if is_remote(other) and not decided_here(self, "__eq__", other, equal):
            ref_of(self).connection.forgeable = True
        return equal

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


def function(connection: RemoteProgram, name: str) -> Any:
    """A global of the program by its name; it is looked up when it is used."""
    return make(Function, RemoteRef(connection, name))


def is_function(value: object) -> bool:
    """Whether it is a function of the program's."""
    return isinstance(value, Function) or type(value).__name__ == "function"


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
    """A coroutine of the program's. It runs there while it is awaited here, a slice of time after
    the other, so that whatever else waits in the test's event loop goes on.
    """
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None:
        _, value = ref.ask("await", None, False)
        return value
    cancelled: BaseException | None = None
    for seconds in chain(SLICES, repeat(SLICES[-1])):
        ended, value = ref.ask("await", seconds, False)
        while ended is False and cancelled is None:
            try:
                await asyncio.sleep(0)
                break
            except asyncio.CancelledError as error:
                cancelled = error
                ended, value = ref.ask("await", seconds, True)
        if ended is None:
            ref.connection.forgeable |= cancelled is None  # a task of the test's may hide it
            raise cancelled or asyncio.CancelledError
        if ended:
            return value
    return None


def items(ref: RemoteRef) -> Generator[Any, Any, Any]:
    """What an iterator of the program's yields, as far as it is read."""
    connection, count, position, talks = ref.connection, 0, -1, False
    sent: Any = None
    while True:
        # a test that asks for nothing between many items could not tell when each was made
        undisturbed = count >= CHUNK_AFTER and position == connection.requests.number and not talks
        many = min(count, CHUNK) if undisturbed else 1
        if isinstance(sent, GeneratorExit):
            answer = connection.close(ref)
        else:
            answer = connection.ask("items", ref.target, many, connection.packer.pack(sent))
        if answer is None:
            raise sent
        values, ended, value = answer
        if ended is None and isinstance(sent, GeneratorExit):
            raise sent
        position, count = connection.requests.number, count + len(values)
        if count > ITEMS:
            raise connection.requests.fail("output", f"an iterator yields more than {ITEMS} items")
        for item in cast("list[Any]", values):
            try:
                sent = yield item
            except (Exception, GeneratorExit) as error:  # noqa: BLE001  for the program's
                sent = error
            talks = talks or sent is not None
            if isinstance(sent, GeneratorExit):
                break
        else:
            if ended:
                return value
            if ended is None:
                raise connection.requests.fail("forbidden", "a generator that nobody has closed")
