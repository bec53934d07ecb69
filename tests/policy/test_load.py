"""What loading fixes, and what it refuses in one line: broken files, too little memory, adapters
that do not fit.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from assay.config.sections import LoraSettings, PolicySettings
from assay.errors import AssayError, MachineError, ModelError, SettingsError
from assay.policy.forward import forward
from assay.policy.load_model import Policy, load_policy, with_dtype
from assay.policy.source import source_of
from assay.train.batch import to_batch
from assay.types import Sample
from tests.policies import change_json, checkpoint, tiny_policy


def load(folder: Path | str, lora: LoraSettings | None = None, *, remote: bool = False) -> Policy:
    return load_policy(
        PolicySettings(model=str(folder), lora=lora, device="cpu", trust_remote_code=remote)
    )


def refused(folder: Path, kind: type[AssayError], match: str, *, remote: bool = False) -> None:
    with pytest.raises(kind, match=match) as caught:
        load(folder, remote=remote)
    assert "\n" not in str(caught.value)


def adapter(folder: Path, lora: LoraSettings) -> Path:
    policy = load(checkpoint(folder, "llama"), lora)
    policy.save(folder / "adapter")
    return folder / "adapter"


def test_a_temperature_without_sampling_does_not_keep_a_policy_from_being_saved(
    tmp_path: Path,
) -> None:
    made = checkpoint(tmp_path, "llama")
    change_json(made / "generation_config.json", do_sample=False, temperature=0.6, top_p=0.95)
    load(made).save(tmp_path / "saved")
    again = load(tmp_path / "saved").model.generation_config
    assert (again.do_sample, again.temperature, again.top_p) == (True, 0.6, 0.95)


def test_a_generation_config_that_no_one_could_save_is_refused_before_training(
    tmp_path: Path,
) -> None:
    made = checkpoint(tmp_path, "llama")
    change_json(made / "generation_config.json", early_stopping=True, num_beams=1)
    refused(made, ModelError, r"generation_config\.json.*early_stopping.*fix or delete")


@pytest.mark.parametrize(
    ("size", "value", "shapes"),
    [
        ("vocab_size", 400, r"\[300, 64\] in the file, and \[400, 64\]"),
        ("vocab_size", 200, r"\[300, 64\] in the file, and \[200, 64\]"),
        ("intermediate_size", 128, r"\[64, 96\] in the file, and \[64, 128\]"),
        ("num_hidden_layers", 3, r"no file has model\.layers\.2\.\S+ and 8 more"),
    ],
)
def test_weights_that_do_not_fit_their_configuration_are_named_with_both_shapes(
    tmp_path: Path, size: str, value: int, shapes: str
) -> None:
    made = checkpoint(tmp_path, "llama")
    change_json(made / "config.json", **{size: value})
    refused(made, ModelError, f"do not fit its config.json: .*{shapes}")


def test_a_weight_that_no_file_has_is_refused_and_never_made_up(tmp_path: Path) -> None:
    made = checkpoint(tmp_path, "llama")
    tensors = load_file(made / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, made / "model.safetensors", {"format": "pt"})
    refused(made, ModelError, r"no file has model\.layers\.1\.mlp\.up_proj\.weight; download")


def test_tokens_without_an_embedding_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = checkpoint(tmp_path, "llama")
    tokenizer = load(made).chat.tokenizer
    assert "without one" not in caplog.text
    tokenizer.add_tokens(["<new>"])
    tokenizer.save_pretrained(made)
    load(made)
    assert "300 embeddings, and its tokenizer 1 tokens without one, such as '<new>'" in caplog.text


def test_a_truncated_weights_file_is_the_models_fault(tmp_path: Path) -> None:
    weights = checkpoint(tmp_path, "llama") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    refused(weights.parent, ModelError, "cannot be loaded: .*header")


@pytest.mark.parametrize("text", ['{"peft_type": "LORA",', "[]"])
def test_a_malformed_adapter_config_is_the_models_fault(tmp_path: Path, text: str) -> None:
    made = adapter(tmp_path, LoraSettings(rank=4))
    (made / "adapter_config.json").write_text(text)
    refused(made, ModelError, r"adapter_config\.json.*JSON")


def test_truncated_adapter_weights_are_the_models_fault(tmp_path: Path) -> None:
    weights = adapter(tmp_path, LoraSettings(rank=4)) / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])
    refused(weights.parent, ModelError, "cannot be loaded")


def test_a_package_that_remote_code_needs_is_named(tmp_path: Path) -> None:
    made = checkpoint(tmp_path, "llama")
    change_json(made / "config.json", auto_map={"AutoModelForCausalLM": "modeling_own.Own"})
    (made / "modeling_own.py").write_text("import a_package_that_is_nowhere\n\nclass Own: ...\n")
    refused(made, ModelError, "a_package_that_is_nowhere", remote=True)


def test_a_device_without_room_is_the_machines_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = checkpoint(tmp_path, "llama")

    def full(*given: object, **named: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 20.00 MiB")

    monkeypatch.setattr(torch.nn.Module, "to", full)
    refused(made, MachineError, r"cpu has no room for model .*policy\.dtype = 'bfloat16'")


def test_an_adapter_goes_on_with_its_own_rank_and_alpha_or_is_refused(tmp_path: Path) -> None:
    made = adapter(tmp_path, LoraSettings(rank=4, alpha=8))
    for other in (LoraSettings(rank=8, alpha=8), LoraSettings(rank=4, alpha=16)):
        with pytest.raises(
            SettingsError, match=r"already .* rank 4 and alpha 8.*leave policy\.lora out"
        ):
            load(made, other)
    same = load(made, LoraSettings(rank=4, alpha=8, dropout=0.25))
    assert same.trainable.keys() == load(made).trainable.keys()
    dropouts = [module.p for module in same.model.modules() if isinstance(module, torch.nn.Dropout)]
    assert set(dropouts) == {0.25}


def test_an_adapter_finds_its_model_from_any_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = checkpoint(tmp_path, "llama")
    monkeypatch.chdir(tmp_path)
    policy = load("llama", LoraSettings(rank=4))
    for parameter in policy.trainable.values():
        parameter.data.add_(0.01)
    policy.save(Path("one"))
    shutil.copytree("one", "relative")
    change_json(Path("relative/adapter_config.json"), base_model_name_or_path="llama")
    load("relative").save(Path("two"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    tokens = torch.arange(20).unsqueeze(0)
    for name in ("one", "two"):
        assert source_of(PolicySettings(model=str(tmp_path / name))).base == str(made)
        with torch.no_grad():
            assert torch.equal(
                load(tmp_path / name).model(tokens).logits, policy.model(tokens).logits
            )


def test_a_path_of_a_model_is_told_from_a_name_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("out/mine/sft/config.toml", "org/code/.cargo/config.toml", "org/flat/config.toml"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    for name in ("./mien", "~/mien", "a/b/c", "runs/mien", "out/mien", "out/mine/fst", "mien.gguf"):
        with pytest.raises(ModelError, match=f"'{name}' does not exist"):
            source_of(PolicySettings(model=name))
    for name in ("tiny", "mine", "org/model", "org/model-2.5b", "other/model"):
        assert source_of(PolicySettings(model=name)).base == name


@pytest.mark.parametrize(("kind", "context"), [("llama", 2048), ("gpt2", 1024)])
def test_the_context_is_what_the_configuration_says(
    tmp_path: Path, kind: str, context: int
) -> None:
    assert load(checkpoint(tmp_path, kind)).context == context


def test_the_tiny_policys_context_is_its_setting_and_one_without_bounds_is_none(
    tmp_path: Path,
) -> None:
    from transformers import BloomConfig, BloomForCausalLM

    policy = tiny_policy(tmp_path)
    assert policy.context == 256
    endless = BloomForCausalLM(BloomConfig(vocab_size=300, hidden_size=16, n_layer=1, n_head=2))
    assert replace(policy, model=endless).context is None


def foreign_adapter(folder: Path, base: Path, **changes: Any) -> Path:
    """An adapter as `save_pretrained` of peft leaves it, without a tokenizer; no weight is zero."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    shape = {"r": 4, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base), LoraConfig(**shape | changes)
    )
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder)
    return folder


ADAPTERS: list[dict[str, Any]] = [
    {},
    {"use_dora": True},
    {"lora_bias": True},
    {"bias": "lora_only"},
    {"modules_to_save": ["lm_head"]},
    {"modules_to_save": ["embed_tokens", "norm"]},
    {"target_modules": ["embed_tokens", "q_proj"]},
]


@pytest.mark.parametrize(
    "changes",
    [*ADAPTERS[:2], *[pytest.param(changes, marks=pytest.mark.long) for changes in ADAPTERS[2:]]],
    ids=str,
)
def test_adapters_made_elsewhere_train_as_they_are_and_are_saved_again(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    policy = load(foreign_adapter(tmp_path / "adapter", checkpoint(tmp_path, "llama"), **changes))
    sample = Sample(tuple(range(2, 14)), (False,) * 3 + (True,) * 9)
    batch = to_batch([sample, sample], 0, policy.device)
    output = forward(policy.model, batch)
    expected = torch.log_softmax(policy.model(batch.tokens[:1]).logits[0], -1)
    chosen = expected[:-1].gather(-1, batch.tokens[0, 1:, None]).squeeze(-1)
    assert torch.allclose(output.logprobs[0, 3:], chosen[2:], atol=1e-5)
    output.logprobs.sum().backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is not None for parameter in policy.trainable.values())
    policy.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert torch.equal(again.model(batch.tokens).logits, policy.model(batch.tokens).logits)


def test_an_adapter_without_a_tokenizer_uses_that_of_its_base(tmp_path: Path) -> None:
    base = checkpoint(tmp_path, "llama")
    tokenizer = load(foreign_adapter(tmp_path / "adapter", base)).chat.tokenizer
    assert tokenizer.get_vocab() == load(base).chat.tokenizer.get_vocab()


def test_an_adapter_that_does_not_fit_its_base_says_which_and_why(tmp_path: Path) -> None:
    base = checkpoint(tmp_path / "a", "llama")
    made = foreign_adapter(tmp_path / "adapter", base)
    change_json(base / "config.json", num_hidden_layers=1)
    refused(made, ModelError, "adapter '.*adapter' does not fit '.*llama'.*only one.*layers.1.mlp")
    change_json(base / "config.json", num_hidden_layers=2)
    other = checkpoint(tmp_path / "b", "qwen2")
    change_json(made / "adapter_config.json", base_model_name_or_path=str(other))
    change_json(made / "adapter_config.json", r=8)
    refused(made, ModelError, "adapter '.*adapter' does not fit '.*qwen2'.*size mismatch for")
    change_json(made / "adapter_config.json", r=4, target_modules=["c_attn"])
    refused(made, ModelError, "does not fit '.*qwen2'.*Target modules")
    shutil.rmtree(other)
    refused(made, ModelError, "adapter '.*adapter' needs its base, but .*qwen2' does not exist")
    change_json(made / "adapter_config.json", base_model_name_or_path="nobody/no-such-model")
    refused(made, ModelError, "'nobody/no-such-model' .*as a hub name it needs the network")


def test_an_adapter_with_another_vocabulary_than_its_base_is_refused(tmp_path: Path) -> None:
    made = adapter(tmp_path, LoraSettings(rank=4))
    tokenizer = load(made).chat.tokenizer
    tokenizer.add_tokens([f"<new{n}>" for n in range(9)])
    tokenizer.save_pretrained(made)
    match = (
        "adapter '.*adapter' has another vocabulary than its base '.*llama': 9 tokens, as '<new0>'"
    )
    refused(made, ModelError, match)


def test_a_head_in_float32_is_refused_with_an_adapter_on_the_head(tmp_path: Path) -> None:
    base = checkpoint(tmp_path, "llama")
    made = foreign_adapter(tmp_path / "adapter", base, target_modules=["q_proj", "lm_head"])
    with pytest.raises(SettingsError, match=r"policy\.float32_lm_head does not work with"):
        load_policy(PolicySettings(model=str(made), float32_lm_head=True))


def test_a_speech_model_is_refused_by_name(tmp_path: Path) -> None:
    base = checkpoint(tmp_path, "llama")
    change_json(base / "config.json", model_type="moshi")
    refused(base, ModelError, "is of type 'moshi' and is refused: it is the text half")


@pytest.mark.parametrize(
    ("width", "has_instructions", "dtype"),
    [(512, True, "bfloat16"), (512, False, "float32"), (504, True, "float32")],
)
def test_wide_models_compute_in_bfloat16_where_the_processor_has_instructions_for_it(
    monkeypatch: pytest.MonkeyPatch, width: int, has_instructions: bool, dtype: str
) -> None:
    monkeypatch.setattr("assay.policy.load_model.has_bfloat16", lambda: has_instructions)
    asked = PolicySettings(device="cpu")
    assert with_dtype(asked, width).dtype == dtype
    assert with_dtype(asked.model_copy(update={"dtype": "float32"}), width).dtype == "float32"
