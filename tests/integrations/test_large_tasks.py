"""Large and hostile tasks are read by processes of their own: nobody else waits for that."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.errors import DataError, SandboxError
from assay.integrations import case_rows, readers
from assay.integrations.readers import Readers
from assay.integrations.reading import read
from assay.integrations.service import READ_HERE
from assay.judge import Judge, judge
from assay.judge.codec_types import CodecError
from assay.sandbox import processes
from assay.sandbox.limits import Limits
from assay.tasks import exact, jsonl
from assay.types import Verdict
from tests.integrations.server import Answer, Server, descendants, serving, until
from tests.integrations.test_service import DOUBLE, RIGHT

LIMITS = Limits()
MIB = 1 << 20
ELIF = "def test_a(): double(1)\nif x == 0: pass\n" + "".join(
    f"elif x == {n}: pass\n" for n in range(1500)
)
HOSTILE: dict[str, dict[str, Any]] = {
    "a module of 1 MB": {
        "tests": ["def test_a():\n" + "    assert double(1) == 2\n" * (MIB // 28)],
        "entry_point": "double",
    },
    "5,000 asserts": {"tests": ["assert double(1) == 2"] * 5_000, "entry_point": "double"},
    "80,000 names": {
        "tests": ["assert double(1) == 2"], "entry_point": "double",
        "setup": "".join(f"v{n} = 1\n" for n in range(80_000)),
    },
    "a literal of 1 MB": {
        "tests": [f"assert double(1) == [{'1,' * (MIB // 2 - 100)}]"], "entry_point": "double",
    },
    "a chain of conditions": {"tests": [ELIF], "entry_point": "double"},
    "exact checks": {
        "format": "assay", "id": "a", "prompt": "", "entry_point": "double",
        "checks": [{"source": f"assert double({n}) == {2 * n}"} for n in range(5_000)],
    },
    "calls": {
        "inputs": [[[n] * 20] for n in range(5_000)], "entry_point": "double",
        "expected": [[n] * 40 for n in range(5_000)],
    },
}  # fmt: skip
"""Tasks, each of which takes a second or more to read."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--slots", "2") as found:
        yield found


def small(number: int) -> dict[str, Any]:
    return {"task": DOUBLE, "program": f"{RIGHT}  # {number}"}


@pytest.mark.parametrize("task", HOSTILE.values(), ids=HOSTILE)
def test_requests_that_come_after_a_large_one_are_answered_before_it(
    server: Server, task: dict[str, Any]
) -> None:
    assert server.post("/judge", small(0)).status == 200
    order, sent = list[str](), threading.Event()
    program = "program" if "format" in task else "completion"
    body = json.dumps({"task": task, program: "?"})  # so that nothing runs

    def ask_large() -> None:
        sent.set()
        assert server.post("/judge", body).json["verdict"] in ("no_code", "compile")
        order.append("large")

    asking = threading.Thread(target=ask_large)
    asking.start()
    sent.wait()
    for number in range(2):
        assert server.ask("GET", "/health").status == 200
        assert server.post("/judge", small(number + len(body))).json["verdict"] == "pass"
        order.append("small")
    asking.join()
    assert order == ["small"] * 2 + ["large"]


@pytest.mark.parametrize(
    ("task", "why"),
    [
        ({"tests": ["x = 1\n" * (MIB // 5)], "entry_point": "f"}, "more than 1 MiB of code"),
        ({"tests": ["assert f(1)"], "entry_point": "f", "setup": "x = 1\n" * (MIB // 5)}, "1 MiB"),
        ({"format": "assay", "id": "a", "prompt": "", "entry_point": "f",
          "checks": [{"module": "x = 1\n" * (MIB // 5)}]}, "1 MiB"),
        ({"tests": ["assert f(1)"] * 5_001, "entry_point": "f"}, "more than 5,000 checks"),
        ({"inputs": ["1"] * 5_001, "outputs": ["1"] * 20_001}, "more than 5,000 checks"),
        ({"exchanges": [{"stdin": "", "stdout": ""}] * 5_001}, "more than 5,000 checks"),
        ({"tests": ["assert f(" + "(" * 10_000], "entry_point": "f"}, "no valid Python"),
        ({"tests": ["assert f(1) == " + "-" * 50_000 + "1"], "entry_point": "f"}, "valid Python"),
        ({"tests": ["assert f(1) == 1" + ".a" * 50_000], "entry_point": "f"}, "valid Python"),
        ({"inputs": json.loads("[" * 900 + "]" * 900), "expected": [1], "entry_point": "f"},
         "nested"),
    ],
)  # fmt: skip
def test_a_task_beyond_the_bounds_is_refused_with_one_line(
    server: Server, task: dict[str, Any], why: str
) -> None:
    padded = {"task": task, "program": RIGHT, "padding": " " * READ_HERE}
    answer = server.post("/judge", padded)
    assert (answer.status, why in answer.json["error"]) == (422, True), answer.text
    assert "\n" not in answer.json["error"]
    many = server.post("/judge/batch", {"task": task, "jobs": [{"program": RIGHT}]})
    assert many.status == 422, many.text


def test_what_is_read_elsewhere_is_refused_as_what_is_read_here(server: Server) -> None:
    bodies: list[dict[str, Any]] = [
        {"program": 1, **DOUBLE}, {"task": {"tests": ["assert f(1)"]}, "program": RIGHT},
        {"task_key": "0" * 64, "program": RIGHT}, {"task": DOUBLE, "program": "a\ud800"},
        {"task": {**DOUBLE, "language": "cobol"}, "program": RIGHT}, {"task": DOUBLE},
        {"task": {**DOUBLE, "tree": "/"}, "program": RIGHT},
    ]  # fmt: skip

    def ask(body: dict[str, Any]) -> Answer:
        return server.post("/judge", body)

    for body in bodies:
        here, elsewhere = ask(body), ask({**body, "padding": " " * READ_HERE})
        assert here.status == elsewhere.status, elsewhere.text
        assert here.status == 200 or here.json == elsewhere.json
    broken = server.post("/judge", "{" + " " * READ_HERE)
    assert (broken.status, "not valid JSON" in broken.text) == (400, True)


@pytest.mark.parametrize(
    "task",
    [
        {"tests": ["assert double(1) == 2"] * 3, "entry_point": "double"},
        {"inputs": [[1]] * 3, "outputs": [2] * 3, "fn_name": "double"},
        {"exchanges": [{"stdin": "1", "stdout": "2"}] * 3},
        {"format": "assay", "id": "a", "prompt": "", "entry_point": "double",
         "checks": [{"source": "assert double(1) == 2"}]},
    ],
)  # fmt: skip
def test_a_task_that_the_jobs_of_a_batch_share_is_read_once(
    monkeypatch: pytest.MonkeyPatch, task: dict[str, Any]
) -> None:
    reads = list[str]()
    for module in (jsonl, case_rows, exact):

        def counted(*arguments: Any, usual: Any = module.task_of) -> Any:
            reads.append(usual.__module__)
            return usual(*arguments)

        monkeypatch.setattr(module, "task_of", counted)
    jobs = [{"program": f"{RIGHT}  # {number}"} for number in range(9)]
    if "format" not in task:
        jobs += [{"program": "", "language": "cpp"}] * ("exchanges" in task) * 2
    work = read("BatchRequest", json.dumps({"task": task, "jobs": jobs}).encode())
    languages = {job.task.language for job in work.jobs}
    assert len(reads) == len({id(job.task) for job in work.jobs}) == len(languages)
    assert str(work.jobs[-1].program).endswith(str(jobs[-1]["program"]))


async def reading(body: dict[str, Any], kind: str = "JudgeRequest") -> Any:
    pool = Readers()
    try:
        return await pool.read(kind, json.dumps(body).encode(), LIMITS, True)
    finally:
        pool.close()


def test_a_task_that_was_read_elsewhere_is_prepared_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows: list[dict[str, Any]] = [
        DOUBLE, {"tests": ["def test_a():\n    assert double(1) == 2\n"], "entry_point": "double"},
        {"inputs": [[1]], "expected": [2], "entry_point": "double"},
        {"exchanges": [{"stdin": "", "stdout": ""}]},
        {"inputs": [""], "outputs": [""], "language": "python"},
    ]  # fmt: skip

    def refuse(*_: object) -> None:
        raise AssertionError("it was prepared again")

    async def judged() -> list[Verdict]:
        verdicts = []
        async with Judge(LIMITS, 1) as opened:
            for row in rows:
                content = await reading({"task": row, "program": RIGHT})
                monkeypatch.setattr(judge, "PreparedTask", refuse)
                for prepared in content.prepared:
                    opened.adopt(prepared)
                verdicts.append((await opened.run(content.work.jobs[0])).verdict)
        return verdicts

    assert asyncio.run(judged()) == [Verdict.PASS] * len(rows)


def test_a_task_that_cannot_be_prepared_is_unjudged_as_if_it_had_been_prepared_here() -> None:
    task = {"format": "assay", "id": "a", "prompt": "", "entry_point": "double",
            "checks": [{"module": "x = 1"}]}  # fmt: skip

    async def judged() -> str:
        async with Judge(LIMITS, 1) as opened:
            content = await reading({"task": task, "program": RIGHT})
            (job,) = content.work.jobs
            before = await opened.run(job)
            for prepared in content.prepared:
                assert isinstance(prepared.error, DataError | CodecError)
                opened.adopt(prepared)
            assert await opened.run(job) == before
            return before.verdict

    assert asyncio.run(judged()) == "unjudged"


SLOW = """
from assay.extract.call_formats import CallFormat, call_format
from assay.integrations import reading
call_format("none", CallFormat(lambda text: (), lambda calls: ""))
read = reading.read
def read_slowly(kind, body):
    while b"hostile" in body: pass
    return read(kind, body)
reading.read = read_slowly
"""


def test_a_request_that_takes_too_long_to_read_is_refused_and_the_next_one_is_read(
    tmp_path: Path,
) -> None:
    (tmp_path / "slow.py").write_text(SLOW)

    async def read_both() -> str | None:
        pool = Readers([tmp_path / "slow.py"], seconds=1)
        hostile = json.dumps({"task": DOUBLE, "program": "hostile"}).encode()
        usual = json.dumps({"task": DOUBLE, "program": RIGHT}).encode()
        try:
            with pytest.raises(DataError, match="more than 1 s to read"):
                await pool.read("JudgeRequest", hostile, LIMITS, True)
            content = await pool.read("JudgeRequest", usual, LIMITS, True)
            return content.work.jobs[0].program
        finally:
            pool.close()

    assert asyncio.run(read_both()) == RIGHT


READS_TWICE = """
import asyncio, os
from assay.integrations.readers import Readers
from assay.sandbox.limits import Limits
HELD = b"x" * (int(os.environ["HELD_MB"]) << 20)
async def main():
    pool = Readers()
    body = b'{"program": "", "task": {"tests": ["assert f(1)"], "entry_point": "f"}}'
    pids = set()
    for _ in range(2):
        await pool.read("JudgeRequest", body, Limits(), True)
        pids.add(pool._idle[0]._process.pid)
        await asyncio.sleep(0.3)
        assert pool._idle[0]._process.poll() is None, "it ended"
    pool.close()
    print(len(pids))
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("limits", "held_mb"), [("-v 1500000", 0), ("-t 15", 0), ("-S -c 0", 0), ("-S -c 0", 800)]
)
def test_one_process_reads_on_whatever_the_service_holds_and_whatever_limits_its_user_has(
    limits: str, held_mb: int
) -> None:
    command = ["sh", "-c", f'ulimit {limits} && exec "$0" "$@"', sys.executable, "-c", READS_TWICE]
    run = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "HELD_MB": str(held_mb)}
    )
    assert run.stdout == "1\n", run.stderr


def test_a_reader_whose_request_is_dropped_while_it_starts_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = readers.Reader(20, ())
    usual, started = processes.start_python, list[subprocess.Popen[bytes]]()

    def start(*arguments: Any, **options: Any) -> Any:
        reader.leave()
        pair = usual(*arguments, **options)
        started.append(pair[1])
        return pair

    monkeypatch.setattr(readers, "start_python", start)
    body = json.dumps({"task": HOSTILE["5,000 asserts"], "program": RIGHT}).encode()
    with pytest.raises(SandboxError):
        reader.ask("JudgeRequest", body, LIMITS, True)
    assert [process.poll() for process in started] == [-signal.SIGKILL]


def fields_of(pid: int) -> list[str]:
    """The state and more of a process; that of a zombie where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return ["Z"]


def test_no_reader_outlives_a_service_that_is_killed() -> None:
    with serving("--slots", "1") as found:
        body = json.dumps({"task": HOSTILE["5,000 asserts"], "program": RIGHT})
        before = descendants(found.process.pid)
        connection = found.connection()
        connection.request("POST", "/judge", body, {"Content-Type": "application/json"})
        until(lambda: bool(descendants(found.process.pid) - before))
        (reader,) = descendants(found.process.pid) - before
        usual = resource.getrlimit(resource.RLIMIT_CPU)
        until(lambda: resource.prlimit(reader, resource.RLIMIT_CPU) != usual)  # it reads
        os.kill(reader, signal.SIGSTOP)  # it would end by itself
        found.process.kill()
        until(lambda: fields_of(reader)[0] == "Z")
        connection.close()


def test_a_client_that_hangs_up_takes_the_reading_of_its_request_along(server: Server) -> None:
    def reading_processes() -> int:
        return len(descendants(server.process.pid))

    before = reading_processes()
    body = json.dumps({"task": HOSTILE["5,000 asserts"], "program": RIGHT})
    connection = server.connection()
    connection.request("POST", "/judge", body, {"Content-Type": "application/json"})
    until(lambda: server.running == 1)
    connection.close()
    until(lambda: server.running == 0)
    assert reading_processes() <= before
