"""What a model learns through mini-swe-agent as it is, on small repositories with made bugs.

    python -m bench.repairs FOLDER --model MODEL      # writes all that a run needs
    assay train FOLDER/run.toml --seed 0

It makes tasks (`assay make-tasks`), plays their references (`assay demonstrate`), and turns the
rows into mini-swe-agent's conversations with the short prompt that it is started with: SFT learns
what the agent will show. GRPO then trains through the agent, whose commands run in a box.

A demonstration keeps the steps without which nothing is repaired: search, read, edit by `sed`,
submit. A small model learns those from some 80 rows, and a rollout costs half as many tokens.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
MINI = ROOT / ".venv-agents" / "mini-swe-agent" / "bin" / "mini"
SCRIPT = ROOT / "examples" / "agents" / "mini_swe_agent.sh"
SYSTEM = """You repair programs. Each reply has a sentence and exactly one command in a block:

```mswea_bash_command
your_command_here
```"""
STEPS = r"```mswea_bash_command\n(grep|git grep|cat|sed|echo)\b"
LAST = "When it is repaired, run `echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT` alone."
RUN = """name = "repairs"
folder = "{folder}/runs"
[environment]
name = "program_with_box"
command = {command}
turns = 8
seconds = 1800
at_once = 24
[policy]
model = "{model}"
dtype = "bfloat16"
lora = {{ rank = 16, alpha = 32 }}
[rollout]
max_tokens = 120
tasks_per_step = 4
group_size = 6
[judge]
allow_forgeable = true
[tasks]
train = "{folder}/train/tasks.jsonl"
[evaluate]
tasks = "{folder}/heldout/tasks.jsonl"
samples = 3
max_tokens = 120
[stages.sft]
epochs = 3
algorithm.name = "sft"
tasks.train = "{folder}/rows.jsonl"
dataset.batch_size = 8
optimizer = {{ lr = 2e-4, schedule = "cosine", warmup_steps = 2 }}
[stages.grpo]
steps = 12
algorithm.name = "grpo"
optimizer = {{ lr = 1e-4, warmup_steps = 1 }}
"""


def write_package(folder: Path, part: str) -> Path:
    """The package of one part, with its tests."""
    package = folder / f"kit_{part}"
    for name in ("kit", "tests"):
        (package / name).mkdir(parents=True, exist_ok=True)
    (package / "kit" / "__init__.py").write_text("")
    modules = tomllib.loads((ROOT / "bench" / "repairs.toml").read_text())[part]
    for name, module in modules.items():
        code = f'"""Functions for {name}."""\n\n\n{module["code"]}'
        names = [line[4:].partition("(")[0] for line in code.split("\n") if line[:4] == "def "]
        tests = f"from kit.{name} import {', '.join(names)}\n\n\n{module['tests']}"
        (package / "kit" / f"{name}.py").write_text(code)
        (package / "tests" / f"test_{name}.py").write_text(tests)
    return package


def assay(*words: str | Path) -> None:
    """Run a command of assay's."""
    subprocess.run([sys.executable, "-m", "assay", *map(str, words)], check=True)


def as_mini_shows(row: dict[str, object], prompt: str) -> dict[str, object]:
    """A demonstration as mini-swe-agent's conversation, of the steps that a repair needs."""
    messages = row["messages"]
    assert isinstance(messages, list)
    first = next(n for n, each in enumerate(messages) if each["role"] == "assistant")
    user = f"{prompt.rstrip()}\n\n{LAST}"
    kept = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]
    for start in range(first, len(messages), 2):
        if re.search(STEPS, messages[start]["content"]):
            kept += messages[start : start + 2]
    return {"id": row["id"], "messages": kept}


def keep_few(path: Path, most: int) -> None:
    """Keep at most so many tasks of each function, the first ones."""
    counts: Counter[str] = Counter()
    lines = []
    for line in path.read_text().splitlines(keepends=True):
        function = json.loads(line)["prompt"].split("`")[3]
        counts[function] += 1
        lines += [line] if counts[function] <= most else []
    path.write_text("".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", required=True)
    options = parser.parse_args()
    folder = options.folder.resolve()
    for part, count in (("train", 72), ("heldout", 60)):
        package = write_package(folder, part)
        assay("make-tasks", package, "--output", folder / part, "--count", str(count))
    keep_few(folder / "heldout" / "tasks.jsonl", 3)
    tasks, demonstrations = folder / "train" / "tasks.jsonl", folder / "demonstrations.jsonl"
    words = ("--samples", "4", "--tool-calls", "text")
    assay("demonstrate", tasks, "--out", demonstrations, *words)
    prompts = {
        task["id"]: task["prompt"] for task in map(json.loads, tasks.read_text().splitlines())
    }
    rows = [
        as_mini_shows(row, prompts[row["id"].rpartition("#")[0]])
        for row in map(json.loads, demonstrations.read_text().splitlines())
        if any("\nsed -i" in message["content"] for message in row["messages"])
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    agent = {"system_template": SYSTEM, "instance_template": "{{task}}\n\n" + LAST}
    (folder / "mini.yaml").write_text(json.dumps({"agent": agent}))  # JSON is YAML
    mini = ("-c", "mini_textbased.yaml", "--model-class", "litellm_textbased")
    command = ["sh", SCRIPT, MINI, *mini, "-c", folder / "mini.yaml"]
    text = RUN.format(folder=folder, model=options.model, command=json.dumps([*map(str, command)]))
    (folder / "run.toml").write_text(text)
    print(f"train with: assay train {folder / 'run.toml'}")


if __name__ == "__main__":
    main()
