"""Coverage-guided fuzzing of what reads a hostile candidate's bytes: the codec, the worker's
conversation, the channel.

    python -m pip install --target DIR atheris      # once; needs Linux and CPython up to 3.13
    PYTHONPATH=DIR python -m bench.fuzz --seconds 60

Each target gets its share of the seconds. A crash, a hang of ten seconds, a gigabyte or a broken
promise ends the run with an error, and leaves the bytes in `crash-*` of the folder that is printed.
The tests run the same targets on generated data (tests/judge/test_fuzz.py).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

INSTRUMENTED = ("assay.judge.codec", "assay.judge.codec_types", "assay.judge.proxy",
    "assay.judge.worker_messages",
                "assay.judge.codec_types", "assay.judge.requests", "assay.sandbox.sockets",
                "assay.judge.worker")  # fmt: skip
WORDS = ('"value"', '"raised"', '"function"', '"absent"', "null", "true", "[]", "!", "\\x0a")
"""What a fuzzer would take long to guess; the codec's tags come with them."""


def fuzz(target: str, flags: list[str]) -> None:
    """Fuzz one target in this process until libFuzzer ends it."""
    atheris = importlib.import_module(
        "atheris"
    )  # by name: type checkers need neither it nor its stubs
    with atheris.instrument_imports(include=list(INSTRUMENTED)):
        from tests.judge.hostile import TARGETS
    atheris.Setup([sys.argv[0], *flags], TARGETS[target])
    atheris.Fuzz()


def prepared(folder: Path, target: str) -> list[str]:
    """The folder's seeds and dictionary, as libFuzzer's arguments."""
    from assay.judge.codec_types import REBUILD
    from tests.judge.hostile import SEEDS

    seeds = folder / f"{target}-seeds"
    seeds.mkdir()
    for number, seed in enumerate(SEEDS[target]):
        (seeds / str(number)).write_bytes(seed)
    words = [word.replace('"', '\\"') for word in (*WORDS, *(f'{{"{tag}":' for tag in REBUILD))]
    dictionary = folder / "words"
    dictionary.write_text("".join(f'"{word}"\n' for word in words))
    return [
        str(seeds),
        f"-dict={dictionary}",
        f"-artifact_prefix={folder}/",
        "-max_len=4096",
        "-timeout=10",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options, flags = parser.parse_known_args()
    if options.one:
        fuzz(options.one, flags)
        return 0
    if importlib.util.find_spec("atheris") is None:
        print(
            "atheris is not installed: python -m pip install --target DIR atheris, then set"
            " PYTHONPATH=DIR"
        )
        return 2
    from tests.judge.hostile import TARGETS

    folder = Path(tempfile.mkdtemp(prefix="assay-fuzz-"))
    for target in TARGETS:
        command = [sys.executable, "-m", "bench.fuzz", "--one", target, *prepared(folder, target)]
        limits = [
            f"-max_total_time={options.seconds // len(TARGETS)}",
            "-rss_limit_mb=1024",
            "-print_final_stats=1",
        ]
        done = subprocess.run([*command, *limits], capture_output=True, text=True, check=False)
        ran = [
            line.split()[-1]
            for line in done.stderr.splitlines()
            if "number_of_executed_units" in line
        ]
        if done.returncode:
            print(done.stderr[-4000:])
            print(f"{target}: failed; what it was given lies in {folder}")
            return 1
        print(f"{target}: {' '.join(ran)} inputs, nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
