"""Every block of code in README and docs is run as it stands, in the folder of a newcomer.

The first words of a fence say what a block is. `sh` runs in bash. `python` runs as a script.
`python NAME`, `toml NAME`, `json NAME` and `jsonl NAME` are files that later blocks use; a NAME in
`assay/` is an excerpt of that file. A block that begins with `# assay/FILE` quotes functions of it,
as tests/algorithms/test_grpo_page.py checks. `pycon` is a doctest. `text` and `json` are output.
`sh not run: WHY` needs what this machine does not have.
"""

from __future__ import annotations

import doctest
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
LANGUAGES = ("sh", "python", "pycon", "toml", "json", "jsonl", "text", "verilog")
SHORT_DEMO = [
    *("--stages.sft.epochs", "0.1", "--stages.grpo.rollout.tasks_per_step", "1"),
    *("--stages.grpo.rollout.group_size", "2", "--evaluate.limit", "4", "--evaluate.samples", "1"),
]
"""The demo with its 50 steps, each of two completions."""
NOT_RUN = re.compile(
    r"^(?:make|git clone|cd|pip install|python3 -m venv|\. |source |assay view \S+$)"
)
"""Lines that install or run what CI installs and runs by itself."""


@dataclass(frozen=True)
class Block:
    language: str
    name: str
    """The file that it is; empty for what is run."""
    why_not_run: str
    source: str


def blocks_of(page: Path) -> list[Block]:
    blocks = []
    for info, source in FENCE.findall(page.read_text()):
        language, _, rest = info.strip().partition(" ")
        why = rest.removeprefix("not run:").strip() if rest.startswith("not run:") else ""
        blocks.append(Block(language, "" if why else rest.strip(), why, source))
    return blocks


WITH_CODE = [page for page in PAGES if any(block.language != "text" for block in blocks_of(page))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_says_what_it_is(page: Path) -> None:
    for block in blocks_of(page):
        assert block.language in LANGUAGES, block
        if block.language in ("toml", "jsonl"):
            assert block.name or block.why_not_run, f"a file without a name: {block.source}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_excerpts_stand_in_their_files(page: Path) -> None:
    for block in blocks_of(page):
        if block.name.startswith("assay/"):
            source = (ROOT / block.name).read_text()
            excerpt = block.source.strip()
            assert re.sub(r"\n +", "\n", excerpt) in re.sub(r"\n +", "\n", source)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_shows_of_an_interpreter_is_what_it_answers(page: Path) -> None:
    shown = "\n".join(block.source for block in blocks_of(page) if block.language == "pycon")
    examples = doctest.DocTestParser().get_doctest(shown, {}, page.name, str(page), 0)
    assert doctest.DocTestRunner().run(examples).failed == 0


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make demo` leaves behind, after a short run."""
    folder = tmp_path_factory.mktemp("demo")
    shutil.copytree(ROOT / "recipes", folder / "recipes")
    command = [sys.executable, "-m", "assay", "train", "recipes/demo.toml", *SHORT_DEMO]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def newcomer(demo: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder with the demo's run; whatever is started there ends with the test."""
    folder = tmp_path / "newcomer"
    shutil.copytree(demo, folder)
    for block in blocks_of(ROOT / "README.md"):
        if block.name == "my_tasks.jsonl":
            (folder / block.name).write_text(block.source)
    yield folder
    for file in folder.glob(".pids/*"):
        os.killpg(int(file.name), signal.SIGKILL)


def run(block: Block, folder: Path, page: str) -> None:
    bin_folder = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}", "COLUMNS": "120"}
    if block.language == "python":
        command = [sys.executable, "-c", block.source]
    else:
        lines = [line for line in block.source.splitlines() if not NOT_RUN.match(line)]
        command = ["bash", "-euo", "pipefail", "-c", "\n".join(lines)]
    with (folder / ".output").open("w+") as output:
        started = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        (folder / ".pids").mkdir(exist_ok=True)
        (folder / ".pids" / str(started.pid)).touch()
        code = started.wait()
        if "&\n" not in block.source:
            (folder / ".pids" / str(started.pid)).unlink()
        output.seek(0)
        assert code == 0, f"{page}: {block.source}\n{output.read()}"
    if "assay serve" in block.source:
        wait_for_port(8080)


def wait_for_port(port: int) -> None:
    for _ in range(300):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise AssertionError(f"nobody listens on port {port}")


@pytest.mark.long
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_every_block_runs_as_it_stands(page: Path, newcomer: Path) -> None:
    for block in blocks_of(page):
        if block.name.startswith("assay/") or block.source.startswith("# assay/"):
            continue
        if block.name:
            (newcomer / block.name).write_text(block.source)
        elif block.language in ("sh", "python") and not block.why_not_run:
            run(block, newcomer, page.name)


def test_what_is_not_run_here_ci_runs_or_no_machine_of_ours_can() -> None:
    ci = (ROOT / ".ci" / "run").read_text()
    for page in PAGES:
        for block in blocks_of(page):
            for target in re.findall(r"^make (\w[\w-]*)", block.source, flags=re.MULTILINE):
                if block.language == "sh":
                    assert f"make {target}" in ci, f"{page.name} shows `make {target}`"
            if block.why_not_run:
                assert re.search(
                    r"GPU|hub|cluster|extra|endpoint|hour|pyproject", block.why_not_run
                ), block.why_not_run
