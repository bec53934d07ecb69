"""What makes torch fast on a processor: how its threads wait, and how freed memory is kept.

Before torch is imported: `set_variables`.
"""

import ctypes
import os

from assay.user_cache import process_folder

MALLOPT = (-3, 32 << 20), (-1, (1 << 31) - 1), (-8, 1)
"""M_MMAP_THRESHOLD, M_TRIM_THRESHOLD and M_ARENA_MAX of glibc's `mallopt`: tensors of up to 32 MiB,
the most that it takes, come from memory that was freed before, and freed memory stays with the
process; that of a thread's own arena would not, for glibc unmaps its empty heaps of 64 MiB."""


QUIET = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1",
         "TOKENIZERS_PARALLELISM": "false"}  # fmt: skip
"""Keeps the bars and warnings of libraries off the terminal."""


def set_variables() -> None:
    """Set what libraries read from the environment when they are imported, unless it is there."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if not {"HF_HOME", "HF_MODULES_CACHE", "XDG_CACHE_HOME"} & os.environ.keys() and not _home():
        # transformers copies a model's own code there before it runs
        os.environ["HF_MODULES_CACHE"] = str(process_folder() / "modules")
    os.environ.update(tune())


def _home() -> bool:
    """Whether there is a home folder that can be written."""
    return os.access(os.environ.get("HOME", ""), os.W_OK | os.X_OK)


def tune() -> dict[str, str]:
    """Let freed tensors be used again, and return variables for the environment. What the
    environment has already is left alone.

    By default glibc gives a freed tensor back to the kernel, which fills it with zeros once more,
    page by page: a sixth of a training step. Peak memory is the same. Torch asks for huge pages
    for tensors of 2 MiB and more.

    OpenMP's threads spin for up to 0.4 ms at a barrier, then sleep. By default they
    spin for milliseconds and block a core that the judge needs. A thread that sleeps at once takes
    longer to wake than a small matrix product takes. The OpenMP of Intel and LLVM counts in
    milliseconds, so there threads sleep at once.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt") and not any(name.startswith("MALLOC_") for name in os.environ):
        for parameter in MALLOPT:
            libc.mallopt(*parameter)
    tuned = {"THP_MEM_ALLOC_ENABLE": os.environ.get("THP_MEM_ALLOC_ENABLE", "1")}
    if "OMP_WAIT_POLICY" not in os.environ:
        tuned |= {"OMP_WAIT_POLICY": "ACTIVE", "GOMP_SPINCOUNT": "8000", "KMP_BLOCKTIME": "0"}
    return tuned
