"""Resources servers of the real NeMo Gym play rollouts: the learner gets what was sampled, and the
reward is the server's own.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from assay.errors import MachineError, UserError
from assay.registry import load_plugins
from assay.tasks import load, task_from_dict
from assay.types import Cause, Task
from tests.agents.outside import (
    ENVIRONMENTS,
    EXAMPLES,
    OutsideAgent,
    Played,
    call_text,
    in_characters,
    play,
)
from tests.agents.served import chat

pytestmark = pytest.mark.agents
NEMO_GYM = OutsideAgent("nemo-gym", ("nemo_gym_rollout.py",))
SERVER = '''
import os, signal, socket, threading
import uvicorn
from fastapi import FastAPI, Request
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig, BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
)
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import SESSION_ID_KEY, ServerClient
from omegaconf import DictConfig
from pydantic import BaseModel, ConfigDict
from resources_servers.example_multi_turn_gymnasium.app import ExampleMultiTurnEnv
from resources_servers.example_session_state_mgmt.app import StatefulCounterResourcesServer


class Item(BaseModel):
    item: str


class Verify(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class Answer(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


both = threading.Barrier(2)


class Shop(SimpleResourcesServer):
    """Each cat that was bought in a session pays a half, and each call costs an eighth."""

    config: BaseResourcesServerConfig
    bought: dict = {}

    def setup_webserver(self):
        app = super().setup_webserver()
        for tool in self.buy, self.meet, self.raise_error, self.die:
            app.post(f"/{tool.__name__}")(tool)
        return app

    def buy(self, body: Item, request: Request):
        self.bought.setdefault(request.session[SESSION_ID_KEY], []).append(body.item)
        return {"bought": body.item}

    def meet(self, body: Item, request: Request):
        """Waits until another session meets too."""
        both.wait(60)
        return self.buy(body, request)

    def raise_error(self, request: Request):
        raise RuntimeError("no sandbox")

    def die(self, request: Request):
        os.kill(os.getpid(), signal.SIGKILL)

    async def verify(self, body: Verify, request: Request) -> Answer:
        fields = body.model_dump()
        ends = fields.pop("ends")
        if ends == "raise":
            raise RuntimeError("no verifier")
        bought = self.bought.get(request.session[SESSION_ID_KEY], [])
        kinds = [item.type for item in body.response.output]
        calls = kinds.count("function_call")
        assert kinds.count("function_call_output") <= calls
        reward = bought.count("cat") / 2 - calls / 8
        return Answer(**fields, reward=reward, **(ends or {}))


class Silent(SimpleResourcesServer):
    """Its answer has no reward."""

    config: BaseResourcesServerConfig

    async def verify(self, body: Verify):
        return {}


app = FastAPI()
client = ServerClient(
    head_server_config=BaseServerConfig(host="127.0.0.1", port=1),
    global_config_dict=DictConfig({}),
)
for kind in Shop, Silent, StatefulCounterResourcesServer, ExampleMultiTurnEnv:
    config = kind.model_fields["config"].annotation(
        host="127.0.0.1", port=1, entrypoint="app.py", name=kind.__name__
    )
    server = kind(config=config, server_client=client)
    its_app = server.setup_webserver()
    server.setup_exception_middleware(its_app)
    app.mount(f"/{kind.__name__}", its_app)
listening = socket.create_server(("127.0.0.1", 0))
print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listening])
'''
ITEM = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}


def tool(name: str) -> dict[str, Any]:
    """A tool as a row has it."""
    takes = ITEM if name in ("buy", "meet") else {"type": "object", "properties": {}}
    return {"type": "function", "name": name, "description": "", "parameters": takes,
            "strict": True}  # fmt: skip


def shop_row(ends: Any = None, **params: Any) -> dict[str, Any]:
    """A row for the shop; `ends` is what its `verify` does, or adds to its answer."""
    tools = [tool(name) for name in ("buy", "meet", "raise_error", "die")]
    request = {"input": "Buy a cat.", "tools": tools, **params}
    return {"responses_create_params": request, "ends": ends}


@contextmanager
def serving(command: list[str], folder: Path | None = None) -> Iterator[str]:
    """The URL that a server writes once it listens."""
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@contextmanager
def started() -> Iterator[str]:
    """The URL of a server that was started."""
    NEMO_GYM.command()
    with TemporaryDirectory() as folder:
        file = Path(folder) / "server.py"
        file.write_text(SERVER)
        command = [str(ENVIRONMENTS / "nemo-gym" / "bin" / "python"), str(file)]
        with serving(command) as url:
            yield url


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with started() as url:
        yield url


def tasks_of(file: Path) -> list[Task]:
    """The tasks of a file of rows, as assay reads them."""
    command = NEMO_GYM.command("tasks", str(file))
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return [task_from_dict(json.loads(line)) for line in ended.stdout.splitlines()]


def examples_of(name: str) -> list[Task]:
    """The tasks of the rows that a resources server of the wheel has beside it."""
    NEMO_GYM.command()
    packages = ENVIRONMENTS / "nemo-gym" / "lib"
    (file,) = packages.glob(f"python3*/site-packages/resources_servers/{name}/data/example.jsonl")
    return tasks_of(file)


def task(row: Any) -> Task:
    """The task of a row."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "rows.jsonl"
        file.write_text(json.dumps(row) + "\n")
        (only,) = tasks_of(file)
    return only


def played(url: str, row: Any, texts: list[Any], *words: str, **more: Any) -> Played:
    said = [in_characters(text) if isinstance(text, str) else text for text in texts]
    its_task = row if isinstance(row, Task) else task(row)
    return play(NEMO_GYM.command("play", url, *words), *said, task=its_task, **more)


def total(result: Played) -> float:
    """The reward of a rollout whose tokens are all learned."""
    result.require_all_learned()
    assert result.rollout.score is not None
    return result.rollout.score.total


def text_of(result: Played) -> str:
    """All that the policy saw and said."""
    (sample,) = result.samples
    return str(chat().tokenizer.decode(sample.tokens))


BUYS = [call_text("buy", item="dog"), f"First\n{call_text('buy', item='cat')}", "I have a cat."]


def test_rows_become_tasks_that_show_the_dialogue_and_keep_the_rest(tmp_path: Path) -> None:
    first, *others = examples_of("example_session_state_mgmt")
    assert (first.id, len(others)) == ("example/0", 4)
    assert first.prompt == "add 1 then add 2 then get the count"
    rows = tmp_path / "rows.jsonl"
    parts = [{"type": "input_text", "text": "a cat."}]
    dialogue = [{"role": "system", "content": "Buy"}, {"role": "user", "content": parts}]
    rows.write_text("\n" + json.dumps(shop_row(input=dialogue)) + "\n")
    (only,) = tasks_of(rows)
    assert (only.id, only.prompt) == ("rows/1", "Buy\n\na cat.")


@pytest.mark.parametrize(("adds", "reward"), [((1, 2), 1.0), ((1, 3), 0.0)])
def test_a_server_of_the_wheel_counts_in_a_session_and_verifies_it(
    server: str, adds: tuple[int, ...], reward: float
) -> None:
    first = examples_of("example_session_state_mgmt")[0]
    texts = [
        "\n".join(f'<tool_call>\n{{"name": "increment_counter", "arguments": {{"count": {n}}}}}'
                  "\n</tool_call>" for n in adds),
        call_text("get_counter_value"), "That is the count.",
    ]  # fmt: skip
    result = played(f"{server}/StatefulCounterResourcesServer", first, texts)
    assert total(result) == reward
    assert result.rollout.passed == bool(reward)
    assert (len(result.rollout.turns), len(result.samples)) == (3, 1)
    assert f'{{"count":{3 + sum(adds)}}}' in text_of(result)


def test_turns_are_one_sample_with_the_reward_of_verify(server: str) -> None:
    result = played(f"{server}/Shop", shop_row(), BUYS)
    assert total(result) == 0.25
    assert (len(result.rollout.turns), len(result.samples)) == (3, 1)
    assert '{"bought":"dog"}' in text_of(result)


@pytest.mark.parametrize("said", ["a cat", "a dog"])
def test_a_server_that_answers_replies_pays_the_sum_of_its_steps(server: str, said: str) -> None:
    params = {"input": [{"role": "user", "content": "What is it?"}]}
    row = {"responses_create_params": params, "follow_ups": ["Sure?"], "expected_answer": "cat"}
    url, texts = f"{server}/ExampleMultiTurnEnv", ["Hm.", f"It is {said}."]
    result = played(url, row, texts, "--agent", "gymnasium")
    assert total(result) == ("cat" in said)
    assert (len(result.rollout.turns), len(result.samples)) == (2, 1)
    assert "<|im_start|>user\nSure?<|im_end|>" in text_of(result)


def test_the_calculator_of_the_examples_computes_calls_and_pays_the_right_answer() -> None:
    load_plugins([EXAMPLES / "calculations.py", EXAMPLES / "calculations_gym.py"])
    first = load("calculations_gym:test")[0]
    (right,) = (each.reference for each in load("calculations:test") if each.prompt == first.prompt)
    python = str(ENVIRONMENTS / "nemo-gym" / "bin" / "python")
    command = [python, "nemo_gym_server.py", "calculator_gym"]
    with serving(command, EXAMPLES) as url:
        for answer, reward in ((right, 1.0), ("none", 0.0)):
            texts = ["calc: 17 * 3", f"answer: {answer}"]
            result = played(url, first, texts, "--agent", "gymnasium")
            assert total(result) == reward
            assert "= 51" in text_of(result)


def test_two_rollouts_at_once_do_not_mix(server: str) -> None:
    talks = [["cat"], ["dog", "cat", "cat"]]
    said = [
        [*(call_text("meet" if at == 0 else "buy", item=item) for at, item in enumerate(items)),
         "Bye."] for items in talks
    ]  # fmt: skip
    with ThreadPoolExecutor() as pool:
        futures = [pool.submit(played, f"{server}/Shop", shop_row(), texts) for texts in said]
        first, second = (future.result() for future in futures)
    assert (total(first), total(second)) == (0.375, 0.625)


def test_a_call_that_no_tool_of_the_row_can_answer_is_told_to_the_policy(server: str) -> None:
    texts = [
        call_text("verify"), call_text("../Shop/verify"), call_text("buy", thing="cat"),
        call_text("buy", item="cat"), "Bye.",
    ]  # fmt: skip
    result = played(f"{server}/Shop", shop_row(), texts)
    assert total(result) == 0.0
    assert text_of(result).count('{"detail":"Not Found"}') == 2
    assert "Field required" in text_of(result)


def test_a_rollout_that_is_cut_at_the_budget_is_verified_as_it_is(server: str) -> None:
    assert total(played(f"{server}/Shop", shop_row(), BUYS[:2], turns=2)) == 0.25


def test_a_reply_that_is_cut_at_its_length_ends_the_rollout(server: str) -> None:
    texts = [*BUYS[:2], call_text("buy", item="cat" * 300)]
    assert total(played(f"{server}/Shop", shop_row(), texts)) == 0.25


def test_a_reply_that_reads_as_a_report_pays_nothing(server: str) -> None:
    assert total(played(f"{server}/Shop", shop_row(), ['{"reward": 5}'])) == 0.0


def test_an_engine_that_fails_once_is_called_again(server: str) -> None:
    assert total(played(f"{server}/Shop", shop_row(), [MachineError("gone"), *BUYS])) == 0.25


def test_an_engine_that_fails_is_never_scored(server: str) -> None:
    with pytest.raises(MachineError, match="the engine is gone"):
        played(f"{server}/Shop", shop_row(), [MachineError("the engine is gone")] * 9)


def require_lost(result: Played, says: str) -> None:
    assert says in str(result.rollout.failure)
    assert result.rollout.cause is Cause.MACHINE
    assert result.rollout.score is None


def test_a_server_that_dies_in_a_call_loses_the_rollout() -> None:
    with started() as url:
        texts = [*BUYS[:2], call_text("die")]
        require_lost(played(f"{url}/Shop", shop_row(), texts), "/Shop/die fails")


def test_a_tool_that_raises_loses_the_rollout_unless_its_error_is_to_be_shown(server: str) -> None:
    texts = [call_text("raise_error"), *BUYS]
    require_lost(played(f"{server}/Shop", shop_row(), texts), "no sandbox")
    result = played(f"{server}/Shop", shop_row(), texts, "--show-errors")
    assert total(result) == 0.125
    assert "no sandbox" in text_of(result)


def test_a_verify_that_raises_loses_the_rollout(server: str) -> None:
    require_lost(played(f"{server}/Shop", shop_row("raise"), BUYS), "no verifier")


@pytest.mark.parametrize(
    "ends",
    [
        {"mask_sample": True, "failure_kind": "provider_oom_killed"},
        {"instance_config": {"mask_sample": True}, "failure_reason": "provider_oom_killed"},
    ],
    ids=["0.7", "0.4"],
)
def test_a_sample_that_the_server_masks_is_lost(server: str, ends: Any) -> None:
    require_lost(played(f"{server}/Shop", shop_row(ends), BUYS), "provider_oom_killed")


def test_a_failure_that_the_server_measured_all_the_same_is_scored(server: str) -> None:
    row = shop_row({"mask_sample": False, "failure_kind": "agent_timeout"})
    assert total(played(f"{server}/Shop", row, BUYS)) == 0.25


def test_a_conversation_that_outgrows_the_context_is_verified_as_it_is(server: str) -> None:
    texts = [call_text("buy", item="cat" * 250)] * 3
    result = played(f"{server}/Shop", shop_row(), texts, context_length=2000)
    assert total(result) == -0.125, "two of three were bought"


@pytest.mark.parametrize(
    ("path", "row", "says"),
    [
        ("nowhere", shop_row(), "answers 404"),
        ("ExampleMultiTurnEnv", shop_row(), "answers 404"),
        ("StatefulCounterResourcesServer", shop_row(), "initial_count"),
        ("Silent", shop_row(), "reward is None"),
        ("Shop", shop_row(tools=[{"type": "web_search"}]), "web_search"),
    ],
)
def test_what_its_user_must_repair_is_one_line(server: str, path: str, row: Any, says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        played(f"{server}/{path}", row, ["Bye."])
    assert "\n" not in str(caught.value)


def test_a_reward_that_no_float_holds_is_the_users_error() -> None:
    class Huge(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"reward": 1%s}' % (b"0" * 400))

    with HTTPServer(("127.0.0.1", 0), Huge) as huge:
        threading.Thread(target=huge.serve_forever).start()
        try:
            with pytest.raises(UserError, match="reward is 1000"):
                played(f"http://127.0.0.1:{huge.server_port}", shop_row(), ["Done."])
        finally:
            huge.shutdown()


def test_a_server_that_was_never_started_is_the_users_error() -> None:
    with pytest.raises(UserError, match="there is no NeMo Gym server"):
        played("http://127.0.0.1:9", shop_row(), ["Bye."])


def test_a_file_without_rows_of_nemo_gym_says_which_line_is_none(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(shop_row()) + '\n{"question": "?"}\n')
    ended = subprocess.run(NEMO_GYM.command("tasks", str(file)), capture_output=True, text=True)
    assert ended.returncode
    assert "line 2" in ended.stderr
    assert ended.stderr.count("\n") == 1
