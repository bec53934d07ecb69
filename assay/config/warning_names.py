"""The names of the warnings that a run may give: docs/troubleshooting.md says what helps."""

from typing import Literal

WarningName = Literal[
    "collapse", "entropy_collapse", "evaluation_lost", "flat_rewards", "frozen", "held_out_gap",
    "importance_weights", "length_collapse", "lost", "no_program", "stale_engine", "too_easy",
    "too_hard", "truncated", "unjudged", "wrong_sign", "zero_variance",
]  # fmt: skip
