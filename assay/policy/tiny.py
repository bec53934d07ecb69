"""The tiny default model: a small random Llama, with a BPE tokenizer trained on the tasks' text."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from assay import prompts
from assay.config.sections import TinySettings
from assay.errors import SettingsError
from assay.files import replacing
from assay.types import Task

END, PAD = "<end>", "<pad>"


def make_tiny(folder: Path, tasks: Iterable[Task], settings: TinySettings, seed: int) -> Path:
    """Write a randomly initialised Llama and its tokenizer to `folder`, in Hugging Face format.

    A folder that exists is kept: it was written whole. Raises SettingsError if the width is not a
    multiple of the number of heads.
    """
    if folder.is_dir():
        return folder
    if settings.width % settings.heads:
        raise SettingsError(
            f"policy.tiny.width = {settings.width} is not a multiple of policy.tiny.heads ="
            f" {settings.heads}"
        )
    from transformers import LlamaForCausalLM

    tokenizer = _train_tokenizer((text for task in tasks for text in _texts(task)), settings)
    config = tiny_config(settings, len(tokenizer))
    config.eos_token_id, config.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    with replacing(folder) as partial:
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
    return folder


def tiny_config(settings: TinySettings, vocabulary: int) -> Any:
    """The configuration of such a model."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=settings.width,
        intermediate_size=settings.width * 3,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        max_position_embeddings=settings.context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )


def _texts(task: Task) -> list[str]:
    earlier = [message.content for message in task.messages[:-1]]
    answers = filter(None, (*task.demonstrations, task.reference or ""))
    return [*earlier, *(prompts.text(task) + answer for answer in answers)]


def _train_tokenizer(texts: Iterable[str], settings: TinySettings):  # type: ignore[no-untyped-def]  # transformers is untyped
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocabulary,
        special_tokens=[PAD, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, pad_token=PAD, eos_token=END, model_max_length=settings.context
    )
