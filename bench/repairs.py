"""What a model learns through mini-swe-agent as it is, on small repositories with made bugs.

    python -m bench.repairs FOLDER --model MODEL      # writes all that a run needs
    assay train FOLDER/run.toml --seed 0

It makes tasks (`assay make-tasks`), and for a third of them conversations in the form that
mini-swe-agent sends: read the file, write it again, submit. SFT learns that form. GRPO then trains
on the other tasks through the agent, whose commands run in a box. A small model cannot quote a line
for `sed`, but it can write a short file again: so each function is a file of its own.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from pathlib import Path

Task = dict[str, object]
ROOT = Path(__file__).parent.parent
MINI = ROOT / ".venv-agents" / "mini-swe-agent" / "bin" / "mini"
SCRIPT = ROOT / "examples" / "agents" / "mini_swe_agent.sh"
SYSTEM = """You repair programs. Each reply has a sentence and exactly one command in a block:

```mswea_bash_command
your_command_here
```"""
LAST = "When it is repaired, run `echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT` alone."
RUN = """name = "repairs"
folder = "{folder}/runs"
[environment]
name = "program_with_box"
command = {command}
turns = 4
seconds = 1800
at_once = 40
[policy]
model = "{model}"
dtype = "bfloat16"
lora = {{ rank = 16, alpha = 32 }}
[rollout]
max_tokens = 240
tasks_per_step = 5
group_size = 8
[judge]
allow_forgeable = true
[tasks]
train = "{folder}/train/rest.jsonl"
[evaluate]
tasks = "{folder}/heldout/tasks.jsonl"
samples = 1
max_tokens = 240
[stages.sft]
epochs = 6
algorithm.name = "sft"
tasks.train = "{folder}/rows.jsonl"
dataset.batch_size = 8
optimizer = {{ lr = 2e-4, schedule = "cosine", warmup_steps = 2 }}
[stages.grpo]
steps = 6
algorithm.name = "grpo"
optimizer = {{ lr = 1e-4, warmup_steps = 1 }}
rewards.milestones = {{}}
"""


def write_package(folder: Path, part: str) -> Path:
    """The package of one part, with its tests."""
    package = folder / f"kit_{part}"
    for name in ("kit", "tests"):
        (package / name).mkdir(parents=True, exist_ok=True)
    (package / "kit" / "__init__.py").write_text("")
    groups = tomllib.loads((ROOT / "bench" / "repairs.toml").read_text())[part]
    for group, texts in groups.items():
        functions = texts["code"].strip("\n").split("\n\n\n")
        names = [re.findall(r"^def (\w+)", function, re.MULTILINE) for function in functions]
        imports = [f"from kit.{first} import {first}" for first, *_ in names]
        for (first, *_), function in zip(names, functions, strict=True):
            used = [line for line in imports if re.search(rf"\b{line.split()[-1]}\(", function)]
            others = [line for line in used if not line.endswith(f" {first}")]
            code = "\n".join([*others, "\n"] if others else []) + function + "\n"
            (package / "kit" / f"{first}.py").write_text(code)
        tests = "\n".join(imports) + f"\n\n\n{texts['tests'].strip()}\n"
        (package / "tests" / f"test_{group}.py").write_text(tests)
    return package


def assay(*words: str | Path) -> None:
    """Run a command of assay's."""
    subprocess.run([sys.executable, "-m", "assay", *map(str, words)], check=True)


def demonstration(task: Task, package: Path) -> dict[str, object]:
    """mini-swe-agent's conversation in which a task is repaired."""
    reference = str(task["reference"])
    path = re.findall(r"^\+\+\+ b/(.*)", reference, re.MULTILINE)[0]
    right = (package / path).read_text()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / path).parent.mkdir()
        (Path(folder) / path).write_text(right)
        words = ("git", "apply", "--reverse", "-")
        subprocess.run(words, cwd=folder, input=reference, text=True, check=True)
        wrong = (Path(folder) / path).read_text()
    user = f"{str(task['prompt']).rstrip()}\n\n{LAST}"
    turns = [("I read the code.", f"cat {path}", wrong),
             ("I write it without the bug.", f"cat > {path} <<'EOF'\n{right}EOF", ""),
             ("It is repaired.", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", None)]  # fmt: skip
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]
    for says, command, output in turns:
        text = f"{says}\n\n```mswea_bash_command\n{command}\n```"
        messages.append({"role": "assistant", "content": text})
        if output is not None:
            text = f"<returncode>0</returncode>\n<output>\n{output}</output>"
            messages.append({"role": "user", "content": text})
    return {"id": task["id"], "messages": messages}


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
    for part, count in (("train", 72), ("heldout", 120)):
        package = write_package(folder, part)
        assay("make-tasks", package, "--output", folder / part, "--count", str(count))
    keep_few(folder / "heldout" / "tasks.jsonl", 4)
    lines = (folder / "train" / "tasks.jsonl").read_text().splitlines(keepends=True)
    tasks = [json.loads(line) for line in lines[::3]]
    rows = [demonstration(task, folder / "kit_train") for task in tasks]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rest = [line for number, line in enumerate(lines) if number % 3]
    (folder / "train" / "rest.jsonl").write_text("".join(rest))
    agent = {"system_template": SYSTEM, "instance_template": "{{task}}\n\n" + LAST}
    (folder / "mini.yaml").write_text(json.dumps({"agent": agent}))  # JSON is YAML
    mini = ("-c", "mini_textbased.yaml", "--model-class", "mini_requests.TextModel")
    command = ["sh", SCRIPT, MINI, *mini, "-c", folder / "mini.yaml"]
    text = RUN.format(folder=folder, model=options.model, command=json.dumps([*map(str, command)]))
    (folder / "run.toml").write_text(text)
    print(f"train with: assay train {folder / 'run.toml'}")


if __name__ == "__main__":
    main()
