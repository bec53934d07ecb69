"""LangGraph 1.2.24 with langchain-openai 1.7.4: a graph of two nodes, the policy and its tool. The
word `responses` takes /v1/responses, and `stream` takes replies as streams.

    [environment]
    name = "program"
    command = [".venv-agents/langgraph/bin/python", "examples/agents/langgraph_react.py"]
"""

import os
import subprocess
import sys
from pathlib import Path

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def run_python(program: str) -> str:
    """Runs a Python program and returns what it prints."""
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False)
    return done.stdout + done.stderr


# The programs that the policy writes have no key with which they could call it themselves.
key = os.environ.pop("OPENAI_API_KEY")
os.environ.pop("ANTHROPIC_API_KEY", None)
model = ChatOpenAI(
    model="policy", api_key=key, use_responses_api="responses" in sys.argv,
    streaming="stream" in sys.argv,
)  # fmt: skip
policy = model.bind_tools([run_python])
graph = StateGraph(MessagesState)
graph.add_node("policy", lambda state: {"messages": [policy.invoke(state["messages"])]})
graph.add_node("tools", ToolNode([run_python]))
graph.add_edge(START, "policy")
graph.add_conditional_edges("policy", tools_condition)
graph.add_edge("tools", "policy")
task = HumanMessage(Path(os.environ["ASSAY_TASK"]).read_text())
answer = graph.compile().invoke({"messages": [task]}, {"recursion_limit": 20})
print(answer["messages"][-1].text)
