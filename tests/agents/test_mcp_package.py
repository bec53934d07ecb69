"""A server written with the real `mcp` package, in the box of a shell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from assay.extract.call_formats import call_formats
from assay.types import ToolCall
from tests.agents.outside import ENVIRONMENTS
from tests.environments.test_shell import SUBMIT, worked
from tests.policy.test_chat_templates import chat_of
from tests.sandbox.test_box import needs_namespaces

pytestmark = [pytest.mark.agents, needs_namespaces]
"""An event loop of Python's needs a pair of sockets, which boxes without namespaces refuse."""
SERVER = '''
import subprocess
from pathlib import Path

from mcp.server.fastmcp import Context, FastMCP, Image
from mcp.types import SamplingMessage, TextContent

server = FastMCP("notes")
KEPT = []


@server.tool()
def keep(text: str, times: int = 1) -> list[str]:
    """Keep a text."""
    KEPT.extend([text] * times)
    return KEPT


@server.tool()
def lines(path: str) -> str:
    """Count a file's lines."""
    done = subprocess.run(["wc", "-l", path], capture_output=True, text=True, check=True)
    return done.stdout.split()[0]


@server.tool()
async def ask(context: Context) -> str:
    """Ask the client's model."""
    await context.info("I ask.")
    await context.report_progress(1, 2)
    question = SamplingMessage(role="user", content=TextContent(type="text", text="Hm?"))
    try:
        await context.session.create_message([question], max_tokens=5)
    except Exception as error:
        return f"refused: {error}"
    return "answered"


@server.tool(structured_output=False)
def picture() -> list[object]:
    """Show a picture."""
    return ["a dot", Image(data=b"x", format="png")]


server.run()
'''


@pytest.fixture
def command() -> Iterator[list[str]]:
    python = ENVIRONMENTS / "mcp" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"there is no {python}: make test-agents builds it")
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(folder) / "server.py"
        file.write_text(SERVER)
        file.chmod(0o644)
        yield [str(python), str(file)]


def calls(*each: tuple[str, dict[str, Any]]) -> str:
    return call_formats["hermes"].write([ToolCall(name, values) for name, values in each])


def test_tools_of_a_server_of_the_mcp_package_are_called_in_a_box(
    command: list[str], tmp_path: Path
) -> None:
    rollout = worked(
        tmp_path, calls(("keep", {"text": "a"}), ("keep", {"text": "b", "times": 2})),
        calls(("bash", {"command": "echo '# x' >> calc.py"}), ("lines", {"path": "calc.py"})),
        calls(("lines", {"path": "absent"}), ("keep", {"text": 5}), ("keep", {"text": "c"})),
        calls(("ask", {}), ("picture", {})),
        calls(("bash", {"command": SUBMIT})), chat=chat_of(tmp_path / "chat", "qwen3"),
        mcp={"notes": command},
    )  # fmt: skip
    kept, counted, wrong, others, _ = (turn.results for turn in rollout.turns)
    assert [text.split("\n")[2:] for text in kept] == [["a</output>"], ["a", "b", "b</output>"]]
    assert counted[1].endswith("\n7</output>")
    assert [text[:27] for text in wrong] == ["<returncode>1</returncode>\n"] * 2 + [
        "<returncode>0</returncode>\n"
    ]
    assert "valid string" in wrong[1]
    assert "refused: this client offers nothing to servers" in others[0]
    assert others[1].endswith("a dot\n[image, which is no text]</output>")
