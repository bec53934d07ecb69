"""Generated values, frames, conversations and programs: nothing but what is documented comes of
them.
"""

from __future__ import annotations

import array
import datetime
import json
import random
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.judge import Job, judge_all
from assay.judge.codec import Packer, Unpacker, dumps, loads
from assay.judge.codec_types import REBUILD
from assay.sandbox.limits import Limits
from assay.sandbox.sockets import framed
from assay.types import Verdict
from tests.judge.hostile import (
    SEEDS,
    TARGETS,
    converse,
    frames_through_a_socket,
    reported,
    require_same_frames,
    value_from,
)
from tests.judge.jobs import task

examples = settings(max_examples=150, deadline=None, derandomize=True)
TEXT = st.text(st.characters(exclude_categories=()), max_size=8)
"""Lone surrogates included."""
KEYS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | TEXT
    | st.binary(max_size=8)
)
PARTS = (
    KEYS
    | st.floats()
    | st.complex_numbers()
    | st.integers(3900, 4500).map(lambda digits: -(10**digits))
    | st.binary(max_size=8).map(bytearray)
    | st.decimals(allow_nan=True)
    | st.fractions()
    | st.dates()
    | st.times()
    | st.datetimes(timezones=st.sampled_from([None, datetime.UTC]))
    | st.timedeltas()
    | st.builds(range, st.integers(), st.integers(), st.integers(min_value=1))
    | st.sampled_from(
        [
            ...,
            NotImplemented,
            int,
            sorted,
            array.array("d", [1.5]),
            array.array("b"),
            array.array("u", "x"),
        ]
    )
    | st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(numpy.array)
    | st.lists(st.floats(width=32), max_size=4).map(lambda row: numpy.array([row, row], "float32"))
    | st.sampled_from(
        [
            numpy.int8(-3),
            numpy.float64("nan"),
            numpy.bool_(True),
            numpy.array(["a", "bc"]),
            numpy.array(7),
        ]
    )
)
VALUES = st.recursive(
    PARTS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.tuples(inner, inner),
        st.dictionaries(KEYS, inner, max_size=4),
        st.dictionaries(KEYS, inner, max_size=4).map(OrderedDict),
        st.dictionaries(KEYS, inner, max_size=4).map(lambda items: defaultdict(list, items)),
        st.lists(KEYS, max_size=5).map(Counter),
        st.sets(KEYS, max_size=5),
        st.frozensets(KEYS, max_size=5),
        st.lists(inner, max_size=5).map(lambda items: deque(items, maxlen=9)),
        st.dictionaries(KEYS, inner, max_size=4).map(lambda items: items.keys()),
        st.dictionaries(KEYS, inner, max_size=4).map(lambda items: items.values()),
        st.dictionaries(KEYS, inner, max_size=4).map(lambda items: items.items()),
    ),
    max_leaves=15,
)


def alike(a: Any, b: Any) -> bool:
    """The same to the last bit: types, signs of zero, nan, order, data types and shapes; but for a
    time's `fold`.
    """
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        factories = [getattr(value, "default_factory", None) for value in (a, b)]
        return factories[0] is factories[1] and alike(list(a.items()), list(b.items()))
    if isinstance(a, set | frozenset):
        return bool(a == b)
    if isinstance(a, numpy.ndarray | numpy.generic):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    if isinstance(a, deque) and a.maxlen != b.maxlen:
        return False
    if isinstance(a, list | tuple | deque | type({}.keys()) | type({}.values()) | type({}.items())):
        return len(a) == len(b) and all(map(alike, a, b))
    return (
        bool(a == b)
        if isinstance(a, int | datetime.time | datetime.datetime)
        else repr(a) == repr(b)
    )


@examples
@given(VALUES)
def test_every_value_that_may_cross_comes_back_to_the_last_bit(value: Any) -> None:
    text = Packer().text(value)
    assert alike(Unpacker().value(loads(text.encode())), value)
    assert value_from(text.encode()) is not None or value is None


TAGS = st.sampled_from(sorted([*REBUILD, "opaque", "handle", "eval"]))
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | TEXT
    | st.sampled_from(["nan", "0x7f", "int", "<f8", "i"]),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.builds(lambda tag, part: {tag: part}, TAGS, inner)
        | st.just({"range": [0, 10**9]})
    ),
    max_leaves=12,
)


@settings(examples, max_examples=400)
@given(ANYTHING)
def test_any_tagged_data_is_refused_or_built_of_allowed_types(data: Any) -> None:
    value_from(json.dumps(data).encode())


def damaged(frame: bytes, at: int, other: bytes) -> bytes:
    return frame[:at] + other + frame[at + 1 :]


DAMAGED = st.builds(
    damaged, st.sampled_from(SEEDS["codec"]), st.integers(0, 60), st.binary(max_size=3)
)


@examples
@given(st.binary(max_size=60) | DAMAGED)
def test_any_bytes_are_refused_or_built_of_allowed_types(frame: bytes) -> None:
    value_from(frame)


REPLIES = st.one_of(
    st.binary(max_size=40),
    st.binary(max_size=40).map(framed),
    st.integers(0, 2**32 - 1).map(lambda length: length.to_bytes(4, "big")),
    st.tuples(st.integers(0, 5) | ANYTHING, st.lists(ANYTHING, max_size=5)).map(
        lambda parts: framed(json.dumps([parts[0], *parts[1]]).encode())
    ),
    st.tuples(
        st.integers(1, 5),
        st.sampled_from(
            ["value", "raised", "exit", "memory", "large", "syntax", "absent", "function"]
        ),
        st.lists(ANYTHING | st.just([]) | st.just([[0, []]]), min_size=0, max_size=4),
    ).map(lambda parts: framed(json.dumps([parts[0], parts[1], *parts[2]]).encode())),
    st.just(framed(b'[2,"value",1,[[],[],[]]]') * 2),
    st.just(b""),
)
LOADED = framed(b'[1,"value",true]')


@examples
@given(st.lists(REPLIES, max_size=4), st.booleans(), st.booleans(), st.booleans())
def test_no_conversation_ends_in_a_pass_or_in_blame_of_the_machine(
    replies: list[bytes], honest_start: bool, mutates: bool, handles: bool
) -> None:
    reported([LOADED, *replies] if honest_start else replies, mutates, handles)


@pytest.mark.parametrize("name", TARGETS)
def test_the_fuzzers_own_seeds_are_sound(name: str) -> None:
    for seed in SEEDS[name]:
        TARGETS[name](seed)
    assert all(value_from(seed) is not None for seed in SEEDS["codec"])


def test_a_conversation_of_the_fuzzers_gets_past_loading() -> None:
    assert reported([LOADED, framed(b'[2,"value",1,[[],[],[]]]')]).checks[0].how == "wrong"
    converse(b'"value",1,[[],[],[]]')


@examples
@given(st.lists(st.binary(max_size=300), max_size=6), st.binary(max_size=9))
def test_a_streams_frames_do_not_depend_on_how_it_arrives(bodies: list[bytes], rest: bytes) -> None:
    stream = b"".join(map(framed, bodies))
    require_same_frames(stream + rest)
    assert frames_through_a_socket([stream, b"\xff\xff\xff\xff" + rest]) == bodies


STATEMENTS = (
    "import os, sys, gc, json, struct", "x = {}", "f = lambda *a: x", "def f(*a): return a",
    "return 1", "yield x",
    "raise x", "os._exit(0)", "sys.exit()", "x = [x]", "x = x, x", "del f", "f = f()",
    "os.write(3, b'[1,\"value\",true]')",
    "os.write(3, struct.pack('!I', 16) + b'[1,\"value\",true]')", "os.close(3)",
    "os.dup2(1, 3)", "sys.stdout.close()", "class f(Exception): pass",
    "class f:\n    __call__ = __iter__ = __getattr__ = lambda *a: f", "f = property(f)",
    "try: f(f)\nexcept BaseException as e: x = e", "for f in gc.get_objects(): pass",
    "sys.modules.clear()",
    "x = '\\ud800'", "raise Exception(x)", "json.dumps = lambda *a: x",
    "sys.setrecursionlimit(10**6)", "print(x)",
    "async def f(): pass", "def f(*a): yield x", "def f(*a): raise Exception('\\ud800' * 9)",
    "def f(*a): raise KeyError(x)", "\x00", "\xe9 = \ud800", "while x: pass",
    "def f(*a): return memoryview(b'x')",
    "def f(*a): return 10**5000", "def f(*a): return f",
)  # fmt: skip
"""Lines of programs; most combinations fail, which is as it should be."""


def programs(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    lines = [
        "\n".join(draw.choices(STATEMENTS, k=draw.randint(1, 6))) for _ in range(count - count // 4)
    ]
    noise = [
        draw.randbytes(draw.randint(0, 200)).decode("utf-8", "surrogateescape")
        for _ in range(count // 4)
    ]
    return lines + noise


def test_no_generated_program_passes_a_check_that_cannot_hold_or_blames_the_machine() -> None:
    never = task(
        "f",
        "try:\n    f(1)\nexcept BaseException:\n    pass\nassert f() == object()",
        "assert False",
    )
    jobs = [Job(never, program) for program in programs(160, seed=1)]
    done = judge_all(jobs, Limits(cpu_seconds=0.5, wall_seconds=5, memory_mb=256))
    odd = [
        (job.program, ran)
        for job, ran in zip(jobs, done, strict=True)
        if ran.verdict in (Verdict.PASS, Verdict.INFRA)
    ]
    assert not odd
    assert len({ran.verdict for ran in done}) >= 4
    for ran in done:
        json.dumps(ran.detail, ensure_ascii=False).encode()
        ran.output.encode()


def test_what_a_program_says_can_be_written_to_a_file() -> None:
    surrogates = "def f(): raise ValueError('a\\ud800b')"
    execution = judge_all([Job(task("f", "assert f()"), surrogates)])[0]
    assert "ValueError: a" in execution.detail
    execution.detail.encode()


NESTED = """
import os, struct, time
def f():
    left = struct.pack('!I', 3_000_000) + b'[' * 3_000_000
    while left: left = left[os.write(3, left):]
    time.sleep(9)"""


def test_an_endlessly_nested_reply_is_the_programs_fault_even_if_checks_allow_recursion() -> None:
    lifted = task("f", "assert f()", setup="import sys\nsys.setrecursionlimit(10**6)")
    execution = judge_all([Job(lifted, NESTED)])[0]
    assert (execution.verdict, execution.detail) == (
        Verdict.FORBIDDEN,
        "a malformed reply: not a frame: RecursionError",
    )


def test_packed_text_is_what_loads_reads() -> None:
    assert loads(dumps(["\ud800", 1]).encode()) == ["\ud800", 1]
