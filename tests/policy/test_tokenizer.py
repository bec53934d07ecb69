"""Every space of a program survives: byte-level and sentencepiece-style tokenizers, from
directories as they come.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.config.sections import PolicySettings
from assay.errors import ModelError
from assay.policy.load_model import Policy, load_policy
from assay.policy.tokenizer import encode_within
from assay.rollout.prompter import Prompter
from assay.types import Check, Task
from tests.policies import change_json, checkpoint, sentencepiece_style

INDENTED = "def f(xs):\n    if xs:\n\t\treturn  xs\n        return 0\n"


def policy_at(folder: Path) -> Policy:
    return load_policy(PolicySettings(model=str(folder), device="cpu"))


def test_a_byte_level_tokenizer_that_is_called_a_llama_tokenizer_keeps_its_spaces(
    tmp_path: Path,
) -> None:
    from transformers import AutoTokenizer

    made = checkpoint(tmp_path, "llama")
    change_json(made / "tokenizer_config.json", tokenizer_class="LlamaTokenizerFast")
    chat = policy_at(made).chat
    tokens = chat.tokenizer(INDENTED)["input_ids"]
    assert chat.text(tokens) == INDENTED
    assert chat.tokenizer.eos_token == "<end>"
    chat.tokenizer.save_pretrained(tmp_path / "saved")
    assert AutoTokenizer.from_pretrained(tmp_path / "saved")(INDENTED)["input_ids"] == tokens


def test_a_tokenizer_that_loses_spaces_for_good_is_refused_in_one_line(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<unk>": 0, "<end>": 1, "def": 2}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="<end>", unk_token="<unk>"
    )
    made = checkpoint(tmp_path, "llama", tokenizer=tokenizer)
    with pytest.raises(
        ModelError, match="does not reproduce indented code; check tokenizer_class"
    ) as caught:
        policy_at(made)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["PreTrainedTokenizerFast", "LlamaTokenizerFast"])
def test_a_sentencepiece_model_keeps_the_first_space_of_a_completion(
    tmp_path: Path, name: str
) -> None:
    made = checkpoint(tmp_path, "llama", tokenizer=sentencepiece_style())
    change_json(made / "tokenizer_config.json", tokenizer_class=name)
    chat = policy_at(made).chat
    four_spaces = chat.tokenizer.convert_tokens_to_ids("\u2581" * 4)
    assert chat.tokenizer.decode([four_spaces]) == "   ", "by itself it takes one away"
    assert chat.text([four_spaces]) == "    "
    assert chat.text([four_spaces, chat.tokenizer.eos_token_id]) == "    "
    assert chat.text(encode_within(chat.tokenizer, INDENTED)) == INDENTED
    for text in ("\n    x", "s = 1", "  s", ""):
        assert chat.text(encode_within(chat.tokenizer, text)) == text
    assert chat.text([]) == ""


def test_a_demonstration_that_melts_into_its_prompt_gets_no_space_of_its_own(
    tmp_path: Path,
) -> None:
    chat = policy_at(checkpoint(tmp_path, "llama", tokenizer=sentencepiece_style())).chat
    stub = "def g(x):\n  "
    task = Task(
        "s", stub, (Check("assert g(1) == 1"),), "g", stub=stub, reference=stub + "  return x\n"
    )
    (sample,) = Prompter(chat).samples(task)
    learned = [token for token, on in zip(sample.tokens, sample.mask, strict=True) if on]
    pieces = chat.tokenizer.convert_ids_to_tokens(learned)
    assert pieces[:2] == ["\u2581" * 2, "r"]
    assert chat.text(learned) == "  return x\n"
