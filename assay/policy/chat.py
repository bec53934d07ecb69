"""Tasks and texts to tokens and back; the one place that knows whether a model chats or continues
text.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from assay import prompts
from assay.environments import nothing
from assay.errors import SettingsError
from assay.policy.tokenizer import ANCHOR, decode_within, encode, encode_within
from assay.types import Sample, Task, Turn

PROBE = "an answer"
"""Said by the assistant to see how the chat template ends its turn."""


@dataclass(frozen=True, slots=True)
class Chat:
    """Encodes for one tokenizer: through its chat template, or as plain text."""

    tokenizer: Any
    """A transformers tokenizer with an end-of-sequence token."""
    stop_tokens: frozenset[int]
    """Token ids that end a completion."""
    end_token: int
    """The one of them that a dialogue ends with."""
    speaks: bool
    """Whether prompts go through the chat template."""
    anchor: tuple[int, ...]
    """What stands before the tokens that are decoded."""
    told: Callable[[Task], str] = nothing
    """What an environment has the model read with a task (`Environment.told`)."""

    def prompt(self, task: Task) -> tuple[int, ...]:
        """[P] token ids that an engine continues."""
        return self._encode_prompt(self._prompt_text(task))

    def continued(self, task: Task, turns: Sequence[Turn]) -> tuple[int, ...]:
        """[P] token ids of the whole conversation so far, as it is rendered from its messages.

        They may differ from those that were written, where a template alters what was said before,
        or a text has other tokens than the ones drawn: then what comes after is a sample by itself
        (rollout/samples.py).
        """
        said = [(self.text(turn.completion.tokens), turn.observation) for turn in turns]
        if self.speaks:
            return self._encode_prompt(self._template(task, said))
        tokens = list(self.prompt(task))
        for reply, shown in said:
            tokens += self.said(reply)
            tokens += encode_within(self.tokenizer, prompts.text(task, shown))
        return tuple(tokens)

    def stop(self, task: Task) -> tuple[str, ...]:
        """Strings that end a completion. A model that chats ends its turns itself, and may write
        them in a fence.
        """
        return () if self.speaks else task.stop

    def text(self, tokens: Sequence[int]) -> str:
        """The text of completion tokens with every space of it, a final stop token left out."""
        own = tokens[:-1] if tokens and tokens[-1] in self.stop_tokens else tokens
        return decode_within(self.tokenizer, self.anchor, own)

    def dialogues(self, task: Task) -> list[Sample]:
        """A sample for each demonstration of the task, or for its reference when it has none;
        prompts masked.

        Prompt and completion are cut at the same token boundary that rollouts have.
        """
        text = self._prompt_text(task)
        prompt = self._encode_prompt(text)
        samples = []
        for answer in self.answers(task):
            both = encode(self.tokenizer, text + answer, special=not self.speaks)
            cuts = both[: len(prompt)] == prompt
            completion = both[len(prompt) :] if cuts else encode_within(self.tokenizer, answer)
            if not completion or completion[-1] != self.end_token:
                completion = (*completion, self.end_token)
            mask = (False,) * len(prompt) + (True,) * len(completion)
            samples.append(Sample(tokens=prompt + completion, mask=mask, group=task.id))
        return samples

    def answers(self, task: Task) -> list[str]:
        """The task's demonstrations as replies, or its reference when it has none."""
        return [self._reply(task, answer) for answer in task.demonstrations] or self.right(task)

    def right(self, task: Task) -> list[str]:
        """The task's reference as a reply; empty where it has none."""
        return [self._reply(task, task.reference.removeprefix(task.stub))] if task.reference else []

    def said(self, text: str, ended: bool = True) -> tuple[int, ...]:
        """Token ids of a whole reply, with the token that ends it if it `ended` so, not at a stop
        string.
        """
        return (*encode_within(self.tokenizer, text), *((self.end_token,) if ended else ()))

    def _reply(self, task: Task, answer: str) -> str:
        return (
            answer
            if "```" in answer or not self.speaks
            else f"```python\n{task.stub}{answer.rstrip()}\n```"
        )

    def _prompt_text(self, task: Task) -> str:
        if not self.speaks:
            return prompts.text(task, self.told(task))
        return self._template(task, [])

    def _template(self, task: Task, said: Sequence[tuple[str, str]]) -> str:
        asked = prompts.messages(task, self.told(task))
        messages = [{"role": message.role, "content": message.content} for message in asked]
        for reply, shown in said:
            messages += [
                {"role": "assistant", "content": reply},
                {"role": "user", "content": shown},
            ]
        return str(
            self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        )

    def _encode_prompt(self, text: str) -> tuple[int, ...]:
        tokens = encode(self.tokenizer, text, special=not self.speaks)
        while len(tokens) > 1 and tokens[-1] == self.tokenizer.eos_token_id and not self.speaks:
            tokens = tokens[:-1]
        return tokens


def open_chat(
    tokenizer: Any, mode: Literal["auto", "template", "text"], stop_tokens: Iterable[int],
    told: Callable[[Task], str] = nothing,
) -> Chat:  # fmt: skip
    """A Chat that stops at `stop_tokens` and at the tokenizer's own; `auto` takes the chat template
    where there is one.

    Raises SettingsError for `template` without one.
    """
    has_template = bool(getattr(tokenizer, "chat_template", None))
    if mode == "template" and not has_template:
        raise SettingsError(
            "setting 'policy.chat' = 'template', but the tokenizer has no chat template; use 'text'"
        )
    speaks = has_template and mode != "text"
    how = "through its chat template" if speaks else "as plain text to continue"
    logging.getLogger(__name__).info("policy.chat = %r: the model is prompted %s", mode, how)
    end = _end_of_turn(tokenizer) if speaks else tokenizer.eos_token_id
    stops = frozenset({*stop_tokens, tokenizer.eos_token_id, end})
    return Chat(tokenizer, stops, end, speaks, encode(tokenizer, ANCHOR), told)


def _end_of_turn(tokenizer: Any) -> int:
    """The special token with which the chat template ends the assistant's turn; the end of sequence
    without one.
    """
    said = [{"role": "user", "content": "?"}, {"role": "assistant", "content": PROBE}]
    after = str(tokenizer.apply_chat_template(said, tokenize=False)).rpartition(PROBE)[2].strip()
    first = encode(tokenizer, after)[:1] if after else ()
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return first[0] if first and first[0] in special else int(tokenizer.eos_token_id)
