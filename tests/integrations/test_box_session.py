"""A bash in a lent box: what it keeps over commands, what an interrupt ends, and that what runs in
it can neither stall nor fill us.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from assay.integrations.box_session import CUT, BoxSession, SessionEndedError
from assay.integrations.lent_box import LentBox
from tests.integrations.test_lent_box import none_stays
from tests.sandbox.test_box import needs_namespaces

__all__ = ["none_stays"]

pytestmark = needs_namespaces
LONG = 30.0
Work = Callable[[BoxSession, LentBox], Awaitable[None]]


def in_session(work: Work, most: int = 1 << 20) -> None:
    async def run() -> None:
        async with await LentBox.open() as box:
            await work(await BoxSession.open(box, most), box)

    asyncio.run(run())


def test_a_session_keeps_its_folder_variables_functions_and_background_processes() -> None:
    async def work(session: BoxSession, box: LentBox) -> None:
        async def shows(text: str) -> tuple[str, int | None]:
            shown = await session.run(text, LONG)
            return shown.text, shown.status

        assert await shows("cd /tmp; X='a b'; f() { echo f $1; return 4; }") == ("", 0)
        assert await shows("pwd; echo $X; f 1") == ("/tmp\na b\nf 1\n", 4)
        assert await shows("echo $?; echo 'it'\"'\"'s'; echo !! ") == ("4\nit's\n!!\n", 0)
        assert (await shows("sleep 60 & echo on"))[1] == 0
        assert await shows("cat <<E\none\n\ntwo\nE\nfalse") == ("one\n\ntwo\n", 1)
        assert await shows("printf no-end") == ("no-end", 0)
        assert await shows("cat; echo end >&2") == ("end\n", 0), "there is nothing to read"
        assert await shows("pgrep -c sleep") == ("1\n", 0)
        assert (await box.run("pgrep -c sleep")).stdout == b"1\n", "commands beside it see it"
        assert await shows("PS1='$ '; alias x='echo y'") == ("", 0)
        assert (await shows("x"))[0].startswith("y\n")

    in_session(work)


def test_a_command_that_takes_too_long_runs_on_until_it_is_interrupted() -> None:
    async def work(session: BoxSession, box: LentBox) -> None:
        await session.run("X=kept", LONG)
        with pytest.raises(TimeoutError, match=r"more than 0\.3 s"):
            await session.run("echo before; sleep 60; echo after", 0.3)
        assert session.runs
        shown = await session.interrupt(LONG, 1)
        assert (shown.text.strip(), shown.status, session.runs) == ("before", 130, False)
        assert (await session.run("echo $X", LONG)).text == "kept\n"

    in_session(work)


def test_a_command_that_follows_a_late_one_shows_its_own_output() -> None:
    async def work(session: BoxSession, box: LentBox) -> None:
        with pytest.raises(TimeoutError):
            await session.run("sleep 1; echo slow", 0.3)
        for text, shown in (("echo a", ("a\n", 0)), ("echo b; false", ("b\n", 1))):
            done = await session.run(text, LONG)
            assert (done.text, done.status) == shown
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await session.run("sleep 1; echo slow", LONG)
        assert (await session.run("echo c", LONG)).text == "c\n"

    in_session(work)


def test_a_command_that_follows_one_without_end_is_refused_until_that_is_interrupted() -> None:
    async def work(session: BoxSession, box: LentBox) -> None:
        with pytest.raises(TimeoutError):
            await session.run("sleep 98765", 0.3)
        for _ in range(2):
            with pytest.raises(TimeoutError, match="interrupt it"):
                await session.run("echo early", 0.3)
        await session.interrupt(LONG, 1)
        assert (await session.run("echo on", LONG)).text == "on\n"

    in_session(work)


def test_what_ignores_an_interrupt_is_killed_and_the_session_goes_on() -> None:
    stubborn = "bash -c 'trap \"\" INT; while true; do sleep 60; done' & wait; bash -c"
    stubborn += " 'trap \"\" INT; echo begun; while true; do sleep 60; done'"

    async def work(session: BoxSession, box: LentBox) -> None:
        await session.run("X=kept", LONG)
        with pytest.raises(TimeoutError):
            await session.run(stubborn.partition("wait; ")[2], 1.0)
        shown = await session.interrupt(0.3, 2)
        assert (shown.status, session.runs) == (137, False)
        assert (await session.run("echo $X; pgrep -c sleep", LONG)).text == "kept\n0\n"

    in_session(work)


def test_a_program_that_asks_is_answered_line_by_line() -> None:
    async def work(session: BoxSession, box: LentBox) -> None:
        begun = await session.write("python3 -i", LONG, [">>> "])
        assert (begun.expected, begun.status, session.runs) == (">>> ", None, True)
        assert (await session.write("6 * 7", LONG, [">>> "])).text == "42\n"
        ended = await session.write("import sys; sys.exit(3)", LONG)
        assert (ended.status, session.runs) == (3, False)

    in_session(work)


def test_a_shell_that_ends_says_so() -> None:
    for end in ("exit 3", "kill -9 $$", "exec true"):

        async def work(session: BoxSession, box: LentBox, end: str = end) -> None:
            with pytest.raises(SessionEndedError):
                await session.run(end, LONG)
            await session.close()
            assert (await box.run("echo on")).stdout == b"on\n"

        in_session(work)


def test_sessions_are_apart_and_can_follow_each_other_without_end() -> None:
    async def work(session: BoxSession, box: LentBox) -> None:
        await session.run("X=1", LONG)
        for _ in range(12):
            other = await BoxSession.open(box)
            assert (await other.run("echo -$X-", LONG)).text == "--\n"
            await other.close()
        assert (await session.run("echo -$X-", LONG)).text == "-1-\n"

    in_session(work)


def test_a_command_does_not_know_by_what_we_see_its_end() -> None:
    async def work(session: BoxSession, box: LentBox) -> None:
        mark = session._prompt.pattern.decode()[1:33]
        seen = await session.run(
            "env; cat /proc/$$/environ /proc/self/environ | tr '\\0' '\\n'", LONG
        )
        assert "PATH=" in seen.text
        own = await session.run("bash -c 'env; echo ${PROMPT_COMMAND-none}'", LONG)
        assert own.text.endswith("none\n")
        assert mark not in own.text

    in_session(work)


def test_output_without_end_is_bounded_and_keeps_its_beginning_and_end() -> None:
    async def work(session: BoxSession, box: LentBox) -> None:
        shown = await session.run("echo first; yes | head -c 5000000; echo last", LONG)
        assert shown.text.startswith("first\n")
        assert shown.text.endswith("last\n")
        assert CUT.decode() in shown.text
        assert len(shown.text) < 500_000
        with pytest.raises(TimeoutError):
            await session.run("yes", 1.0)
        assert len(session._seen) < 500_000
        await session.interrupt(LONG, 1)

    in_session(work, most=10_000)
