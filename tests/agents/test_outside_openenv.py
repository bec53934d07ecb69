"""Servers of the real OpenEnv play rollouts: the learner gets what was sampled, and the reward is
the environment's own.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from assay.errors import MachineError, UserError
from assay.tasks import task_from_dict
from assay.types import Cause, Task
from tests.agents.outside import (
    ENVIRONMENTS,
    OutsideAgent,
    Played,
    call_text,
    in_characters,
    play,
)
from tests.agents.served import chat

pytestmark = pytest.mark.agents
OPENENV = OutsideAgent("openenv", ("openenv_rollout.py",))
SERVER = '''
import os, signal, socket, threading
import uvicorn
from fastapi import FastAPI
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from fastmcp import FastMCP
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field, field_validator

WORDS = ("cat", "dog", "ant")


class Guess(Action):
    text: str = Field(min_length=1)

    @field_validator("text")
    def is_right(cls, text):
        if text == "odd":
            raise ValueError("an odd text")
        return text


class Move(Action):
    row: int
    word: str
    sure: bool = False


class Hint(Observation):
    hint: str
    guesses: list[str] = Field(default_factory=list)


class Words(Environment):
    """A guess costs an eighth, and the right one pays 1."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    state = State()

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.word, self.guesses = WORDS[seed % 3], []
        return Hint(hint=f"Say {self.word} backwards.", metadata={"answer": self.word[::-1]})

    def step(self, action, **kwargs):
        if action.text == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if action.text == "raise":
            raise RuntimeError("no sandbox")
        self.guesses.append(action.text)
        right = self.word[::-1] in action.text
        hint = f"{self.word}: no, {len(self.guesses)}"
        reward = 1.0 if right else -0.125
        return Hint(hint=hint, guesses=self.guesses, reward=reward, done=right)


class Together(Words):
    """Its first guess waits until another session guesses."""

    both = threading.Barrier(2)

    def step(self, action, **kwargs):
        if not self.guesses:
            self.both.wait(60)
        return super().step(action)


class Listed(Words):
    def list_splits(self):
        return ["train", "test"]

    def num_tasks(self, split):
        return {"train": 2, "test": 1}[split]

    def reset(self, split="", index=0, **kwargs):
        return super().reset(index + 2 * (split == "test"))


class Grid(Words):
    def step(self, action, **kwargs):
        done = action.word == self.word[::-1]
        return Hint(hint=f"row {action.row}", reward=action.row / 8, done=done)


class Shop(MCPEnvironment):
    """Its tool pays, and the item that was asked for ends the episode."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    state = State()

    def __init__(self):
        server = FastMCP("shop")

        @server.tool
        def buy(item: str) -> str:
            """Buy an item."""
            self.bought.append(item)
            return f"{item} is bought"

        super().__init__(server)

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.bought = []
        return Hint(hint="Buy a cat.")

    def _step_impl(self, action, **kwargs):
        raise TypeError("no such action")

    async def step_async(self, action, **kwargs):
        observation = await super().step_async(action)
        observation.reward = 0.5 * len(self.bought)
        observation.done = "cat" in self.bought
        return observation


class Silent(Words):
    def step(self, action, **kwargs):
        return Hint(hint="", done=True)


class Ended(Words):
    def reset(self, **kwargs):
        return Hint(hint="", done=True)


class Wrong(Words):
    def reset(self, **kwargs):
        return Hint(hunt="")


app = FastAPI()
alone = Silent, Ended, Grid, Wrong
for env, most in ((Words, 4), (Together, 4), (Listed, 4), *((env, 1) for env in alone)):
    name, action = env.__name__.lower(), Move if env is Grid else Guess
    app.mount(f"/{name}", create_app(env, action, Hint, name, most))
app.mount("/shop", create_app(Shop, CallToolAction, CallToolObservation, "shop", 4))
app.mount("/any_tool", create_app(Shop, Action, Observation, "any_tool", 4))
app.mount("/single", create_app(Words, Guess, Hint, "single", 1))
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listening])
'''
GUESSES = ["cat?", "act?", "So it is tac."]


@contextmanager
def started() -> Iterator[str]:
    """The URL of a server that was started."""
    OPENENV.command()
    with TemporaryDirectory() as folder:
        file = Path(folder) / "server.py"
        file.write_text(SERVER)
        command = [str(ENVIRONMENTS / "openenv" / "bin" / "python"), str(file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield f"http://127.0.0.1:{int(process.stdout.readline())}"
            finally:
                process.kill()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with started() as url:
        yield url


def tasks_of(url: str, *words: str) -> list[Task]:
    """The tasks of a server, as its rows are read."""
    command = OPENENV.command("tasks", url, *words)
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return [task_from_dict(json.loads(line)) for line in ended.stdout.splitlines()]


def task(**reset: Any) -> Task:
    """A task whose episode begins with these words of `reset`."""
    checks = [{"task_data": json.dumps(reset)}]
    row = {"format": "assay", "id": "words/1", "prompt": "Say it.", "entry_point": ""}
    return task_from_dict(row | {"checks": checks})


def played(url: str, texts: list[Any], *words: str, seed: int = 0, **more: Any) -> Played:
    said = [in_characters(text) if isinstance(text, str) else text for text in texts]
    return play(OPENENV.command("play", url, *words), *said, task=task(seed=seed), **more)


def total(result: Played) -> float:
    """The reward of a rollout whose tokens are all learned."""
    result.require_all_learned()
    assert result.rollout.score is not None
    return result.rollout.score.total


def test_seeds_become_tasks_with_their_first_observations(server: str) -> None:
    tasks = tasks_of(f"{server}/words", "--seeds", "3")
    assert [task.id for task in tasks] == ["words/seed/0", "words/seed/1", "words/seed/2"]
    assert [task.prompt for task in tasks] == [
        f"Say {word} backwards." for word in ("cat", "dog", "ant")
    ]


@pytest.mark.parametrize(("split", "words"), [("train", ["cat", "dog"]), ("test", ["ant"])])
def test_a_split_of_the_server_becomes_tasks(server: str, split: str, words: list[str]) -> None:
    tasks = tasks_of(f"{server}/listed", "--split", split)
    assert [task.id for task in tasks] == [f"listed/{split}/{n}" for n in range(len(words))]
    assert [task.prompt for task in tasks] == [f"Say {word} backwards." for word in words]


@pytest.mark.parametrize(
    ("words", "reward"),
    [((), 1.0), (("--reward", "sum"), 0.75)],
    ids=["last", "sum"],
)
def test_turns_are_one_sample_with_the_reward_of_the_environment(
    server: str, words: tuple[str, ...], reward: float
) -> None:
    result = played(f"{server}/words", GUESSES, *words)
    assert total(result) == reward
    assert (len(result.rollout.turns), len(result.samples)) == (3, 1)


def test_the_policy_sees_the_observation_without_its_metadata(server: str) -> None:
    for words, expected in (
        ((), ["Say cat backwards.", '{"hint": "cat: no, 1", "guesses": ["cat?"]}']),
        (("--show", "guesses"), ['{"guesses": []}', '{"guesses": ["cat?"]}']),
    ):
        result = played(f"{server}/words", ["cat?", "tac"], *words)
        (sample,) = result.samples
        text = chat().tokenizer.decode(sample.tokens)
        asked = [part.split("<|im_end|>")[0] for part in text.split("<|im_start|>user\n")[1:]]
        assert asked == expected


def test_a_file_tells_the_policy_the_rules(server: str, tmp_path: Path) -> None:
    (tmp_path / "rules.txt").write_text("One word.")
    (sample,) = played(f"{server}/words", ["tac"], "--system", str(tmp_path / "rules.txt")).samples
    text = chat().tokenizer.decode(sample.tokens)
    assert "<|im_start|>system\nOne word.<|im_end|>" in text


def test_a_task_of_a_split_begins_its_own_episode(server: str) -> None:
    (ant,) = tasks_of(f"{server}/listed", "--split", "test")
    command = OPENENV.command("play", f"{server}/listed")
    assert total(play(command, in_characters("tna"), task=ant)) == 1


def test_two_rollouts_at_once_do_not_mix(server: str) -> None:
    talks = [(["a", "b", "tac"], 0), (["c", "god"], 1)]
    with ThreadPoolExecutor() as pool:
        url, words = f"{server}/together", ("--reward", "sum")
        futures = [pool.submit(played, url, texts, *words, seed=seed) for texts, seed in talks]
        first, second = (future.result() for future in futures)
    assert (total(first), total(second)) == (0.75, 0.875)


def test_a_rollout_waits_for_a_server_that_plays_one_at_a_time(server: str) -> None:
    with ThreadPoolExecutor() as pool:
        url = f"{server}/single"
        futures = [pool.submit(played, url, GUESSES, seed=seed) for seed in (0, 0)]
        assert [total(future.result()) for future in futures] == [1, 1]


def test_an_action_of_several_fields_is_json_in_a_fence(server: str) -> None:
    texts = [
        "I do not know.",
        '```json\n{"row": "up", "word": "cat"}\n```',
        '```json\n{"row": 2, "word": "cat"}\n```',
        'So:\n```json\n{"row": 4, "word": "tac", "sure": true}\n```',
    ]
    result = played(f"{server}/grid", texts, "--reward", "sum")
    assert total(result) == 0.75
    assert len(result.rollout.turns) == 4


@pytest.mark.parametrize("name", ["shop", "any_tool"])
def test_the_policy_calls_the_tools_of_an_mcp_environment(server: str, name: str) -> None:
    texts = [
        call_text("buy", thing="dog"),
        f"First\n{call_text('buy', item='dog')}",
        call_text("buy", item="cat"),
    ]
    result = played(f"{server}/{name}", texts)
    assert total(result) == 1.0
    (sample,) = result.samples
    text = chat().tokenizer.decode(sample.tokens)
    assert "Buy an item." in text
    assert "dog is bought" in text


def test_a_policy_that_calls_no_tool_ends_its_episode(server: str) -> None:
    texts = [call_text("buy", item="dog"), "I have no money."]
    assert total(played(f"{server}/shop", texts)) == 0.5


def test_a_reply_that_the_environment_refuses_is_no_step(server: str) -> None:
    result = played(f"{server}/words", ["", *GUESSES], "--reward", "sum", "--field", "text")
    assert total(result) == 0.75


def test_a_reply_that_reads_as_a_report_pays_nothing(server: str) -> None:
    result = played(f"{server}/words", ['{"reward": 5}'], turns=1)
    assert total(result) == -0.125


def test_an_episode_that_is_cut_at_the_budget_pays_what_there_is(server: str) -> None:
    result = played(f"{server}/words", GUESSES[:2], "--reward", "sum", turns=2)
    assert total(result) == -0.25


def test_an_engine_that_fails_once_is_called_again(server: str) -> None:
    assert total(played(f"{server}/words", [MachineError("the engine is gone"), "tac"])) == 1


def test_an_engine_that_fails_is_never_scored(server: str) -> None:
    with pytest.raises(MachineError, match="the engine is gone"):
        played(f"{server}/words", [MachineError("the engine is gone")] * 9)


def require_lost(result: Played, says: str) -> None:
    assert says in str(result.rollout.failure)
    assert result.rollout.cause is Cause.MACHINE
    assert result.rollout.score is None


def test_a_server_that_is_killed_in_mid_episode_loses_the_rollout() -> None:
    with started() as url:
        require_lost(played(f"{url}/words", ["cat?", "die"]), "server is gone")


def test_a_step_that_raises_loses_the_rollout(server: str) -> None:
    require_lost(played(f"{server}/words", ["cat?", "raise"]), "no sandbox")


def test_a_reply_at_which_openenv_ends_the_session_loses_the_rollout(server: str) -> None:
    require_lost(played(f"{server}/words", ["cat?", "odd"]), "SESSION_ERROR")


def test_a_conversation_that_outgrows_the_context_is_not_scored(server: str) -> None:
    require_lost(played(f"{server}/words", ["cat? " * 60], context_length=400), "400")


@pytest.mark.parametrize(
    ("name", "words", "says"),
    [
        ("nowhere", (), "404"),
        ("words", ("--field", "texts"), "no field 'texts'"),
        ("grid", ("--field", "row"), "takes no text"),
        ("grid", ("--field", "word"), "need 'row' too"),
        ("words", ("--show", "hunt"), "no 'hunt'"),
        ("silent", (), "without a reward"),
        ("ended", (), "before the policy acts"),
        ("wrong", (), "its reset fails: hint"),
    ],
)
def test_what_its_user_must_repair_is_one_line(
    server: str, name: str, words: tuple[str, ...], says: str
) -> None:
    with pytest.raises(UserError, match=says) as caught:
        played(f"{server}/{name}", ["tac"], *words)
    assert "\n" not in str(caught.value)


def test_a_server_that_was_never_started_is_the_users_error() -> None:
    with pytest.raises(UserError, match="there is no OpenEnv server"):
        played("http://127.0.0.1:9", ["tac"])


@pytest.mark.parametrize(
    ("name", "says"), [("words", "take --seeds"), ("listed", "no split 'dev', but train, test")]
)
def test_a_server_without_these_tasks_says_what_to_do(server: str, name: str, says: str) -> None:
    command = OPENENV.command("tasks", f"{server}/{name}", "--split", "dev")
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode
    assert says in ended.stderr
    assert ended.stderr.count("\n") == 1
