"""Loading, tokens and masks and saving, on small Llama and Qwen2 checkpoints made here."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from huggingface_hub import constants

from assay.config.sections import LoraSettings, PolicySettings, TinySettings
from assay.errors import ModelError, SettingsError
from assay.hub import OFFLINE
from assay.policy.load_model import Policy, load_policy, pick_device
from assay.policy.source import source_of
from assay.policy.tiny import make_tiny
from assay.rollout.prompter import Prompter
from assay.types import Check, Message, Task
from tests.policies import TASKS, checkpoint, tiny_policy

SAID = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
TEMPLATE = SAID + "{% if add_generation_prompt %}<assistant>{% endif %}"


def logits_of(policy: Policy) -> torch.Tensor:
    policy.model.eval()
    with torch.no_grad():
        return policy.model(torch.arange(20).unsqueeze(0)).logits  # type: ignore[no-any-return]


def test_the_tiny_policy_has_heads_that_vllm_can_serve_and_round_trips_its_tasks(
    tmp_path: Path,
) -> None:
    policy = load_policy(
        PolicySettings(
            model=str(make_tiny(tmp_path / "tiny", TASKS, TinySettings(), 0)), device="cpu"
        )
    )
    config = policy.model.config
    assert config.hidden_size // config.num_attention_heads >= 32
    assert 0.5e6 < sum(p.numel() for p in policy.trainable.values()) < 2e6
    for task in TASKS:
        assert (
            policy.chat.text(policy.chat.tokenizer(task.reference)["input_ids"]) == task.reference
        )


def test_the_tiny_policy_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    made = [
        make_tiny(tmp_path / name, TASKS, TinySettings(vocabulary=300), seed)
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    a, b, c = (logits_of(load_policy(PolicySettings(model=str(folder)))) for folder in made)
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_the_tiny_tokenizer_knows_the_words_of_a_whole_conversation(tmp_path: Path) -> None:
    first, reply = Message("user", "Question"), Message("assistant", "calculate")
    messages = (first, reply, Message("user", "seven"))
    task = Task("t", "seven", (), "", messages=messages, demonstrations=("answer",))
    made = make_tiny(tmp_path / "tiny", [task] * 2, TinySettings(vocabulary=300), 0)
    tokenizer = load_policy(PolicySettings(model=str(made), device="cpu")).chat.tokenizer
    words = ["Question", "calculate", "seven", "answer"]
    assert [tokenizer.tokenize(word) for word in words] == [[word] for word in words]


def test_a_width_that_does_not_divide_into_heads_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"policy\.tiny\.width = 100"):
        make_tiny(tmp_path / "x", TASKS, TinySettings(width=100, heads=3), 0)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("lora", [None, LoraSettings(rank=4)])
def test_a_checkpoint_is_loaded_saved_and_loaded_again_by_transformers(
    tmp_path: Path, kind: str, lora: LoraSettings | None
) -> None:
    from transformers import AutoModelForCausalLM

    policy = load_policy(
        PolicySettings(model=str(checkpoint(tmp_path, kind)), lora=lora, device="cpu")
    )
    for parameter in policy.trainable.values():
        parameter.data.add_(0.01)
    policy.save(tmp_path / "saved")
    again = load_policy(PolicySettings(model=str(tmp_path / "saved"), device="cpu"))
    assert torch.equal(logits_of(again), logits_of(policy))
    assert again.trainable.keys() == policy.trainable.keys()
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "saved").eval()
    with torch.no_grad():
        assert torch.allclose(
            theirs(torch.arange(20).unsqueeze(0)).logits, logits_of(policy), atol=1e-6
        )


def test_a_base_models_prompt_is_the_stub_and_its_dialogue_masks_the_prompt_only(
    tmp_path: Path,
) -> None:
    chat = tiny_policy(tmp_path).chat
    task = TASKS[3]
    (sample,) = Prompter(chat).samples(task)
    trained = [token for token, on in zip(sample.tokens, sample.mask, strict=True) if on]
    assert chat.tokenizer.decode(Prompter(chat).prompt(task)) == task.prompt
    prompt = Prompter(chat).prompt(task)
    assert tuple(sample.tokens[: len(prompt)]) == prompt
    assert chat.text(trained) == task.reference
    assert trained[-1] == chat.tokenizer.eos_token_id


def test_a_stub_task_is_learned_from_the_body_with_its_indentation(tmp_path: Path) -> None:
    chat = tiny_policy(tmp_path).chat
    stub = "def g(x):\n"
    task = Task(
        "s", stub, (Check("assert g(1) == 1"),), "g", stub=stub, reference=stub + "    return x\n"
    )
    (sample,) = Prompter(chat).samples(task)
    assert (
        chat.text([t for t, on in zip(sample.tokens, sample.mask, strict=True) if on])
        == "    return x\n"
    )


def test_a_chat_model_is_asked_through_its_template_and_learns_a_fenced_program(
    tmp_path: Path,
) -> None:
    policy = load_policy(
        PolicySettings(model=str(checkpoint(tmp_path, "llama", TEMPLATE)), device="cpu")
    )
    text = policy.chat.tokenizer.decode(Prompter(policy.chat).prompt(TASKS[0]))
    assert text.startswith("<user>")
    assert text.endswith("<assistant>")
    (sample,) = Prompter(policy.chat).samples(TASKS[0])
    answer = policy.chat.text([t for t, on in zip(sample.tokens, sample.mask, strict=True) if on])
    assert answer == f"```python\n{(TASKS[0].reference or '').rstrip()}\n```"


def test_demonstrations_take_the_place_of_the_reference(tmp_path: Path) -> None:
    from dataclasses import replace

    chat = tiny_policy(tmp_path).chat
    task = replace(TASKS[0], demonstrations=("one\n", "two\n"))
    assert [chat.text(s.tokens)[-4:] for s in Prompter(chat).samples(task)] == ["one\n", "two\n"]


def test_a_model_that_cannot_be_used_is_named_in_one_line_with_what_to_do(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    bare = checkpoint(tmp_path, "llama")
    for file in bare.glob("token*"):
        file.unlink()
    for name, message in [
        (str(tmp_path / "gone"), "does not exist"),
        (str(empty), r"holds no config\.json"),
        (str(bare), "holds no tokenizer"),
        ("nobody/no-such-model", "hub name it needs the network"),
    ]:
        with pytest.raises(ModelError, match=message) as caught:
            load_policy(PolicySettings(model=name))
        assert "\n" not in str(caught.value)


def test_a_model_of_the_hub_is_not_asked_for_where_no_hub_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object) -> None:
        raise OSError("no network")

    def asked(*_: object, **__: object) -> None:
        raise AssertionError("the hub is asked")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("socket.getaddrinfo", refused)
    monkeypatch.setattr("httpx2.Client.send", asked)
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", *OFFLINE):
        monkeypatch.delenv(name, raising=False)
    looked_up = "is here, and as a hub name it needs the network: the hub's client has no copy"
    source = source_of(PolicySettings(model="nobody/none"))
    with pytest.raises(ModelError, match=f"'nobody/none' is not there: .*{looked_up}.*; correct"):
        _ = source.facts
    with pytest.raises(ModelError, match=f"no tokenizer.*{looked_up}.*go online"):
        source.load_tokenizer()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match=f"{looked_up}.*unset HF_HUB_OFFLINE"):
        source.load_tokenizer()
    assert constants.HF_HUB_OFFLINE is False, "later requests of the process go out again"


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(SettingsError, match="is not a device"):
        pick_device("gpu0")
    if not torch.cuda.is_available():
        with pytest.raises(SettingsError, match="finds no GPU"):
            pick_device("cuda")
