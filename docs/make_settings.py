"""Writes settings.md from the settings' own docstrings: `python docs/make_settings.py`; a test
keeps it true.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from assay.algorithms import algorithms
from assay.algorithms.shared_settings import PolicyGradientSettings
from assay.callbacks import callbacks
from assay.choices import choices
from assay.config.messages import section_of
from assay.config.sections import RunSettings
from assay.environments import environments
from assay.registry import shipped
from assay.rewards import rewards

HEAD = """# Settings

One TOML file describes a run. `base = "other.toml"` starts from another file. A table
`[stages.NAME]` makes a stage, which has the settings of the file and changes some of them. Stages
run in order. Each starts from the weights of the one before, unless it has its own `policy.model`.
`config.toml` in a stage's folder has the resolved settings.

On the command line, `--table.key value` changes every stage, and `--stages.NAME.table.key value`
changes one. An unknown key is an error. Paths in a file are relative to that file, and paths on the
command line to the working directory. `~` at the start of a path is the home folder.

`unset = ["steps", "stages.sft"]` at the top of a file, or `--unset steps`, drops what its base
sets. You may change `optimizer.lr`, `optimizer.schedule` or the length of a run that was stopped.
The run notes it in `events.jsonl`. A finished stage only takes [more
steps](rollouts.md#how-a-run-ends).

```toml longer.toml
name = "longer"
policy.model = "tiny"
tasks.train = "my_tasks.jsonl"
rollout = { tasks_per_step = 2, max_tokens = 128 }
evaluate = { tasks = "drills:test", limit = 8, max_tokens = 128 }
[stages.sft]
epochs = 20
algorithm.name = "sft"
[stages.grpo]
steps = 3
algorithm.name = "grpo"
[stages.grpo.rewards]
tests = { mode = "fraction", perfect_bonus = 1.0 }
length = { alpha = 0.1 }
```

```sh
assay train longer.toml --seed 1 --stages.grpo.rollout.group_size 4
```

Exit codes of every command:

- 0: The command is done. After Ctrl-C, `assay train` has saved.
- 1: `assay check --strict`, `assay overlap` or `assay doctor --endpoint` found something, or nobody
  reads the output.
- 2: The error is yours. One line says where it is and how to fix it.
- 3: The machine failed, or lost more completions than `evaluate.max_lost`. What was done is saved.
- 130: Ctrl-C ended the command.

Extras, in the checkout: `pip install -e '.[NAME]'`:

- `serve`: judge services ([service.md](service.md))
- `vllm`: vLLM ([vllm.md](vllm.md))
- `tinker`: Tinker servers ([tinker.md](tinker.md))
- `maths`, `cocotb`: formulas as answers, CVDP's harnesses ([kinds.md](kinds.md))
- `overlap`: `assay overlap` beyond Python ([overlap.md](overlap.md))
- `gguf`: GGUF files, `smollm2` ([recipes.md](recipes.md#models))
- `quant`: 4-bit weights (`policy.quantize`)
- `sql`: `assay show` with a query ([viewer.md](viewer.md))
- `wandb`, `trackio`, `tb`: trackers (W&B, trackio, TensorBoard)
- `integrations`: TRL and verifiers ([service.md](service.md))

This page is written by `python docs/make_settings.py`.
"""


def render() -> str:
    """The page."""
    parts = [HEAD]
    for title, section in _sections(RunSettings, ""):
        name = f"`[{title}]`" if title else "At the top"
        rows = [
            _row(key, field)
            for key, field in section.model_fields.items()
            if key != "stage" and not section_of(field.annotation)
        ]
        parts.append(f"\n## {name}\n\n{_first_paragraph(section)}\n\n" + "".join(rows))
    shared = PolicyGradientSettings.model_fields
    parts.append(
        "\n## `[algorithm]`\n\n`name`, and these settings of all algorithms but sft and dpo, with"
        " the defaults of the next table:\n\n"
    )
    parts += [_row(key, field) for key, field in shared.items()]
    parts.append("\n| algorithm | what it is | defaults of its own |\n|---|---|---|\n")
    names = shipped("assay.algorithms", "algorithm")
    for name in names:
        fields = algorithms[name].settings.model_fields
        defaults = ", ".join(
            f"`{key} = {_default(field)}`"
            for key, field in fields.items()
            if key in shared
            and issubclass(algorithms[name].settings, PolicyGradientSettings)
            and shared[key].default != field.default
        )
        parts.append(f"| `{name}` | {algorithms.summary(name)} | {defaults or 'none'} |\n")
    for name in names:
        fields = algorithms[name].settings.model_fields
        shares = issubclass(algorithms[name].settings, PolicyGradientSettings)
        rows = [_row(key, field) for key, field in fields.items() if not (shares and key in shared)]
        if rows:
            parts.append(f"\nOnly `{name}` has:\n\n" + "".join(rows))
    parts.append(
        "\n## `[rewards.NAME]`\n\nTerms have `weight` (1.0) and parameters; the reward is the"
        " weighted sum.\n\n"
    )
    parts += [
        f"- `{name}` ({_parameters(rewards[name])}): {_help(rewards[name])}\n"
        for name in shipped("assay.rewards", "reward")
    ]
    parts.append(
        "\n## `[environment]`\n\n`name`, and the environment's own parameters"
        " ([environments.md](environments.md)).\n\n"
    )
    parts += [
        f"- `{name}` ({_parameters(environments[name].run)}): {environments.summary(name)}\n"
        for name in shipped("assay.environments", "environment")
    ]
    parts.append(
        "\n## `[callbacks.NAME]`\n\nThe callback's parameters ([own.md](own.md#a-callback)).\n\n"
    )
    parts += [
        f"- `{name}` ({_parameters(callbacks[name])}): {_help(callbacks[name])}\n"
        for name in shipped("assay.callbacks", "callback")
    ]
    parts.append(
        "\n## `[tasks.choice]`\n\n`name`, and the choice's own parameters"
        " ([choosing-tasks.md](choosing-tasks.md#choose-while-training)).\n\n"
    )
    parts += [
        f"- `{name}` ({_parameters(choices[name])}): {_help(choices[name])}\n"
        for name in shipped("assay.choices", "choice")
    ]
    return "".join(parts)


def _sections(section: type[BaseModel], title: str) -> list[tuple[str, type[BaseModel]]]:
    sections: list[tuple[str, type[BaseModel]]] = [(title, section)]
    for key, field in section.model_fields.items():
        inner = section_of(field.annotation)
        if inner:
            sections += _sections(inner, f"{title}.{key}" if title else key)
    return sections


def _first_paragraph(section: type[BaseModel]) -> str:
    return " ".join((section.__doc__ or "").strip().partition("\n\n")[0].split())


def _row(key: str, field: FieldInfo) -> str:
    kinds = [field.annotation, *get_args(field.annotation)]
    options = next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), ())
    text = " ".join((field.description or "").split())
    if any(f"`{option}`" not in text for option in options):
        text += f" One of {', '.join(f'`{option}`' for option in options)}."
    default = "required" if field.is_required() else f"`{_default(field)}`"
    return f"- `{key}` ({default}): {text}\n"


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if isinstance(value, tuple):
        return str(list(value)).replace("'", '"')
    if isinstance(value, bool | None):
        return "none" if value is None else str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _help(term: Any) -> str:
    text = " ".join((inspect.getdoc(term) or "").split())
    return text.partition(" Raises ")[0]


def _parameters(term: Any) -> str:
    parameters = [
        p for p in inspect.signature(term).parameters.values() if p.kind is p.KEYWORD_ONLY
    ]
    texts = (p.name if p.default is p.empty else f"{p.name} = {p.default!r}" for p in parameters)
    return ", ".join(f"`{text}`" for text in texts) or "no parameters"


if __name__ == "__main__":
    (Path(__file__).parent / "settings.md").write_text(render())
