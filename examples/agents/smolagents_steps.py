"""smolagents 1.26.0: an agent that calls tools, or with the word `code` one that writes code.

[environment]
name = "program"
command = [".venv-agents/smolagents/bin/python", "examples/agents/smolagents_steps.py"]
"""

import os
import subprocess
import sys
from pathlib import Path

from smolagents import CodeAgent, LogLevel, OpenAIModel, ToolCallingAgent, tool

# The programs that the policy writes have no key with which they could call it themselves.
key = os.environ.pop("OPENAI_API_KEY")
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
task = Path(os.environ["ASSAY_TASK"]).read_text()
print(agent.run(f"{task}\nYour final answer is the whole program."))
