"""An exported model: transformers loads it, and its card says what made it."""

from __future__ import annotations

import copy
import json
import re
import resource
import shutil
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import yaml  # type: ignore[import-untyped]

from assay.cli import explain
from assay.config.sections import PolicySettings
from assay.errors import DataError, ModelError, SettingsError
from assay.policy.load_model import Policy, load_policy
from assay.train import model_card
from assay.train.export import export
from assay.train.model_card import _of_no_folder
from tests.policies import checkpoint
from tests.policy.test_chat import CHATML, SPECIAL
from tests.train.test_stages import PLAN, run

ONE_REPLY = """
trackers = ["jsonl"]
steps = 30
tasks.train = "one.jsonl"
judge.allow_weak_isolation = true
algorithm.name = "sft"
dataset.batch_size = 1
optimizer.lr = 0.01
[stages.first]
"""
QUESTION = {"role": "user", "content": "Say ok."}
Q, BOTH = ["q_proj"], ["q_proj", "down_proj"]
MERGED: dict[str, Any] = {
    "lora": peft.LoraConfig(target_modules="all-linear"),
    "rslora": peft.LoraConfig(target_modules=Q, use_rslora=True),
    "dora": peft.LoraConfig(target_modules=Q, use_dora=True),
    "biases": peft.LoraConfig(target_modules=Q, bias="all"),
    "a head": peft.LoraConfig(target_modules=Q, modules_to_save=["lm_head"]),
    "a norm": peft.LoraConfig(target_modules=Q, modules_to_save=["norm"]),
    "tokens": peft.LoraConfig(target_modules=Q, trainable_token_indices=[3, 299]),
    "tokens alone": peft.TrainableTokensConfig(token_indices=[3, 299]),
    "ia3": peft.IA3Config(target_modules=BOTH, feedforward_modules=["down_proj"]),
    "loha": peft.LoHaConfig(target_modules=BOTH),
    "lokr": peft.LoKrConfig(target_modules=BOTH),
    "adalora": peft.AdaLoraConfig(target_modules=BOTH, total_step=10),
    "vera": peft.VeraConfig(target_modules=Q),
    "oft": peft.OFTConfig(target_modules=Q, oft_block_size=8, r=0),
    "boft": peft.BOFTConfig(target_modules=Q, boft_block_size=4),
}
REFUSED: dict[str, tuple[Any, str]] = {
    "lora_bias": (peft.LoraConfig(target_modules=Q, lora_bias=True), "LORA .*has no bias"),
    "a tied head": (peft.LoraConfig(target_modules=["lm_head"]), "LORA .*outputs differ by"),
    "tied embeddings": (peft.LoraConfig(target_modules=["embed_tokens"]), "LORA .*outputs differ"),
    "a prompt": (peft.PromptTuningConfig(num_virtual_tokens=4), "PROMPT_TUNING, which can be nei"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that trains an adapter of the tiny model."""
    folder = tmp_path_factory.mktemp("trained")
    words = ["--policy.lora.rank", "2", "--optimizer.lr", "0.1", "--name", "mine"]
    return run(folder, PLAN, *words).folder


def test_transformers_loads_the_merged_model_and_it_computes_what_the_adapter_did(
    trained: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    checkpoint = export(trained, tmp_path / "out").checkpoint
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    policy = load_policy(PolicySettings(model=str(checkpoint), device="cpu"))
    tokens = torch.tensor([AutoTokenizer.from_pretrained(tmp_path / "out")("f(x)")["input_ids"]])
    with torch.no_grad():
        expected, plain = policy.model(tokens).logits, policy.model.get_base_model()
        torch.testing.assert_close(merged(tokens).logits, expected, atol=1e-5, rtol=1e-4)
        with policy.model.disable_adapter():
            assert (plain(tokens).logits - expected).abs().max() > 1e-3
    assert not (tmp_path / "out/adapter_config.json").exists()


def adapter(trained: Path, folder: Path, config: Any, noise: float = 0.3) -> tuple[Path, Any]:
    """The run with a new adapter of that kind, of a model with tied embeddings, as its checkpoint;
    and the adapter. Without `noise`, it does nothing yet.
    """
    run_folder = shutil.copytree(trained, folder / "run")
    (saved,) = run_folder.glob("first/checkpoints/*")
    base = load_policy(PolicySettings(model=str(saved), device="cpu")).model.unload()
    config.task_type = "CAUSAL_LM"
    model = peft.get_peft_model(base, config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * noise)
    (saved / "adapter_model.safetensors").unlink()
    model.save_pretrained(saved)
    return saved, model.eval()


@pytest.mark.parametrize("kind", MERGED)
def test_a_merged_adapter_of_any_kind_gives_its_logits_to_one_in_ten_thousand(
    trained: Path, tmp_path: Path, kind: str
) -> None:
    from transformers import AutoModelForCausalLM

    saved, model = adapter(trained, tmp_path, MERGED[kind])
    export(saved, tmp_path / "out")
    tokens = torch.arange(300).view(6, 50)
    with torch.no_grad():
        expected = model(tokens).logits
        merged = AutoModelForCausalLM.from_pretrained(tmp_path / "out")(tokens).logits
        torch.testing.assert_close(merged, expected, atol=1e-4, rtol=0)
        with model.disable_adapter():
            assert (model(tokens).logits - expected).abs().max() > 1e-3
    assert not list((tmp_path / "out").glob("trial")), "what was tried is not exported"


@pytest.mark.parametrize("noise", [0.3, 0.0], ids=["trained", "new"])
@pytest.mark.parametrize("kind", REFUSED)
def test_an_adapter_that_no_merging_keeps_is_refused_by_its_name(
    trained: Path, tmp_path: Path, kind: str, noise: float
) -> None:
    config, why = REFUSED[kind]
    saved, _ = adapter(trained, tmp_path, config, noise)
    with pytest.raises(ModelError, match=why) as caught:
        export(saved, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_an_adapter_trained_in_bfloat16_is_merged_exactly_and_then_rounded_once(
    tmp_path: Path,
) -> None:
    from transformers import AutoModelForCausalLM

    words = ["--policy.lora.rank", "2", "--optimizer.lr", "0.1", "--policy.dtype", "bfloat16"]
    made = run(tmp_path, PLAN, *words, "--evaluate.before", "false")
    assert made.model
    export(made.folder, tmp_path / "out", dtype="bfloat16")
    exact = load_policy(PolicySettings(model=str(made.model), device="cpu")).model
    expected = exact.merge_and_unload().state_dict()
    for name, weight in AutoModelForCausalLM.from_pretrained(tmp_path / "out").state_dict().items():
        assert torch.equal(weight, expected[name].bfloat16()), name


def trained_in_bfloat16(saved: Path) -> None:
    file = saved.parents[1] / "config.toml"
    file.write_text(file.read_text().replace('dtype = "float32"', 'dtype = "bfloat16"'))


def nats_between(model: Any, other: Any, text: torch.Tensor) -> float:
    """The mean distance of log-probabilities over tokens that the first model samples."""
    with torch.no_grad():
        ours, theirs = (m(text).logits[0].float().log_softmax(-1) for m in (model, other))
    return float((ours.exp() * (ours - theirs).abs()).sum(-1).mean())


@pytest.mark.parametrize(
    ("noise", "dtype"), [(0.002, "float32"), (0.3, "bfloat16")], ids=["short run", "long run"]
)
def test_an_adapter_that_learned_less_than_rounding_takes_back_is_merged_in_float32(
    trained: Path, tmp_path: Path, noise: float, dtype: str
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    saved, model = adapter(trained, tmp_path, peft.LoraConfig(target_modules=Q), noise)
    trained_in_bfloat16(saved)
    exported = export(saved, tmp_path / "out")
    rounded = export(saved, tmp_path / "rounded", dtype="bfloat16")
    assert (exported.dtype, rounded.dtype) == (dtype, "bfloat16")
    prompt = json.loads((saved / "prompt.json").read_text())["messages"][0]["content"]
    text = AutoTokenizer.from_pretrained(saved)(prompt, return_tensors="pt")["input_ids"]
    for name, outcome in (("out", exported), ("rounded", rounded)):
        files = AutoModelForCausalLM.from_pretrained(tmp_path / name, dtype="auto")
        assert str(files.dtype) == f"torch.{outcome.dtype}"
        off = nats_between(model, files.float(), text)
        moved = re.findall(r"(\S+) nats", outcome.distance)
        with model.disable_adapter():
            base = copy.deepcopy(model).unload()
        assert float(moved[0]) == pytest.approx(off, rel=0.1, abs=1e-5), "of the saved files"
        assert float(moved[1]) == pytest.approx(nats_between(model, base, text), rel=0.1)
        assert moved[0] in (tmp_path / name / "README.md").read_text()
        assert (off <= 0.1 * float(moved[1])) == (name == "out" or dtype == "bfloat16")


def test_files_that_are_not_what_was_merged_are_refused(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, _ = adapter(trained, tmp_path, peft.LoraConfig(target_modules=Q))
    save = Policy.save

    def save_damaged(policy: Policy, folder: Path) -> None:
        with torch.no_grad():
            if folder.name != "trial":
                policy.model.get_output_embeddings().weight[7] += 1
        save(policy, folder)

    monkeypatch.setattr(Policy, "save", save_damaged)
    with pytest.raises(ModelError, match="its files give log-probabilities"):
        export(saved, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", [[], ["--policy.lora.rank", "4"]], ids=["all weights", "lora"])
def test_transformers_generate_stops_where_the_chat_template_ends_a_turn(
    tmp_path: Path, words: list[str]
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = checkpoint(tmp_path, "llama", CHATML, special=SPECIAL)
    rows = {"messages": [QUESTION, {"role": "assistant", "content": "ok"}]}
    (tmp_path / "one.jsonl").write_text(json.dumps(rows) + "\n")
    made = run(tmp_path, ONE_REPLY, "--policy.model", str(base), *words)
    assert made.model
    export(made.folder, tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    ends = [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|im_end|>")]
    assert ends[0] != ends[1]
    for folder in (tmp_path / "out", made.model):
        assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == ends
    prompt = tokenizer.apply_chat_template(
        [QUESTION], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    (tokens,) = model.generate(**prompt, max_new_tokens=20, do_sample=False)
    written = tokenizer.decode(tokens[prompt["input_ids"].shape[1] :])
    assert written == "ok<|im_end|>"


def test_a_folder_of_a_path_may_have_spaces_and_is_not_shown_either() -> None:
    assert _of_no_folder('x = "/home/me/a b/secret/file.jsonl"') == 'x = "file.jsonl"'
    assert (
        _of_no_folder("y = ['/a/b.txt', 'mbpp:train', 1/2]") == "y = ['b.txt', 'mbpp:train', 1/2]"
    )


def test_the_card_has_data_recipe_intervals_prompt_and_licences_and_no_path_of_this_machine(
    trained: Path, tmp_path: Path
) -> None:
    export(trained / "first", tmp_path / "out")
    card = (tmp_path / "out/README.md").read_text()
    assert "stage `first`: `drills:train`" in card
    assert "| mine/first | sft | 1 | 0.0% | 0.0% to " in card
    folded = re.search(r"<details>\n<summary>Settings of stage first</summary>(.*?)</details>",
                       card, re.DOTALL)  # fmt: skip
    assert folded
    assert "rank = 2" in folded[1]
    assert not re.search(r"[\"'`]\.{0,2}/", card), "no path, absolute or from a folder"
    assert "model = 'out'\ntokenizer = transformers.AutoTokenizer.from_pretrained(model)" in card
    assert "Base model, random weights: its licence holds" in card
    assert str(trained.parent) not in card


def test_the_card_s_header_has_data_licence_and_the_evaluation_for_a_hub(
    trained: Path, tmp_path: Path
) -> None:
    export(trained / "first", tmp_path / "out")
    header = yaml.safe_load((tmp_path / "out/README.md").read_text().split("---\n")[1])
    assert header["license"] == "other"
    assert header["datasets"] == ["drills"]
    assert header["metrics"] == ["pass@1"]
    assert "base_model" not in header, "random weights have none"
    (model,) = header["model-index"]
    (result,) = model["results"]
    assert (model["name"], result["dataset"]["type"]) == ("out", "drills")
    assert (result["metrics"][0]["type"], result["metrics"][0]["value"]) == ("pass@1", 0.0)


@pytest.mark.parametrize(
    ("base", "named"),
    [("HuggingFaceTB/SmolLM2-135M", "HuggingFaceTB/SmolLM2-135M"), ("/models/mine", None)],
)
def test_the_header_names_a_base_model_that_is_on_a_hub_and_no_folder_of_this_machine(
    base: str, named: str | None, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "run/sft/checkpoints/step_000001"
    header = yaml.safe_load(model_card._header(checkpoint, "out", base, ["mbpp"]))
    assert header.get("base_model") == named


@pytest.mark.long
def test_the_card_of_a_stage_names_its_own_base_and_no_stage_that_did_not_make_it(
    tmp_path: Path,
) -> None:
    more = '[stages.next]\n[stages.other]\npolicy.model = "tiny"\ntasks.train = "drills:test"\n'
    made = run(tmp_path, f"{PLAN}{more}", "--name", "mine").folder
    data = []
    for stage in ("first", "next", "other"):
        export(made / stage, tmp_path / stage)
        data.append(re.findall("- stage `(.*?)`", (tmp_path / stage / "README.md").read_text()))
    assert data == [["first"], ["first", "next"], ["other"]]


def test_a_checkpoint_that_no_run_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs/checkpoints/step_000001").mkdir(parents=True)
    with pytest.raises(DataError, match="holds no checkpoint"):
        export(tmp_path / "theirs/checkpoints/step_000001", tmp_path / "out")


def test_a_folder_that_holds_files_and_a_source_without_checkpoint_are_refused(
    trained: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path, tmp_path / "file"):
        with pytest.raises(SettingsError, match="holds files already"):
            export(trained, out)
    with pytest.raises(DataError, match="holds no checkpoint"):
        export(tmp_path, tmp_path / "new")
    assert (tmp_path / "file").read_text() == "mine"


def test_the_card_says_how_the_figures_were_sampled_and_what_the_export_asks_for(
    trained: Path, tmp_path: Path
) -> None:
    start = shutil.copytree(trained / "first" / "start", tmp_path / "start")
    export(trained, tmp_path / "plain")
    plain = (tmp_path / "plain" / "README.md").read_text()
    assert (
        "`temperature = 1.0`, `top_p = 1.0`, `top_k = 0`, `min_p = 0.0`, `max_tokens = 4`" in plain
    )
    assert "`generation_config.json` asks for none" in plain
    file = trained / "first" / "start" / "generation_config.json"
    asked = {"do_sample": True, "temperature": 0.7, "top_k": 20, "repetition_penalty": 1.05}
    file.write_text(json.dumps({**json.loads(file.read_text()), **asked}))
    try:
        export(trained, tmp_path / "asking")
    finally:
        shutil.copy(start / file.name, file)
    card = (tmp_path / "asking" / "README.md").read_text()
    for name, value in asked.items():
        assert f"`{name} = {json.dumps(value)}`" in card
    assert "assay used none of these" in " ".join(card.split())
    again = json.loads((tmp_path / "asking" / "generation_config.json").read_text())
    assert asked.items() <= again.items(), "the base model's own values are kept"


@pytest.mark.parametrize("most", [2000, 20_000])
def test_a_full_disk_ends_an_export_with_one_line_and_leaves_nothing(
    most: int, trained: Path, tmp_path: Path
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as raised:
            export(trained, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    line, code = explain(raised.value)
    assert code == 3
    assert str(tmp_path / "out") in line
    assert "ulimit -f" in line
    assert [*tmp_path.iterdir()] == []
