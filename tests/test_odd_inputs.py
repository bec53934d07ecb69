"""Odd files at every argument that is a file or folder: one line that names it, exit code 2, and
nothing is written. No input may make a command wait.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay.cli import main
from assay.commands import options
from assay.files import naming, replacing, write_atomically
from assay.paths import is_special, read_bytes

RUN = 'steps = 1\nalgorithm.name = "grpo"\ntasks.train = "drills:train"\npolicy.tiny = {}\n'
TASK = '{"id": "add", "prompt": "Add.", "entry_point": "add", "tests": ["assert add(1, 2) == 3"]}\n'
SAMPLE = '{"task_id": "add", "completion": "def add(a, b): return a + b"}\n'
FILES = {"run.toml": RUN, "tasks.jsonl": TASK, "samples.jsonl": SAMPLE}

KINDS: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.touch(),
    "binary": lambda path: path.write_bytes(bytes(range(256)) * 40),
    "folder": lambda path: path.mkdir(),
    "pipe": os.mkfifo,
    "socket": lambda path: socket.socket(socket.AF_UNIX).bind(path.name),
    "missing": lambda path: None,
    "two\nlines": lambda path: None,
    "broken_link": lambda path: path.symlink_to("nowhere"),
    "circle": lambda path: path.symlink_to(path.name),
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "discards": lambda path: path.symlink_to("/dev/null"),
    "utf16": lambda path: path.write_text(TASK, encoding="utf-16"),
    "long_line": lambda path: path.write_text("x" * 5_000_000),
    "deep": lambda path: path.write_text("[" * 200_000),
    "nulls": lambda path: path.write_text("null\nnull\n"),
    "n" * 300: lambda path: None,
    "run.toml/inside": lambda path: None,
}
"""What lies at a path of that name; a path without a maker leads nowhere."""
READS = {
    "train {}": ".toml", "plan --quick {}": ".toml", "show-prompt {}": ".toml", "eval {}": ".toml",
    "train run.toml --tasks.train {}": ".jsonl", "train run.toml --tasks.train={}": ".parquet",
    "eval --model x --tasks {}": ".jsonl", "grade --samples samples.jsonl --tasks {}": ".jsonl",
    "grade --samples samples.jsonl --tasks={}": ".json",
    "grade --tasks {} --samples samples.jsonl": ".jsonl.gz",
    "grade --tasks={} --samples samples.jsonl": ".parquet",
    "grade --samples=samples.jsonl --tasks humaneval:{}": ".jsonl",
    "grade --tasks tasks.jsonl --samples {}": ".jsonl", "check {}": ".jsonl",
    "check tasks.jsonl --plugins {}": ".py", "overlap {} tasks.jsonl": ".jsonl",
    "overlap tasks.jsonl {}": ".jsonl", "screen x {} --output kept.jsonl": ".jsonl",
    "show {}": "", "show {} --sql=select": "", "view {} --export page.html": "",
    "compare {} tasks.jsonl": "", "make-tasks ./{} --output made": ".tar.gz",
}  # fmt: skip
"""Commands with a place for an odd file, and the ending of its name."""


@pytest.fixture(autouse=True)
def _within_seconds() -> Iterator[None]:
    """A command that waits for a pipe is stopped, and its test fails."""

    def stop(*_: object) -> None:
        raise TimeoutError("the command waits")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def answer(words: list[str], monkeypatch: pytest.MonkeyPatch) -> object:
    """The exit code of a command."""
    monkeypatch.setattr(sys, "argv", ["assay", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def contents(folder: Path) -> dict[Path, object]:
    return {path: path.read_bytes() if path.is_file() else path.lstat().st_mode
            for path in folder.rglob("*")}  # fmt: skip


def refusal(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """The one line with which a command refuses its input."""
    code = answer(words, monkeypatch)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("assay: ")]
    assert code == 2, lines
    (line,) = lines
    return line


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: repr(kind[:20]))
@pytest.mark.parametrize("command", READS)
def test_an_odd_file_is_answered_in_one_line_that_names_it(
    command: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if (command.startswith("make-tasks"), kind) == (True, "folder"):
        pytest.skip("a folder is a package, whatever its name")
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    odd = kind + READS[command]
    KINDS[kind](tmp_path / odd)
    before = contents(tmp_path)
    line = refusal([word.replace("{}", odd) for word in command.split()], monkeypatch, capsys)
    assert odd.replace("\n", " ") in line.replace("\\n", " ")
    assert len(line) < 1000
    assert contents(tmp_path) == before


WRITES = {
    "grade --tasks tasks.jsonl --samples samples.jsonl --output {}": ".jsonl",
    "check tasks.jsonl --output {}": ".jsonl", "check tasks.jsonl --report {}": ".json",
    "check tasks.jsonl --to-calls {}": ".jsonl", "screen x tasks.jsonl --output {}": ".jsonl",
    "view runs --export {}": ".html", "make-tasks ./package --output {}": "",
}  # fmt: skip
TARGETS: dict[str, Callable[[Path], object]] = {
    "folder": lambda path: (path / "keep").mkdir(parents=True),
    "pipe": os.mkfifo,
    "full": lambda path: path.symlink_to("/dev/full"),
    "run.toml/inside": lambda path: None,
    "n" * 300: lambda path: None,
}


@pytest.mark.parametrize("kind", TARGETS, ids=lambda kind: kind[:20])
@pytest.mark.parametrize("command", WRITES)
def test_what_cannot_be_written_is_refused_and_stays(
    command: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/demo/grpo").mkdir(parents=True)
    (tmp_path / "package").mkdir()
    for name, text in {**FILES, "runs/demo/grpo/config.toml": RUN}.items():
        (tmp_path / name).write_text(text)
    odd = kind + WRITES[command]
    TARGETS[kind](tmp_path / odd)
    before = contents(tmp_path)
    line = refusal([word.replace("{}", odd) for word in command.split()], monkeypatch, capsys)
    assert odd.partition("/")[0] in line
    assert contents(tmp_path) == before


INPUTS: dict[str, Callable[[Path, Path], object]] = {
    "a link to it": lambda path, read: path.symlink_to(read),
    "a link to a link to it": lambda path, read: path.symlink_to(linked_to(read)),
    "another name of the same file": lambda path, read: path.hardlink_to(read),
    "a link to itself": lambda path, read: path.symlink_to(path.name),
}
OF_INPUT = [
    ("grade --tasks tasks.jsonl --samples samples.jsonl --output {}.jsonl", "samples.jsonl"),
    ("grade --tasks tasks.jsonl --samples samples.jsonl --output {}.jsonl", "tasks.jsonl"),
    ("grade --tasks tasks.jsonl --samples samples.jsonl --plugins my.py --output {}.py", "my.py"),
    ("check tasks.jsonl --output {}.jsonl", "tasks.jsonl"),
    ("check tasks.jsonl --report {}.json", "tasks.jsonl"),
    ("check tasks.jsonl --report {}.json --plugins my.py", "my.py"),
    ("check tasks.jsonl --to-calls {}.jsonl", "tasks.jsonl"),
    ("screen x tasks.jsonl --output {}.jsonl", "tasks.jsonl"),
    ("screen x jsonl:tasks.jsonl --output {}.jsonl", "tasks.jsonl"),
    ("screen model tasks.jsonl --output {}.jsonl", "model/weights.jsonl"),
    ("view runs --export {}.toml", "runs/demo/grpo/config.toml"),
]
"""Commands, and a file that each of them reads."""


def linked_to(file: Path) -> Path:
    link = file.with_name("link")
    link.symlink_to(file)
    return link


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize(("command", "read"), OF_INPUT)
def test_no_command_writes_over_what_it_reads(
    command: str, read: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    if "/" in read and kind == "another name of the same file":
        pytest.skip("it lies in no folder of inputs, and is replaced alone")
    monkeypatch.setattr(options, "load_plugins", list)  # they would stay for the other tests
    more = {"runs/demo/grpo/config.toml": RUN, "model/weights.jsonl": "{}", "my.py": ""}
    for name, text in {**FILES, **more}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    odd = f"odd{Path(command.partition('{}')[2].split()[0]).name}"
    INPUTS[kind](tmp_path / odd, tmp_path / read)
    before = contents(tmp_path)
    line = refusal([word.replace("{}", "odd") for word in command.split()], monkeypatch, capsys)
    assert odd in line
    assert contents(tmp_path) == before


CACHES: dict[str, Callable[[Path], object]] = {
    **{kind: KINDS[kind] for kind in ("folder", "pipe", "socket", "circle", "endless", "discards")},
    "full": lambda path: path.symlink_to("/dev/full"),
    "run.toml/inside": lambda path: None,
    "n" * 300: lambda path: None,
}
"""What no file of verdicts can be; a damaged file or a full disk only brings a warning."""


@pytest.mark.parametrize("kind", CACHES, ids=lambda kind: kind[:20])
@pytest.mark.parametrize("command", ["train run.toml", "eval --model x --tasks tasks.jsonl"])
def test_a_cache_that_no_verdict_can_be_written_to_is_refused(
    command: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Each run would judge every program again, and only a warning would say so."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    CACHES[kind](tmp_path / kind)
    before = contents(tmp_path)
    words = [*command.split(), f"--judge.verdict_cache={kind}"]
    assert f"--judge.verdict_cache={kind}" in refusal(words, monkeypatch, capsys)
    assert contents(tmp_path) == before


def test_a_null_byte_in_a_settings_file_is_answered_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(f'{RUN}judge.verdict_cache = "a\\u0000b"\n')
    assert "run.toml, line 5" in refusal(["train", "run.toml"], monkeypatch, capsys)


NO_UTF_8 = os.fsdecode(b"caf\xe9")


@pytest.mark.parametrize(
    "command", [*READS, *WRITES, "export runs/demo {}", "eval --model x --tasks drills --out={}"]
)
def test_a_name_that_is_no_utf_8_is_refused(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """No report could hold it, and libraries open no such file."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    odd = NO_UTF_8 + (READS | WRITES).get(command, "")
    (tmp_path / odd).write_text(TASK)
    before = contents(tmp_path)
    line = refusal([word.replace("{}", odd) for word in command.split()], monkeypatch, capsys)
    assert "caf" in line
    assert contents(tmp_path) == before


def test_a_full_disk_is_named_by_what_cannot_be_written(tmp_path: Path) -> None:
    """Writing to an open file raises an error that names none."""
    with (
        pytest.raises(OSError, match="No space left") as why,
        naming(tmp_path / "file"),
        Path("/dev/full").open("wb", buffering=0) as full,
    ):
        full.write(b"text")
    assert why.value.filename == str(tmp_path / "file")


def test_a_file_never_takes_the_place_of_a_pipe_or_a_device(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("/dev/null")
    for path in (pipe, link):
        assert is_special(path)
        with pytest.raises(FileExistsError, match=path.name):
            write_atomically(path, "text")
        with pytest.raises(FileExistsError, match=path.name), replacing(path):
            pass
        assert is_special(path)
    assert list(tmp_path.iterdir()) == [pipe, link] or list(tmp_path.iterdir()) == [link, pipe]


@pytest.mark.parametrize("there", [None, "old"])
def test_a_file_takes_the_place_of_a_file_or_of_nothing(there: str | None, tmp_path: Path) -> None:
    if there:
        (tmp_path / "file").write_text(there)
    write_atomically(tmp_path / "file", "new")
    assert read_bytes(tmp_path / "file") == b"new"


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("grade --tasks=tasks.jsonl --samples=~/odd.jsonl", "{home}/odd.jsonl does not exist"),
        ("grade --samples=samples.jsonl --tasks=~/odd.jsonl", "{home}/odd.jsonl does not exist"),
        ("grade --samples=s --tasks=humaneval:~/odd.jsonl", "{home}/odd.jsonl does not exist"),
        ("check tasks.jsonl --output=~/.", "{home} must end in .jsonl"),
        ("check tasks.jsonl --report=~", "{home} cannot be written"),
        ("check tasks.jsonl --plugins=~/odd.py", "plug-in '{home}/odd.py' not found"),
        ("serve --port=0 --token-file=~/odd", "the token file {home}/odd cannot be read"),
        ("view runs --export=~", "{home} cannot be written"),
        ("make-tasks ./p --output=m --environment=~/odd", "--environment {home}/odd is no folder"),
        ("check ~nobody-here/odd.jsonl", "~nobody-here/odd.jsonl does not exist"),
        ("check a~/odd.jsonl", "a~/odd.jsonl does not exist"),
    ],
)
def test_a_tilde_after_an_equals_sign_is_the_home_folder_in_every_option(
    command: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "home").mkdir()
    (tmp_path / "runs/demo/grpo").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for name, text in {**FILES, "runs/demo/grpo/config.toml": RUN}.items():
        (tmp_path / name).write_text(text)
    assert answer(command.split(), monkeypatch) == 2
    said = [text for text in capsys.readouterr().err.splitlines() if text.startswith("assay: ")]
    assert line.format(home=tmp_path / "home") in said[0]


OBEYED = "".join((
    "\x1b]0;a title\x07", "\x1b]52;c;b3duZWQ=\x07", "\u202eanother direction\u2066",
    "[red]mark-up[/red][link=http://a]x[/link]", "\x9b31m", "a line\rassay: all is well", "x\b\b",
))  # fmt: skip
"""Texts of strangers that a terminal or rich would obey."""
SHOWING = {
    "check tasks.jsonl": 0, "check tasks.jsonl --strict": 1, "check wrong.jsonl": 2,
    "overlap tasks.jsonl tasks.jsonl": 1, "show-prompt run.toml": 0,
    "grade --tasks tasks.jsonl --samples samples.jsonl": 0,
    "grade --tasks tasks.jsonl --samples other.jsonl": 2, "train unknown.toml": 2,
    "plan --quick unknown.toml": 2, "overlap wrong.jsonl tasks.jsonl": 2,
}  # fmt: skip
"""Commands that show such a name, with their exit codes."""


@pytest.mark.parametrize("command", SHOWING)
def test_no_text_of_a_stranger_reaches_a_terminal_as_more_than_text(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    task = {**json.loads(TASK), "id": OBEYED, "prompt": f"Add {OBEYED}.",
            "reference": "def add(a, b): return 0"}  # fmt: skip
    sample = {"task_id": OBEYED, "completion": "def add(a, b): return a + b"}
    files = {
        "tasks.jsonl": task, "wrong.jsonl": {**task, "entry_point": "", "tests": f"x{OBEYED}"},
        "samples.jsonl": sample, "other.jsonl": {**sample, "task_id": f"other {OBEYED}"},
    }  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content) + "\n")
    (tmp_path / "run.toml").write_text(
        f"rollout.max_tokens = 8\n{RUN.replace('drills:train', 'tasks.jsonl')}"
    )
    key = json.dumps(f"k{OBEYED}")
    (tmp_path / "unknown.toml").write_text(f"{RUN}{key} = 1\n")
    code = answer(command.split(), monkeypatch)
    shown = "".join(capsys.readouterr())
    assert int(str(code or 0)) == SHOWING[command], shown
    assert {char for char in shown if not char.isprintable()} <= {"\n", "\t"}
    if command.startswith(("check tasks", "overlap tasks")):
        assert "[red]" in shown
