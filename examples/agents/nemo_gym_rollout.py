"""A resources server of NeMo Gym, for which this agent plays the rollout and pays its reward.

It needs nothing but Python, and the server runs in an environment of its own. It plays as NeMo
Gym's `simple_agent` does, or as its `gymnasium_agent`. First the tasks, then a run:

    python3 examples/agents/nemo_gym_rollout.py tasks rows.jsonl > tasks.jsonl

    [environment]
    name = "program"
    command = ["python3", "examples/agents/nemo_gym_rollout.py", "play", "http://127.0.0.1:8000"]
"""

import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from math import isfinite
from pathlib import Path
from typing import Any
from urllib.parse import quote

PLAYED = 0.9
"""The share of the rollout's time in which the policy plays; the rest is for `verify`."""
TRIES = 3
"""Calls of the policy before a failure of its engine loses the rollout."""
OUT_OF_ROOM = "context_length_exceeded"
"""The code of a call whose dialogue is longer than the model's context."""
SHOWN = 2000
"""Characters of a reason."""
NO_TOOL = '{"detail":"Not Found"}'
"""What a server answers to a call of a tool that it does not have."""

# No program that is started here gets this.
report_fd = int(os.environ.pop("ASSAY_REPORT_FD", 0)) or os.dup(1)
os.set_inheritable(report_fd, False)


class LostError(Exception):
    """The machine failed."""


class BrokenError(Exception):
    """The user must repair something."""


class ResourcesServer:
    """The server, with the cookies of one session of it."""

    def __init__(self, url: str, seconds: float) -> None:
        cookies = urllib.request.HTTPCookieProcessor()
        self.url, self.opener = url, urllib.request.build_opener(cookies)
        self.ends = time.monotonic() + seconds
        self.is_known = False

    def post(self, path: str, body: Any) -> tuple[int, str]:
        """The status and the text that a route answers."""
        url = self.url + path
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        try:
            left = max(self.ends - time.monotonic(), 1)
            with self.opener.open(request, timeout=left) as response:
                self.is_known = True
                return response.status, response.read().decode("utf-8", "replace")
        except urllib.error.HTTPError as error:
            self.is_known = True
            return error.code, error.read().decode("utf-8", "replace")
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            if not self.is_known and isinstance(reason, ConnectionRefusedError):
                raise BrokenError(f"there is no NeMo Gym server at {self.url}: {reason}") from None
            raise LostError(f"the server at {url} fails: {reason!r}") from None

    def ask(self, path: str, body: Any) -> Any:
        """What a route answers, which must succeed."""
        status, text = self.post(path, body)
        if status >= 500:
            raise LostError(f"the server's {path} fails with {status}: {text}")
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            answer = None
        if status >= 300 or not isinstance(answer, dict):
            raise BrokenError(f"the server's {path} answers {status}: {text}")
        return answer


def reply_to(body: Any, until: float) -> Any:
    """The policy's response; None where the rollout's budget or time is used up, or the dialogue
    has outgrown the model's context, which the policy can choose.
    """
    data = json.dumps({**body, "model": "policy"}).encode()
    for tried in range(TRIES):
        headers = {
            "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
            "Content-Type": "application/json", "x-stainless-retry-count": str(tried),
        }  # fmt: skip
        left = until - time.monotonic()
        if left <= 0:
            return None
        try:
            url = os.environ["OPENAI_BASE_URL"] + "/responses"
            request = urllib.request.Request(url, data, headers)
            with urllib.request.urlopen(request, timeout=left) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            text = error.read().decode("utf-8", "replace")
            if error.code == 409 or (error.code == 400 and code_of(text) == OUT_OF_ROOM):
                return None
            failure = f"the policy's endpoint answers {error.code}: {text}"
            if error.code < 500:
                break
        except (OSError, HTTPException) as error:
            failure = f"the policy's endpoint failed: {error}"
        time.sleep(1)
    raise LostError(failure)


def code_of(text: str) -> Any:
    """The code in an error of the endpoint's; None where it has none."""
    try:
        return json.loads(text)["error"]["code"]
    except (ValueError, KeyError, TypeError):
        return None


def items_of(params: Any) -> list[Any]:
    """The dialogue of a row as items."""
    dialogue = params["input"]
    return [{"role": "user", "content": dialogue}] if isinstance(dialogue, str) else list(dialogue)


def for_server(response: Any, items: list[Any]) -> Any:
    """A response with all items of a rollout, and thoughts where NeMo Gym's own models put them."""
    output = []
    for item in items:
        if item.get("type") == "reasoning":
            texts = [part["text"] for part in item.get("content") or ()]
            item = {**item, "summary": [{"type": "summary_text", "text": text} for text in texts]}
        output.append(item)
    return {**response, "output": output}


class Tools:
    """The tools of a row, which the server runs."""

    def __init__(self, server: ResourcesServer, params: Any, show_errors: bool) -> None:
        self.server, self.show_errors = server, show_errors
        tools = params.get("tools") or []
        for tool in tools:
            if tool.get("type") != "function":
                raise BrokenError(f"the row has a tool of the type {tool.get('type')!r}")
        self.names = {tool["name"] for tool in tools}

    def answer(self, call: Any) -> Any:
        """The item that answers a call of the policy's.

        Only tools of the row are called: others could be `verify` or `seed_session`.
        """
        item = {"type": "function_call_output", "call_id": call["call_id"]}
        if call["name"] not in self.names:
            return {**item, "output": NO_TOOL}
        try:
            arguments = json.loads(call["arguments"])
        except (ValueError, RecursionError) as error:
            wrong = json.dumps({"error": f"Invalid tool call arguments: {error!r}"})
            return {**item, "output": wrong}
        status, text = self.server.post("/" + quote(call["name"], safe=""), arguments)
        if status > 500 or (status == 500 and not self.show_errors):
            raise LostError(f"the tool {call['name']} fails with {status}: {text}")
        return {**item, "output": text}


def play_tools(server: ResourcesServer, row: Any, until: float, show_errors: bool) -> Any:
    """What `verify` says of a rollout in which the policy calls tools until it calls none."""
    params = row["responses_create_params"]
    tools = Tools(server, params, show_errors)
    seeded = server.ask("/seed_session", row)
    if "mcp" in seeded and not tools.names:
        raise BrokenError("the server has its tools behind MCP, which this agent does not call")
    items, played, response = items_of(params), list[Any](), None
    while reply := reply_to({**params, "input": items + played}, until):
        response = reply
        played += reply["output"]
        calls = [item for item in reply["output"] if item["type"] == "function_call"]
        if not calls:
            break
        played += map(tools.answer, calls)
    if response is None:
        raise LostError("there was no time or no room for a reply of the policy")
    return server.ask("/verify", {**row, "response": for_server(response, played)})


def play_steps(server: ResourcesServer, row: Any, until: float) -> Any:
    """The last step of a rollout with a server of NeMo Gym's class GymnasiumServer, which answers
    each reply; with the sum of all rewards.
    """
    params = row["responses_create_params"]
    first = server.ask("/reset", row)
    items, total, step = items_of(params), 0.0, dict[str, Any]()
    if first.get("observation"):
        items.append({"type": "message", "role": "user", "content": first["observation"]})
    while not step.get("terminated") and not step.get("truncated"):
        reply = reply_to({**params, "input": items}, until)
        if reply is None:
            break
        step = server.ask("/step", {**row, "response": for_server(reply, reply["output"])})
        total += reward_of(step)
        items += reply["output"]
        for answer in (step.get("info") or {}).get("tool_outputs", ()):
            output = {"call_id": answer["call_id"], "output": answer["output"]}
            items.append({"type": "function_call_output", **output})
        if step.get("observation"):
            items.append({"type": "message", "role": "user", "content": step["observation"]})
    if not step:
        raise LostError("there was no time or no room for a reply of the policy")
    return {**step, "reward": total}


def reward_of(answer: Any) -> float:
    """The reward in an answer of the server's. Raises LostError where the server masks it."""
    if answer.get("mask_sample") or (answer.get("instance_config") or {}).get("mask_sample"):
        why = [str(answer[name]) for name in ("failure_kind", "failure_reason") if answer.get(name)]
        raise LostError("the server masks the sample: " + (": ".join(why) or "it says no reason"))
    reward = answer.get("reward")
    try:
        if isinstance(reward, int | float) and isfinite(reward):
            return float(reward)
    except OverflowError:  # a whole number that no float holds
        pass
    raise BrokenError(f"the server's reward is {reward!r}")


def play(options: argparse.Namespace) -> float:
    """The reward of a rollout of the task that assay gives."""
    seconds = float(os.environ["ASSAY_SECONDS"])
    until = time.monotonic() + PLAYED * seconds
    file = Path(os.environ["ASSAY_TASK_DATA"])
    row = json.loads(file.read_text())
    file.unlink()  # it may hold the answer
    server = ResourcesServer(options.where.rstrip("/"), seconds)
    if options.agent == "gymnasium":
        return reward_of(play_steps(server, row, until))
    return reward_of(play_tools(server, row, until, options.show_errors))


def text_of(items: list[Any]) -> str:
    """The dialogue of a row as one text."""
    texts = []
    for item in items:
        content = item.get("content") or ""
        parts = [{"text": content}] if isinstance(content, str) else content
        texts += [part.get("text") or "" for part in parts]
    return "\n\n".join(filter(None, texts))


def rows(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of NeMo Gym's in a file as rows of assay's. A whole row is its task's data."""
    for number, line in enumerate(file.read_text().splitlines()):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            items = items_of(row["responses_create_params"])
        except (ValueError, KeyError, TypeError) as error:
            raise BrokenError(
                f"{file}, line {number + 1} is no row with responses_create_params.input"
                f" ({error!r}); where the rows need a prompt, `gym` materializes it"
            ) from None
        yield {
            "format": "assay", "id": f"{file.stem}/{number}", "prompt": text_of(items),
            "entry_point": "", "checks": [{"task_data": json.dumps(row)}],
        }  # fmt: skip


def read_options() -> argparse.Namespace:
    """The words of the command."""
    parser = argparse.ArgumentParser(description="Play rollouts of a server of NeMo Gym.")
    parser.add_argument("what", choices=["tasks", "play"])
    parser.add_argument("where", help="the file of rows, or the server's URL")
    parser.add_argument(
        "--agent", choices=["simple", "gymnasium"], default="simple",
        help="the agent of NeMo Gym's for which the server is made",
    )  # fmt: skip
    parser.add_argument(
        "--show-errors",
        action="store_true",
        help="show the policy what a tool answers with status 500, as NeMo Gym does",
    )
    return parser.parse_args()


def report(**fields: object) -> None:
    """Report to assay; where a person tries this agent, to standard output."""
    os.write(report_fd, json.dumps(fields).encode() + b"\n")


def main() -> None:
    """Write the tasks, or play one."""
    options = read_options()
    if options.what == "tasks":
        try:
            for row in rows(Path(options.where)):
                print(json.dumps(row))
        except (BrokenError, OSError) as error:
            sys.exit(str(error))
        return
    try:
        report(reward=play(options))
    except LostError as error:
        report(lost=str(error)[:SHOWN])
    except BrokenError as error:
        report(broken=str(error)[:SHOWN])


if __name__ == "__main__":
    main()
