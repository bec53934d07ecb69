"""An outside agent as an environment: a command of the user's calls the policy at an endpoint, and
what it leaves behind is judged.
"""

import asyncio
import logging
import os
import shutil
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from typing import IO, Literal

from pydantic import PositiveFloat, PositiveInt

from assay import extract
from assay.environments import (
    CallLimits,
    PolicyEndpoint,
    ReportedConversation,
    environment,
    reported,
)
from assay.environments.agent_report import VARIABLE, AgentReport, ReportSocket
from assay.errors import DataError, RolloutLostError, SettingsError, UserError
from assay.files import write_atomically
from assay.paths import opened, whole_path
from assay.types import Task, last_words, printable

log = logging.getLogger(__name__)
OUTPUT_BYTES = 1 << 20
"""The most of the agent's answer, and the ends of its standard output and error that are read."""
MOST_WRITTEN = 1 << 28
"""Bytes of standard output or error beyond which an agent is ended."""
END_SECONDS = 10.0
"""Time in which its processes must end; they are killed."""
ROOT = Path(__file__).parents[2]
"""Where the package is found, whatever the agent's environment."""
REAPER = (sys.executable, "-E", "-s", "-m", "assay.agents.reaper")
SHOWN = 400
"""Characters of its standard error that an error shows."""
COPIED = ("PATH", "LANG", "LC_ALL", "TZ")
"""The variables of this process that the agent's has too."""


@environment
async def program(
    conversation: ReportedConversation,
    *,
    command: tuple[str, ...] | str = (),
    turns: PositiveInt = 50,
    tokens: PositiveInt | None = None,
    seconds: PositiveFloat = 900.0,
    answer: str = "",
    paid_roots: Literal["first", "all"] = "first",
    at_once: PositiveInt = 128,
) -> None:
    """Run your own agent, which calls the policy at an endpoint of its own: `command` is a list of
    words or a line for the shell, for up to `seconds`, `turns` calls and `tokens` sampled tokens.
    The file `answer` in its work folder is judged, or what it prints; where the task says that its
    agent reports the reward, nothing is. Up to `at_once` agents run at a time (docs/agents.md).
    """
    require_command(command)
    async with agent_folder() as folder:
        work, task_file = folder / "work", folder / "task.txt"
        work.mkdir()
        write_atomically(task_file, prompt_of(conversation.task))
        check = reported(conversation.task)
        limits = CallLimits(turns, seconds, tokens, paid_roots, at_once, is_polite=check is None)
        async with conversation.endpoint(limits) as endpoint:
            variables = variables_of(endpoint, task_file, work) | budget_of(limits)
            if check is not None:
                data_file = folder / "data.json"
                write_atomically(data_file, check.task_data)
                variables["ASSAY_TASK_DATA"] = str(data_file)
            agent = AgentProcess(words_of(command), variables, reports=check is not None)
            status = await agent.run(work, seconds)
        if check is not None:
            conversation.report(reward_of(endpoint, agent, status, seconds))
            return
        require_calls(endpoint, status, agent.stderr, seconds)
        text = read_answer(work, answer) if answer else agent.stdout
    if answer and text:
        conversation.submit(text)
    elif program_text := extract.program(conversation.task, text):
        conversation.submit(program_text)


@cache
def warn_of_no_answer(name: str) -> None:
    """Log, for the first rollout of which that is so, that its agent left no answer."""
    log.warning(
        "an agent left no file %r in its work folder, so there is no program to judge: it is"
        " environment.answer; this is said once",
        name,
    )


def require_command(command: Sequence[str] | str) -> None:
    """Raises SettingsError where there is none."""
    if not command:
        raise SettingsError(
            "setting 'environment.command' is missing: name your agent's command, as"
            " ['python', 'agent.py']"
        )


REMOVE = 'rm -rf -- "$1" 2>/dev/null || { chmod -R u+rwX -- "$1"; rm -rf -- "$1"; }'
"""Removes trees of any depth, and folders that nobody may write to."""


@asynccontextmanager
async def agent_folder() -> AsyncIterator[Path]:
    """A new folder, which is removed at the end. What cannot be removed is logged: it may belong to
    another user, or a process that outlived the agent writes to it.
    """
    name = mkdtemp(prefix="assay-agent-")
    try:
        yield Path(name)
    finally:
        remover = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", REMOVE, "sh", name, stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        _, errors = await remover.communicate()
        if remover.returncode:
            lines = printable(errors.decode("utf-8", "replace").strip()[-SHOWN:])
            log.warning("an agent's folder is not removed: %s", lines)


def prompt_of(task: Task) -> str:
    """What the agent's task file holds."""
    return "\n\n".join(message.content for message in task.messages) or task.prompt


def words_of(command: Sequence[str] | str) -> list[str]:
    """The words of a command, which runs in another folder: those that name a file here are its
    whole path.
    """
    if isinstance(command, str):
        return ["/bin/sh", "-c", command]
    return [*map(whole_path, command)]


def variables_of(endpoint: PolicyEndpoint, task_file: Path, work: Path) -> dict[str, str]:
    """The agent's environment: no key of the user's is in it."""
    copied = {name: os.environ[name] for name in COPIED if name in os.environ}
    return copied | {
        "HOME": str(work),
        "OPENAI_BASE_URL": endpoint.url,
        "OPENAI_API_BASE": endpoint.url,
        "OPENAI_API_KEY": endpoint.key,
        "ANTHROPIC_BASE_URL": endpoint.url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": endpoint.key,
        "ASSAY_TASK": str(task_file),
        "ASSAY_START": str(Path.cwd()),
        "PYTHONUNBUFFERED": "1",
    }


def budget_of(limits: CallLimits) -> dict[str, str]:
    """The variables that tell the agent what it may use. Without a limit of tokens it has none."""
    tokens = {} if limits.tokens is None else {"ASSAY_TOKENS": str(limits.tokens)}
    return {"ASSAY_TURNS": str(limits.calls), "ASSAY_SECONDS": f"{limits.seconds:g}"} | tokens


def reward_of(
    endpoint: PolicyEndpoint, agent: "AgentProcess", status: int | None, seconds: float
) -> float:
    """The reward that an agent reports. Raises UserError for one that says that it is broken, or
    reports nothing; RolloutLostError for one that died, whose time was over, or that lost its
    rollout; else as `require_calls`.
    """
    report = agent.report if status == 0 else AgentReport()
    if endpoint.failure:
        raise endpoint.failure
    if report.lost:
        raise RolloutLostError(f"the agent lost its rollout: {printable(report.lost[:SHOWN])}")
    if report.broken:
        raise UserError(
            f"the agent cannot run: {printable(report.broken[:SHOWN])}; fix environment.command"
        )
    require_calls(endpoint, status, agent.stderr, seconds)
    if report.reward is None:
        lines = last_words(agent.stderr, SHOWN)
        ended = f"was ended after {seconds:g} s" if status is None else f"died with status {status}"
        raise RolloutLostError(f"the agent {ended} and reported no reward: {lines}")
    return report.reward


def require_calls(
    endpoint: PolicyEndpoint, status: int | None, stderr: str, seconds: float
) -> None:
    """Raises the endpoint's failure; UserError for an agent that ended without a call, or whose
    calls were all refused, if need be until its time was over: it is broken. RolloutLostError for
    one that called and took no reply that is learned, or had no time to call.
    """
    if endpoint.failure:
        raise endpoint.failure
    if endpoint.learned:
        return
    if status is None and not endpoint.refusal:
        raise RolloutLostError(f"the agent had no reply of the policy within {seconds:g} s")
    if endpoint.received and not endpoint.refusal:
        raise RolloutLostError(
            f"the agent made {endpoint.received} calls and took no reply: its conversation is"
            " longer than the model's context, or it waits for less time than a reply takes"
        )
    lines = last_words(stderr, SHOWN) or "it wrote nothing to standard error"
    refused = f" (the last call was refused: {printable(endpoint.refusal[:SHOWN])})"
    did = f"made no good call{refused}" if endpoint.received else "did not call the policy"
    ended = f"was ended after {seconds:g} s" if status is None else f"exited with status {status}"
    raise UserError(
        f"the agent's command {ended} and {did}: {lines};"
        " fix environment.command (the agent finds the endpoint in OPENAI_BASE_URL and"
        " OPENAI_API_KEY)"
    )


def read_answer(work: Path, name: str) -> str:
    """The text of the agent's answer; empty where it left none, or a longer one than is read."""
    try:
        with opened(work / name) as file:
            data = file.read(OUTPUT_BYTES + 1)
    except (OSError, DataError):
        warn_of_no_answer(name)
        return ""
    if len(data) > OUTPUT_BYTES:
        log.warning("an agent's answer is longer than %d bytes: it is none", OUTPUT_BYTES)
        return ""
    return data.decode("utf-8", "replace")


class AgentProcess:
    """The agent's process and all that descend from it, which end with it: `agents/reaper` runs it.

    What may survive are processes of another user, which we cannot end, and where the reaper itself
    is killed, those that left the agent's session.
    """

    def __init__(
        self, words: Sequence[str], variables: dict[str, str], reports: bool = False
    ) -> None:
        self.words, self.variables, self.reports = words, variables, reports
        self.stdout = self.stderr = ""
        self.report = AgentReport()

    async def run(self, work: Path, seconds: float) -> int | None:
        """Its exit status; None where it was ended because its time was over. Raises SettingsError
        for a command that cannot start.
        """
        # files, not pipes: a process that left the group may hold a pipe open
        with TemporaryFile() as out, TemporaryFile() as err, ExitStack() as stack:
            report = stack.enter_context(ReportSocket()) if self.reports else None
            process = await self._start(work, out, err, report)
            try:
                with suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), seconds)
            finally:
                status = process.returncode
                await _end(process)
            self.stdout, self.stderr = _end_of(out), _end_of(err)
            if report:
                self.report = report.read()
        return status

    async def _start(
        self, work: Path, out: IO[bytes], err: IO[bytes], report: ReportSocket | None
    ) -> Process:
        if shutil.which(self.words[0], path=self.variables.get("PATH", os.defpath)) is None:
            raise SettingsError(
                f"setting 'environment.command': {self.words[0]!r} cannot start (there is no such"
                " program, or you may not run it); install it, or name its whole path"
            )
        words = [str(os.getpid()), str(work), str(MOST_WRITTEN), *self.words]
        number = {VARIABLE: str(report.descriptor)} if report else {}
        try:
            return await asyncio.create_subprocess_exec(
                *REAPER, *words, cwd=ROOT, env=self.variables | number,
                stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                pass_fds=(report.descriptor,) if report else (),
            )  # fmt: skip
        except OSError as error:
            raise RolloutLostError(f"the agent's process cannot start: {error}") from None


def _end_of(file: IO[bytes]) -> str:
    """The last part of what an agent wrote."""
    size = file.seek(0, os.SEEK_END)
    if size > OUTPUT_BYTES:
        log.warning("of %d bytes that an agent wrote the last %d are read", size, OUTPUT_BYTES)
    file.seek(max(0, size - OUTPUT_BYTES))
    return file.read(OUTPUT_BYTES).decode("utf-8", "replace")


async def _end(reaper: Process) -> None:
    """End an agent and what it has started."""
    with suppress(ProcessLookupError):
        reaper.terminate()
    try:
        await asyncio.wait_for(reaper.wait(), END_SECONDS)
    except TimeoutError:
        log.warning("an agent's processes do not end; some may go on")
        with suppress(ProcessLookupError):
            reaper.kill()
        await reaper.wait()
