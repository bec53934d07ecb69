"""Tasks and texts to tokens and back; the one place that knows whether a model chats or continues text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay import prompts
from assay.types import Sample, Task


@dataclass(frozen=True, slots=True)
class Chat:
    """Encodes for one tokenizer: through its chat template where it has one, else as plain text."""

    tokenizer: Any
    """A transformers tokenizer with an end-of-sequence token."""
    stop_tokens: frozenset[int]
    """Token ids that end a completion."""

    def prompt(self, task: Task) -> tuple[int, ...]:
        """[P] token ids that an engine continues."""
        return self._encode_prompt(self._prompt_text(task))

    def text(self, tokens: Sequence[int]) -> str:
        """The text of completion tokens, a final stop token left out."""
        own = list(tokens[:-1]) if tokens and tokens[-1] in self.stop_tokens else list(tokens)
        return str(self.tokenizer.decode(own, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def dialogues(self, task: Task) -> list[Sample]:
        """A sample for each demonstration of the task, or for its reference when it has none; prompts masked.

        Prompt and completion are cut at the same token boundary that rollouts have.
        """
        text = self._prompt_text(task)
        prompt = self._encode_prompt(text)
        samples = []
        for answer in self._answers(task):
            both = tuple(self._encode(text + answer, special=not self._speaks))
            if both[: len(prompt)] == prompt:
                completion = both[len(prompt) :]
            else:
                completion = tuple(self._encode(answer, special=False))
            if not completion or completion[-1] != self.tokenizer.eos_token_id:
                completion = (*completion, self.tokenizer.eos_token_id)
            mask = (False,) * len(prompt) + (True,) * len(completion)
            samples.append(Sample(tokens=prompt + completion, mask=mask, group=task.id))
        return samples

    @property
    def _speaks(self) -> bool:
        return bool(getattr(self.tokenizer, "chat_template", None))

    def _prompt_text(self, task: Task) -> str:
        if not self._speaks:
            return prompts.text(task)
        messages = [{"role": message.role, "content": message.content} for message in prompts.messages(task)]
        return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    def _encode_prompt(self, text: str) -> tuple[int, ...]:
        tokens = self._encode(text, special=not self._speaks)
        while len(tokens) > 1 and tokens[-1] == self.tokenizer.eos_token_id and not self._speaks:
            tokens = tokens[:-1]
        return tuple(tokens)

    def _encode(self, text: str, *, special: bool) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=special)["input_ids"])

    def _answers(self, task: Task) -> list[str]:
        own = task.demonstrations or ((task.reference.removeprefix(task.stub),) if task.reference else ())
        if not self._speaks:
            return list(own)
        return [answer if "```" in answer else f"```python\n{task.stub}{answer.rstrip()}\n```" for answer in own]
