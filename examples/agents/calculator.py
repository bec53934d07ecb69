"""An agent with one tool, in the standard library alone: it computes what the policy asks for.

[environment]
name = "program"
command = ["python", "examples/agents/calculator.py"]
answer = "answer"
"""

import json
import os
import re
import urllib.request
from pathlib import Path

MOST_CALLS = 6
CALL = re.compile(r"calc: (-?\d{1,12}) ([-+*]) (-?\d{1,12})")
"""Two whole numbers and a sign are computed. Any other text is the answer; none is evaluated."""


def ask(messages):
    """The policy's reply to messages."""
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "policy", "messages": messages}).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]


def compute(left, sign, right):
    """What two numbers and a sign give."""
    a, b = int(left), int(right)
    return {"+": a + b, "-": a - b, "*": a * b}[sign]


messages = [{"role": "user", "content": Path(os.environ["ASSAY_TASK"]).read_text() + "\n"}]
for _ in range(MOST_CALLS):
    reply = ask(messages)
    if not (call := CALL.fullmatch(reply["content"])):
        break
    messages += [reply, {"role": "user", "content": f"= {compute(*call.groups())}\n"}]
Path("answer").write_text(reply["content"].removeprefix("answer: "))
