"""smolagents 1.26.0: an agent that calls tools, or with the word `code` one that writes code.

What it prints is judged: leave `environment.answer` empty.
"""

import os
import subprocess
import sys

from smolagents import CodeAgent, LogLevel, OpenAIModel, ToolCallingAgent, tool

key = os.environ.pop("OPENAI_API_KEY")  # what the policy's programs do not have they cannot use
os.environ.pop("ANTHROPIC_API_KEY", None)
model = OpenAIModel("policy", api_base=os.environ["OPENAI_BASE_URL"], api_key=key)


@tool
def run_python(program: str) -> str:
    """Runs a Python program and returns what it prints.

    Args:
        program: The whole program.
    """
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False)
    return done.stdout + done.stderr


kind = CodeAgent if "code" in sys.argv else ToolCallingAgent
agent = kind([run_python], model, max_steps=8, verbosity_level=LogLevel.OFF)
with open(os.environ["ASSAY_TASK"]) as file:
    print(agent.run(file.read() + "\nYour final answer is the whole program."))
