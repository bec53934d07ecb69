"""Writes api.md from docstrings: `python docs/make_api.py`; a test keeps it true."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from operator import attrgetter
from pathlib import Path

HEAD = """# Python

These are the calls that user code needs, by the module to import them from. `help(train)` and its
like say the rest. `python docs/make_api.py` writes this page.
"""
CALLS = {
    "assay.train": ("recipes.md#from-python", "train"),
    "assay.evaluate": ("evaluate.md", "evaluate_model evaluate"),
    "assay.check": ("data.md#what-assay-check-finds", "check"),
    "assay.tasks": ("data.md#fields-of-a-task", "load task_from_dict"),
    "assay.judge": (
        "judge.md",
        "judge_all Job Judge AnyJudge.run Judge.stream LocalJudge.execute LocalJudge.interpreter",
    ),
    "assay.types": ("judge.md#how-to-read-a-verdict", "Execution Rollout Task"),
    "assay.rewards": ("rewards.md", "reward"),
    "assay.callbacks": ("own.md#a-callback", "callback StageHistory"),
    "assay.environments": ("environments.md#write-your-own", "environment"),
    "assay.algorithms": ("algorithms.md#write-your-own", "algorithm Algorithm"),
    "assay.integrations.trl": ("other-trainers.md#trl", "code_reward"),
    "assay.integrations.verl": ("other-trainers.md#verl", "compute_score"),
    "assay.integrations.lent_box": (
        "lent-boxes.md#from-python",
        "LentBox.open LentBox.run LentBox.put LentBox.get LentBox.start LentBox.exchange"
        " LentBox.stop LentBox.close Finished",
    ),
    "assay.integrations.box_session": (
        "lent-boxes.md#from-python",
        "BoxSession.open BoxSession.run BoxSession.write BoxSession.interrupt BoxSession.close",
    ),
}
"""The page that explains a module, and the public names of it."""


def render() -> str:
    """The page."""
    parts = [HEAD]
    for module, (page, names) in CALLS.items():
        parts.append(f"\n## `{module}`\n\n[{page.partition('#')[0]}]({page}):\n\n")
        parts += [_line(module, name) for name in names.split()]
    return "".join(parts)


def _line(module: str, name: str) -> str:
    item = attrgetter(name)(import_module(module))
    parameters = inspect.signature(item).parameters
    signature = ", ".join(
        f"*{key}"
        if parameter.kind is parameter.VAR_POSITIONAL
        else f"{key}{'' if parameter.default is parameter.empty else '=...'}"
        for key, parameter in parameters.items()
        if key != "self" and parameter.kind is not parameter.VAR_KEYWORD
    )
    text = " ".join((inspect.getdoc(item) or "").partition("\n\n")[0].split())
    raises = re.search(r"Raises [^`]*?\.(?=\s|$)", " ".join((inspect.getdoc(item) or "").split()))
    if raises and raises[0] not in text:
        text += f" {raises[0]}"
    return f"- `{re.sub('AnyJudge|LocalJudge', 'Judge', name)}({signature})`: {text}\n"


if __name__ == "__main__":
    (Path(__file__).parent / "api.md").write_text(render())
