"""The command line in real processes that begin with everything imported: a test can start and kill
many.
"""

from __future__ import annotations

import os
import sys
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from threading import RLock

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["assay.cli", "assay.train.stages", "assay.trackers.rollouts", "peft", "pyarrow.parquet",
    "rich.table",
     "matplotlib.pyplot", "transformers.models.llama.modeling_llama",
     "transformers.tokenization_utils_tokenizers"]
)  # fmt: skip


def start(folder: Path, *words: str) -> ForkServerProcess:
    """`assay` with the given words in `folder`; what it says goes to the file `said` there."""
    process = CONTEXT.Process(target=_run, args=(folder, words))
    process.start()
    return process


def finish(folder: Path, *words: str) -> tuple[int | None, str]:
    """The exit code of `assay` with the given words in `folder`, and what it said."""
    process = start(folder, *words)
    process.join(timeout=300)
    return process.exitcode, (folder / "said").read_text()


def _run(folder: Path, words: tuple[str, ...]) -> None:
    os.chdir(folder)
    said = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.argv = ["assay", *words]
    import torch
    from tqdm import tqdm

    from assay.cli import main

    tqdm.set_lock(RLock())  # its own are semaphores, which a kill leaves behind
    torch.set_num_threads(1)  # a model this small is slower on two
    main()
