"""Judging on services that the tests start: what they say counts, whatever happens to them."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyarrow import parquet

from assay.cli import main
from assay.config.load_settings import load_plan
from assay.config.sections import JudgeSettings
from assay.errors import SandboxError, SettingsError
from assay.judge import AnyJudge, Job, Judge
from assay.judges import pool, service_client, terms
from assay.judges.open_judge import open_judge
from assay.judges.terms import Terms, sendable, terms_of
from assay.sandbox.isolation import probe_isolation
from assay.sandbox.limits import Limits
from assay.train.stages import run_plan
from assay.types import Call, Cause, Check, Exchange, Execution, Task, TestFunctions, Verdict
from tests.end_to_end.recipes import TINY, write
from tests.integrations.server import Server, serving

T = TypeVar("T")
OURS = ("--memory-mb", "512", "--slots", "1")
DOUBLE = Task(
    "double", "", (Check("assert double(2) == 4"), Check("assert double('a') == 'aa'")), "double",
    reference="def double(x): return x + x",
)  # fmt: skip
RIGHT = "def double(x): return x + x"
REWARDS = "rewards = { tests = {}, length = { alpha = 1.0, on_failure = true } }"
COMPARED = ("task_id", "completion", "verdict", "detail", "reward", "loss")
TOKEN = "a-long-random-word"
WAITING = [("first", False), ("second", False), ("failed", True)]
SIZES = [("first", 1), ("knows", 1), ("large", 4)]


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Server]]:
    with serving(*OURS) as one, serving(*OURS) as other:
        yield [one, other]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "LOOK_SECONDS", 0.1)


def url(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


def with_pool(servers: list[str], work: Callable[[AnyJudge], Awaitable[T]], **settings: Any) -> T:
    async def run() -> T:
        async with open_judge(JudgeSettings(servers=tuple(servers), **settings)) as judge:
            return await asyncio.wait_for(work(judge), 60)

    return asyncio.run(run())


def programs(count: int) -> list[Job]:
    """Programs that take a moment, so that something can happen to a service meanwhile."""
    slow = "import time\ntime.sleep(0.02)\n"
    return [Job(DOUBLE, f"{slow}{RIGHT}  # {number}") for number in range(count)]


def verdicts_of(server: Server) -> float:
    lines = server.ask("GET", "/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("assay_verdicts_total"))


EQUAL = "class E:\n    def __eq__(self, other): return True\ndef f(): return E()"
SEVEN = "def f(x): return 7"
JOBS = [
    Job(DOUBLE, RIGHT),
    Job(DOUBLE, "def double(x): return 4"),
    Job(DOUBLE, "def double(x): raise ValueError('\\ud800')"),
    Job(DOUBLE, "def double(x): return"),
    Job(DOUBLE, "def other(): pass"),
    Job(DOUBLE, "def double(x:"),
    Job(DOUBLE, None),
    Job(Task("equal", "", (Check("assert f() == f()"),), "f"), EQUAL),
    Job(Task("echo", "", (Exchange("a\n", "a\n"), Exchange("b", "c")), ""), "print(input())"),
    Job(Task("call", "", (Call("[1]", "2"), Call("[[]]", "3")), "f"), "def f(x): return 2"),
    Job(Task("open", "", (Call("[1]"),), "f", reference=SEVEN), SEVEN),
    Job(Task("module", "", (TestFunctions("def test_a(): assert f() == 1\ndef test_b(): f(2)"),),
             "f"), "def f(): return 1"),
    Job(Task("broken", "", (Check("assert f(undefined) == 1"),), "f"), "def f(x): return 1"),
]  # fmt: skip


def test_services_give_the_verdicts_of_a_judge_of_this_process(servers: list[Server]) -> None:
    async def all_of(judge: AnyJudge) -> list[Execution]:
        return await judge.all(JOBS)

    async def here() -> list[Execution]:
        async with Judge(Limits(), slots=1, stop_early=False) as judge:
            return await judge.all(JOBS)

    def decided(execution: Execution) -> tuple[object, ...]:
        return (execution.verdict, execution.passed, execution.total, execution.detail,
                execution.output, execution.forgeable)  # fmt: skip

    there = with_pool([url(server) for server in servers], all_of)
    assert list(map(decided, there)) == list(map(decided, asyncio.run(here())))
    assert {execution.verdict for execution in there} >= {"pass", "wrong", "error", "no_code"}


def test_what_a_run_trusts_is_taken_from_a_service(servers: list[Server]) -> None:
    equal = Job(Task("equal", "", (Check("assert f() == f()"),), "f"), EQUAL)
    urls = [url(server) for server in servers]
    assert with_pool(urls, lambda judge: judge.run(equal)).forgeable
    assert not with_pool(urls, lambda judge: judge.run(equal), allow_forgeable=True).forgeable


def test_a_program_that_was_judged_is_not_judged_again(servers: list[Server]) -> None:
    before = sum(map(verdicts_of, servers))

    async def twice(judge: AnyJudge) -> None:
        await asyncio.gather(*(judge.run(Job(DOUBLE, f"{RIGHT}  # once")) for _ in range(5)))
        await judge.run(Job(DOUBLE, f"{RIGHT}  # once"))

    with_pool([url(server) for server in servers], twice)
    assert sum(map(verdicts_of, servers)) == before + 1


def test_a_task_that_cannot_be_judged_is_unjudged_as_in_process(servers: list[Server]) -> None:
    mixed = Task("mixed", "", (Exchange("", ""), Check("assert f()")), "f")
    refused = with_pool([url(servers[0])], lambda judge: judge.run(Job(mixed, "")))
    assert (refused.verdict, refused.cause) == (Verdict.UNJUDGED, Cause.TASK)


def test_a_service_that_does_not_know_a_task_gets_it_whole(servers: list[Server]) -> None:
    async def judged() -> Execution:
        client = service_client.ServiceClient(url(servers[0]), "")
        try:
            return await client.judge(sendable(new), "def f(): return 1", is_known=True)
        finally:
            await client.http.aclose()

    new = Task("new", "", (Check("assert f() == 1"),), "f")
    assert asyncio.run(judged()).verdict is Verdict.PASS


def test_a_service_killed_in_a_batch_loses_nothing_and_no_verdict_is_doubled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: Counter[str] = Counter()
    judge = service_client.ServiceClient.judge

    async def counted(self: service_client.ServiceClient, *given: Any, **named: Any) -> Execution:
        execution = await judge(self, *given, **named)
        taken[self.url] += 1
        return execution

    monkeypatch.setattr(service_client.ServiceClient, "judge", counted)
    with serving(*OURS) as doomed, serving(*OURS) as other:
        ended: Counter[int] = Counter()

        def kill(index: int, execution: Execution) -> None:
            ended[index] += 1
            if len(ended) == 20:
                doomed.process.kill()

        async def batch(judge: AnyJudge) -> list[Execution]:
            return await judge.all(programs(60), kill)

        executions = with_pool([url(doomed), url(other)], batch)
        judged = verdicts_of(other)
    assert [execution.verdict for execution in executions] == [Verdict.PASS] * 60
    assert ended == Counter(range(60))
    assert 0 < taken[url(doomed)] < 40
    assert taken[url(doomed)] + taken[url(other)] == 60
    assert judged == taken[url(other)]


@pytest.mark.long
def test_a_service_that_comes_back_is_used_again() -> None:
    with serving(*OURS) as first, serving(*OURS) as second:
        urls = [url(first), url(second)]

        async def batch(judge: AnyJudge) -> list[Execution]:
            first.process.kill()
            first.process.wait()
            before = await judge.all(programs(4))
            with await asyncio.to_thread(started_on, first.port):
                second.process.kill()
                return before + await judge.all([Job(DOUBLE, f"{RIGHT} # {n}") for n in range(4)])

        assert [one.verdict for one in with_pool(urls, batch)] == ["pass"] * 8


def started_on(port: int) -> Any:
    """A service on this port, as a context manager that is entered already."""
    manager = serving("--port", str(port), *OURS)
    manager.__enter__()

    @contextmanager
    def ending() -> Iterator[None]:
        try:
            yield
        finally:
            manager.__exit__(None, None, None)

    return ending()


@pytest.mark.long
def test_what_a_hanging_service_has_goes_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_client, "ANSWER_SECONDS", 0.5)
    with serving(*OURS) as hanging, serving(*OURS) as other:

        def stop(index: int, execution: Execution) -> None:
            hanging.process.send_signal(signal.SIGSTOP)

        async def batch(judge: AnyJudge) -> list[Execution]:
            return await judge.all(programs(20), stop)

        try:
            executions = with_pool([url(hanging), url(other)], batch)
        finally:
            hanging.process.send_signal(signal.SIGCONT)
    assert [execution.verdict for execution in executions] == [Verdict.PASS] * 20


@pytest.mark.long
def test_a_service_that_is_full_is_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    with serving(*OURS, "--waiting", "0") as server:
        executions = with_pool([url(server)], lambda judge: judge.all(programs(20)))
    assert [execution.verdict for execution in executions] == [Verdict.PASS] * 20
    assert not caplog.records, caplog.text


@pytest.mark.long
def test_an_outage_right_after_the_start_has_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(*OURS) as first:

        async def batch(judge: AnyJudge) -> list[Execution]:
            first.process.kill()
            first.process.wait()
            await asyncio.sleep(0.3)
            waiting = asyncio.create_task(judge.all(programs(2)))
            await asyncio.sleep(0.3)
            assert not waiting.done()
            with await asyncio.to_thread(started_on, first.port):
                return await waiting

        assert [one.verdict for one in with_pool([url(first)], batch)] == ["pass"] * 2


@pytest.mark.long
def test_where_no_service_is_left_programs_are_the_machines_and_then_the_run_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(*OURS) as server:

        async def orphaned(judge: AnyJudge) -> Execution:
            await judge.run(Job(DOUBLE, RIGHT))
            server.process.kill()
            monkeypatch.setattr(pool, "PATIENCE", 0.2)
            lost = await judge.run(Job(DOUBLE, "def double(x): return 1"))
            with pytest.raises(SandboxError, match=r"failed 21 of .*: no judge service answers"):
                await judge.all(programs(40))
            return lost

        lost = with_pool([url(server)], orphaned)
    assert lost.verdict is Verdict.INFRA
    assert f"no judge service answers: {url(server)}: ConnectError" in lost.detail


def test_a_run_without_any_service_ends_with_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(pool, "START_SECONDS", 0.3)
    monkeypatch.setattr(pool, "LOOK_SECONDS", 0.1)
    samples = tmp_path / "samples.jsonl"
    samples.write_text(json.dumps({"task_id": "drills/test/0", "solution": ""}))
    command = ["grade", "--tasks", "drills:test", "--samples", str(samples)]
    monkeypatch.setattr("sys.argv", ["assay", *command, "--server", "http://127.0.0.1:9"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 3
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("assay: no judge service answers: http://127.0.0.1:9: ConnectError")
    assert "judge.servers" in line
    (warning,) = caplog.messages
    assert "http://127.0.0.1:9: ConnectError" in warning, "it is said when the wait begins"


@pytest.mark.parametrize(
    ("host", "why"),
    [("127.0.0.1:9", "ConnectError"), ("nowhere.invalid", "ConnectError"), ("SILENT", "Timeout")],
)
def test_a_service_that_is_down_unknown_or_silent_at_the_start_is_named_with_the_reason(
    host: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_client, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(pool, "START_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"http://{host.replace('SILENT', f'127.0.0.1:{silent.getsockname()[1]}')}"
        with pytest.raises(SandboxError, match=r"correct judge\.servers") as raised:
            with_pool([place], lambda judge: judge.run(JOBS[0]))
    assert f"{place}: " in str(raised.value)
    assert why in str(raised.value)


def test_a_service_with_a_token_refuses_others_and_the_token_is_never_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(*OURS, environment={"ASSAY_TOKEN": TOKEN}) as server:
        monkeypatch.setenv("ASSAY_TOKEN", "another-word")
        with pytest.raises(SettingsError, match=r"refuses with 401.*set ASSAY_TOKEN") as refused:
            with_pool([url(server)], lambda judge: judge.run(JOBS[0]))
        assert url(server) in str(refused.value)
        assert "another-word" not in str(refused.value)
        monkeypatch.setenv("ASSAY_TOKEN", TOKEN)
        judged = with_pool([url(server)], lambda judge: judge.run(JOBS[0]))
    assert judged.verdict is Verdict.PASS


def test_services_of_two_tiers_are_two_judges(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    weak = replace(probe_isolation(), tier="C")
    monkeypatch.setattr(terms, "probe_isolation", lambda: weak)
    with (
        answering(lambda: b"") as other,
        pytest.raises(SettingsError, match=r"tier is (A, not C|C, not A)"),
    ):
        with_pool([url(servers[0]), other], lambda judge: judge.run(JOBS[0]))


@pytest.mark.long
def test_a_service_with_other_limits_or_packages_is_refused_by_name(tmp_path: Path) -> None:
    with (
        serving("--memory-mb", "1024", "--cpu-seconds", "2") as larger,
        pytest.raises(
            SettingsError, match="cpu_seconds is 2, not 4; memory_mb is 1024, not 512"
        ) as refused,
    ):
        with_pool([url(larger)], lambda judge: judge.run(JOBS[0]))
    assert url(larger) in str(refused.value)
    (tmp_path / "more-1.0.dist-info").mkdir()
    with (
        serving(*OURS, environment={"PYTHONPATH": str(tmp_path)}) as other,
        pytest.raises(SettingsError, match="edition is"),
    ):
        with_pool([url(other)], lambda judge: judge.run(JOBS[0]))


@pytest.mark.long
def test_a_run_that_judges_on_services_learns_what_one_in_process_learns(
    servers: list[Server], tmp_path: Path
) -> None:
    def learned(folder: Path, judge: str) -> list[dict[str, Any]]:
        folder.mkdir()
        words = ["--folder", str(folder), "--stages.sft.steps", "80", "--tasks.limit", "8"]
        text = f"{REWARDS}\n{TINY}".replace("[judge]\nslots = 2\n", judge)
        run_plan(load_plan(write(folder, text), words))
        files = sorted((folder / "small/grpo/rollouts").glob("*.parquet"))
        rows = [row for file in files for row in parquet.read_table(file).to_pylist()]
        lines = (folder / "small/grpo/metrics.jsonl").read_text().splitlines()
        rows += [{"loss": json.loads(line)["loss"]} for line in lines]
        return [{name: row.get(name) for name in COMPARED} for row in rows]

    there = f"[judge]\nservers = {json.dumps([url(server) for server in servers])}\n"
    rows = learned(tmp_path / "there", there)
    assert rows == learned(tmp_path / "here", "")
    assert len({row["verdict"] for row in rows}) > 2
    assert any(row["loss"] for row in rows)


def test_rewards_that_run_tools_run_them_here_where_services_judge(servers: list[Server]) -> None:
    async def printed(judge: AnyJudge) -> str:
        async with judge.with_tools() as tools:
            return (await tools.execute("print(1)")).execution.output

    assert with_pool([url(servers[0])], printed) == "1\n"


@contextmanager
def answering(answers: Callable[[], bytes]) -> Iterator[str]:
    """A service that tells our terms, and answers programs with these bytes."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            judge = Judge(Limits(), stop_early=False)
            judge._sandbox.broken = ""
            terms = terms_of(judge)
            self._send(json.dumps({"slots": 1, "judge": terms.judge}).encode())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._send(answers())

        def _send(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


EXECUTION = {"verdict": "pass", "passed": 1, "total": 1}


@pytest.mark.long
@pytest.mark.parametrize(
    "answer",
    [
        b"<html>",
        json.dumps({"verdict": "fine"}).encode(),
        json.dumps(EXECUTION | {"passed": "1"}).encode(),
        json.dumps(EXECUTION | {"passed": 2}).encode(),
        json.dumps(EXECUTION | {"cpu_seconds": float("nan")}).encode(),
        json.dumps(EXECUTION | {"output": "x" * 2**24}).encode(),
    ],
    ids=["no JSON", "verdict", "type", "counts", "nan", "size"],
)
def test_a_broken_answer_is_the_machines_failure_and_another_service_is_asked(
    servers: list[Server], answer: bytes
) -> None:
    asked: list[int] = []

    def broken() -> bytes:
        asked.append(1)
        return answer

    wrong = Job(DOUBLE, "def double(x): return 5")
    with answering(broken) as liar:
        execution = with_pool([liar, url(servers[0])], lambda judge: judge.run(wrong))
    assert asked
    assert execution.verdict is Verdict.WRONG


def test_a_place_that_nobody_takes_is_given_to_the_next() -> None:
    async def run() -> None:
        judges = pool.ServicePool((), Limits(), allow_forgeable=False)
        one = service_client.ServiceClient("http://one", "", Terms(1, {}))
        judges._services = [one]
        given = [await judges._place("key", first=False) for _ in range(service_client.AHEAD)]
        assert (given, one.places) == ([one] * service_client.AHEAD, 0)
        waiting = [asyncio.create_task(judges._place(key, first)) for key, first in WAITING]
        await asyncio.sleep(0)
        assert [key for key, _ in judges._queue] == ["failed", "first", "second"]
        one.in_use -= 1
        judges._dispatch()  # the place is given in the moment in which it is cancelled
        waiting[2].cancel()
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0)
        assert [turn.done() for turn in waiting] == [True, False, True]
        assert (await waiting[0], one.in_use) == (one, service_client.AHEAD)
        waiting[1].cancel()
        await one.http.aclose()

    asyncio.run(run())


def test_a_place_is_on_the_service_with_the_least_to_do_that_knows_the_task() -> None:
    async def run() -> list[str]:
        judges = pool.ServicePool((), Limits(), allow_forgeable=False)
        services = [
            service_client.ServiceClient(name, "", Terms(slots, {})) for name, slots in SIZES
        ]
        judges._services = services
        services[1].sent.add("key")
        given = [await judges._place("key", first=False) for _ in range(4)]
        for one in services:
            await one.http.aclose()
        return [one.url for one in given if one]

    # of equal load the one that knows the task; then the others; then that with the most slots
    assert asyncio.run(run()) == ["knows", "first", "large", "large"]
