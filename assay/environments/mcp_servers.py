"""The MCP servers of a shell: what its boxes show for them, and what tools they bring."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

from assay.environments.mcp_client import McpClient, McpError, ToolAnswer
from assay.errors import RolloutLostError, SettingsError, UserError
from assay.paths import whole_path
from assay.sandbox.box import MOST_DAEMONS, Box
from assay.sandbox.box_init import BoxSpec
from assay.sandbox.boxes import Boxes
from assay.sandbox.isolation import probe_isolation
from assay.sync import run_sync
from assay.tools import Tool
from assay.types import last_words

Commands = Mapping[str, Sequence[str]]
"""The commands that start servers, by the names that the user gives to these."""
PYTHON = re.compile(r"python[\d.]*")
CONFIG = "pyvenv.cfg"
"""What the folder of a virtual environment has."""
LIBRARIES = ("lib/python3*", "lib/libpython3*")
"""What an interpreter needs beside its program."""
START_SECONDS = 60.0
"""How long a server may take to start, and to list its tools."""


def words_of(command: Sequence[str]) -> list[str]:
    """The words of a command, which runs in another folder: those that name a file here are its
    whole path, and so is the program, which is found as your shell finds it. Raises SettingsError
    for a shim that starts no interpreter.
    """
    program = shutil.which(command[0]) or command[0]
    if "shims" in Path(program).parts and PYTHON.fullmatch(Path(program).name):
        status = Path(program).stat()
        program = interpreter_of(program, Path.cwd(), (status.st_ino, status.st_mtime_ns))
    return [*map(whole_path, [program, *command[1:]])]


@lru_cache(maxsize=16)
def interpreter_of(shim: str, folder: Path, stamp: tuple[int, int]) -> str:
    """The interpreter that a shim of pyenv, asdf or mise starts in a folder; no box has these
    managers. stamp: the shim's inode and time. Raises SettingsError where it starts none.
    """
    question = [shim, "-I", "-c", "import sys; print(sys.executable)"]
    try:
        answer = subprocess.run(
            question, cwd=folder, stdin=subprocess.DEVNULL, check=True, capture_output=True,
            text=True, timeout=START_SECONDS,
        )  # fmt: skip
        path = Path(answer.stdout.splitlines()[-1])
        path.stat()
        return str(path)
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        why = last_words(getattr(error, "stderr", None) or str(error), 400)
        raise SettingsError(
            f"setting 'environment.mcp': {shim} starts no interpreter ({why}); name its whole path"
        ) from None


def shown_files(commands: Commands, folders: Sequence[str]) -> tuple[Path, ...]:
    """What a box shows read-only: the files that the commands name, the virtual environments and
    the standard libraries of their interpreters, and `folders`.
    """
    words = [words_of(command) for command in commands.values()]
    files = [Path(word) for word in chain(*words) if Path(word).is_absolute()]
    programs = [Path(program) for program, *_ in words if Path(program).is_absolute()]
    homes = {each.parent.parent for each in programs if (each.parent.parent / CONFIG).is_file()}
    real = {each.resolve() for each in programs if PYTHON.fullmatch(each.name)}
    installed = {each for each in real if each.parent.parent not in (Path("/"), Path("/usr"))}
    libraries = {
        path for each in installed for pattern in LIBRARIES
        for path in each.parent.parent.glob(pattern)
    }  # fmt: skip
    more = (Path(folder).absolute() for folder in folders)
    return (*sorted(homes), *sorted(installed | libraries), *more, *files)


@dataclass(frozen=True, slots=True)
class OpenServers:
    """Servers that run in a box."""

    tools: tuple[Tool, ...] = ()
    """What they list."""
    clients: Mapping[str, McpClient] = field(default_factory=dict)
    """By the names of tools."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The server of each tool."""

    async def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> ToolAnswer:
        """What a tool answers. Raises McpError."""
        tool = next(tool for tool in self.tools if tool.name == name)
        try:
            return await self.clients[name].call(tool, arguments, seconds)
        except McpError as error:
            raise McpError(f"the MCP server {self.names[name]!r} {error}") from None


async def open_servers(box: Box, commands: Commands) -> OpenServers:
    """Start the servers in a box, where they stay until that is closed. Raises McpError."""
    tools, clients, names = list[Tool](), dict[str, McpClient](), dict[str, str]()
    for server, command in commands.items():
        client = McpClient(box, await box.start(words_of(command)))
        try:
            await client.open(version("assay"), START_SECONDS)
            listed = await client.tools(START_SECONDS)
        except McpError as error:
            raise McpError(f"the MCP server {server!r} {error}") from None
        for tool in listed:
            tools.append(tool)
            if tool.name in names:
                raise McpError(
                    f"the MCP server {server!r} lists a tool {tool.name!r}, which"
                    f" {names[tool.name]!r} lists too"
                )
            names[tool.name], clients[tool.name] = server, client
    return OpenServers(tuple(tools), clients, names)


def list_tools(commands: Commands, folders: Sequence[str]) -> tuple[Tool, ...]:
    """The tools that the servers list in a box with an empty work folder. Raises SettingsError for
    servers that cannot be used, SandboxError where there is no box.
    """
    if not commands:
        return ()
    if len(commands) > MOST_DAEMONS or not all(words and words[0] for words in commands.values()):
        raise SettingsError(
            f"setting 'environment.mcp': it names up to {MOST_DAEMONS} servers, each with the words"
            " of its command, as search = ['python', 'server.py']"
        )
    if absent := [folder for folder in folders if not Path(folder).exists()]:
        raise SettingsError(f"setting 'environment.mcp_roots': there is no {absent[0]}")
    try:
        return run_sync(_listed(commands, folders))
    except McpError as error:
        raise SettingsError(
            f"setting 'environment.mcp': {error}; it runs in a box without network that shows the"
            " files of its command and the folders of environment.mcp_roots"
        ) from None


async def _listed(commands: Commands, folders: Sequence[str]) -> tuple[Tool, ...]:
    boxes = Boxes(probe_isolation().walls)
    try:
        with tempfile.TemporaryDirectory() as tree:
            spec = BoxSpec(Path(tree), roots=shown_files(commands, folders))
            async with boxes.open(spec) as box:
                return (await open_servers(box, commands)).tools
    finally:
        await boxes.close()


async def reopen_servers(box: Box, commands: Commands, offered: Sequence[Tool]) -> OpenServers:
    """Start the servers in a rollout's box. Raises RolloutLostError where one does not start that
    has done so before, UserError where the tools are not those that the policy is `offered`.
    """
    try:
        servers = await open_servers(box, commands)
    except McpError as error:
        raise RolloutLostError(str(error)) from None
    if servers.tools != tuple(tool for tool in offered if tool.input_schema is not None):
        raise UserError(
            f"environment 'shell': the MCP servers {', '.join(commands)} list other tools, or other"
            " texts or schemas, than when the run began; all rollouts need the same: make their"
            " lists independent of the work folder, the time and chance"
        )
    return servers
