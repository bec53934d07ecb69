"""Agents of others, each in an environment of its own, as rollouts of the environment `program`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.engines.base import Sampling
from assay.judge import Judge
from assay.policy.chat import Chat
from assay.rollout.attempt import attempt, make_prompts
from assay.rollout.group import score
from assay.rollout.samples import to_samples, token_balance
from assay.types import Completion, Rollout, Sample, Task
from tests.agents.served import Speaker, chat
from tests.judge.opened import with_judge
from tests.rollout.talks import ADD, RIGHT, context

ROOT = Path(__file__).parent.parent.parent
ENVIRONMENTS = Path(os.environ.get("ASSAY_AGENTS", ROOT / ".venv-agents"))
EXAMPLES = ROOT / "examples" / "agents"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""The command with which mini-swe-agent ends."""
FENCED = f"```python\n{RIGHT}```"


def call_text(name: str, **arguments: str) -> str:
    """What a policy says that calls a tool."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@dataclass(frozen=True)
class OutsideAgent:
    """How an agent is started, and how a policy uses its tool."""

    package: str
    """Its environment's folder."""
    words: tuple[str, ...]
    """The example and its words."""
    answer: str = ""
    tool: str = "run_python"
    field: str = "program"
    program: str = "print('hello')"
    """What its tool runs."""
    last: str = FENCED
    """The reply with which it ends."""
    samples: int = 1
    """Samples of a rollout of three replies: more where it sends them back in other words."""

    def command(self, *words: str, example: Path | None = None) -> list[str]:
        """Raises pytest's skip where its environment is absent."""
        programs = ENVIRONMENTS / self.package / "bin"
        if not programs.exists():
            pytest.skip(
                f"there is no {programs.parent}: make test-agents builds it, ASSAY_AGENTS names"
                " the folder of others"
            )
        file = str(example or EXAMPLES / self.words[0])
        if file.endswith(".sh"):
            return ["sh", file, str(programs / "mini"), *self.words[1:], *words]
        return [str(programs / "python"), file, *self.words[1:], *words]

    def call(self, program: str) -> str:
        """What a policy says that calls the agent's tool."""
        return call_text(self.tool, **{self.field: program})


def in_characters(text: str, using: Chat | None = None) -> list[int]:
    """A reply in tokens that no tokenizer gives: one for each character."""
    using = using or chat()
    tokens = [token for each in text for token in using.encode_reply(each)[:-1]]
    return [*tokens, using.encode_reply("")[-1]]


class Recorder:
    """An engine before another one: it notes what was sampled."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.completions = engine, list[Completion]()
        self.session: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    async def generate(self, request: Any, sampling: Any) -> Completion:
        self.session = request.rollout
        completion: Completion = await self.engine.generate(request, sampling)
        self.completions.append(completion)
        return completion


@dataclass
class Played:
    """A rollout, its samples, and what its engine sampled."""

    rollout: Rollout
    sampled: list[Completion]
    received: int
    """Requests of the agent."""

    @property
    def samples(self) -> list[Sample]:
        """What the learner gets."""
        return to_samples([[self.rollout]])

    @property
    def learned(self) -> list[tuple[int, float]]:
        """The tokens on which the learner's mask is, with their log-probabilities."""
        return [
            (token, logprob) for sample in self.samples
            for token, logprob, on in zip(sample.tokens, sample.logprobs, sample.mask, strict=True)
            if on
        ]  # fmt: skip

    def require_all_learned(self) -> None:
        """Check that the learner gets what the engine sampled, in order, all of it and once."""
        expected = [pair for each in self.sampled
                    for pair in zip(each.tokens, each.logprobs, strict=True)]  # fmt: skip
        assert self.learned == expected
        assert not self.rollout.unlearned
        assert self.balance == {"tokens/learned": len(expected)}

    @property
    def balance(self) -> dict[str, float]:
        """Tokens by the reason, without those of which there are none."""
        counts = token_balance([[self.rollout]], [[self.rollout]])
        return {name: count for name, count in counts.items() if count}


def play(
    command: Sequence[str] | str, *texts: Any, answer: str = "",
    engine: Callable[[Sequence[Any], Chat], Any] = Speaker, using: Chat | None = None,
    sampling: Sampling | None = None, task: Task = ADD, context_length: int | None = None,
    **parameters: Any,
) -> Played:  # fmt: skip
    """The rollout of an agent whose policy says the texts."""
    using = using or chat()
    environment = {"name": "program", "command": command, "answer": answer, **parameters}
    recorders = []

    async def run(judge: Judge) -> Rollout:
        recorder = Recorder(engine(texts, using))
        recorders.append(recorder)
        means = context(
            recorder, judge, using, environment, sampling=sampling or Sampling(900),
            context_length=context_length,
        )  # fmt: skip
        (prompted,) = make_prompts([task], means.prompter, 1, None)
        return (await score([await attempt(prompted, means, seed=3)], means))[0]

    rollout = with_judge(run, stop_early=False)
    (recorder,) = recorders
    return Played(rollout, recorder.completions, recorder.session.received)


MINI = OutsideAgent(
    "mini-swe-agent", ("mini_swe_agent.sh",), "answer.py", "bash", "command",
    f"cat > answer.py <<'EOF'\n{RIGHT}EOF",
    call_text("bash", command=SUBMIT),
)  # fmt: skip
SMOLAGENTS = OutsideAgent(
    "smolagents", ("smolagents_steps.py",), last=call_text("final_answer", answer=RIGHT), samples=3
)
OPENAI_AGENTS = OutsideAgent("openai-agents", ("openai_agents.py",))
LANGGRAPH = OutsideAgent("langgraph", ("langgraph_react.py",))


def talk_of(agent: OutsideAgent, using: Chat | None = None, thought: str = "") -> list[list[int]]:
    """What a policy says that calls the tool twice, then once, and ends: in single characters."""
    call = agent.call(agent.program)
    texts = [f"{thought}I look.\n{call}\n{call}", call, agent.last]
    return [in_characters(text, using) for text in texts]
