"""What was judged before is not run again."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from assay.bounded import BoundedDict
from assay.errors import DataError
from assay.judge import Job, Judge, judge
from assay.judge.shared_work import SharedWork
from assay.judge.verdict_archive import Archive
from assay.judge.verdict_cache import PRINTED_CHARACTERS, VerdictCache
from assay.sandbox.isolation import Isolation, probe_isolation
from assay.sandbox.limits import Limits
from assay.types import Check, Execution, Task, Verdict

INC = Task("inc", "", (Check("assert f(1) == 2"),), "f")
RIGHT, WRONG = "def f(x): return x + 1", "def f(x): return x"
PASSED = Execution(Verdict.PASS, 1, 1)


class Counting:
    """Answers with the given verdicts in turn, when told to, and counts how often it was asked."""

    def __init__(self, *verdicts: Verdict) -> None:
        self.verdicts = list(verdicts)
        self.asked = 0
        self.go = asyncio.Event()

    async def __call__(self) -> Execution:
        self.asked += 1
        await self.go.wait()
        return Execution(self.verdicts.pop(0))


def test_a_verdict_is_remembered_unless_it_may_be_of_the_moment() -> None:
    async def asked_twice(verdict: Verdict) -> int:
        cache, judge = VerdictCache(8, 1), Counting(verdict, verdict)
        judge.go.set()
        await cache.get_or_run(b"k", judge)
        await cache.get_or_run(b"k", judge)
        return judge.asked

    times = {verdict: asyncio.run(asked_twice(verdict)) for verdict in Verdict}
    assert {verdict for verdict, asked in times.items() if asked == 2} == {
        "infra",
        "unjudged",
        "timeout",
        "memory",
    }
    assert set(times.values()) == {1, 2}


def test_a_program_that_is_being_judged_is_judged_once_for_all_who_ask() -> None:
    async def eight_ask() -> tuple[int, set[Verdict]]:
        cache, judge = VerdictCache(8, 1), Counting(Verdict.TIMEOUT)
        asking = [asyncio.create_task(cache.get_or_run(b"k", judge)) for _ in range(8)]
        await asyncio.sleep(0)
        asking[0].cancel()
        judge.go.set()
        verdicts = {(await task).verdict for task in asking[1:]}
        return judge.asked, verdicts

    assert asyncio.run(eight_ask()) == (1, {Verdict.TIMEOUT})


def test_what_nobody_waits_for_any_more_is_dropped() -> None:
    async def all_leave() -> bool:
        cache, judge = VerdictCache(8, 1), Counting(Verdict.PASS)
        asking = [asyncio.create_task(cache.get_or_run(b"k", judge)) for _ in range(3)]
        await asyncio.sleep(0)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        judge.go.set()
        await asyncio.sleep(0.01)
        return judge.verdicts == [Verdict.PASS]  # it never came to answer

    assert asyncio.run(all_leave())


def test_the_same_program_is_run_once_and_another_anew(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "verdicts.sqlite"

    async def judged(task: Task, program: str) -> Execution:
        async with Judge(slots=1, archive=file) as judge:
            return await judge.run(Job(task, program))

    first, second = asyncio.run(judged(INC, WRONG)), asyncio.run(judged(INC, WRONG))
    assert second == first  # to the microsecond, so it was not run
    assert asyncio.run(judged(INC, RIGHT)).verdict is Verdict.PASS
    assert (
        asyncio.run(judged(replace(INC, checks=(Check("assert f(1) == 1"),)), WRONG)).verdict
        is Verdict.PASS
    )


def test_a_program_is_not_wrong_for_good_where_the_reference_is_short_of_time(
    tmp_path: Path,
) -> None:
    """The reference, which changes its argument, would show that the program is right."""
    slow = "def f(xs):\n    xs.append(1)\n    if len(xs) > 1:\n        while True: pass"
    checks = (Check("xs = []\nf(xs)\nassert xs == [1]"), Check("f([0])"))
    task = Task("t", "", checks, "f", reference=slow)

    async def archived(task: Task, program: str) -> tuple[Verdict, bool]:
        async with Judge(Limits(cpu_seconds=0.05), 1, archive=tmp_path / "v") as judge:
            execution = await judge.run(Job(task, program))
            assert judge._cache.archive
            key = judge._prepare(task).key(program)
            return execution.verdict, judge._cache.archive.get(key) is not None

    right = "def f(xs): xs.append(1)"
    assert asyncio.run(archived(task, right)) == (Verdict.UNJUDGED, False)
    assert asyncio.run(archived(replace(task, reference=right), right)) == (Verdict.PASS, True)
    fails = replace(task, reference="def f(xs): pass")
    assert asyncio.run(archived(fails, right)) == (Verdict.UNJUDGED, False)


def test_a_verdict_of_another_sandbox_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On tier C a program sees no /proc; on tier E it can forge its verdict."""

    async def judged(isolation: Isolation) -> Execution:
        monkeypatch.setattr(judge, "probe_isolation", lambda: isolation)
        async with Judge(slots=1, archive=tmp_path / "v") as opened:
            return await opened.run(Job(INC, WRONG))

    here = probe_isolation()
    weak, *sound = [asyncio.run(judged(one)) for one in (replace(here, tier="C"), here, here)]
    assert sound[0] == sound[1]  # to the microsecond
    assert sound[0] != weak


def test_two_judges_share_an_archive(tmp_path: Path) -> None:
    one, other = Archive(tmp_path / "v"), Archive(tmp_path / "v")
    one.put(b"k", replace(PASSED, output="\udcff"))
    assert other.get(b"k") == replace(PASSED, output="\udcff")
    assert other.get(b"other") is None
    one.close()
    other.close()


@pytest.mark.parametrize("content", [b"no database at all" * 100, b""])
def test_a_damaged_archive_is_judging_without_it(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "v"
    file.write_bytes(content)
    archive = Archive(file)
    archive.put(b"k", PASSED)
    assert archive.get(b"k") == (None if content else PASSED)
    assert len(caplog.records) == bool(content)


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize("name", ["v", "a link"])
def test_the_database_of_another_program_is_refused_and_not_touched(
    tmp_path: Path, journal: str, name: str
) -> None:
    (tmp_path / "a link").symlink_to("v")
    database = sqlite3.connect(tmp_path / "v")
    database.execute(f"PRAGMA journal_mode={journal}")
    database.execute("CREATE TABLE verdicts (key BLOB PRIMARY KEY, execution TEXT)")
    database.commit()
    database.close()
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    async def opened() -> None:
        async with Judge(Limits(), 1, archive=tmp_path / name):
            pass

    with pytest.raises(DataError, match="another program"):
        asyncio.run(opened())
    with pytest.raises(DataError, match="another program"):
        Archive(tmp_path / name)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_row_that_is_no_execution_is_judged_again(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "v")
    archive.put(b"k", PASSED)
    with sqlite3.connect(tmp_path / "v") as other:
        other.execute('UPDATE verdicts SET execution = \'{"verdict": "perfect"}\'')
    assert archive.get(b"k") is None


def test_a_folder_that_cannot_be_written_is_judging_without_an_archive(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    archive = Archive(tmp_path / "file" / "v")
    archive.put(b"k", PASSED)
    assert archive.get(b"k") is None


def test_a_task_that_was_refused_is_asked_about_again() -> None:
    async def asked_twice() -> Execution:
        cache, tools = VerdictCache(8, 1), ["no compiler", ""]

        async def judge() -> Execution:
            if missing := tools.pop(0):
                raise DataError(missing)
            return PASSED

        with pytest.raises(DataError, match="no compiler"):
            await cache.get_or_run(b"k", judge)
        return await cache.get_or_run(b"k", judge)

    assert asyncio.run(asked_twice()) == PASSED


def test_what_was_cancelled_while_it_was_made_is_made_again() -> None:
    async def asked_twice() -> int:
        shared, more = SharedWork[str, int](8, 1), asyncio.Event()

        async def make() -> int:
            await more.wait()
            return 3

        asking = asyncio.create_task(shared.get_or_make("k", make))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        shared.close()
        with pytest.raises(asyncio.CancelledError):
            await asking
        more.set()
        return await shared.get_or_make("k", make)

    assert asyncio.run(asked_twice()) == 3


def test_one_who_leaves_work_that_was_forgotten_does_not_drop_the_work_in_its_place() -> None:
    async def made() -> int:
        shared, more, times = SharedWork[str, int](1, 1), asyncio.Event(), 0

        async def make() -> int:
            nonlocal times
            times += 1
            await more.wait()
            return times

        asking = []
        for key in ("k", "other", "k"):
            asking.append(asyncio.create_task(shared.get_or_make(key, make)))
            await asyncio.sleep(0)
        asking[0].cancel()
        await asyncio.wait(asking[:1])
        more.set()
        await asyncio.wait(asking)
        await shared.get_or_make("k", make)
        return times

    assert asyncio.run(made()) == 3


def test_of_what_is_kept_the_first_is_forgotten() -> None:
    kept: BoundedDict[str, int] = BoundedDict(2, 1)
    kept["a"] = 1
    kept.setdefault("b", 2)
    kept["c"] = 3
    assert dict(kept) == {"b": 2, "c": 3}


def test_executions_that_printed_much_are_judged_again() -> None:
    async def asked_twice(printed: int) -> int:
        cache, asked = VerdictCache(8, 1), 0

        async def judge() -> Execution:
            nonlocal asked
            asked += 1
            return replace(PASSED, output="x" * printed)

        await cache.get_or_run(b"key", judge)
        await cache.get_or_run(b"key", judge)
        return asked

    assert asyncio.run(asked_twice(PRINTED_CHARACTERS)) == 1
    assert asyncio.run(asked_twice(PRINTED_CHARACTERS + 1)) == 2


def test_a_file_of_verdicts_stays_within_its_bound(tmp_path: Path) -> None:
    """Verdicts of other judges go first."""
    other = Archive(tmp_path / "v", "B")
    other.put(b"old", PASSED)
    archive = Archive(tmp_path / "v", "A", most_mb=0.25)
    printed = replace(PASSED, output="x" * 2000)
    for number in range(1000):
        archive.put(hashlib.sha256(b"%d" % number).digest(), replace(printed, passed=number))
        assert archive.get(hashlib.sha256(b"%d" % number).digest()) is not None
    assert other.get(b"old") is None
    archive.close()
    other.close()
    assert (tmp_path / "v").stat().st_size < 5 << 18
