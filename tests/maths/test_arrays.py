"""Arrays of samples, and tensors."""

from array import array

import torch

from assay.maths.arrays import to_array, to_tensor
from assay.types import Sample


def test_a_sample_holds_arrays_whatever_it_is_made_of() -> None:
    sample = Sample((1, 2, 70_000), [False, True, True], logprobs=(0.0, -0.5, -1.5))
    assert sample.tokens == array("i", [1, 2, 70_000])
    assert (sample.mask, sample.trained_tokens) == (array("B", [0, 1, 1]), 2)
    assert (sample.logprobs, sample.values) == (array("f", [0.0, -0.5, -1.5]), array("f"))


def test_arrays_become_tensors_that_share_their_memory_and_back() -> None:
    numbers = array("f", [0.5, -2.0])
    tensor = to_tensor(numbers)
    numbers[0] = 3.0
    assert tensor.tolist() == [3.0, -2.0]
    assert to_array(tensor[1:].double()) == array("f", [-2.0])
    assert to_tensor(array("B", [0, 1])).tolist() == [False, True]
    assert to_tensor(array("i", [70_000])).dtype == torch.int32
    assert to_tensor(array("f")).tolist() == []
