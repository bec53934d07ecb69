"""The calculator of calculator.py as an environment of verifiers: it computes what a reply asks
for, and pays 1 for the right answer.

    cd examples/agents
    ../../.venv-agents/verifiers/bin/python verifiers_server.py tcp://127.0.0.1:5000 \
        calculator_verifiers --env.agent.runtime.type subprocess
"""

import re
from collections.abc import Iterator
from typing import Any

import aiohttp
import verifiers.v1 as vf

MOST_CALLS = 6
CALL = re.compile(r"calc: (-?\d{1,12}) ([-+*]) (-?\d{1,12})")
"""Two whole numbers and a sign are computed. Any other text is the answer; none is evaluated."""


def compute(left: str, sign: str, right: str) -> int:
    """What two numbers and a sign give."""
    a, b = int(left), int(right)
    return {"+": a + b, "-": a - b, "*": a * b}[sign]


class CalculationData(vf.TaskData):
    """A question, and what the policy does not see."""

    answer: str


class Calculation(vf.Task[CalculationData]):
    """Its reward is whether the last reply is the answer."""

    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        """1 or 0."""
        return float(trace.last_reply.removeprefix("answer: ").strip() == self.data.answer)


class Calculations(vf.Taskset[Calculation, vf.TasksetConfig]):
    """One question. A run's come from calculations_verifiers.py."""

    def load(self) -> Iterator[Calculation]:
        """Of one step."""
        data = CalculationData(prompt="Start at 7, add 3.\n", answer="10")
        yield Calculation(data, self.config.task)


class Calculator(vf.Harness[vf.HarnessConfig]):
    """Plays a conversation. It runs in verifiers' own process, since it starts nothing."""

    EXECUTES_CODE = NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: vf.Trace, runtime: Any, endpoint: str, secret: str,
        mcp_urls: dict[str, str], data: vf.TaskData,
    ) -> vf.ProgramResult:  # fmt: skip
        """Ask and compute until a reply is no call."""
        messages = [{"role": "user", "content": data.prompt}]
        key = {"Authorization": f"Bearer {secret}"}
        async with aiohttp.ClientSession(headers=key, raise_for_status=True) as http:
            for _ in range(MOST_CALLS):
                body = {"model": ctx.model, "messages": messages}
                async with http.post(f"{endpoint}/chat/completions", json=body) as answer:
                    reply = (await answer.json())["choices"][0]["message"]
                if not (call := CALL.fullmatch(reply["content"] or "")):
                    break
                text = f"= {compute(*call.groups())}\n"
                messages += [reply, {"role": "user", "content": text}]
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


__all__ = ["Calculations", "Calculator"]
