"""openai-agents 0.24.0. It calls the policy by /v1/responses, or with the word `chat` by
/v1/chat/completions, and takes its replies as streams with the word `stream`.

    [environment]
    name = "program"
    command = [".venv-agents/openai-agents/bin/python", "examples/agents/openai_agents.py"]
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from agents import (
    Agent,
    AsyncOpenAI,
    Runner,
    function_tool,
    set_default_openai_api,
    set_default_openai_client,
    set_tracing_disabled,
)

# The programs that the policy writes have no key with which they could call it themselves.
client = AsyncOpenAI(api_key=os.environ.pop("OPENAI_API_KEY"))
os.environ.pop("ANTHROPIC_API_KEY", None)
set_default_openai_client(client, use_for_tracing=False)
set_tracing_disabled(True)  # else each run is reported to OpenAI
set_default_openai_api("chat_completions" if "chat" in sys.argv else "responses")


@function_tool
def run_python(program: str) -> str:
    """Runs a Python program and returns what it prints."""
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False)
    return done.stdout + done.stderr


async def solve(task: str) -> str:
    """What the agent answers at last."""
    instructions = "Answer with the whole program."
    agent = Agent("coder", instructions=instructions, tools=[run_python], model="policy")
    if "stream" not in sys.argv:
        return (await Runner.run(agent, task, max_turns=8)).final_output
    run = Runner.run_streamed(agent, task, max_turns=8)
    async for _ in run.stream_events():
        pass
    return run.final_output


print(asyncio.run(solve(Path(os.environ["ASSAY_TASK"]).read_text())))
