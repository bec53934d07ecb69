"""An environment of OpenEnv 0.10, behind its server: it plays the rollout and pays its reward.

It needs a Python with the package websockets, as OpenEnv's own has it: the routes /reset and /step
build a new environment for each request, and only /ws keeps one. First the tasks, then a run:

    .venv-agents/openenv/bin/python examples/agents/openenv_rollout.py \
        tasks http://127.0.0.1:8000 --seeds 100 > words.jsonl

    [environment]
    name = "program"
    command = [".venv-agents/openenv/bin/python", "examples/agents/openenv_rollout.py",
               "play", "http://127.0.0.1:8000"]
"""

import argparse
import json
import os
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from math import isfinite
from pathlib import Path
from typing import Any
from urllib.parse import quote

PLAYED = 0.9
"""The share of the rollout's time in which it plays."""
TRIES = 3
"""Calls of the policy before a failure of its engine loses the rollout."""
REQUEST_SECONDS = 30.0
SHOWN = 2000
"""Characters of a reason."""
MOST_BYTES = 100 << 20
"""The longest message of a server, as for OpenEnv's own client."""
FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)
AS_JSON = "\n\nAct with a JSON object in a fence ```json, which has this schema:\n"

# No program that is started here gets this.
report_fd = int(os.environ.pop("ASSAY_REPORT_FD", 0)) or os.dup(1)
os.set_inheritable(report_fd, False)


class LostError(Exception):
    """The machine failed."""


class BrokenError(Exception):
    """The user must repair something."""


class FullError(Exception):
    """The server plays as many episodes as it may."""


class InvalidActionError(Exception):
    """The policy's reply is no action."""


def fetch(url: str, path: str, body: Any = None) -> Any:
    """What a route of the server answers."""
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=REQUEST_SECONDS) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        what = f"{url}{path} answers {error.code}"
        raise (LostError if error.code in (500, 502, 503, 504) else BrokenError)(what) from None
    except (OSError, HTTPException, ValueError) as error:
        if isinstance(getattr(error, "reason", error), TimeoutError | HTTPException):
            raise LostError(f"{url}{path} does not answer: {error}") from None
        raise BrokenError(f"there is no OpenEnv server at {url}: {error}") from None


class Session:
    """A connection to the server, which keeps an environment for it."""

    def __init__(self, socket: Any, until: float) -> None:
        self.socket, self.until = socket, until

    def ask(self, kind: str, data: Any) -> Any:
        """The server's answer to a message."""
        from websockets.exceptions import ConnectionClosed

        try:
            with suppress(ConnectionClosed):  # a server without room says so and closes
                self.socket.send(json.dumps({"type": kind, "data": data}))
            left = max(self.until - time.monotonic(), 1)
            answer = json.loads(self.socket.recv(timeout=left))
        except ConnectionClosed as error:
            raise LostError(f"the environment's server is gone: {error}") from None
        except TimeoutError:
            raise LostError(f"the environment's server did not answer {kind!r} in time") from None
        content = answer["data"]
        if answer["type"] != "error":
            return content
        match content["code"]:
            case "CAPACITY_REACHED":
                raise FullError(content["message"])
            case "VALIDATION_ERROR":
                errors = content["errors"]
                places = (".".join(map(str, error["loc"])) for error in errors)
                says = (error["msg"] for error in errors)
                raise InvalidActionError("; ".join(map(": ".join, zip(places, says, strict=True))))
            case code:
                raise LostError(f"the environment's server failed: {code}: {content['message']}")


@contextmanager
def connected(url: str, until: float) -> Iterator[Session]:
    """A session of its own with the server at a URL."""
    from websockets.exceptions import InvalidHandshake
    from websockets.sync.client import connect

    # a server may be too busy with a step to answer a ping
    address = re.sub("^http", "ws", url) + "/ws"
    try:
        socket = connect(
            address, open_timeout=REQUEST_SECONDS, close_timeout=2, ping_timeout=None,
            max_size=MOST_BYTES,
        )  # fmt: skip
    except (OSError, InvalidHandshake) as error:
        raise LostError(f"the environment's server takes no connection: {error}") from None
    with socket:
        yield Session(socket, until)


@contextmanager
def episode(url: str, reset: Any, until: float) -> Iterator[tuple[Session, Any]]:
    """A session and its first result. It waits where the server has no room."""
    while True:
        with connected(url, until) as session:
            try:
                first = session.ask("reset", reset)
            except FullError as error:
                if time.monotonic() > until:
                    raise LostError(f"{error} Raise its max_concurrent_envs.") from None
            except InvalidActionError as error:
                raise BrokenError(f"its reset fails: {error}") from None
            else:
                yield session, first
                return
        time.sleep(0.5)


def takes_text(spec: dict[str, Any]) -> bool:
    """Whether a field of an action may be any text."""
    return spec.get("type") == "string" or any(map(takes_text, spec.get("anyOf", ())))


def text_field(schema: dict[str, Any], field: str) -> str:
    """The field of an action that gets the policy's text; empty where the policy writes JSON."""
    fields = {
        name: spec for name, spec in schema.get("properties", {}).items()
        if name != "metadata" and "const" not in spec
    }  # fmt: skip
    names = ", ".join(fields)
    if not field:
        texts = [name for name, spec in fields.items() if takes_text(spec)]
        return texts[0] if len(fields) == len(texts) == 1 else ""
    if field not in fields:
        raise BrokenError(f"its actions have no field {field!r}, but {names}")
    if not takes_text(fields[field]):
        raise BrokenError(f"the field {field!r} of its actions takes no text")
    if others := [name for name in schema.get("required", ()) if name != field and name in fields]:
        raise BrokenError(f"its actions need {others[0]!r} too: leave out --field for JSON")
    return field


def action_of(text: str, field: str) -> dict[str, Any]:
    """The action that a reply is."""
    if field:
        return {field: text}
    fences = FENCE.findall(text)
    try:
        action = json.loads(fences[-1] if fences else text)
    except (ValueError, RecursionError) as error:
        raise InvalidActionError(f"it has no JSON that can be read ({error})") from None
    if not isinstance(action, dict):
        raise InvalidActionError("its JSON is no object")
    return {name: value for name, value in action.items() if name != "metadata"}


def text_of(observation: dict[str, Any], show: list[str]) -> str:
    """What the policy sees of an observation."""
    if show and not any(name in observation for name in show):
        raise BrokenError(f"its observation has no {show[0]!r}, but {', '.join(observation)}")
    values = {
        name: value for name, value in observation.items()
        if (name in show if show else name != "metadata" and value not in (None, "", [], {}))
    }  # fmt: skip
    alone = next(iter(values.values()), "")
    if len(values) < 2 and isinstance(alone, str):
        return alone
    return json.dumps(values, ensure_ascii=False)


def reply_to(content: dict[str, Any], until: float) -> dict[str, Any] | None:
    """The policy's message; None where the rollout's budget or time is used up."""
    body = json.dumps({"model": "policy", **content}).encode()
    for tried in range(TRIES):
        headers = {
            "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
            "Content-Type": "application/json", "x-stainless-retry-count": str(tried),
        }  # fmt: skip
        url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
        left = until - time.monotonic()
        if left <= 0:
            return None
        try:
            request = urllib.request.Request(url, body, headers)
            with urllib.request.urlopen(request, timeout=left) as response:
                message: dict[str, Any] = json.load(response)["choices"][0]["message"]
                return message
        except urllib.error.HTTPError as error:
            if error.code == 409:
                return None
            failure = f"the policy's endpoint answers {error.code}: {error.read().decode()}"
            if error.code < 500:
                break
        except (OSError, HTTPException) as error:
            failure = f"the policy's endpoint failed: {error}"
        time.sleep(1)
    raise LostError(failure)


def paid(rewards: list[float | None], done: bool, which: str) -> float:
    """The reward of an episode. One that was cut before a reward has 0, as in TRL's examples."""
    numbers = [float(reward) for reward in rewards if reward is not None]
    if not numbers and done:
        raise BrokenError("the environment ended the episode without a reward")
    reward = sum(numbers) if which == "sum" else [0.0, *numbers][-1]
    if not isfinite(reward):
        raise BrokenError(f"the reward is {reward}")
    return reward


def plays_text(
    session: Session, first: Any, messages: list[Any], options: argparse.Namespace, schema: Any
) -> Iterator[Any]:
    """The results of the policy's replies, each of which is an action."""
    field = text_field(schema, options.field)
    form = "" if field else AS_JSON + json.dumps(schema)
    shown_text, done = text_of(first["observation"], options.show) + form, False
    while not done:
        messages.append({"role": "user", "content": shown_text})
        reply = reply_to({"messages": messages}, session.until)
        if reply is None:
            return
        messages.append(reply)
        try:
            result = session.ask("step", action_of(reply.get("content") or "", field))
        except InvalidActionError as error:
            shown_text = f"That is no action: {error}"
            continue
        yield result
        shown_text, done = text_of(result["observation"], options.show), result["done"]


def plays_tools(
    session: Session, first: Any, messages: list[Any], options: argparse.Namespace
) -> Iterator[Any]:
    """The results of the policy's calls of tools, until it makes none."""
    answer = session.ask("mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    if "result" not in answer:
        raise BrokenError(f"the environment lists no tools: {answer.get('error')}")
    tools = [
        {"type": "function", "function": {
            "name": tool["name"], "description": tool.get("description") or "",
            "parameters": tool.get("inputSchema") or tool.get("input_schema") or {},
        }}
        for tool in answer["result"]["tools"]
    ]  # fmt: skip
    messages.append({"role": "user", "content": text_of(first["observation"], options.show)})
    while reply := reply_to({"messages": messages, "tools": tools}, session.until):
        messages.append(reply)
        if not reply.get("tool_calls"):
            return
        for call in reply["tool_calls"]:
            function = call["function"]
            action = {"type": "call_tool", "tool_name": function["name"]}
            try:
                arguments = json.loads(function["arguments"])
                result = session.ask("step", {**action, "arguments": arguments})
                shown_text = text_of(result["observation"], options.show)
            except (InvalidActionError, ValueError, RecursionError) as error:
                shown_text, result = f"That is no call: {error}", None
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": shown_text})
            if result is not None:
                yield result
                if result["done"]:
                    return


def calls_tools(schema: dict[str, Any]) -> bool:
    """Whether actions are calls of tools: they have OpenEnv's own type, or its base class."""
    fields = schema.get("properties", {})
    return fields.get("type", {}).get("const") == "call_tool" or set(fields) <= {"metadata"}


def play(options: argparse.Namespace) -> float:
    """The reward of an episode of the task that assay gives."""
    until = time.monotonic() + PLAYED * float(os.environ["ASSAY_SECONDS"])
    reset = json.loads(Path(os.environ["ASSAY_TASK_DATA"]).read_text())
    schema = checked_schema(options)
    messages = list[Any]()
    if options.system:
        messages.append({"role": "system", "content": Path(options.system).read_text()})
    with episode(options.url, reset, until) as (session, first):
        if first["done"]:
            raise BrokenError("the episode is over before the policy acts")
        if calls_tools(schema):
            results = list(plays_tools(session, first, messages, options))
        else:
            results = list(plays_text(session, first, messages, options, schema))
    done = bool(results) and results[-1]["done"]
    return paid([result["reward"] for result in results], done, options.reward)


def checked_schema(options: argparse.Namespace) -> Any:
    """The schema of actions, which the options fit."""
    schema = fetch(options.url, "/schema")["action"]
    if not calls_tools(schema):
        text_field(schema, options.field)
    return schema


def resets_of(options: argparse.Namespace, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The name of each task and what `reset` takes for it."""
    if options.seeds:
        yield from ((f"seed/{seed}", {"seed": seed}) for seed in range(options.seeds))
        return
    path, split = "/" + quote(name), options.split
    try:
        splits = [each["name"] for each in fetch(options.url, path + "/splits")]
    except BrokenError as error:
        raise BrokenError(f"the environment lists no tasks ({error}): take --seeds") from None
    if split not in splits:
        raise BrokenError(f"the environment has no split {split!r}, but {', '.join(splits)}")
    count = fetch(options.url, path + "/num_tasks", {"split": split})["num_tasks"]
    yield from ((f"{split}/{index}", {"split": split, "index": index}) for index in range(count))


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The tasks as assay's rows. A task's prompt is its first observation."""
    checked_schema(options)
    (name,) = fetch(options.url, "/list_environments")
    for task, reset in resets_of(options, name):
        with episode(options.url, reset, time.monotonic() + REQUEST_SECONDS) as (_, first):
            prompt = text_of(first["observation"], options.show)
        yield {
            "format": "assay", "id": f"{name}/{task}", "prompt": prompt, "entry_point": "",
            "checks": [{"task_data": json.dumps(reset)}],
        }  # fmt: skip


def read_options() -> argparse.Namespace:
    """The words of the command."""
    parser = argparse.ArgumentParser(description="Play episodes of a server of OpenEnv.")
    parser.add_argument("what", choices=["tasks", "play"])
    parser.add_argument("url", help="the server's, as http://127.0.0.1:8000")
    parser.add_argument("--field", default="", help="the action's field that gets the reply")
    parser.add_argument("--show", action="append", default=[], help="the observation's field shown")
    parser.add_argument("--system", default="", help="a file with the system prompt")
    parser.add_argument("--reward", choices=["last", "sum"], default="last", help="of an episode")
    parser.add_argument("--split", default="train", help="the split that `tasks` lists")
    parser.add_argument("--seeds", type=int, default=0, help="seeds that are tasks instead")
    options = parser.parse_args()
    options.url = options.url.rstrip("/")
    return options


def report(**fields: object) -> None:
    """Report to assay; where a person tries this agent, to standard output."""
    os.write(report_fd, json.dumps(fields).encode() + b"\n")


def main() -> None:
    """Write the tasks, or play one."""
    options = read_options()
    try:
        try:
            import websockets.sync.client  # noqa: F401
        except ImportError as error:
            raise BrokenError(
                f"{sys.executable} cannot import websockets ({error}): there,"
                " pip install --no-deps -r constraints-agents/openenv.txt"
            ) from None
        if options.what == "play":
            report(reward=play(options))
            return
        for row in rows(options):
            print(json.dumps(row))
    except (BrokenError, LostError) as error:
        if options.what == "tasks":
            sys.exit(str(error))
        report(**{"lost" if isinstance(error, LostError) else "broken": str(error)[:SHOWN]})


if __name__ == "__main__":
    main()
