"""A server of swe-rex's runtime over a box, for SWE-agent and others that call one: `python -m
assay.integrations.swe_rex --tree a/folder`. Its clients need no Docker, and no change.

It opens one box, which ends with the call `close`; the next call opens another.
"""

from __future__ import annotations

import asyncio
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from secrets import compare_digest, token_urlsafe
from typing import Annotated, Any, Literal

import typer
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from assay.errors import AssayError, SandboxError, UserError
from assay.integrations.box_session import BoxSession, SessionEndedError, Shown
from assay.integrations.lent_box import LONGEST_SECONDS, CommandCause, LentBox
from assay.integrations.serve import listening, token_of, until_stopped
from assay.sandbox.kernel import MIB
from assay.sync import unless

OUTPUT_BYTES = 8 * MIB
BODY_BYTES = 256 * MIB
UNPACKED_BYTES = 1024 * MIB
TRANSFERRED = 511
"""The status of an answer that is an error, which the client raises."""
CLIENT_GONE = 499
"""The status of what nobody waits for."""
OpenBox = Callable[[], Awaitable[LentBox]]
Seconds = Annotated[float, Field(allow_inf_nan=False)]


class NewSession(BaseModel):
    """What `create_session` gets."""

    session: str = "default"
    startup_source: list[str] = []
    startup_timeout: Seconds = 1.0


class BashAction(BaseModel):
    """A command of `run_in_session`."""

    action_type: Literal["bash"] = "bash"
    command: str
    session: str = "default"
    timeout: Seconds | None = None
    is_interactive_command: bool = False
    is_interactive_quit: bool = False
    check: Literal["silent", "raise", "ignore"] = "raise"
    error_msg: str = ""
    expect: list[str] = []


class InterruptAction(BaseModel):
    """An interrupt of `run_in_session`."""

    action_type: Literal["bash_interrupt"]
    session: str = "default"
    timeout: Seconds = 0.2
    n_retry: int = 3
    expect: list[str] = []


class Command(BaseModel):
    """What `execute` gets."""

    command: str | list[str]
    timeout: Seconds | None = None
    shell: bool = False
    check: bool = False
    error_msg: str = ""
    env: dict[str, str] | None = None
    cwd: str | None = None
    merge_output_streams: bool = False


class OldSession(BaseModel):
    """What `close_session` gets."""

    session: str = "default"


class FileToRead(BaseModel):
    """What `read_file` gets."""

    path: str
    encoding: str | None = None
    errors: str | None = None


class FileToWrite(BaseModel):
    """What `write_file` gets."""

    path: str
    content: str


Action = TypeAdapter[BashAction | InterruptAction](
    Annotated[BashAction | InterruptAction, Field(discriminator="action_type")]
)
Answer = dict[str, Any]


class TransferredError(Exception):
    """An error that the client raises as its own. name: the class, by its place in swerex."""

    def __init__(self, name: str, message: str, **extra: str) -> None:
        super().__init__(message)
        self.place, self.extra = f"swerex.exceptions.{name}", extra


class RuntimeServer:
    """The calls of a runtime, on one box and its sessions."""

    def __init__(self, open_box: OpenBox) -> None:
        self._open_box = open_box
        self._box: LentBox | None = None
        self._opening, self._creating = asyncio.Lock(), asyncio.Lock()
        self._sessions: dict[str, tuple[BoxSession, asyncio.Lock]] = {}
        self.failure = ""
        """How the machine has failed the box; empty where it has not."""
        self.closes = 0
        """How many boxes were asked to end, with the calls that ran there."""

    async def box(self) -> LentBox:
        """The box, which is opened for the first call."""
        async with self._opening:
            if self._box is None:
                self._box = await self._open_box()
            return self._box

    async def create_session(self, call: NewSession) -> Answer:
        """Start a bash, and run files in it."""
        name, output = call.session, ""
        async with self._creating:
            if name in self._sessions:
                raise TransferredError("SessionExistsError", f"session {name} already exists")
            try:
                session = await BoxSession.open(await self.box(), OUTPUT_BYTES)
            except ValueError as error:
                raise TransferredError("SwerexException", str(error)) from None
            self._sessions[name] = session, (turn := asyncio.Lock())
        if call.startup_source:
            text = "; ".join(f"source {path}" for path in call.startup_source)
            action = BashAction(command=text, timeout=max(1.0, call.startup_timeout))
            async with turn:
                output = (await self._shown(name, session, action)).text
        return {"output": output, "session_type": "bash"}

    async def run_in_session(self, action: BashAction | InterruptAction) -> Answer:
        """Run a command in a bash, or interrupt what runs there."""
        _, turn = self._session(action.session)
        async with turn:
            session, _ = self._session(action.session)  # it may have ended meanwhile
            output = await self._shown(action.session, session, action)
        status: int | None = 0
        if isinstance(action, BashAction) and not (
            action.is_interactive_command or action.is_interactive_quit
        ):
            status = None if action.check == "ignore" else output.status
            if action.check == "raise" and status != 0:
                raise failed(action.command, status, output.text, action.error_msg)
        return {
            "output": output.text, "exit_code": status, "failure_reason": "",
            "expect_string": output.expected, "session_type": "bash",
        }  # fmt: skip

    async def close_session(self, call: OldSession) -> Answer:
        """End a bash."""
        _, turn = self._session(call.session)
        async with turn:
            session, _ = self._session(call.session)
            self._sessions.pop(call.session)
            await session.close()
        return {"session_type": "bash"}

    async def execute(self, call: Command) -> Answer:
        """Run a command beside the sessions."""
        argv = [call.command] if isinstance(call.command, str) else call.command
        done = await (await self.box()).run(
            ["sh", "-c", *argv] if call.shell else argv, folder=call.cwd or "",
            environment=call.env, merged=call.merge_output_streams, output_bytes=OUTPUT_BYTES,
            seconds=LONGEST_SECONDS if call.timeout is None else call.timeout,
        )  # fmt: skip
        if done.cause is CommandCause.TIME:
            text = f"Timeout ({call.timeout}s) exceeded while running command"
            raise TransferredError("CommandTimeoutError", text)
        if done.cause is CommandCause.NOT_STARTED:
            raise OSError(done.error, os.strerror(done.error), (argv or [""])[0])
        out, err = (each.decode(errors="backslashreplace") for each in (done.stdout, done.stderr))
        if call.check and not done.ok:
            raise failed(str(call.command), done.status, f"{out}\n{err}", call.error_msg)
        return {"stdout": out, "stderr": err, "exit_code": done.status}

    async def read_file(self, call: FileToRead) -> Answer:
        """The text of a file."""
        data = await (await self.box()).get(call.path, BODY_BYTES)
        text = data.decode(call.encoding or "utf-8", call.errors or "strict")
        return {"content": text.replace("\r\n", "\n").replace("\r", "\n")}

    async def write_file(self, call: FileToWrite) -> Answer:
        """Write a text."""
        await (await self.box()).put(call.path, call.content.encode())
        return {}

    async def upload(self, data: bytes, target: str, unzip: bool) -> Answer:
        """Write a file, or those of a zip archive below a folder. Raises ValueError for what is
        none, or holds more than UNPACKED_BYTES.
        """
        box = await self.box()
        if not unzip:
            await box.put(target, data)
            return {}
        try:
            archive = zipfile.ZipFile(io.BytesIO(data))
        except zipfile.BadZipFile as error:
            raise ValueError(str(error)) from None
        with archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > UNPACKED_BYTES:
                raise ValueError(f"the archive holds more than {UNPACKED_BYTES} bytes")
            folders = [f"{target}/{entry.filename}" for entry in entries if entry.is_dir()]
            folders_made = await box.run(["mkdir", "-p", "--", target, *folders])
            if not folders_made.ok:
                raise OSError(folders_made.stderr.decode("utf-8", "replace"))
            for entry in entries:
                if not entry.is_dir():
                    executable = bool(entry.external_attr >> 16 & 0o111)
                    content = await asyncio.to_thread(content_of, archive, entry)
                    await box.put(f"{target}/{entry.filename}", content, executable)
        return {}

    async def close(self) -> Answer:
        """End the box; the next call opens another."""
        box, self._box, self.failure = self._box, None, ""
        self.closes += 1
        self._sessions.clear()
        if box is not None:
            await box.close()
        return {}

    def _session(self, name: str) -> tuple[BoxSession, asyncio.Lock]:
        if name not in self._sessions:
            raise TransferredError("SessionDoesNotExistError", f"session {name!r} does not exist")
        return self._sessions[name]

    async def _shown(
        self, name: str, session: BoxSession, action: BashAction | InterruptAction
    ) -> Shown:
        """What a session shows. One that has ended is forgotten."""
        try:
            if isinstance(action, InterruptAction):
                return await session.interrupt(action.timeout, action.n_retry, action.expect)
            seconds = LONGEST_SECONDS if action.timeout is None else action.timeout
            asks = session.runs and not session.is_late
            if action.is_interactive_command or action.is_interactive_quit or asks:
                return await session.write(action.command, seconds, action.expect)
            await self._require_bash(action.command)
            return await session.run(action.command, seconds, action.expect)
        except SessionEndedError as error:
            self._sessions.pop(name, None)
            await session.close()
            raise TransferredError("NoExitCodeError", str(error)) from None
        except TimeoutError as error:
            what = "an interrupt" if isinstance(action, InterruptAction) else action.command
            raise TransferredError("CommandTimeoutError", f"{what!r} {error}") from None

    async def _require_bash(self, text: str) -> None:
        """Raises the client's error for a command that bash cannot parse."""
        done = await (await self.box()).run(("bash", "-n"), stdin=text.encode("utf-8", "replace"))
        if done.cause is CommandCause.NONE and done.status:
            out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
            message = f"{text!r} is no command of bash: {err}"
            raise TransferredError(
                "BashIncorrectSyntaxError", message, bash_stdout=out, bash_stderr=err
            )


def content_of(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """The content of a file in an archive. Raises ValueError for one that cannot be read."""
    try:
        return archive.read(entry)
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, RuntimeError, EOFError) as error:
        raise ValueError(f"{entry.filename} in the archive: {error}") from None


def failed(command: str, status: int | None, output: str, message: str) -> TransferredError:
    """The client's error for a command with another status than 0."""
    text = f"Command {command!r} failed with exit code {status}. Here is the output:\n{output!r}"
    return TransferredError("NonZeroExitCodeError", f"{message}: {text}" if message else text)


def transferred(error: Exception) -> JSONResponse:
    """An answer by which the client raises an error: swe-rex's own, or one of Python's."""
    place = f"builtins.{type(error).__name__}"
    if isinstance(error, TransferredError):
        place = error.place
    elif isinstance(error, UserError | SandboxError):
        place = "swerex.exceptions.SwerexException"
    extra = error.extra if isinstance(error, TransferredError) else {}
    content = {"message": str(error), "class_path": place, "traceback": "", "extra_info": extra}
    return JSONResponse({"swerexception": content}, TRANSFERRED)


def refused(status: int, detail: str) -> JSONResponse:
    """An answer to what is no call."""
    return JSONResponse({"detail": detail}, status)


async def body_of(request: Request) -> bytes | None:
    """The body; None where it is too large."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES:
            return None
    return bytes(body)


def parts_of(body: bytes, content_type: str) -> dict[str, bytes]:
    """The parts of a form by their names. Raises ValueError for what is no such form."""
    kind, _, boundary = content_type.partition("boundary=")
    if not kind.startswith("multipart/form-data") or not boundary:
        raise ValueError("the body is no form of several parts")
    parts = {}
    for part in (b"\r\n" + body).split(b"\r\n--" + boundary.partition(";")[0].strip('"').encode())[
        1:-1
    ]:
        head, _, content = part.partition(b"\r\n\r\n")
        _, name_start, rest = head.partition(b'name="')
        if name_start:
            parts[rest.partition(b'"')[0].decode("utf-8", "replace")] = content
    return parts


async def hang_up(request: Request) -> None:
    """Wait until the client has gone, whose body was read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def build(runtime: RuntimeServer, token: str) -> Starlette:
    """The application. token: what each request must have as X-API-Key."""
    calls: Mapping[str, tuple[Any, Callable[[Any], Coroutine[Any, Any, Answer]]]] = {
        "create_session": (TypeAdapter(NewSession), runtime.create_session),
        "run_in_session": (Action, runtime.run_in_session),
        "close_session": (TypeAdapter(OldSession), runtime.close_session),
        "execute": (TypeAdapter(Command), runtime.execute),
        "read_file": (TypeAdapter(FileToRead), runtime.read_file),
        "write_file": (TypeAdapter(FileToWrite), runtime.write_file),
    }

    async def answer(request: Request) -> JSONResponse:
        key = request.headers.get("x-api-key", "")
        if not compare_digest(key.encode(), token.encode()):
            return refused(401, "Invalid API Key")
        name = request.url.path.strip("/")
        if name == "is_alive":
            return JSONResponse({"is_alive": not runtime.failure, "message": runtime.failure})
        if (body := await body_of(request)) is None:
            return refused(413, f"the body has more than {BODY_BYTES} bytes")
        closes = runtime.closes
        try:
            if name == "close":
                return JSONResponse(await runtime.close())
            if name == "upload":
                parts = parts_of(body, request.headers.get("content-type", ""))
                target, unzip = parts["target_path"].decode(), parts.get("unzip") == b"true"
                work = runtime.upload(parts["file"], target, unzip)
            else:
                model, call = calls[name]
                try:
                    work = call(model.validate_json(body))
                except ValidationError as error:
                    return refused(422, str(error))
            done = await unless(hang_up(request), work)
            return (
                refused(CLIENT_GONE, "the client has gone") if done is None else JSONResponse(done)
            )
        except KeyError as error:
            return refused(422, f"the form has no part {error}")
        except SandboxError as error:
            if runtime.closes == closes:
                runtime.failure = str(error)
            return transferred(error)
        except (TransferredError, UserError, OSError, ValueError, LookupError) as error:
            return transferred(error)

    routes = [Route("/is_alive", answer)]
    routes += [Route(f"/{name}", answer, methods=["POST"]) for name in (*calls, "upload", "close")]
    return Starlette(routes=routes)


def main(
    tree: Annotated[Path | None, typer.Option(help="Folder whose files the box holds.")] = None,
    folder: Annotated[str, typer.Option(help="Path of the work folder in the box.")] = "/testbed",
    image: Annotated[Path | None, typer.Option(help="Unpacked image that is the root.")] = None,
    writable: Annotated[list[str], typer.Option(help="More folders to write to.")] = ["/root"],  # noqa: B006
    host: Annotated[str, typer.Option()] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8000,
    token_file: Annotated[Path | None, typer.Option(help="File with the key of clients.")] = None,
) -> None:
    """Serve a box to clients of swe-rex until a signal stops it."""

    async def open_box() -> LentBox:
        return await LentBox.open(tree, folder=folder, image=image, writable=writable)

    async def serve() -> None:
        own_token = token_of(host, token_file)
        token = own_token or token_urlsafe(32)
        key_text = "" if own_token else f" with the key {token}"
        runtime = RuntimeServer(open_box)
        with listening(host, port) as listener:
            await runtime.box()
            try:
                await until_stopped(
                    build(runtime, token), listener,
                    lambda origin: typer.echo(f"a box is served on {origin}{key_text}"),
                )  # fmt: skip
            finally:
                await runtime.close()

    try:
        asyncio.run(serve())
    except AssayError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2 if isinstance(error, UserError) else 3) from None


if __name__ == "__main__":
    typer.run(main)
