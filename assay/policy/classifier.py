"""A reward model in a process of its own: a sequence classifier with one output, as trained on
preferences (Bradley-Terry). It reads conversations as lines of JSON and writes their scores.
"""

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from assay.errors import ModelError, UserError
from assay.hub import hub_or_copies
from assay.policy.call_style import call_style, styled
from assay.policy.load_model import pick_device
from assay.policy.template_process import apply_template
from assay.policy.tokenizer import load_tokenizer
from assay.registry import one_line

Conversation = Sequence[dict[str, Any]]


class Classifier:
    """Scores conversations. Raises ModelError where the model is none with one output."""

    def __init__(self, model: str, device: str, dtype: str, max_tokens: int) -> None:
        from transformers import AutoModelForSequenceClassification, TextClassificationPipeline

        self.tokenizer = load_tokenizer(model, trust_remote_code=False)
        self.tokenizer.truncation_side = "left"  # the reply is at the end
        self.tokenizer.padding_side = "right"
        self.call_style = call_style(self.tokenizer) if self.tokenizer.chat_template else None
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        try:
            with hub_or_copies(model):
                classifier, report = AutoModelForSequenceClassification.from_pretrained(
                    model, dtype=dtype, output_loading_info=True, trust_remote_code=False
                )
        except Exception as error:  # broken files raise anything
            raise ModelError(f"no classifier in {model!r}: {one_line(error)}") from error
        if classifier.config.num_labels != 1 or report["missing_keys"]:
            raise ModelError(
                f"{model!r} is no reward model: it needs a trained head with one output"
            )
        classifier.config.pad_token_id = self.tokenizer.pad_token_id
        longest = getattr(classifier.config, "max_position_embeddings", max_tokens)
        self.pipeline = TextClassificationPipeline(
            model=classifier.eval(), tokenizer=self.tokenizer, device=pick_device(device),
            function_to_apply="none", truncation=True, max_length=min(max_tokens, longest),
        )  # fmt: skip

    def text(self, conversation: Conversation) -> str:
        """A conversation as the model reads it: by its chat template, or as plain text."""
        if self.call_style:
            messages = styled(conversation, self.call_style)
            text = apply_template(self.tokenizer, messages)
            return text.removeprefix(self.tokenizer.bos_token or "")
        return "\n".join(message["content"] for message in conversation)

    def scores(self, conversations: Sequence[Conversation], batch_size: int) -> list[float]:
        """One score for each; those of like length are computed together."""
        texts = list(map(self.text, conversations))
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        answers = self.pipeline([texts[at] for at in order], batch_size=batch_size)
        scores = {at: float(answer["score"]) for at, answer in zip(order, answers, strict=True)}
        return [scores[at] for at in range(len(texts))]


def main() -> None:
    """Answer each line of conversations with a line of their scores, until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print

    def answer(**fields: Any) -> None:
        print(json.dumps(fields), file=answers, flush=True)

    settings = json.loads(sys.argv[1])
    batch_size = settings.pop("batch_size")
    try:
        classifier = Classifier(**settings)
    except Exception as error:  # noqa: BLE001  as below; but the user's errors are theirs
        blamed = isinstance(error, UserError)
        answer(**({"refused": str(error)} if blamed else {"failed": one_line(error)}))
        sys.exit(1)
    answer(ready=True)
    for line in sys.stdin:
        try:
            answer(scores=classifier.scores(json.loads(line), batch_size))
        except Exception as error:  # noqa: BLE001  a full device, a broken driver: the machine's
            answer(failed=one_line(error))


if __name__ == "__main__":
    main()
