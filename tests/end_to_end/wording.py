"""A reward by which two texts hardly ever earn the same.

A group then has an advantage, whatever a processor's rounding lets the model say.
"""

import zlib

from assay.rewards import reward
from assay.types import Rollout


@reward
def wording(rollout: Rollout) -> float:
    """A checksum of the last reply, from 0 to 1."""
    return zlib.crc32(rollout.turns[-1].completion.text.encode()) / 2**32
