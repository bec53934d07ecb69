"""Rows of public sets whose repository is a source distribution on PyPI: what the judge says of the
fix and of an empty change. Needs the network and, for a while, 1 GB of disk.

    ASSAY_DATA=data python -m bench.real_rows [NAME ...]
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.judge import Job, judge_all
from assay.make_tasks.trees import read_tree
from assay.tasks import load

DASK = "numpy<1.24 cloudpickle fsspec partd toolz pyyaml pytest<8"
MOTO = (
    "boto3 cryptography docker flask<3.1 flask-cors freezegun openapi-spec-validator pytest<8"
    " py-partiql-parser==0.5.1 python-jose pyyaml responses setuptools<66 sure werkzeug<3.1"
    " xmltodict"
)
ROWS = {
    "dask__dask-9378": ("dask==2022.8.0", DASK),
    "getmoto__moto-5876": ("moto==4.1.1", MOTO),
    "getmoto__moto-6920": ("moto==4.2.6", MOTO),
    "getmoto__moto-7365": ("moto==5.0.1", MOTO),
}
"""The source distribution of each row, and the packages that its tests need."""
FILES = ("nemo_gym/swerl_gen/example.jsonl.gz", "nemo_gym/mini_swe_agent/example.jsonl")


def rows(data: Path) -> Iterator[dict[str, Any]]:
    """The rows, with SWE-bench's columns."""
    for name in FILES:
        read = gzip.open if name.endswith(".gz") else open
        with read(data / name, "rt") as file:
            for line in file:
                row = json.loads(line)
                yield row.get("instance", row)


def make_venv(folder: Path, packages: str) -> None:
    """A virtual environment with these packages."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [str(folder / "bin/python"), "-m", "pip", "install", "-q", *packages.split()]
    subprocess.run(install, check=True)


def main() -> None:
    if not (data := os.environ.get("ASSAY_DATA")):
        sys.exit("ASSAY_DATA is not set; set it to the folder of the public sets")
    names = sys.argv[1:] or list(ROWS)
    matches = [row for row in rows(Path(data)) if row["instance_id"] in names]
    print("| row | tree | made in | the fix | no change |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ASSAY_TREES"] = folder
        venvs = dict[str, Path]()
        for row in sorted(matches, key=lambda row: str(row["instance_id"])):
            name, start = row["instance_id"], time.perf_counter()
            package, packages = ROWS[name]
            read_tree(package, Path(folder, name))
            if packages not in venvs:
                venvs[packages] = Path(folder, f"venv-{len(venvs)}")
                make_venv(venvs[packages], packages)
            Path(folder, f"{name}.venv").symlink_to(venvs[packages])
            seconds = time.perf_counter() - start
            file = Path(folder, "row.jsonl")
            file.write_text(json.dumps(row) + "\n")
            (task,) = load(f"swe_gym:{file}")
            jobs = [Job(task, task.reference), Job(task, "")]
            cells = [f"{run.verdict}, {run.passed} of {run.total}"
                     for run in judge_all(jobs, stop_early=False)]  # fmt: skip
            print(f"| `{name}` | {package} | {seconds:.0f} s | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
