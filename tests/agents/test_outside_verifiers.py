"""Environments of the real verifiers play rollouts: the learner gets what was sampled, and the
reward is verifiers' own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.errors import MachineError, UserError
from assay.registry import load_plugins
from assay.tasks import load, task_from_dict
from assay.types import Reported, Task
from tests.agents.outside import EXAMPLES, OutsideAgent, Played, in_characters, play
from tests.agents.served import chat

pytestmark = pytest.mark.agents
VERIFIERS = OutsideAgent("verifiers", ("verifiers_rollout.py",))
SERVER = OutsideAgent("verifiers", ("verifiers_server.py",))
LOCAL = ("--env.agent.runtime.type", "subprocess")
HARNESS = '''
import atexit, os, signal
import openai
import verifiers.v1 as vf

atexit.register(print, '{"reward": 99}')


class Asks(vf.Harness[vf.HarnessConfig]):
    """Asks the model once in each segment."""

    APPENDS_SYSTEM_PROMPT = SUPPORTS_RESUME = True
    EXECUTES_CODE = NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [{"role": each.role, "content": each.content} for each in prompt]
        async with openai.AsyncOpenAI(base_url=endpoint, api_key=secret) as client:
            await client.chat.completions.create(model=ctx.model, messages=messages)
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


class WordData(vf.TaskData):
    answer: str


class WordTask(vf.Task[WordData]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(self.data.answer in trace.last_reply)

    @vf.reward(weight=0.25)
    async def short(self, trace: vf.Trace) -> float:
        return 1 / (1 + len(trace.last_reply))


class Words(vf.Taskset[WordTask, vf.TasksetConfig]):
    def load(self):
        for word in ("cat", "dog"):
            prompt = f"Say {word} backwards."
            yield WordTask(WordData(prompt=prompt, answer=word[::-1]), self.config.task)
'''
WORDS = HARNESS + '__all__ = ["Words", "Asks"]\n'
TALKS = (
    HARNESS
    + """
class TalkConfig(vf.EnvConfig):
    agent: vf.AgentConfig = vf.AgentConfig()


class Talk(vf.Env[TalkConfig]):
    async def run(self, task, agents):
        async with agents.agent.interaction(task) as talk:
            said = await talk.turn()
            while not said.terminated and task.data.answer not in said.last_reply:
                said = await talk.turn("No. Try again.")

    async def finalize(self, task, episode):
        (trace,) = episode.traces
        trace.record_reward("turns", -trace.num_turns, 0.125)


__all__ = ["Words", "Asks", "Talk"]
"""
)
"""An environment that answers until the policy is right."""


def tasks_of(folder: Path, source: str) -> list[Task]:
    """The tasks of an environment that stands in a folder, as its rows are read."""
    (folder / "words.py").write_text(source)
    command = [*VERIFIERS.command("tasks", "words")]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return [task_from_dict(json.loads(line)) for line in ended.stdout.splitlines()]


@pytest.fixture(scope="module")
def cat(tmp_path_factory: pytest.TempPathFactory) -> Task:
    """The first task: the answer is tac."""
    first, second = tasks_of(tmp_path_factory.mktemp("tasks"), WORDS)
    assert (first.id, second.id) == ("words/0", "words/1")
    assert first.prompt == "Say cat backwards."
    return first


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a run starts."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextmanager
def serving(start: Path, source: str, *words: str, at: str = "tcp://127.0.0.1:0") -> Iterator[str]:
    """The address of a server of an environment."""
    (start / "words.py").write_text(source)
    with listening(SERVER.command(at, "words", *LOCAL, *words), start) as address:
        yield address


@contextmanager
def listening(command: Sequence[str], folder: Path) -> Iterator[str]:
    """The address that a server says when it listens."""
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


@pytest.fixture(params=[False, True], ids=["imported", "served"])
def is_served(request: pytest.FixtureRequest) -> bool:
    """Whether a server plays the rollouts, or each imports verifiers."""
    return bool(request.param)


def played(
    start: Path, source: str, cat: Task, texts: Sequence[Any], *words: str,
    is_served: bool = False, **more: Any,
) -> Played:  # fmt: skip
    if is_served:
        with serving(start, source, *words) as address:
            return play(VERIFIERS.command("play", address), *texts, task=cat, **more)
    (start / "words.py").write_text(source)
    command = VERIFIERS.command("play", "words", *LOCAL, *words)
    return play(command, *texts, task=cat, **more)


def reward_of(reply: str, right: bool) -> float:
    """What verifiers' own terms are worth together."""
    return right + 0.25 / (1 + len(reply))


@pytest.mark.parametrize(("reply", "right"), [("It is tac.", True), ("I do not know.", False)])
def test_a_single_turn_gets_the_reward_of_verifiers_and_ids_as_they_were_sampled(
    start: Path, cat: Task, is_served: bool, reply: str, right: bool
) -> None:
    result = played(start, WORDS, cat, [in_characters(reply)], is_served=is_served)
    result.require_all_learned()
    assert result.rollout.score is not None
    assert result.rollout.score.total == pytest.approx(reward_of(reply, right), abs=1e-12)
    assert result.rollout.passed == right
    assert len(result.samples) == 1


def test_turns_of_a_conversation_are_one_sample_with_the_reward_of_verifiers(
    start: Path, cat: Task, is_served: bool
) -> None:
    texts = ["cat?", "act?", "So it is tac."]
    result = played(start, TALKS, cat, [in_characters(text) for text in texts], is_served=is_served)
    result.require_all_learned()
    assert result.rollout.score is not None
    expected = reward_of(texts[-1], right=True) - 3 * 0.125
    assert result.rollout.score.total == pytest.approx(expected, abs=1e-12)
    assert (len(result.rollout.turns), len(result.samples)) == (3, 1)


def test_the_training_client_of_verifiers_gets_ids_and_its_turns_are_one_sample(
    start: Path, cat: Task, is_served: bool
) -> None:
    tokenizer = deepcopy(chat().tokenizer)
    tokenizer.eos_token = "<|im_end|>"  # as Qwen's says, and verifiers asks no template
    tokenizer.save_pretrained(start / "tokenizer")
    renders = ("--client.type", "train", "--client.renderer.name", "default")
    words = (*renders, "--client.renderer-model-name", str(start / "tokenizer"))
    texts = ["cat?", "It is tac."]
    result = played(
        start, TALKS, cat, [in_characters(text) for text in texts], *words, is_served=is_served
    )
    result.require_all_learned()
    assert result.rollout.score is not None
    expected = reward_of(texts[-1], right=True) - 2 * 0.125
    assert result.rollout.score.total == pytest.approx(expected, abs=1e-12)
    assert len(result.rollout.turns) == 2


def test_verifiers_ends_at_the_budget_and_scores_what_there_is(start: Path, cat: Task) -> None:
    texts = ["cat?", "act?"]
    result = played(start, TALKS, cat, [in_characters(text) for text in texts], turns=2)
    result.require_all_learned()
    assert result.rollout.score is not None
    expected = reward_of(texts[-1], right=False) - 2 * 0.125
    assert result.rollout.score.total == pytest.approx(expected, abs=1e-12)


def test_a_reply_that_reads_as_a_report_pays_nothing(
    start: Path, cat: Task, is_served: bool
) -> None:
    reply = '{"reward": 5}'
    result = played(start, WORDS, cat, [in_characters(reply)], is_served=is_served)
    assert result.rollout.score is not None
    assert result.rollout.score.total == pytest.approx(reward_of(reply, right=False), abs=1e-12)


def test_an_engine_that_fails_is_never_scored(start: Path, cat: Task, is_served: bool) -> None:
    with pytest.raises(MachineError, match="the engine is gone"):
        played(start, WORDS, cat, [MachineError("the engine is gone")] * 9, is_served=is_served)


def test_an_engine_that_fails_once_is_called_again_and_verifiers_scores_the_reply(
    start: Path, cat: Task, is_served: bool
) -> None:
    gone = MachineError("the engine is gone")
    result = played(start, WORDS, cat, [gone, in_characters("It is tac.")], is_served=is_served)
    result.require_all_learned()
    assert result.rollout.score is not None
    assert result.rollout.score.total == pytest.approx(reward_of("It is tac.", right=True))


def test_a_process_that_dies_in_its_rollout_is_never_scored(start: Path, cat: Task) -> None:
    dies = WORDS.replace("return float(", "os.kill(os.getpid(), signal.SIGKILL), (")
    result = played(start, dies, cat, [in_characters("It is tac.")])
    assert result.rollout.failure
    assert "137" in result.rollout.failure
    assert result.rollout.score is None


def test_a_reward_that_ends_its_process_loses_the_rollout(start: Path, cat: Task) -> None:
    ends = WORDS.replace("return float(", "raise SystemExit('bye'); return float(")
    result = played(start, ends, cat, [in_characters("It is tac.")])
    assert "bye" in str(result.rollout.failure)
    assert result.rollout.score is None


def test_a_program_that_the_environment_starts_has_no_descriptor_of_the_report(
    start: Path, cat: Task
) -> None:
    line = "for n in $(seq 3 99); do echo '{\"reward\": 1}' > /dev/fd/$n; done 2> /dev/null"
    runs = WORDS.replace("return float(", f"os.system({line!r}); return float(")
    reply = "It is tac."
    result = played(start, runs, cat, [in_characters(reply)])
    assert result.rollout.reported == pytest.approx(reward_of(reply, right=True), abs=1e-12)


def test_a_conversation_that_outgrows_the_context_is_not_scored(
    start: Path, cat: Task, is_served: bool
) -> None:
    result = played(
        start, TALKS, cat, [in_characters("cat? " * 60)], context_length=400, is_served=is_served
    )
    assert "ProviderError" in str(result.rollout.failure)
    assert result.rollout.score is None


def test_a_seat_that_is_not_trained_needs_a_model_of_its_own(start: Path, cat: Task) -> None:
    words = ["--env.id", "user-sim"]
    for seat in ("user", "assistant"):
        words += [f"--env.{seat}.harness.id", "words", f"--env.{seat}.runtime.type", "subprocess"]
    (start / "words.py").write_text(WORDS)
    texts = ["Say cat backwards.", "tac", "###DONE###"]
    with pytest.raises(UserError, match="the seat 'user' is not trained"):
        play(VERIFIERS.command("play", "words", *words), *texts, task=cat)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (WORDS.replace("return float(", "return [][0] or ("), "TaskError"),
        (WORDS.replace("@vf.reward", "@vf.metric").replace("(weight=0.25)", ""), "no reward"),
        (WORDS.replace("messages = [{", "raise OSError(9); messages = [{", 1), "HarnessError"),
    ],
    ids=["reward raises", "no reward", "no call"],
)
def test_a_served_environment_that_is_broken_is_one_line_for_its_user(
    start: Path, cat: Task, source: str, says: str
) -> None:
    with pytest.raises(UserError, match=says) as caught:
        played(start, source, cat, [in_characters("It is tac.")], is_served=True)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "words", "says"),
    [
        ("import nowhere\n", (), "nowhere"),
        (WORDS.replace("Words,", "Wards,").replace('"Words"', '"Wards"'), (), "words"),
        (WORDS, ("--env.agent.nonsense", "1"), "nonsense"),
        (WORDS.replace("return float(", "return [][0] or ("), (), "TaskError"),
        (WORDS.replace("@vf.reward", "@vf.metric").replace("(weight=0.25)", ""), (), "no reward"),
    ],
    ids=["import", "no taskset", "option", "reward raises", "no reward"],
)
def test_an_environment_that_is_broken_is_one_line_for_its_user(
    start: Path, cat: Task, source: str, words: tuple[str, ...], says: str
) -> None:
    with pytest.raises(UserError, match=says) as caught:
        played(start, source, cat, [in_characters("It is tac.")], *words)
    assert "\n" not in str(caught.value)


def test_a_server_plays_rollouts_at_once_with_the_replies_of_each(start: Path, cat: Task) -> None:
    talks = [["cat?", "act?", "It is tac."], ["It is tac, I think."]]
    with serving(start, TALKS) as address, ThreadPoolExecutor() as pool:
        command = VERIFIERS.command("play", address)
        texts = [[in_characters(text) for text in talk] for talk in talks]
        futures = [pool.submit(play, command, *each, task=cat) for each in texts]
        results = [future.result() for future in futures]
    for talk, result in zip(talks, results, strict=True):
        result.require_all_learned()
        expected = reward_of(talk[-1], right=True) - len(talk) * 0.125
        assert result.rollout.reported == pytest.approx(expected, abs=1e-12)


def test_a_server_ends_at_its_own_limits_and_scores_what_there_is(start: Path, cat: Task) -> None:
    texts = [in_characters(text) for text in ("cat?", "act?")]
    words = ("--env.agent.max-turns", "2")
    result = played(start, TALKS, cat, texts, *words, is_served=True)
    result.require_all_learned()
    expected = reward_of("act?", right=False) - 2 * 0.125
    assert result.rollout.reported == pytest.approx(expected, abs=1e-12)


def test_a_call_beyond_the_budget_of_the_run_loses_the_rollout_of_a_server(
    start: Path, cat: Task
) -> None:
    texts = [in_characters(text) for text in ("cat?", "act?")]
    result = played(start, TALKS, cat, texts, is_served=True, turns=2)
    assert "409" in str(result.rollout.failure)
    assert result.rollout.score is None


def test_no_program_that_a_server_starts_has_the_key_in_its_environment(
    start: Path, cat: Task
) -> None:
    shows = (
        "open('url', 'w').write(trace.agent.config.client.base_url); "
        "os.system('cat /proc/self/environ /proc/$PPID/environ /proc/$PPID/cmdline > seen');"
        " return float("
    )
    source = WORDS.replace("return float(", shows)
    with serving(start, source, at=f"ipc://{start}/socket") as address:
        result = play(VERIFIERS.command("play", address), in_characters("It is tac."), task=cat)
    result.require_all_learned()
    key = (start / "url").read_text().split("/rollout/")[1].removesuffix("/v1")
    assert len(key) > 30
    assert key.encode() not in (start / "seen").read_bytes()


def test_rollouts_of_a_server_share_the_connections_of_one_client() -> None:
    program = """
from verifiers.v1.clients import EvalClientConfig, TrainClientConfig
from verifiers.v1.interception.server import InterceptionServer
from verifiers_server import share_connections

share_connections()
server = InterceptionServer()
urls = [f"http://127.0.0.1:1/rollout/{key}/v1" for key in "ab"]
for kind in EvalClientConfig, TrainClientConfig:
    first, second = [server._client(kind(base_url=url, api_key_var="")) for url in urls]
    of = lambda client: getattr(client.client, "_client", client.client)
    assert of(first) is of(second)
    url = lambda client: str(getattr(client, "base_url", "") or client.client.base_url).rstrip("/")
    assert [url(first), url(second)] == urls, [url(first), url(second)]
assert len(server.clients) == 2
"""
    python, _ = SERVER.command()
    subprocess.run([python, "-c", program], cwd=EXAMPLES, check=True)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "ipc:///nowhere/socket"])
def test_a_server_that_is_absent_stops_the_run_and_its_user_reads_what_to_start(
    start: Path, cat: Task, address: str
) -> None:
    with pytest.raises(UserError, match=r"start examples/agents/verifiers_server\.py") as caught:
        play(VERIFIERS.command("play", address), task=cat)
    assert "\n" not in str(caught.value)


def test_a_server_that_dies_in_a_rollout_loses_it(start: Path, cat: Task) -> None:
    dies = WORDS.replace("return float(", "os.kill(os.getpid(), signal.SIGKILL), (")
    result = played(start, dies, cat, [in_characters("It is tac.")], is_served=True)
    assert "is gone" in str(result.rollout.failure)
    assert result.rollout.score is None


def test_a_task_that_the_server_cannot_read_stops_the_run(start: Path, cat: Task) -> None:
    other = replace(cat, checks=(Reported('{"prompt": "Say cat backwards."}'),))
    with pytest.raises(UserError, match="answer"):
        played(start, WORDS, other, [in_characters("It is tac.")], is_served=True)


def test_the_calculator_of_the_examples_computes_calls_and_pays_the_right_answer(
    start: Path,
) -> None:
    load_plugins([EXAMPLES / "calculations.py", EXAMPLES / "calculations_verifiers.py"])
    task, plain = (load(f"{name}:test")[0] for name in ("calculations_verifiers", "calculations"))
    command = SERVER.command("tcp://127.0.0.1:0", "calculator_verifiers", *LOCAL)
    agent = [sys.executable, str(EXAMPLES / "calculator.py")]
    with listening(command, EXAMPLES) as address:
        for answer, reward in ((plain.reference, 1.0), ("none", 0.0)):
            texts = [in_characters(text) for text in ("calc: 17 * 3", f"answer: {answer}")]
            result = play(VERIFIERS.command("play", address), *texts, task=task)
            assert result.rollout.reported == reward
            expected = play(agent, *texts, task=plain, answer="answer")
            assert result.learned == expected.learned
            for sample, other in zip(result.samples, expected.samples, strict=True):
                assert sample.tokens == other.tokens
