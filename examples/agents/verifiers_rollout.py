"""An environment of verifiers 0.4.0, which plays the rollout and reports its own reward.

The words after `tasks` and `play` are those of `vf-eval`. First the tasks, then a run:

    .venv-agents/verifiers/bin/python examples/agents/verifiers_rollout.py tasks words > words.jsonl

    [environment]
    name = "program"
    command = [".venv-agents/verifiers/bin/python", "examples/agents/verifiers_rollout.py",
               "play", "words", "--env.agent.runtime.type", "subprocess"]

So each rollout imports verifiers. `play tcp://127.0.0.1:5000` does not: there verifiers_server.py
plays the rollouts of a run.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from pwd import getpwuid
from typing import Any, NoReturn

RELEASE = "0.4."
START = os.environ.get("ASSAY_START") or str(Path.cwd())
OF_THE_USER = ("TaskError", "EnvError", "ToolsetError")
"""What verifiers calls an exception of the environment's own code."""
SHOWN = 2000
"""Characters of a reason."""
PLAYED = 0.8
"""The share of the rollout's time in which the policy plays; the rest is for scoring."""
READ = ("agent", "calls", "errors", "rewards", "stop_condition")
"""What is read of a trace."""

# What others print goes to standard error, and no program that is started here gets this.
report_fd = int(os.environ.pop("ASSAY_REPORT_FD", 0)) or os.dup(1)
os.set_inheritable(report_fd, False)
os.dup2(2, 1)


def end(**report: Any) -> NoReturn:
    """Report to assay, and exit."""
    short = {name: it[:SHOWN] if isinstance(it, str) else it for name, it in report.items()}
    os.write(report_fd, json.dumps(short).encode() + b"\n")
    sys.exit(0)


def prepare() -> None:
    """Let modules beside the run be imported, programs of this environment be found, and caches
    outlive the rollout.
    """
    cache = Path(getpwuid(os.getuid()).pw_dir) / ".cache"
    os.environ.setdefault("UV_CACHE_DIR", str(cache / "uv"))
    os.environ.setdefault("HF_HOME", str(cache / "huggingface"))
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    os.environ["PYTHONPATH"] = f"{START}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")
    sys.path.append(START)


def require_release() -> None:
    """Exits where this Python does not have the verifiers that was tested."""
    try:
        import verifiers
    except ImportError as error:
        state = f"cannot import verifiers ({error})"
    else:
        state = f"has verifiers {verifiers.__version__}"
        if verifiers.__version__.startswith(RELEASE):
            return
    raise SystemExit(
        f"{sys.executable} {state}, and this needs {RELEASE}0: there,"
        " pip install --no-deps -r constraints-agents/verifiers.txt"
    )


def parsed(words: list[str]) -> Any:
    """The configuration of `vf-eval` with these words."""
    require_release()
    from pydantic_config import ConfigFileError, cli
    from verifiers.v1.cli.resolve import narrow_config, plugin_errors, with_positional_taskset
    from verifiers.v1.configs.cli.eval import EvalConfig

    words = with_positional_taskset(words)
    try:
        with plugin_errors():
            return cli(narrow_config(EvalConfig, words), args=words)
    except ConfigFileError as error:
        raise SystemExit(" ".join(str(error).split())) from None
    except SystemExit as error:  # verifiers says that a module is absent where it imports one
        first: BaseException = error
        while first.__cause__:
            first = first.__cause__
        raise SystemExit(f"{first} ({error})" if first is not error else str(error)) from None


def rows(config: Any) -> Iterator[dict[str, Any]]:
    """The tasks as assay's rows: what verifiers knows of a task is kept from the policy."""
    import verifiers.v1 as vf

    taskset = vf.load_taskset(config.env.taskset).select(config.select)
    fields = type(taskset).task_type().data_type().model_fields
    if excluded := [name for name, field in fields.items() if field.exclude]:
        raise SystemExit(f"the tasks keep {excluded[0]!r} to themselves: drop exclude=True")
    if not taskset.bounded:
        raise SystemExit("the taskset never ends: say how many tasks with -n")
    for task in taskset:
        yield {
            "format": "assay", "id": f"{config.env.taskset.id}/{task.data.idx}",
            "prompt": task.data.prompt_text, "entry_point": "",
            "checks": [{"task_data": task.data.model_dump_json(exclude_none=True)}],
        }  # fmt: skip


def task_data() -> Any:
    """What assay says of the task."""
    file = Path(os.environ["ASSAY_TASK_DATA"])
    data = json.loads(file.read_text())
    file.unlink()  # it may hold the answer
    return data


def with_budget(env: Any) -> Any:
    """The environment's configuration with the rollout's budget as the limits of the seats that the
    policy plays: verifiers ends them in time, and scores what there is.
    """
    from verifiers.v1.configs.agent import agent_config_fields

    budget = {"max_turns": int(os.environ["ASSAY_TURNS"])}
    if "ASSAY_TOKENS" in os.environ:
        budget["max_output_tokens"] = int(os.environ["ASSAY_TOKENS"])
    seconds = PLAYED * float(os.environ["ASSAY_SECONDS"])
    seats = {}
    for name, seat in agent_config_fields(env).items():
        if seat.client is None:
            limits = {key: most for key, most in budget.items() if getattr(seat, key) is None}
            if seat.timeout.rollout is None:
                limits["timeout"] = seat.timeout.model_copy(update={"rollout": seconds})
            seats[name] = seat.model_copy(update=limits)
    return env.model_copy(update=seats)


async def play(config: Any) -> dict[str, Any]:
    """The episode of the task that assay gives, with assay's endpoint as the model."""
    import verifiers.v1 as vf
    from verifiers.v1.clients import ModelContext

    env = vf.load_environment(with_budget(config.env))
    kind = type(env.taskset).task_type()
    task = kind(kind.data_type().model_validate(task_data()), env.config.taskset.task)
    endpoint = {"base_url": os.environ["OPENAI_BASE_URL"], "api_key_var": "OPENAI_API_KEY"}
    client = config.client.model_copy(update=endpoint)
    (slot,) = env.slots(task)
    async with env.serving():
        episode = await env.run_slot(slot, ModelContext("policy", client, config.sampling))
    fields = {"ok": True, "errors": True, "traces": {"__all__": set(READ)}}
    return episode.model_dump(include=fields)


def url_with_key() -> str:
    """The endpoint's URL for a server, whose environment does not have the rollout's key."""
    url = os.environ["OPENAI_BASE_URL"].removesuffix("/v1")
    return f"{url}/rollout/{os.environ['OPENAI_API_KEY']}/v1"


def play_at(address: str, url: str) -> dict[str, Any]:
    """The episode, played by the server at an address. It sends what changes in the traces."""
    import msgpack
    import zmq

    client = {"type": "eval", "base_url": url, "api_key_var": ""}
    request = {"task_data": task_data(), "client": client, "model": "policy", "sampling": {}}
    socket, link = connected(address)
    socket.send_multipart([b"rollout", b"run", msgpack.packb(request)])
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    poller.register(link, zmq.POLLIN)
    traces: dict[str, Any] = {}
    while True:
        if socket not in dict(poller.poll()):
            end(lost=f"the server at {address} is gone")
        _, kind, packed = socket.recv_multipart()
        it = msgpack.unpackb(packed, strict_map_key=False)
        if kind == b"delta":
            add(it, traces)
        elif it["success"]:
            return {**it["head"], "traces": [traces[trace["id"]] for trace in it["traces"]]}
        else:
            was_called = any(trace["calls"] for trace in traces.values())
            end(**{"lost" if was_called else "broken": f"the server at {address}: {it['error']}"})


def connected(address: str) -> tuple[Any, Any]:
    """A socket with a server of verifiers, and one that says when the server is gone."""
    import zmq
    from zmq.utils.monitor import recv_monitor_message

    socket = zmq.Context().socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    link = socket.get_monitor_socket(
        zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_CLOSED | zmq.EVENT_DISCONNECTED
    )
    try:
        socket.connect(address)
    except zmq.ZMQError as error:
        end(broken=f"{address} is no address of a server: {error}")
    if recv_monitor_message(link)["event"] != zmq.EVENT_HANDSHAKE_SUCCEEDED:
        end(broken=f"no server is at {address}: start examples/agents/verifiers_server.py there")
    return socket, link


def add(delta: dict[str, Any], traces: dict[str, Any]) -> None:
    """Bring the traces of an episode up to date with what its server sends."""
    if delta.get("discard"):
        del traces[delta["trace"]]
        return
    trace = traces.setdefault(delta["trace"], {"errors": [], "calls": []})
    for name in ("errors", "calls"):
        trace[name] += delta.get(name, ())
    trace |= {name: it for name, it in delta.get("set", {}).items() if name in READ}


def report(episode: dict[str, Any], url: str) -> NoReturn:
    """What verifiers says of an episode, as assay reads it. The policy's seat calls the URL."""
    traces = episode["traces"]
    errors = [*episode["errors"], *(error for trace in traces for error in trace["errors"])]
    whats = [f"{error['type']}: {error['message']}" for error in errors]
    if episode["ok"] and errors:  # the replies of an attempt that failed would be paid too
        end(lost=f"verifiers tried it again after {whats[0]}")
    for error, what in zip(errors, whats, strict=True):
        never_called = error["type"] == "HarnessError" and not any(
            trace["calls"] for trace in traces
        )
        if error["type"] in OF_THE_USER or never_called:
            end(broken=what)
    if errors or not episode["ok"]:
        end(lost=whats[-1] if errors else "the episode failed")
    ours = [trace for trace in traces if trace["agent"]["config"]["client"]["base_url"] == url]
    for trace in ours:
        if not trace["agent"]["trainable"]:
            name = trace["agent"]["name"]
            flags = f"--env.{name}.model and --env.{name}.client.base-url"
            end(broken=f"the seat {name!r} is not trained: give it a model of its own, {flags}")
    if len(ours) != 1:
        end(broken=f"the policy played {len(ours)} seats of an episode; assay trains one")
    (trace,) = ours
    rewards = trace["rewards"]
    if not rewards:
        end(broken="the environment has no reward")
    if unscored := [name for name, reward in rewards.items() if reward is None]:
        end(lost=f"{unscored[0]!r} was not scored ({trace['stop_condition']})")
    end(reward=sum(reward["score"] * reward["weight"] for reward in rewards.values()))


def main() -> None:
    """Write the tasks, or play one."""
    prepare()
    what, *words = sys.argv[1:] or [""]
    if what == "tasks":
        with os.fdopen(report_fd, "w") as file:
            for row in rows(parsed(words)):
                file.write(json.dumps(row) + "\n")
    elif what == "play" and "://" in "".join(words[:1]):
        url = url_with_key()
        report(play_at(words[0], url), url)
    elif what == "play":
        import asyncio

        try:
            config = parsed(words)
        except SystemExit as error:  # what cannot be imported, and options that are wrong
            end(broken=str(error.code))
        try:
            episode = asyncio.run(play(config))
        except SystemExit as error:
            end(lost=f"the environment ended its process: {error.code}")
        report(episode, os.environ["OPENAI_BASE_URL"])
    else:
        sys.exit("say `tasks TASKSET`, which writes the tasks, or `play TASKSET`, as a run does")


if __name__ == "__main__":
    main()
