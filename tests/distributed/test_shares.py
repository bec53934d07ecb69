"""How the samples of a step are cut into shares."""

from __future__ import annotations

import pytest

from assay.distributed.sharded import parts_of, tokens_in
from assay.types import Sample


def group(*lengths: int) -> list[Sample]:
    return [Sample((1,) * length, (False,) + (True,) * (length - 1)) for length in lengths]


@pytest.mark.parametrize(
    ("lengths", "most", "parts"),
    [
        ((5, 5, 5, 5), 20, [[5, 5, 5, 5]]),
        ((5, 5, 5, 5), 19, [[5, 5], [5, 5]]),
        ((5, 5, 5, 5), 5, [[5], [5], [5], [5]]),
        ((30, 2, 3), 10, [[30], [2, 3]]),
        ((2, 30), 16, [[2], [30]]),
        ((7,), 2, [[7]]),
    ],
)
def test_a_group_is_cut_into_runs_only_where_it_is_more_than_an_even_share(
    lengths: tuple[int, ...], most: float, parts: list[list[int]]
) -> None:
    runs = list(parts_of(group(*lengths), most))
    assert [[len(sample.tokens) for sample in run] for run in runs] == parts


def test_every_sample_of_a_group_is_in_one_part_in_the_same_order() -> None:
    whole = group(9, 2, 4, 4, 11, 3, 8)
    for ranks in range(1, 9):
        parts = parts_of(whole, tokens_in(whole) / ranks)
        assert [id(one) for part in parts for one in part] == [id(one) for one in whole]
