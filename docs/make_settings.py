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
from assay.algorithms.options import PolicyGradientSettings
from assay.config.messages import section_of
from assay.config.sections import RunSettings
from assay.environments import environments
from assay.registry import shipped
from assay.rewards import rewards

HEAD = """# Settings

One TOML file describes a run. `base = "other.toml"` starts from another file. A table
`[stages.NAME]` makes a stage: it takes all common settings and changes what it says itself. Stages
run in the order of the file. Each continues from the weights of the one before, unless it has its
own `policy.model`.

On the command line, `--table.key value` changes every stage and `--stages.NAME.table.key value`
changes one. An unknown key is an error. `config.toml` in each stage's folder has the resolved
settings.

Paths in a TOML file are relative to that file. Paths on the command line are relative to the
working directory, and so is `runs`, the default of `folder`.

```toml longer.toml
name = "longer"
[policy]
model = "tiny"
[tasks]
train = "my_tasks.jsonl"
[evaluate]
tasks = "drills:test"
limit = 8
max_tokens = 128
[rollout]
tasks_per_step = 2
max_tokens = 128
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

| exit code of every command | meaning |
| --- | --- |
| 0 | done |
| 1 | `assay check --strict` dropped tasks, `assay overlap` found some, or nobody reads the output |
| 2 | user error; one line says what, where and how to fix it |
| 3 | the machine failed |
| 130 | Ctrl-C |

| extra: `pip install '.[NAME]'` | what for |
| --- | --- |
| `serve` | the judge over HTTP ([service.md](service.md)) |
| `vllm` | generating with vLLM ([vllm.md](vllm.md)) |
| `maths` | formulas as answers ([judge.md](judge.md)) |
| `cocotb` | CVDP's harnesses ([judge.md](judge.md)) |
| `overlap` | `assay overlap` on programs in other languages ([overlap.md](overlap.md)) |
| `gguf` | GGUF files and `smollm2` as `policy.model` ([recipes.md](recipes.md#models)) |
| `quant` | 4-bit weights (`policy.quantize`) |
| `sql` | `assay show` with a query ([viewer.md](viewer.md)) |
| `wandb`, `trackio`, `tb` | the trackers of W&B, trackio and TensorBoard |
| `integrations` | TRL and verifiers ([service.md](service.md)) |

This page is written by `python docs/make_settings.py`.
"""


def render() -> str:
    """The page."""
    parts = [HEAD]
    for title, section in _sections(RunSettings, ""):
        intro = _first_paragraph(section)
        name = f"`[{title}]`" if title else "At the top"
        rows = [_row(key, field) for key, field in section.model_fields.items() if key != "stage"]
        parts.append(
            f"\n## {name}\n\n{intro}\n\n| key | default | what it is |\n| --- | --- | --- |\n"
            + "\n".join(rows)
            + "\n"
        )
    parts.append("\n## `[algorithm]`\n\n`name`, and the settings of that algorithm.\n")
    shared = PolicyGradientSettings.model_fields
    intro = _first_paragraph(PolicyGradientSettings)
    rows = [_row(key, field) for key, field in shared.items()]
    parts.append(
        f"\n### shared\n\n{intro}\n\n| key | default | what it is |\n| --- | --- | --- |\n"
        + "\n".join(rows)
        + "\n"
    )
    for name in shipped("assay.algorithms", "algorithm"):
        fields = algorithms[name].settings.model_fields
        shares = issubclass(algorithms[name].settings, PolicyGradientSettings)
        own = {
            key: field
            for key, field in fields.items()
            if not shares or key not in shared or shared[key].default != field.default
        }
        rows = [_row(key, field) for key, field in own.items()] or [
            "| | | no settings of its own |"
        ]
        summary = algorithms.summary(name)
        if shares:
            summary += " The shared options, with these of its own:"
        parts.append(
            f"\n### `{name}`\n\n{summary}\n\n| key | default | what it is |\n| --- | --- | --- |\n"
            + "\n".join(rows)
            + "\n"
        )
    parts.append(
        "\n## `[rewards.NAME]`\n\nA term has `weight` (1.0) and parameters; the reward is the"
        " weighted sum.\n\n"
    )
    parts.append("| term | parameters | what it is |\n| --- | --- | --- |\n")
    parts += [
        f"| `{name}` | {_parameters(rewards[name])} | {_help(rewards[name])} |\n"
        for name in shipped("assay.rewards", "reward")
    ]
    parts.append(
        "\n## `[environment]`\n\n`name`, and the environment's own parameters"
        " ([environments.md](environments.md)).\n\n"
    )
    parts.append("| name | parameters | what it is |\n| --- | --- | --- |\n")
    parts += [
        f"| `{name}` | {_parameters(environments[name].run)} | {environments.summary(name)} |\n"
        for name in shipped("assay.environments", "environment")
    ]
    return "".join(parts)


def _sections(section: type[BaseModel], title: str) -> list[tuple[str, type[BaseModel]]]:
    found: list[tuple[str, type[BaseModel]]] = [(title, section)]
    for key, field in section.model_fields.items():
        inner = section_of(field.annotation)
        if inner:
            found += _sections(inner, f"{title}.{key}" if title else key)
    return found


def _first_paragraph(section: type[BaseModel]) -> str:
    return " ".join((section.__doc__ or "").strip().partition("\n\n")[0].split())


def _row(key: str, field: FieldInfo) -> str:
    if section_of(field.annotation):
        default = "a table" if not field.is_required() else "required"
    else:
        default = (
            "required"
            if field.is_required()
            else f"`{_shown(field.get_default(call_default_factory=True))}`"
        )
    kinds = [field.annotation, *get_args(field.annotation)]
    options = next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), ())
    listed = f" One of {', '.join(f'`{option}`' for option in options)}." if options else ""
    return f"| `{key}` | {default} | {' '.join((field.description or '').split())}{listed} |"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return str(list(value)).replace("'", '"')
    return (
        {True: "true", False: "false", None: "none"}.get(value, str(value))
        if isinstance(value, bool | None)
        else str(value)
    )


def _help(term: Any) -> str:
    return " ".join((inspect.getdoc(term) or "").split()).replace("|", "\\|")


def _parameters(term: Any) -> str:
    found = [p for p in inspect.signature(term).parameters.values() if p.kind is p.KEYWORD_ONLY]
    shown = (p.name if p.default is p.empty else f"{p.name} = {p.default!r}" for p in found)
    return ", ".join(f"`{one}`" for one in shown) or "none"


if __name__ == "__main__":
    (Path(__file__).parent / "settings.md").write_text(render())
