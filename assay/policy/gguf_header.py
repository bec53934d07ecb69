"""Looks at a GGUF file's header in a process of its own, before anything is built of it: a header
of a few bytes may describe a model of a trillion weights, or a list without end.
"""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

from assay.errors import ModelError
from assay.registry import one_line

CPU_SECONDS = 120.0
"""To read the header, and to lay out the model that it describes, without its weights."""
MEMORY_MB = 8192
"""Of that process; libraries and a vocabulary of 250,000 words take some 1,000."""
AGAIN = "download it again"
MORE = 2
"""How many times the weights of the file a model may have. It has as many, but for buffers."""


def check_header(file: Path) -> None:
    """Raises ModelError for a file whose header is broken, or describes more than it holds."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", __name__, str(file), str(CPU_SECONDS)],
        stdin=subprocess.DEVNULL, capture_output=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode == -signal.SIGPROF:
        raise ModelError(
            f"{file}: its header takes over {CPU_SECONDS:g} s to read, so it is broken; {AGAIN}"
        )
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise ModelError(
            f"GGUF file {str(file)!r} cannot be converted: {last[:250] or done.returncode};"
            f" {AGAIN}, or use a model folder in Hugging Face format"
        )
    if why := json.loads(done.stdout.rpartition(b"\n")[2]):
        raise ModelError(f"{file}: {why}")


def why_refused(file: Path) -> str:
    """Why nothing should be built of a file; empty where something may be."""
    import torch
    from gguf import GGUFReader
    from transformers import AutoConfig, AutoModelForCausalLM

    reader = GGUFReader(file)
    numbers = sum(int(tensor.n_elements) for tensor in reader.tensors)
    if sum(int(tensor.n_bytes) for tensor in reader.tensors) > file.stat().st_size:
        return f"its header describes more weights than the file has; {AGAIN}"
    config = AutoConfig.from_pretrained(
        file.parent, gguf_file=file.name, trust_remote_code=False
    ).get_text_config()
    if (layers := getattr(config, "num_hidden_layers", 0)) > len(reader.tensors):
        tensors = f"{len(reader.tensors):,} tensors"
        return f"its header describes {layers:,} layers, and the file has {tensors}; {AGAIN}"
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    if (described := model.num_parameters()) > MORE * numbers:
        weights = f"a model of {described:,} weights"
        return f"its header describes {weights}, and the file has {numbers:,}; {AGAIN}"
    return ""


def main(file: str, cpu_seconds: str) -> None:
    """Print why the file is refused, as JSON in the last line; a broken file ends with an error."""
    import torch  # noqa: F401  before the limits
    import transformers  # noqa: F401

    most = MEMORY_MB << 20
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    signal.setitimer(signal.ITIMER_PROF, float(cpu_seconds))  # SIGPROF ends the process
    try:
        sys.stdout.write("\n" + json.dumps(why_refused(Path(file))))  # libraries print before
    except Exception as error:  # noqa: BLE001  broken files raise anything
        sys.exit(one_line(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
