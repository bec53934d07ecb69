"""Play demonstrations through an environment, so that SFT learns dialogues of several turns."""

import logging
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import replace

from assay.engines.base import find_stop
from assay.environments import OutOfRoomError
from assay.errors import RolloutLostError
from assay.files import encodable
from assay.progress import Progress
from assay.rollout.attempt import Dialogue, PromptedTask, RolloutContext
from assay.rollout.prompter import completion
from assay.rollout.samples import dialogues
from assay.sync import together
from assay.types import Completion, Message, Sample, Task, ToolCall, Turn

log = logging.getLogger(__name__)


async def play(
    tasks: Sequence[Task], context: RolloutContext, progress: Progress, *, last_only: bool = False
) -> list[Sample]:
    """SFT samples of every demonstration of the tasks; of the reference where a task has none.

    The environment's script turns each into a dialogue. Without a script or without tests, it is a
    single reply, or a conversation: SFT learns every reply of the assistant, or the `last_only`.
    Raises what the judge or the environment raises first.
    """
    script = context.environment.script
    samples, plays = [], []
    unscored = replace(context, scores_turns=False)
    for task in tasks:
        if script is None or not task.checks:
            samples += context.prompter.samples(task, last_only=last_only)
            continue
        prompted_task = PromptedTask(task, context.prompter.prompt(task))
        for answer in context.prompter.answers(task):
            replies = script(task, answer, *(context.prompter.reference(task) or [answer]))
            plays.append(_samples(PlayedDialogue(prompted_task, unscored, replies), progress))
    if plays:
        progress.phase("playing demonstrations", len(plays))
    results = await together(plays)
    if lost := results.count(None):
        log.warning(
            "%d of %d demonstrations could not be judged; SFT leaves them out", lost, len(results)
        )
    return samples + [sample for played in results for sample in played or ()]


class PlayedDialogue(Dialogue):
    """A dialogue whose replies come from a script, not from the policy."""

    def __init__(
        self,
        prompted_task: PromptedTask,
        context: RolloutContext,
        script: Generator[str | ToolCall, bool, None],
    ) -> None:
        super().__init__(prompted_task, context, seed=0)
        self.script = script

    async def generate(self, prompt: tuple[int, ...], stop: tuple[str, ...]) -> Completion:
        """The next reply of the script, cut at the first stop string.

        Raises OutOfRoomError at the end of the script, and for a later reply that does not fit.
        """
        try:
            reply = self.script.send(self.turns[-1].learned) if self.turns else next(self.script)
        except StopIteration:
            raise OutOfRoomError from None
        text = reply if isinstance(reply, str) else self.context.prompter.written(reply)
        start, end = find_stop(text, stop)
        tokens = self.context.prompter.chat.encode_reply(text[:end], ended=start == len(text))
        limit = self.context.context_length
        if self.turns and limit and len(prompt) + len(tokens) > limit:
            raise OutOfRoomError
        return completion(text[:start], tokens)

    def rendered(self, number: int) -> Turn:
        """A turn as its conversation is rendered; as it was played where a stop string cut it."""
        turn, prompter = self.turns[number], self.context.prompter
        if turn.completion.tokens[-1:] != (prompter.chat.end_token,):
            return turn
        messages = prompter.conversation(self.task, self.turns[:number])
        reply = Message("assistant", turn.completion.text)
        return replace(prompter.turn(messages, reply, self.task), learned=turn.learned)

    def show(self, text: str, *, correct: bool = True) -> None:
        """Set what the next prompt shows; SFT learns the turn only if it is `correct`."""
        self.turns[-1] = replace(self.turns[-1], observation=encodable(text), learned=correct)


async def _samples(talk: PlayedDialogue, progress: Progress) -> list[Sample] | None:
    """The samples of one played demonstration; None where it was not judged."""
    try:
        with suppress(OutOfRoomError):
            await talk.context.environment.run(talk)
    except RolloutLostError:
        return None
    finally:
        progress.advance()
    return dialogues([talk.rendered(number) for number in range(len(talk.turns))], talk.task.id)
