"""Demonstrations played through an environment: what SFT learns of several turns."""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import replace

from assay.environments import OutOfRoomError
from assay.errors import RolloutLostError
from assay.rollout.attempt import Dialogue, Means, Prompted
from assay.rollout.group import together
from assay.rollout.samples import dialogues
from assay.types import Completion, Sample, Task

log = logging.getLogger(__name__)


async def play(tasks: Sequence[Task], means: Means) -> list[Sample]:
    """Samples of every demonstration of the tasks, or of their references, as the environment makes
    dialogues of them.

    Without a script of the environment's each is one reply. Raises what the judge or the
    environment raises first.
    """
    script = means.environment.script
    if script is None:
        return [sample for task in tasks for sample in means.chat.dialogues(task)]
    plays = []
    own = replace(means, scores_turns=False)
    for task in tasks:
        asked = Prompted(task, means.chat.prompt(task))
        for answer in means.chat.answers(task):
            replies = script(task, answer, *(means.chat.right(task) or [answer]))
            plays.append(_played(Played(asked, own, replies)))
    found = await together(plays)
    if lost := found.count(None):
        log.warning(
            "%d of %d demonstrations were lost to the machine; they are left out", lost, len(found)
        )
    return [sample for samples in found for sample in samples or ()]


class Played(Dialogue):
    """A talk with a script in the policy's place."""

    def __init__(self, asked: Prompted, means: Means, script: Generator[str, bool, None]) -> None:
        super().__init__(asked, means, seed=0)
        self.script = script

    async def written(self, prompt: tuple[int, ...], stop: tuple[str, ...]) -> Completion:
        """The next reply, which a stop string ends as it ends a completion; after the first, one
        that has room.
        """
        try:
            text = self.script.send(self.turns[-1].learned) if self.turns else next(self.script)
        except StopIteration:
            raise OutOfRoomError from None
        stops = [(at, at + len(word)) for word in stop if (at := text.find(word)) >= 0]
        start, end = min(stops, default=(len(text), len(text)))
        tokens = self.means.chat.said(text[:end], ended=not stops)
        if self.turns and self.means.context and len(prompt) + len(tokens) > self.means.context:
            raise OutOfRoomError
        return Completion(text[:start], tokens, (0.0,) * len(tokens), "stop", (0,) * len(tokens))

    def show(self, text: str, *, held: bool = True) -> None:
        """What stands before the next reply; what did not hold is not learned from."""
        self.turns[-1] = replace(self.turns[-1], observation=text, learned=held)


async def _played(talk: Played) -> list[Sample] | None:
    """The samples of one play; None where the machine failed."""
    try:
        with suppress(OutOfRoomError):
            await talk.means.environment.talk(talk)
    except RolloutLostError:
        return None
    return dialogues(talk.turns, talk.task.id)
