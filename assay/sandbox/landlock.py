"""Landlock: a process gives up every file outside an allow-list, all writing, TCP, and signals to
processes outside.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Sequence

from assay.sandbox.kernel import libc, syscall

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
EXECUTE, READ_FILE, READ_DIR = 1 << 0, 1 << 2, 1 << 3
READ = EXECUTE | READ_FILE | READ_DIR
WRITE_FILE, TRUNCATE = 1 << 1, 1 << 14
REMOVE, MAKE_DIR, MAKE_FILE, MAKE_LINK, REFER = 0b11 << 4, 1 << 7, 1 << 8, 1 << 12, 1 << 13
MAKE = READ | WRITE_FILE | TRUNCATE | REMOVE | MAKE_DIR | MAKE_FILE | MAKE_LINK | REFER
NULL = "/dev/null"
Paths = Sequence[str]
O_PATH = 0x200000

FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
"""Number of file rights by ABI; each ABI adds to the one before."""
SIGNAL_SCOPE_ABI, TCP_ABI = 6, 4


def abi() -> int:
    """The kernel's landlock ABI; 0 without landlock."""
    return max(0, int(libc.syscall(CREATE_RULESET, None, 0, 1)))


def restrict(*paths: Paths) -> None:
    """Put this process under these rules (`rules_of`), and every child of it. Needs
    no-new-privileges. Raises OSError.
    """
    rules = rules_of(*paths)
    try:
        enforce(rules)
    finally:
        os.close(rules)


def enforce(rules: int) -> None:
    """As `restrict`, by the descriptor of rules that were made before. Raises OSError."""
    syscall("landlock_restrict_self", RESTRICT_SELF, rules, 0)


def rules_of(readable: Paths, listable: Paths, writable: Paths = (), nameless: Paths = ()) -> int:
    """A descriptor of rules: read below `readable`, list folders below `listable`, read and write
    below `writable`, /dev/null, and files without names in `nameless`, nothing else. Absent paths
    are skipped. Raises OSError.
    """
    version = abi()
    files = (1 << max(bits for added, bits in FILE_RIGHTS.items() if added <= max(version, 1))) - 1
    network = 0b11 if version >= TCP_ABI else 0
    scopes = 0b11 if version >= SIGNAL_SCOPE_ABI else 0
    attributes = struct.pack("=QQQ", files, network, scopes)[
        : 8 if version < TCP_ABI else 16 if version < 6 else 24
    ]
    ruleset = syscall(
        "landlock_create_ruleset", CREATE_RULESET, ctypes.c_char_p(attributes), len(attributes), 0
    )
    opened = (READ_FILE | WRITE_FILE | TRUNCATE) & files
    rules = ((READ, readable), (READ_DIR, listable), (opened, (NULL, *nameless)),
             (MAKE & files, writable))  # fmt: skip
    for rights, paths in rules:
        for path in paths:
            _allow(ruleset, path, rights)
    return int(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        beneath = os.open(path, O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError, NotADirectoryError):
        return
    try:
        allowed = rights if stat.S_ISDIR(os.fstat(beneath).st_mode) else rights & ~READ_DIR
        rule = struct.pack("=Qi", allowed, beneath)
        syscall("landlock_add_rule", ADD_RULE, ruleset, 1, ctypes.c_char_p(rule), 0)
    finally:
        os.close(beneath)
