"""Objects of the program's in a test: the second road. Everything outside this folder takes it from
here; a task whose test is a table never asks for it.

The worker has stand-ins (`remote`, built by `unpack`), the program's process says what its objects
are (`table`). Both know the same operations. What of a pass rests on the program's word is decided
in `remote`, `committed` (comparisons), `expected` (attributes) and `sameness`.
"""

from assay.judge.objects.expected import ExpectedObjects
from assay.judge.objects.operations import COMPARISONS
from assay.judge.objects.remote import (
    RemoteClass,
    RemoteRef,
    awaited,
    function,
    is_function,
    is_remote,
    items,
    ref_of,
    take_name,
)
from assay.judge.objects.sameness import SAME, Identity, with_identity_asked
from assay.judge.objects.table import ON_OBJECTS, ClassTable, Stream, fields_of
from assay.judge.objects.unpack import Objects

__all__ = [
    "COMPARISONS",
    "ON_OBJECTS",
    "SAME",
    "ClassTable",
    "ExpectedObjects",
    "Identity",
    "Objects",
    "RemoteClass",
    "RemoteRef",
    "Stream",
    "awaited",
    "fields_of",
    "function",
    "is_function",
    "is_remote",
    "items",
    "ref_of",
    "take_name",
    "with_identity_asked",
]
