"""The whole idea in one file, without an abstraction: a tiny model learns from its own programs.

    python examples/plain_loop.py --steps 50

A random Llama is first shown right programs (SFT), then it writes its own, the judge runs them in a
sandbox, and GRPO (arXiv:2402.03300) makes those that pass more likely. `assay train demo` does the
same with what this leaves out: batching, checkpoints, evaluation, staleness, and most algorithms.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

from assay import extract, prompts
from assay.config.sections import TinySettings
from assay.judge import Job, judge_all
from assay.policy.tiny import make_tiny
from assay.tasks import load
from assay.types import Task, Verdict

GROUP, NEW_TOKENS = 8, 64
CLIP_LOW, CLIP_HIGH = 0.2, 0.28


def logprobs(model: torch.nn.Module, tokens: Tensor, mask: Tensor) -> Tensor:
    """Log p of each token after the first, [B, T] -> [B, T - 1]; 0 where the mask is 0."""
    logits = model(tokens, attention_mask=(tokens != 0).long()).logits[:, :-1].float()
    logprobs = logits.log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
    return logprobs.masked_fill(mask[:, 1:] == 0, 0.0)


def padded(rows: list[list[int]]) -> Tensor:
    """Rows of tokens as one tensor, padded with 0 on the right."""
    width = max(map(len, rows))
    return torch.tensor([row + [0] * (width - len(row)) for row in rows])


def imitate(model, tokenizer, tasks: list[Task], steps: int, draw: random.Random) -> None:  # type: ignore[no-untyped-def]
    """SFT: cross-entropy of reference programs."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        texts = [
            prompts.text(task) + str(task.reference).strip() + tokenizer.eos_token
            for task in draw.sample(tasks, 32)
        ]
        tokens = padded([tokenizer(text)["input_ids"] for text in texts])
        logits = model(tokens, attention_mask=(tokens != 0).long()).logits[:, :-1]
        loss = cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"SFT step {step}: loss {loss.item():.3f}")


@torch.no_grad()
def sample(model, tokenizer, prompt: list[int]) -> list[list[int]]:  # type: ignore[no-untyped-def]
    """GROUP completions of a prompt at temperature 1, each with its end token if it has one."""
    outputs = model.generate(
        torch.tensor([prompt] * GROUP), attention_mask=torch.ones(GROUP, len(prompt)).long(),
        max_new_tokens=NEW_TOKENS, do_sample=True, top_k=0, pad_token_id=0,
    )  # fmt: skip
    rows = outputs[:, len(prompt) :].tolist()
    end = tokenizer.eos_token_id
    return [row[: row.index(end) + 1] if end in row else row for row in rows]


def advantages(rewards: Tensor) -> Tensor:
    """A = (R - mean) / std of the group; 0 where all rewards are equal. [GROUP] -> [GROUP]."""
    std = rewards.std(correction=0)
    return (rewards - rewards.mean()) / std if std > 1e-6 else torch.zeros_like(rewards)


def grpo_step(model, tokenizer, optimizer, tasks: list[Task]) -> float:  # type: ignore[no-untyped-def]
    """Sample, judge, and update once. Returns the pass rate."""
    rows, masks, jobs = [], [], []
    for task in tasks:
        prompt = tokenizer(prompts.text(task))["input_ids"]
        for completion in sample(model, tokenizer, prompt):
            rows.append(prompt + completion)
            masks.append([0] * len(prompt) + [1] * len(completion))
            reply = tokenizer.decode(completion, skip_special_tokens=True)
            jobs.append(Job(task, extract.program(task, reply)))
    executions = judge_all(jobs)
    # The machine failed, or the task cannot be judged: no reward, so the group has no say here.
    lost = [not execution.is_judged for execution in executions]
    rewards = torch.tensor([float(execution.verdict is Verdict.PASS) for execution in executions])
    groups = [
        torch.zeros(GROUP)
        if any(lost[place : place + GROUP])
        else advantages(rewards[place : place + GROUP])
        for place in range(0, len(rows), GROUP)
    ]
    tokens, mask, advantage = padded(rows), padded(masks), torch.cat(groups)[:, None]
    with torch.no_grad():
        old = logprobs(model, tokens, mask)
    ratio = (logprobs(model, tokens, mask) - old).exp()
    clipped = ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH)
    per_token = -torch.min(ratio * advantage, clipped * advantage) * mask[:, 1:]
    loss = per_token.sum() / mask.sum()  # every token of the batch counts the same
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return rewards.mean().item()


def main() -> None:
    """Train and print the pass rate of each step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sft-steps", type=int, default=200)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--tasks", type=int, default=8, help="of one GRPO step")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    draw = random.Random(arguments.seed)
    tasks = list(load("drills:train"))
    with tempfile.TemporaryDirectory() as folder:
        path = make_tiny(Path(folder) / "tiny", tasks, TinySettings(), arguments.seed)
        model = AutoModelForCausalLM.from_pretrained(path)
        tokenizer = AutoTokenizer.from_pretrained(path)
    if tokenizer.pad_token_id != 0:
        raise SystemExit("this loop pads with token 0; the tokenizer pads with another")
    imitate(model, tokenizer, tasks, arguments.sft_steps, draw)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(arguments.steps):
        passed = grpo_step(model, tokenizer, optimizer, draw.sample(tasks, arguments.tasks))
        print(f"GRPO step {step}: pass rate {passed:.1%}")


if __name__ == "__main__":
    main()
