"""Sampling tokens: numbers computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

from assay.engines.base import Sampling
from assay.engines.torch.sampling import filter_logits, sample, uniforms


def test_streams_are_splitmix64() -> None:
    keys = torch.full((5,), 1234567)
    known = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert uniforms(keys, torch.arange(5)).tolist() == [
        (number >> 11) * 2.0**-53 for number in known
    ]


def test_streams_are_uniform_and_unlike() -> None:
    many = uniforms(torch.arange(2000).repeat_interleave(50), torch.arange(50).repeat(2000)).view(
        2000, 50
    )
    counts = torch.histc(many.float(), 20, 0, 1)
    assert ((counts - 5000).abs() < 5 * 5000**0.5).all()
    assert abs(torch.corrcoef(many[:2])[0, 1].item()) < 0.5
    assert abs(torch.corrcoef(many[:, :2].T)[0, 1].item()) < 0.1


def test_a_row_takes_the_token_whose_interval_holds_its_random_number() -> None:
    logits = torch.tensor([0.5, 0.3, 0.0, 0.2]).log().expand(5, 4) + 3
    chances = torch.tensor([0.0, 0.49, 0.51, 0.81, 1 - 2.0**-53], dtype=torch.float64)
    tokens, logprobs = sample(logits, Sampling(1), chances)
    assert tokens.tolist() == [0, 0, 1, 3, 3]
    expected = [math.log(p) for p in (0.5, 0.5, 0.3, 0.2, 0.2)]
    assert logprobs.tolist() == pytest.approx(expected, abs=1e-6)


def test_the_largest_random_number_never_takes_an_impossible_token() -> None:
    logits = torch.cat([torch.randn(200, 999), torch.full((200, 1), -torch.inf)], dim=-1)
    tokens, logprobs = sample(
        logits, Sampling(1), torch.full((200,), 1 - 2.0**-53, dtype=torch.float64)
    )
    assert (tokens < 999).all()
    assert logprobs.isfinite().all()


def test_the_smallest_random_number_never_takes_an_impossible_token() -> None:
    tokens, _ = sample(
        torch.tensor([[-torch.inf, 1.0, 1.0]]), Sampling(1), torch.zeros(1, dtype=torch.float64)
    )
    assert tokens.tolist() == [1]


def test_temperature_and_filters_are_in_the_log_probabilities() -> None:
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    half = torch.tensor([0.7], dtype=torch.float64)
    tokens, logprobs = sample(logits, Sampling(1, temperature=0.5), half)
    assert tokens.tolist() == [1]
    assert logprobs.tolist() == pytest.approx([math.log(0.09 / 0.30)], abs=1e-6)
    tokens, logprobs = sample(logits, Sampling(1, top_k=2), half)
    assert tokens.tolist() == [1]
    assert logprobs.tolist() == pytest.approx([math.log(0.3 / 0.7)], abs=1e-6)


def test_greedy_takes_the_likeliest_with_its_log_probability_at_temperature_1() -> None:
    tokens, logprobs = sample(
        torch.tensor([[0.1, 0.7, 0.2]]).log(), Sampling(1, temperature=0.0), torch.zeros(1)
    )
    assert tokens.tolist() == [1]
    assert logprobs.tolist() == pytest.approx([math.log(0.7)], abs=1e-6)


def test_the_nucleus_is_the_smallest_set_that_reaches_top_p() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.05, 0.15, 0.3, 0.5]]).log() + 3
    kept = filter_logits(logits, Sampling(1, top_p=0.8)).isfinite()
    assert kept.tolist() == [[True, True, False, False], [False, False, True, True]]
    assert filter_logits(logits, Sampling(1, top_p=0.81)).isfinite().sum(-1).tolist() == [3, 3]


def test_top_k_then_the_nucleus_of_the_rest_then_min_p() -> None:
    logits = torch.tensor([[0.4, 0.25, 0.2, 0.1, 0.05]]).log()

    def kept(**how: float) -> list[int]:
        return filter_logits(logits, Sampling(1, **how))[0].isfinite().nonzero().flatten().tolist()  # type: ignore[arg-type]

    assert kept(top_k=3) == [0, 1, 2]
    assert kept(top_k=9) == kept() == [0, 1, 2, 3, 4]
    assert kept(top_p=0.7) == [0, 1, 2]
    assert kept(top_k=2, top_p=0.6) == [0], "0.4 of 0.65 reaches it"
    assert kept(min_p=0.26) == [0, 1, 2]
    assert kept(min_p=0.24) == [0, 1, 2, 3]


@pytest.mark.parametrize("how", [Sampling(1), Sampling(1, top_p=0.9), Sampling(1, temperature=0)])
def test_logits_that_are_no_numbers_give_a_token_that_exists_and_no_number(how: Sampling) -> None:
    logits = torch.zeros(2, 5)
    logits[0, 3] = torch.nan
    tokens, logprobs = sample(logits, how, torch.tensor([0.5, 0.5]))
    assert all(0 <= token < 5 for token in tokens.tolist())
    assert logprobs[0].isnan()
    assert logprobs[1] == pytest.approx(-math.log(5), rel=0.1 if how.top_p == 1 else 1)
