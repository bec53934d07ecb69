"""What a reward model says of conversations; tests/rewards has its process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from assay.policy.classifier import Classifier
from tests.policies import checkpoint


def test_a_conversation_of_any_batch_has_the_score_of_its_last_tokens(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "qwen2")
    config: Any = transformers.AutoConfig.from_pretrained(folder, num_labels=1)
    torch.manual_seed(1)
    model = transformers.Qwen2ForSequenceClassification(config).eval()
    model.save_pretrained(folder)
    texts = ["short", "", "x = 1\n" * 40, "def f(): ..."]
    classifier = Classifier(str(folder), "cpu", "float32", max_tokens=12)
    expected = []
    for text in texts:
        tokens = classifier.tokenizer(f"# f\n\n{text}", return_tensors="pt")["input_ids"][:, -12:]
        with torch.inference_mode():
            expected.append(float(model(tokens).logits[0, 0]))
    dialogues = [[{"role": "user", "content": "# f\n"}, {"role": "assistant", "content": text}]
                 for text in texts]  # fmt: skip
    for batch_size in (1, 3):
        scores = classifier.scores(dialogues, batch_size)
        assert scores == pytest.approx(expected, abs=1e-6)
    assert len(set(expected)) == len(texts)
