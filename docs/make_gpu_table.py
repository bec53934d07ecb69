"""Writes the table of what-fits.md from the arithmetic of `assay plan --gpus`:
`python docs/make_gpu_table.py`; a test keeps it true.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from assay.config.sections import RunSettings
from assay.distributed.cards import CARDS, GB, Gpus
from assay.distributed.gpu_plan import ModelShapes, StageOnGpus, planned_on

PAGE = Path(__file__).parent / "what-fits.md"
BEGIN, END = "<!-- begin of the table -->\n", "<!-- end of the table -->\n"
QWEN = {
    "0.5B": (896, 24, 14, 2, 4864, 151936, True),
    "1.5B": (1536, 28, 12, 2, 8960, 151936, True),
    "7B": (3584, 28, 28, 4, 18944, 152064, False),
    "32B": (5120, 64, 40, 8, 27648, 152064, False),
}
"""Shapes of Qwen2.5-Coder: hidden size, layers, heads, heads of keys, inner size, vocabulary, and
whether embedding and head are one."""
NAMES = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "intermediate_size", "vocab_size", "tie_word_embeddings",
)  # fmt: skip
POLICY = {"dtype": "bfloat16", "gradient_checkpointing": True}
KINDS: dict[str, dict[str, object]] = {"": {}, ", LoRA": {"lora": {"rank": 16}}}
"""What is added to the policy in the rows with that word behind the model's size."""
COUNTS, LENGTHS = (1, 2, 4, 8, 16), (4096, 32_768)


def write_config(folder: Path, size: str) -> Path:
    """The `config.json` of a Qwen2.5-Coder, in a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    shape = dict(zip(NAMES, QWEN[size], strict=True))
    kind = {"model_type": "qwen2", "hidden_act": "silu", "max_position_embeddings": 32_768}
    (folder / "config.json").write_text(json.dumps(kind | shape))
    return folder


def planned(
    shapes: ModelShapes, model: Path, count: int, longest: int, **policy: object
) -> StageOnGpus:
    """A stage of GRPO with so many GPUs of 80 GB for the learner; servers are elsewhere."""
    settings = RunSettings.model_validate({
        "stage": "grpo", "steps": 1, "algorithm": {"name": "grpo"},
        "tasks": {"train": ["drills:train"]},
        "engine": {"name": "vllm", "servers": ["http://generate:8000"]},
        "policy": {"model": str(model), **POLICY, **policy},
        "learner": {"micro_batch_tokens": longest},
    })  # fmt: skip
    return planned_on(settings, Gpus(count, CARDS["H100"]), shapes, longest)


def rows(folder: Path) -> Iterator[str]:
    """The lines of the table."""
    yield f"| model | tokens | {' | '.join(f'{n} GPU' + 's' * (n > 1) for n in COUNTS)} |\n"
    yield "|---|---:|" + "---:|" * len(COUNTS) + "\n"
    shapes = ModelShapes()
    for label, more in KINDS.items():
        for size in QWEN:
            model = write_config(folder / size, size)
            for longest in LENGTHS:
                cells = [_cell(planned(shapes, model, count, longest, **more)) for count in COUNTS]
                yield f"| {size}{label} | {longest:,} | {' | '.join(cells)} |\n"


def _cell(stage: StageOnGpus) -> str:
    """`66, 51`: GB on rank 0 and on another; struck out where they are too many."""
    peaks = [stage.peak, *([sum(stage.rank.values())] if stage.rank else [])]
    text = ", ".join(f"{peak / GB:.0f}" for peak in peaks)
    return text if stage.peak <= stage.room else f"~~{text}~~"


def render(page: str) -> str:
    """The page with the table."""
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    with TemporaryDirectory() as folder:
        return before + BEGIN + "\n" + "".join(rows(Path(folder))) + "\n" + END + after


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
