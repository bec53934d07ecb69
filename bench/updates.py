"""The two sides of `bench.step`: our learner and TRL's trainer, on the same rollouts of a model."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch

from assay.algorithms import algorithms
from assay.config.sections import RunSettings
from assay.policy.layers import use_efficient_layers
from assay.policy.load_model import Policy
from assay.policy.lora import use_efficient_lora
from assay.policy.onednn import use_fast_linear
from assay.train.learner import Learner
from assay.train.optimizer import Optimizer
from assay.types import Sample
from bench.sizes import Size

LORA = {"r": 16, "lora_alpha": 32, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}


def make(size: Size, lora: bool, dtype: str = "float32") -> Any:
    """The model of a size, the same at each call; with adapters that count."""
    from peft import LoraConfig, get_peft_model

    model = size.model(dtype)
    if not lora:
        return model
    model = get_peft_model(model, LoraConfig(**LORA))
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.02)
    return model


def rollouts(prompts: int, size: Size) -> list[Sample]:
    """Groups of eight, half of them right."""
    draw = torch.Generator().manual_seed(1)
    samples = []
    for task in range(prompts):
        prompt = torch.randint(1, size.vocabulary, (size.prompt,), generator=draw).tolist()
        for number, length in enumerate(size.lengths):
            tokens = prompt + torch.randint(1, size.vocabulary, (length,), generator=draw).tolist()
            mask = (False,) * size.prompt + (True,) * length
            logprobs = tuple(-7.6 if trained else 0.0 for trained in mask)
            samples.append(
                Sample(tuple(tokens), mask, logprobs=logprobs, reward=number % 2, group=str(task))
            )
    return samples


class Ours:
    """The learner with GRPO, as in a run."""

    def __init__(self, model: Any, samples: Sequence[Sample], **changes: Any) -> None:
        # The rollouts' log-probabilities are invented.
        algorithm = {"name": "grpo", "importance_sampling": "none"}
        table = {"steps": 1000, "stage": "bench", "algorithm": algorithm, "optimizer": {"lr": 1e-6}}
        settings = RunSettings.model_validate(table | {"tasks": {"train": "none"}} | changes)
        use_efficient_layers(model)
        if hasattr(model, "peft_config"):
            use_efficient_lora(model)
        if next(model.parameters()).device.type == "cpu":
            use_fast_linear(model)
        chat: Any = None
        policy = Policy(model, chat, next(model.parameters()).device, 0)
        self.learner = Learner(
            settings, algorithms["grpo"].build(settings.algorithm), policy, 1000, 1.0
        )
        self.samples = samples
        self.done = 0

    def update(self) -> None:
        """One step of learning."""
        self.learner.step(self.samples, self.done)
        self.done += 1

    def gradients(self) -> dict[str, torch.Tensor]:
        """Those of the first step, before clipping; no parameter changes."""
        gradients: dict[str, torch.Tensor] = {}
        optimizer = self.learner.optimizer
        assert isinstance(optimizer, Optimizer)

        def keep(step: int) -> float:
            gradients.update(
                {n: p.grad.clone() for n, p in optimizer.parameters.items() if p.grad is not None}
            )
            optimizer.adamw.zero_grad()
            return 0.0

        optimizer.step, usual = keep, optimizer.step  # type: ignore[method-assign]
        self.learner.step(self.samples, 0)
        optimizer.step = usual  # type: ignore[method-assign]
        return gradients


class Theirs:
    """TRL's trainer; it gets the rollouts instead of generating them."""

    def __init__(
        self,
        model: Any,
        samples: Sequence[Sample],
        steps: int,
        whole: bool = False,
        **changes: Any,
    ) -> None:
        import trl
        from datasets import Dataset

        self.folder = tempfile.TemporaryDirectory()
        settings = {
            "output_dir": self.folder.name, "use_cpu": True, "report_to": [], "save_strategy": "no",
            "max_steps": steps,
            "logging_steps": 10_000, "disable_tqdm": True, "num_generations": 8,
            "max_completion_length": max(sample.trained_tokens for sample in samples),
            "per_device_train_batch_size": len(samples) if whole else 8,
            "gradient_accumulation_steps": 1 if whole else len(samples) // 8,
        } | changes  # fmt: skip
        self.trainer = trl.GRPOTrainer(
            model=model,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=trl.GRPOConfig(**settings),
            train_dataset=Dataset.from_list([{"prompt": "x"}] * len(samples)),
            processing_class=_tokenizer(),
        )
        batch = _padded(samples)
        self.trainer._generate_and_score_completions = lambda inputs: dict(batch)

    def train(self, **events: Callable[[], None]) -> None:
        """Run its training loop; `events` are names of transformers' callbacks."""
        from transformers import TrainerCallback

        def calling(what: Callable[[], None]) -> Callable[..., None]:
            return lambda self, args, state, control, **keywords: what()

        self.trainer.add_callback(
            type("Events", (TrainerCallback,), {k: calling(v) for k, v in events.items()})()
        )
        with contextlib.redirect_stdout(sys.stderr):
            self.trainer.train()

    def gradients(self) -> dict[str, torch.Tensor]:
        """Those of its first step."""
        gradients: dict[str, torch.Tensor] = {}

        def keep() -> None:
            parameters = self.trainer.model.named_parameters()
            gradients.update(
                {n: p.grad.clone() for n, p in parameters if p.grad is not None}
                if not gradients
                else {}
            )

        self.train(on_pre_optimizer_step=keep)
        return gradients


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<pad>": 0, "<end>": 1, "x": 2}, unk_token="x"))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>")


def _padded(samples: Sequence[Sample]) -> dict[str, torch.Tensor]:
    """What TRL's `_generate_and_score_completions` returns: the whole step padded to its longest
    completion, with our advantages.
    """
    estimated = algorithms["grpo"].build({"name": "grpo"}).compute_advantages(samples)
    prompt = samples[0].mask.index(True)
    completions = [torch.tensor(sample.tokens[prompt:]) for sample in samples]
    return {
        "prompt_ids": torch.tensor([sample.tokens[:prompt] for sample in samples]),
        "prompt_mask": torch.ones(len(samples), prompt, dtype=torch.int64),
        "completion_ids": torch.nn.utils.rnn.pad_sequence(completions, batch_first=True),
        "completion_mask": torch.nn.utils.rnn.pad_sequence(
            [torch.ones_like(c) for c in completions], batch_first=True
        ),
        "advantages": torch.tensor([max(sample.advantages, key=abs) for sample in estimated]),
        "num_items_in_batch": torch.tensor(sum(map(len, completions))),
    }
