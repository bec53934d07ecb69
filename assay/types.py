"""The data that flows, in the order it flows: task, message, completion, execution, score, rollout,
sample.

One example relates them. A task of `drills` asks for `def f(xs)`, with three checks. Its prompt
becomes messages; the policy answers with a completion of 31 tokens; the program cut from it is
judged in one execution (verdict WRONG, 2 of 3 checks passed); rewards turn that into a score; task,
turn and score are one rollout. Eight rollouts of the task are a group. The learner sees each
rollout as one sample: tokens, a mask, per-token numbers and the group's id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Metrics = dict[str, float]
"""Numbers of one step, named `area/what`: `reward/mean`, `time/learn`."""


class Verdict(StrEnum):
    """What became of a program, by cause."""

    PASS = "pass"
    """Every check ran to its end and held; the candidate stayed alive and inside its limits."""
    WRONG = "wrong"
    """The program ran, and a check did not hold."""
    ERROR = "error"
    """The program raised, exited or died."""
    TIMEOUT = "timeout"
    """CPU or wall time ran out."""
    MEMORY = "memory"
    """Memory ran out."""
    OUTPUT = "output"
    """It wrote or returned more than is allowed."""
    COMPILE = "compile"
    """The program does not compile."""
    FORBIDDEN = "forbidden"
    """It broke the rules of the wall: a malformed, second or unasked reply."""
    NO_CODE = "no_code"
    """The completion holds no program, or not the entry point."""
    INFRA = "infra"
    """The machine failed. Never a reward."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing a right program must satisfy."""

    source: str
    """Python that is run by the test worker; it sees the entry point as a proxy and raises where it
    is wrong."""
    hidden: bool = True
    """Whether the model may not see it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the entry point, and the value that is right."""

    arguments: str
    """A list of the arguments in the judge's JSON (judge/codec.py): plain JSON where they are
    plain."""
    expected: str | None = None
    """The right value, in the same; None for what the task's reference answers."""
    tolerance: float = 0.0
    """Absolute, for floats anywhere in the value."""
    hidden: bool = True


@dataclass(frozen=True, slots=True)
class Exchange:
    """One run of a whole program: what it reads, and what it must print."""

    stdin: str
    stdout: str
    hidden: bool = True


@dataclass(frozen=True, slots=True)
class Task:
    """One problem with its tests."""

    id: str
    """Unique within its set: `HumanEval/0`."""
    prompt: str
    """What the model is shown: a stub to complete, or a description."""
    checks: tuple[Check | Call, ...] | tuple[Exchange, ...]
    """At least one; a program that reads and prints has exchanges, a function checks or calls."""
    entry_point: str
    """The name that the checks call; empty for a program that reads and prints."""
    language: str = "python"
    """A language of sandbox/languages."""
    stub: str = ""
    """Code that a completion continues (HumanEval's prompt); empty where the completion is a whole
    program."""
    setup: str = ""
    """Data-set code bound in the test worker before the checks: imports, helpers, constants; never
    the candidate's."""
    reference: str | None = None
    """A whole program that passes."""
    checker: str = ""
    """What decides about calls and exchanges: a name of judge/checkers.py, or Python that defines
    `check`; the usual one where empty."""
    demonstrations: tuple[str, ...] = ()
    """Completions to learn from; may be wordy or wrong. Without any, SFT learns from the
    reference."""
    stop: tuple[str, ...] = ()
    """Strings at which generation ends; not part of the completion."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a dialogue."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Completion:
    """What an engine wrote for one prompt."""

    text: str
    """Decoded, without stop tokens and from the stop string on cut away."""
    tokens: tuple[int, ...]
    """[T] token ids as sampled, the stop token included."""
    logprobs: tuple[float, ...]
    """[T] natural log-probabilities under the sampling distribution, in fp32."""
    ended: Literal["stop", "length"]
    """Why it ended: a stop token or string, or the token limit."""
    versions: tuple[int, ...]
    """[T] the version of the weights that drew each token; it never falls."""

    @property
    def version(self) -> int:
        """The oldest weights that wrote it."""
        return self.versions[0]


@dataclass(frozen=True, slots=True)
class Execution:
    """What became of one program under its checks."""

    verdict: Verdict
    passed: int = 0
    """Checks that held (a lower bound when stopped early)."""
    total: int = 0
    """Checks there are."""
    detail: str = ""
    """One line for people: the exception, the limit, the failing check. Up to 500 characters."""
    output: str = ""
    """What the candidate printed, truncated."""
    stderr: str = ""
    """What a program that reads and prints wrote to its standard error, truncated; a function's is
    in `output`."""
    cpu_seconds: float = 0.0
    """CPU time of the candidate."""
    wall_seconds: float = 0.0
    """From the candidate's start to the verdict."""
    memory_mb: float = 0.0
    """Peak resident memory of the candidate in MiB."""


@dataclass(frozen=True, slots=True)
class Score:
    """A reward with its parts."""

    total: float
    parts: Mapping[str, float] = field(default_factory=dict)
    """Each term's weighted contribution by name; they add up to `total`."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange with the policy."""

    prompt_tokens: tuple[int, ...]
    """[P] token ids the engine continued."""
    completion: Completion
    program: str | None = None
    """What was cut from the completion to be judged; None where there was no code."""
    execution: Execution | None = None
    """What the judge said of it; None where the turn was not judged."""
    observation: str = ""
    """What the policy was shown after it."""
    score: Score | None = None
    """What the rollout was worth up to here, where turns are scored by themselves."""
    learned: bool = True
    """Whether the policy learns from its words; a demonstration that failed a check on the way is
    only read."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One attempt at a task, judged."""

    task: Task
    turns: tuple[Turn, ...]
    score: Score | None
    """None exactly when `failure` is set."""
    failure: str | None = None
    """The machine's failure, if any: such a rollout is dropped and counted, never scored."""

    @property
    def passed(self) -> bool:
        """Whether the last turn's program passed every check."""
        return self.execution is not None and self.execution.verdict is Verdict.PASS

    @property
    def execution(self) -> Execution | None:
        """What the judge said last."""
        return next((turn.execution for turn in reversed(self.turns) if turn.execution), None)

    @property
    def length(self) -> int:
        """Completion tokens over all turns."""
        return sum(len(turn.completion.tokens) for turn in self.turns)


@dataclass(frozen=True, slots=True)
class Sample:
    """What the learner learns from: tokens, a mask and per-token numbers. T is the whole sequence's
    length.
    """

    tokens: tuple[int, ...]
    """[T] prompt and completion."""
    mask: tuple[bool, ...]
    """[T] true where the policy wrote the token and is trained on it; mask[0] is always false."""
    logprobs: tuple[float, ...] = ()
    """[T] the engine's log-probabilities, 0 where the mask is false; empty for dialogues."""
    old_logprobs: tuple[float, ...] = ()
    """[T] of the policy before its first gradient step on this sample; empty where nobody asks."""
    reference_logprobs: tuple[float, ...] = ()
    """[T] of the reference policy; empty where nobody asks."""
    values: tuple[float, ...] = ()
    """[T] what the critic expected before each token; empty without one."""
    advantages: tuple[float, ...] = ()
    """[T] filled in by the algorithm's credit; empty before."""
    returns: tuple[float, ...] = ()
    """[T] what the critic should have expected; filled in by credit where there is a critic."""
    weight: float = 0.0
    """What one of its tokens counts in the step's loss; filled in by the learner."""
    reward: float = 0.0
    """The rollout's total score."""
    passed: bool = False
    """Whether the rollout passed every check."""
    truncated: bool = False
    """Whether the completion ended at the token limit."""
    limit: int = 0
    """Tokens the completion could have had at most; 0 where there was no limit."""
    group: str = ""
    """Samples that compete with one another share it: one task in one step."""
    rollout: int | None = None
    """Samples of a group that are parts of one rollout share it, and count once; None for one that
    stands alone."""
    version: int = 0
    """The oldest weights that wrote it."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples as padded tensors. B sequences of T tokens; position t holds the numbers of
    *predicting* token t.
    """

    tokens: Tensor
    """[B, T] int64, right-padded."""
    attention: Tensor
    """[B, T] bool, false on padding."""
    mask: Tensor
    """[B, T] bool, true where the token is trained on."""
    logprobs: Tensor
    """[B, T] float32, the engine's (or zeros)."""
    advantages: Tensor
    """[B, T] float32 (or zeros)."""
    weights: Tensor
    """[B, 1] float32, what a token's loss is multiplied by before losses are added up over the
    step."""
    groups: Tensor
    """[B] int64, equal for samples of one group."""
    old_logprobs: Tensor | None = None
    """[B, T] of the policy before its first gradient step on this batch; None with a single step
    (the current ones)."""
    reference_logprobs: Tensor | None = None
    """[B, T] of the reference policy; None unless the algorithm asks."""
    values: Tensor | None = None
    """[B, T] the critic's before its first gradient step on this batch; None without a critic."""
    returns: Tensor | None = None
    """[B, T] what the critic should have said; None without a critic."""
