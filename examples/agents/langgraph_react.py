"""LangGraph 1.2.24 with langchain-openai 1.7.4: a graph of two nodes, the policy and its tool.

What it prints is judged: leave `environment.answer` empty.
"""

import os
import subprocess
import sys

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


key = os.environ.pop("OPENAI_API_KEY")  # what the policy's programs do not have they cannot use
os.environ.pop("ANTHROPIC_API_KEY", None)
responses = "responses" in sys.argv
model = ChatOpenAI(model="policy", api_key=key, use_responses_api=responses)
policy = model.bind_tools([run_python])
graph = StateGraph(MessagesState)
graph.add_node("policy", lambda state: {"messages": [policy.invoke(state["messages"])]})
graph.add_node("tools", ToolNode([run_python]))
graph.add_edge(START, "policy")
graph.add_conditional_edges("policy", tools_condition)
graph.add_edge("tools", "policy")
with open(os.environ["ASSAY_TASK"]) as file:
    messages = [HumanMessage(file.read())]
print(graph.compile().invoke({"messages": messages}, {"recursion_limit": 20})["messages"][-1].text)
