"""The README.md of an exported model: what made it, how well it does, and under which sampling."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.config.toml_files import saved_model
from assay.evaluate.compare import compare
from assay.evaluate.report import Evaluation, read_report
from assay.files import saved_number, saved_table
from assay.progress import counted
from assay.prompts import transformers_code
from assay.types import printable_lines

SAMPLING = ("temperature", "top_p", "top_k", "min_p", "max_tokens")
"""Settings of `[evaluate]` that a card names."""
GENERATION = ("do_sample", "temperature", "top_p", "top_k", "min_p", "typical_p",
              "repetition_penalty", "no_repeat_ngram_size", "num_beams")  # fmt: skip
"""What generation_config.json says of sampling."""
MODEL_CARD = Path(__file__).with_name("model_card.md")
"""The card, with what is filled in in braces."""
SETTINGS = """<details>
<summary>Settings of stage {}</summary>

{}

</details>"""
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
QUOTED = re.compile(r"([\"'])(?:~|\.{1,2})?/(?:[^\"'\n/]+/)*([^\"'\n/]+)\1")
"""The same in quotes, where folders may have spaces."""
ABSOLUTE = re.compile(r"(?:(?<=[\"'`(=,\s])|\A)(?:~|\.{1,2})?/(?:[^\"'`\s/]+/)*(?=[^\"'`\s/])")
"""The folders of an absolute path, or of one that begins with dots, before its last name."""


def model_card(
    checkpoint: Path, recipe: Mapping[str, str], model: Path, name: str, how: str
) -> str:
    """The README of the `model` that was written, `how` it was made of a checkpoint, with the
    settings of the stages by name. It has no path of this machine: of each, the last name stays.
    """
    stage = checkpoint.parents[1]
    tables = {stage_name: tomllib.loads(text) for stage_name, text in recipe.items()}
    base = saved_model(stage.parent / next(iter(recipe)) / "config.toml")
    base_name = f"`{Path(base).name if Path(base).is_absolute() else base}`"
    trained_on = {key: table["tasks"]["train"] for key, table in tables.items()}
    sets = {
        key: ", ".join(f"`{_of_no_folder(spec)}`" for spec in specs)
        for key, specs in trained_on.items()
    }
    datasets = [_of_no_folder(spec).partition(":")[0].partition(",")[0]
                for specs in trained_on.values() for spec in specs]  # fmt: skip
    card = MODEL_CARD.read_text(encoding="utf-8").format(
        header=_header(checkpoint, name, base, list(dict.fromkeys(datasets))),
        name=name, run=stage.parent.name, stage=stage.name,
        steps=counted(int(checkpoint.name.removeprefix("step_")), "step"),
        base=base_name.replace("`start`", "random weights"),
        merged=how,
        data="\n".join(f"- stage `{key}`: {spec}" for key, spec in sets.items()),
        evaluation=_evaluation(checkpoint),
        prompt=transformers_code(checkpoint).replace(str(checkpoint), name),
        recipe="\n\n".join(
            SETTINGS.format(key, _fenced(_of_no_folder(text))) for key, text in recipe.items()
        ),
        sampling=_sampling(model, tables),
        sets=", ".join(dict.fromkeys(sets.values())),
    )  # fmt: skip
    return printable_lines(card.replace(f"{stage.parents[1]}/", ""))


def _fenced(text: str) -> str:
    """A block of TOML, of which no line ends it."""
    ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{ticks}toml\n{text}{ticks}"


def _of_no_folder(text: str) -> str:
    """Text whose absolute paths are their last names."""
    return ABSOLUTE.sub("", QUOTED.sub(r"\1\2\1", text))


def _header(checkpoint: Path, name: str, base: str, datasets: Sequence[str]) -> str:
    """The metadata that a hub reads. A base model on this disk has no name there."""
    import yaml  # type: ignore[import-untyped]

    header: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    if HUB_NAME.fullmatch(base):
        header["base_model"] = base
    header |= {
        "license": "other", "license_name": "of-the-base-model-and-the-task-sets",
        "datasets": list(datasets), "metrics": ["pass@1"], "tags": ["assay", "code"],
    }  # fmt: skip
    if results := [_metric(evaluation) for evaluation in _evaluations_at(checkpoint)]:
        header["model-index"] = [{"name": name, "results": results}]
    return str(yaml.safe_dump(header, sort_keys=False, allow_unicode=True)).rstrip()


def _evaluations_at(checkpoint: Path) -> list[Evaluation]:
    """The evaluations of the checkpoint's stage, where they are of this checkpoint."""
    stage = checkpoint.parents[1]
    if checkpoint.name != f"step_{_evaluated_step(stage):06d}":
        return []
    return [entry for entry in read_report(stage.parent) if entry.name == stage.name]


def _evaluated_step(stage: Path) -> int:
    return int(saved_number(stage / "evaluated.json", "step", 0))


def _metric(evaluation: Evaluation) -> dict[str, Any]:
    """A result, in percent, as a hub's table of models has it."""
    dataset = _of_no_folder(evaluation.tasks_spec)
    name = f"pass@1, temperature {evaluation.temperature:g}, {evaluation.samples} a task"
    return {
        "task": {"type": "text-generation"},
        "dataset": {"name": dataset, "type": dataset.partition(":")[0]},
        "metrics": [
            {"type": "pass@1", "name": name, "value": round(100 * evaluation.pass_at[1], 1)}
        ],
    }


def _evaluation(checkpoint: Path) -> str:
    stage = checkpoint.parents[1]
    if not read_report(stage.parent):
        return "The run was not evaluated."
    step = _evaluated_step(stage)
    other = (
        f"\n\n`{stage.name}` was evaluated after {counted(step, 'step')}, not at this checkpoint."
    )
    text = compare([stage.parent]).markdown()
    return text + (other if checkpoint.name != f"step_{step:06d}" else "")


def _sampling(model: Path, tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Under which sampling the figures were measured, and which the exported `model` asks for."""
    ways = dict[str, list[str]]()
    for name, table in tables.items():
        if table.get("evaluate"):
            ways.setdefault(_listed(table["evaluate"], SAMPLING), []).append(f"`{name}`")
    measured = [
        f"The figures of stage {', '.join(names)} were sampled with {how}, without a repetition"
        " penalty."
        for how, names in ways.items()
    ]
    file = model / "generation_config.json"
    exported = _listed(saved_table(file), GENERATION)
    other = (
        f"`generation_config.json`, which is the base model's, asks for {exported}. assay used none"
        " of these. `generate` and vLLM use them unless they are told otherwise, and then give"
        " other figures."
    )
    return " ".join([*measured, other if exported else "`generation_config.json` asks for none."])


def _listed(table: Mapping[str, Any], names: Sequence[str]) -> str:
    values = {name: table[name] for name in names if table.get(name) is not None}
    return ", ".join(f"`{name} = {json.dumps(value)}`" for name, value in values.items())
