"""The data that flows, in its order: task, message, completion, execution, score, rollout, sample,
batch.

An example relates them. A `Task` of `drills` asks for `def f(xs)` and has three checks. Its prompt
becomes `Message`s. The policy answers with a `Completion` of 31 tokens. The judge runs the program
cut from it: the `Execution` has the verdict WRONG, with 2 of 3 checks passed. Rewards turn that
into a `Score`. Task, turn and score are one `Rollout`; eight rollouts of the task are a group. The
learner turns each rollout into a `Sample`: tokens, a mask, per-token numbers and the group's id.
Samples padded into tensors are a `Batch`.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from assay.checks import Answer as Answer
from assay.checks import AnyCheck as AnyCheck
from assay.checks import Call as Call
from assay.checks import Check as Check
from assay.checks import Exchange as Exchange
from assay.checks import OwnTests as OwnTests
from assay.checks import PrintTest as PrintTest
from assay.checks import Reported as Reported
from assay.checks import RepositoryTests as RepositoryTests
from assay.checks import TestBench as TestBench
from assay.checks import TestFunctions as TestFunctions
from assay.checks import TestScript as TestScript
from assay.tools import ToolCall as ToolCall

if TYPE_CHECKING:
    from torch import Tensor

Metrics = dict[str, float]
"""Numbers of one step, named `area/what`: `reward/mean`, `time/learn` (docs/metrics.md)."""


class Verdict(StrEnum):
    """How a program fared under its checks."""

    PASS = "pass"
    """Every check ran and passed; the candidate stayed alive and within its limits."""
    WRONG = "wrong"
    """The program ran, and a check failed."""
    ERROR = "error"
    """The program raised an exception, exited or crashed."""
    TIMEOUT = "timeout"
    """CPU or wall time ran out."""
    MEMORY = "memory"
    """Memory ran out."""
    OUTPUT = "output"
    """It printed or returned more than is allowed."""
    COMPILE = "compile"
    """The program does not compile."""
    FORBIDDEN = "forbidden"
    """It broke the sandbox's protocol: a malformed, second or unrequested reply; or its text could
    reach its test bench."""
    NO_CODE = "no_code"
    """The completion has no program, or the program lacks the entry point."""
    UNJUDGED = "unjudged"
    """The task cannot be judged, or not with this program: `Execution.cause` says why. It is never
    turned into a reward, and is no failure of the machine."""
    INFRA = "infra"
    """The machine failed. It is never turned into a reward."""


class Cause(StrEnum):
    """Whose doing a verdict is. Whatever acts on why a program was not judged asks this."""

    PROGRAM = "program"
    """The program's: it passed, or failed a check."""
    LIMIT = "limit"
    """A limit of time, memory or output ended the program."""
    TASK = "task"
    """The task's, whatever the program is: its row cannot be used, or its setup fails."""
    TEST = "test"
    """A test that came to no verdict on this program: it asks nothing of it, or it ended its own
    process or reported nothing before the program had answered. Where the task's reference passes,
    the program is `wrong` instead."""
    CARRY = "carry"
    """A test that needs what cannot be carried between it and the program. Where the task's
    reference passes, the program is `wrong` instead."""
    REFERENCE = "reference"
    """The task's own reference, which fails too."""
    CHECKER = "checker"
    """The task's checker, which gave no answer on what this program printed: it ran into a limit or
    ended its process. The program is `wrong`, since it chose what it printed."""
    MACHINE = "machine"
    """The machine's."""


UNJUDGED_CAUSES = frozenset({Cause.TASK, Cause.TEST, Cause.CARRY, Cause.REFERENCE})
"""The causes of `unjudged`; other verdicts have none of them."""
USUAL_CAUSES = {
    Verdict.INFRA: Cause.MACHINE, Verdict.UNJUDGED: Cause.TASK, Verdict.TIMEOUT: Cause.LIMIT,
    Verdict.MEMORY: Cause.LIMIT, Verdict.OUTPUT: Cause.LIMIT,
}  # fmt: skip
"""The cause of a verdict that comes without one; of any other it is the program."""


@dataclass(frozen=True, slots=True)
class Task:
    """One problem with its tests."""

    id: str
    """Unique within its set: `HumanEval/0`."""
    prompt: str
    """What the model is shown: a stub to complete, or a description."""
    checks: tuple[AnyCheck, ...]
    """Empty where the task is only for SFT. A stdin/stdout program has exchanges."""
    entry_point: str
    """The function that the checks call, in a `Check` as `candidate`; empty for a stdin/stdout
    program. `Solution().f` is a method of a new `Solution`, or a program's function `f`."""
    language: str = "python"
    """The language of the program: a name from languages/."""
    stub: str = ""
    """Code that a completion continues, as HumanEval's prompt. It is empty for a whole program."""
    setup: str = ""
    """The data set's code, run in the test worker before the checks: imports, helpers, constants.
    The program that is judged never sees it; `python_tool` shows it to the model's interpreter."""
    reference: str | None = None
    """A whole program that passes all checks."""
    checker: str = ""
    """How calls and exchanges are compared: a name from judge/checkers.py, or Python that defines
    `check`; empty for the default."""
    messages: tuple[Message, ...] = ()
    """A prompt that is a conversation, shown as it stands; empty if `prompt` is the prompt."""
    demonstrations: tuple[str, ...] = ()
    """Completions for SFT, which may be long or wrong. Without any, SFT learns the reference."""
    demonstration_fields: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What a demonstration's message has beside its text (`Message.fields`)."""
    tools: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    """Schemas of tools that its prompt shows a model, as chat templates and chat APIs take them."""
    stop: tuple[str, ...] = ()
    """Stop strings. Generation ends there, and the completion leaves them out."""
    needs: str = ""
    """`objects` if its tests need objects of the program's. Otherwise the run of its reference, or
    the form of its tests, shows what they need."""
    large: bool = False
    """Whether its inputs are so large that its programs have the memory, and all calls together the
    time, of LARGE programs; of a list of over 50,000 items, a digest is compared."""
    hash_seed: int = 0
    """PYTHONHASHSEED of its programs; `assay check` tries others."""
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What an evaluation is broken down by: {"difficulty": "hard", "topic": "graphs, strings"};
    `date`, such as 2024-08-31, is when the problem was published."""

    @property
    def function(self) -> str:
        """Returns the name of the function or method that the checks call."""
        return self.entry_point.rpartition("().")[2]


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    learned: bool = True
    """Whether SFT learns from it, where it is the assistant's."""
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What else the chat template gets of it: `reasoning_content`, `tool_calls` and the like."""


def as_dicts(conversation: Sequence[Message]) -> list[dict[str, Any]]:
    """Returns messages as chat templates and chat APIs take them."""
    return [{"role": m.role, "content": m.content, **m.fields} for m in conversation]


@dataclass(frozen=True, slots=True)
class Completion:
    """What an engine generated for one prompt."""

    text: str
    """Decoded text, without stop tokens, cut at the stop string. A thought that the prompt opened
    begins with its tag."""
    tokens: tuple[int, ...]
    """[T] token ids as sampled, the stop token included."""
    logprobs: tuple[float, ...]
    """[T] log-probabilities under the sampling distribution, in nats, float32."""
    ended: Literal["stop", "length"]
    """Finish reason: a stop token or string, or the token limit."""
    versions: tuple[int, ...]
    """[T] the weight version that sampled each token; it never decreases."""
    counted: int = 0
    """Tokens as an endpoint counts them that gives no ids: nothing can be trained on it."""

    @property
    def length(self) -> int:
        """Returns the number of tokens."""
        return len(self.tokens) or self.counted

    @property
    def version(self) -> int:
        """Returns the oldest weight version that sampled one of its tokens. It is 0 for an
        endpoint's.
        """
        return self.versions[0] if self.versions else 0


FAILING = 64
"""Checks of which an execution says how they fail."""


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """The outcome of one test of a repository."""

    __test__ = False

    name: str
    outcome: str
    """`passed`, `failed`, `skipped`, `xskipped` (a right change skips it too), `xfailed`,
    `missing` (it did not run), `timeout`, or `ended` where its process ended before it did."""
    seconds: float
    is_fix: bool
    """Whether it is one that only a right change passes."""
    detail: str = ""

    @property
    def holds(self) -> bool:
        """Says whether it counts as passed."""
        return self.outcome in ("passed", "xfailed", "xskipped")


def failing(checks: Mapping[int, tuple[str, str] | None]) -> tuple[TestOutcome, ...]:
    """Returns the first of a program's checks that fail. `checks` says by their numbers, from 0,
    how and why each check ended. A check that passes ended as `held` or `pass`.
    """
    tests = [
        TestOutcome(str(number + 1), str(ended[0]), 0.0, is_fix=False, detail=printable(ended[1]))
        for number, ended in checks.items()
        if ended and ended[0] not in ("held", Verdict.PASS)
    ]
    return tuple(tests[:FAILING])


@dataclass(frozen=True, slots=True)
class Execution:
    """The judge's result for one program and the checks of its task."""

    verdict: Verdict
    passed: int = 0
    """How many checks passed. It is a lower bound if the judge stopped early."""
    total: int = 0
    """How many checks the task has."""
    detail: str = ""
    """One line for people: the exception, the limit or the failing check; up to 500 characters.
    Control characters are shown escaped, so a program cannot write to a terminal through it. No
    decision rests on it."""
    output: str = ""
    """The candidate's standard output, truncated."""
    stderr: str = ""
    """The standard error of a stdin/stdout program, truncated; a function's is in `output`."""
    cpu_seconds: float = 0.0
    """How many CPU seconds the candidate used."""
    wall_seconds: float = 0.0
    """How many seconds passed from the candidate's start to the verdict."""
    memory_mb: float = 0.0
    """Peak resident memory of the candidate in MiB."""
    forgeable: bool = False
    """Whether a program could have forged it (docs/judge.md), and the settings do not allow
    that."""
    changes: tuple[str, ...] = ()
    """Inside the judge: what the program changed of the test's, `arguments` or a file's name."""
    tests: tuple[TestOutcome, ...] = ()
    """Each test of a repository. Of other checks, the first that fail, named by their numbers from
    1; `detail` says why."""
    cause: Cause | None = None
    """Whose doing the verdict is. It is never None once the verdict is made."""
    exit_status: int | None = None
    """The exit status of a program that stood alone and exited by itself."""
    with_objects: bool = False
    """Whether its tests had the program's objects (docs/judge.md), and not only data."""

    @property
    def is_judged(self) -> bool:
        """Says whether it tells anything of the program. If it does not, it has no score."""
        return self.verdict not in (Verdict.INFRA, Verdict.UNJUDGED)

    @property
    def proven(self) -> bool:
        """Says whether it is a pass that no program could have forged."""
        return self.verdict is Verdict.PASS and not self.forgeable

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", printable(self.detail[:500])[:500])
        cause = self.cause or USUAL_CAUSES.get(self.verdict, Cause.PROGRAM)
        object.__setattr__(self, "cause", cause)
        unjudged, infra = cause in UNJUDGED_CAUSES, cause is Cause.MACHINE
        if (unjudged, infra) != (self.verdict is Verdict.UNJUDGED, self.verdict is Verdict.INFRA):
            raise ValueError(f"the verdict {self.verdict} has not the cause {cause}")


def printable(text: str) -> str:
    """Returns the text with each control character, line end, surrogate and invisible character
    escaped, as `\x1b`.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def last_words(text: str, most: int) -> str:
    """Returns the last characters of a text, `printable` and in one line."""
    return printable(" ".join(text.split())[-most:])


def printable_lines(text: str) -> str:
    """Returns the text with each of its lines `printable`, except for tabs. It can only be read,
    and no terminal obeys it.
    """
    if text.isprintable():
        return text
    return re.sub(r"[^\n\t]+", lambda part: printable(part[0]), text)


@dataclass(frozen=True, slots=True)
class Score:
    """A reward and its terms."""

    total: float
    parts: Mapping[str, float] = field(default_factory=dict)
    """The weighted reward of each term by name; they add up to `total`."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One prompt and completion of a rollout, with what the environment made of it."""

    prompt_tokens: tuple[int, ...]
    """[P] token ids of the prompt, all earlier turns included."""
    completion: Completion
    program: str | None = None
    """The program extracted from the completion; None if it has no code."""
    execution: Execution | None = None
    """The judge's result; None if the turn was not judged."""
    observation: str = ""
    """The environment's reply that the policy sees in the next turn."""
    calls: tuple[ToolCall, ...] = ()
    """The tool calls in the completion."""
    results: tuple[str, ...] = ()
    """What each of the calls gave; `observation` has them together."""
    score: Score | None = None
    """The reward of the rollout so far, if turns are scored (`rollout.score_turns`)."""
    learned: bool = True
    """Whether its tokens are trained on; false for a turn of a demonstration that failed a
    check."""
    is_dropped: bool = False
    """Whether later prompts leave the reply out, and show `observation` behind its prompt."""


@dataclass(frozen=True, slots=True)
class AgentCall:
    """A reply that an agent's call of the policy got, or a call that got none."""

    id: int
    """Its place among the rollout's calls, in the order in which they began."""
    parent: int | None
    """The id of the reply that its request continues; None where a conversation begins."""
    number: int
    """The number of its call. The replies of a call that asked for several share it."""
    tokens: int
    """How many were sampled for it."""
    turn: int | None = None
    """The turn that it is of its rollout; None if it is not learned."""
    reason: str = ""
    """Why it is not learned; empty if it is a turn."""
    ended: str = ""
    """Its finish reason: `stop`, `length` or `tool_calls`; empty without a reply."""
    text: str = ""
    """The beginning of a reply that is no turn: a turn has its text itself."""
    characters: int = 0
    """How many the whole text has."""
    retries: int = 0
    """How often its client sent it again and joined it, or got its answer again."""
    seconds: float = 0.0
    """From its beginning to its end, waiting for the engine included."""


@dataclass(frozen=True, slots=True)
class AgentCalls:
    """The calls of an agent in one rollout, as far as they are recorded."""

    calls: tuple[AgentCall, ...] = ()
    """The first of them; a parent stands before its children."""
    count: int = 0
    """How many there were."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One judged attempt at a task, of one or more turns."""

    task: Task
    turns: tuple[Turn, ...]
    score: Score | None
    """The reward. It is None exactly if `failure` is set."""
    failure: str | None = None
    """Why the rollout is lost, if it is: the machine failed, or its task cannot be judged. Such a
    rollout is dropped and counted, and never scored."""
    cause: Cause | None = None
    """Whose doing the loss is: the machine's, or one of `unjudged`. It is None if nothing is
    lost."""
    held_out: Execution | None = None
    """The result under the checks that are held out of the reward. They are judged after the score.
    It is None if there are none, or if the program did not pass the others."""
    reported: float | None = None
    """The reward that the agent reported. It is None where checks decide."""
    unlearned: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Tokens that were sampled for it and are in none of its turns, by the reason
    (docs/agents.md)."""
    agent_calls: AgentCalls = field(default_factory=AgentCalls)
    """The calls of its agent; empty in environments without one."""
    seconds: float = field(default=0.0, compare=False)
    """Wall time from its first prompt to its verdict, with all waits for engine and judge."""

    @property
    def passed(self) -> bool:
        """Says whether the last turn's program passed every check, and could not have forged it."""
        return self.execution is not None and self.execution.proven

    @property
    def execution(self) -> Execution | None:
        """Returns the last result of the judge."""
        return next((turn.execution for turn in reversed(self.turns) if turn.execution), None)

    @property
    def length(self) -> int:
        """Returns the number of completion tokens over all turns."""
        return sum(turn.completion.length for turn in self.turns)


TYPE_CODES = {"tokens": "i", "mask": "B", "observed": "B"} | dict.fromkeys(
    ("logprobs", "old_logprobs", "reference_logprobs", "values", "advantages", "returns"), "f"
)
"""The arrays of a sample, and the types of their numbers: int32, bytes and float32."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One row of training data: tokens, a mask and per-token numbers; T is the row's length.

    Whatever sequences it is made of, it holds arrays: 4 bytes for a token or a number, 1 for a
    mask. Nobody changes them.
    """

    tokens: Sequence[int]
    """[T] prompt and completion."""
    mask: Sequence[bool]
    """[T] true on tokens that the policy generated and is trained on; mask[0] is always false."""
    logprobs: Sequence[float] = ()
    """[T] log-probabilities from the engine, 0 where the mask is false; empty for dialogues."""
    old_logprobs: Sequence[float] = ()
    """[T] log-probabilities of the policy before its first gradient step on this sample; empty if
    not needed."""
    reference_logprobs: Sequence[float] = ()
    """[T] log-probabilities of the reference policy; empty if not needed."""
    values: Sequence[float] = ()
    """[T] the critic's value before each token; empty without a critic."""
    advantages: Sequence[float] = ()
    """[T] set by the algorithm's `compute_advantages`; empty before."""
    returns: Sequence[float] = ()
    """[T] the targets of the critic's values, set with the advantages; empty without a critic."""
    observed: Sequence[bool] = ()
    """[T] true on what the environment replied between completions, with the marks of the chat
    template around it; empty if there is nothing."""
    observed_weight: float = 0.0
    """Weight of each observed token's loss in the step's, set with the advantages; 0 if the loss
    leaves them out."""
    weight: float = 0.0
    """Weight of each of its tokens in the step's loss; set by the learner."""
    reward: float = 0.0
    """The rollout's total score."""
    passed: bool = False
    """Whether the rollout passed every check."""
    truncated: bool = False
    """Whether the completion was cut off at the token limit."""
    limit: int = 0
    """Most tokens that its completions could have had together; 0 without a limit."""
    group: str = ""
    """The id of its group: samples of one task in one step, compared with one another."""
    rollout: int | None = None
    """Samples of a group with the same number are parts of one rollout and count once; None for a
    whole rollout."""
    version: int = 0
    """The oldest weight version that sampled one of its tokens."""
    replayed: bool = False
    """Whether an earlier step has learned from it too. It keeps the advantages of that step, and
    counts in no baseline."""
    place: tuple[int, int, int] | None = None
    """Its group's number in the step, its rollout's in the group, and its first turn's; None for a
    row of a data set."""

    @property
    def trained_tokens(self) -> int:
        """Returns how many tokens are trained on."""
        return bytes(self.mask).count(1)

    def __post_init__(self) -> None:
        for name, code in TYPE_CODES.items():
            if not isinstance(numbers := getattr(self, name), array):
                object.__setattr__(self, name, array(code, numbers))


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples as padded tensors, B rows of T tokens; position t has the numbers of *predicting*
    token t.
    """

    tokens: Tensor
    """[B, T] int64, right-padded."""
    attention: Tensor
    """[B, T] bool, false on padding."""
    mask: Tensor
    """[B, T] bool, true on tokens that are trained on."""
    logprobs: Tensor
    """[B, T] float32, from the engine (or zeros)."""
    advantages: Tensor
    """[B, T] float32 (or zeros)."""
    weights: Tensor
    """[B, 1] or [B, T] float32, the weight of each token's loss in the sum over the step."""
    groups: Tensor
    """[B] int64, equal for samples of one group."""
    old_logprobs: Tensor | None = None
    """[B, T] log-probabilities of the policy before its first gradient step on this batch; None
    with a single gradient step, where they are the current ones."""
    reference_logprobs: Tensor | None = None
    """[B, T] log-probabilities of the reference policy; None if not needed."""
    values: Tensor | None = None
    """[B, T] the critic's values before its first gradient step on this batch; None without one."""
    returns: Tensor | None = None
    """[B, T] the targets of the critic's values; None without a critic."""
    observed: Tensor | None = None
    """[B, T] bool, true on tokens of the environment that the loss is of too; None without any."""
    replayed: Tensor | None = None
    """[B, 1] bool, true on samples that an earlier step has learned from too; None without any."""

    @property
    def predicted(self) -> Tensor:
        """[B, T] bool, true on all tokens whose log-probabilities the loss needs."""
        return self.mask if self.observed is None else self.mask | self.observed
