"""Saves a policy in Hugging Face format: the adapter alone, or the whole model; with its tokenizer."""

from __future__ import annotations

from pathlib import Path

from assay.policy.load import Policy


def save_policy(policy: Policy, folder: Path) -> None:
    """Write what `transformers` (or peft, for an adapter) loads again. `folder` is made; the caller makes it whole."""
    policy.model.save_pretrained(folder)
    policy.chat.tokenizer.save_pretrained(folder)
