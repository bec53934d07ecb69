"""openai-agents 0.24.0: it calls the policy by /v1/responses, or with the word `chat` by
/v1/chat/completions. With the word `stream` it takes the reply as a stream.

What it prints is judged: leave `environment.answer` empty.
"""

import asyncio
import os
import subprocess
import sys

import agents

client = agents.AsyncOpenAI(api_key=os.environ.pop("OPENAI_API_KEY"))
os.environ.pop("ANTHROPIC_API_KEY", None)  # what the policy's programs do not have they cannot use
agents.set_default_openai_client(client, use_for_tracing=False)
agents.set_tracing_disabled(True)  # else it reports each run to OpenAI
agents.set_default_openai_api("chat_completions" if "chat" in sys.argv else "responses")


@agents.function_tool
def run_python(program: str) -> str:
    """Runs a Python program and returns what it prints."""
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False)
    return done.stdout + done.stderr


async def work(task: str) -> str:
    agent = agents.Agent("coder", "Answer with the program.", tools=[run_python], model="policy")
    if "stream" not in sys.argv:
        return (await agents.Runner.run(agent, task, max_turns=8)).final_output
    run = agents.Runner.run_streamed(agent, task, max_turns=8)
    async for _ in run.stream_events():
        pass
    return run.final_output


with open(os.environ["ASSAY_TASK"]) as file:
    print(asyncio.run(work(file.read())))
