"""What the first hour brings: a command, the files beside it, and its answer in exactly one line.

A row is the words after `assay`, the files of the working folder, the line and the exit code: 2 for
what the user can fix, 3 for what the machine lacks.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from assay import rewards
from assay.check.report import read_tasks
from assay.cli import app, explain, main
from assay.config.sections import TinySettings
from assay.errors import DataError, SettingsError, UserError
from assay.evaluate.grade import grade, read_samples
from assay.judge import Job, judge_all
from assay.registry import load_plugins
from assay.tasks import load, task_from_dict
from assay.tasks.jsonl import unknown_fields
from assay.tasks.rows import Row
from assay.train import train
from assay.types import Check, Rollout, Task
from tests.terminals import run_in_terminal

RUN = """\
steps = 1
algorithm.name = "grpo"
tasks.train = "drills:train"
rollout.max_tokens = 64
"""
TASKS = """\
{"id": "add", "prompt": "Add.", "entry_point": "add", "tests": ["assert add(1, 2) == 3"]}
"""
SAMPLES = '{"task_id": "add", "completion": "def add(a, b): return a + b"}\n'
FILES = {"run.toml": RUN, "tasks.jsonl": TASKS, "samples.jsonl": SAMPLES}
"""These are in every folder; a row adds more."""
RECIPES = ", ".join(
    sorted(file.stem for file in (Path(__file__).parents[1] / "recipes").glob("*.toml"))
)

SERVERS = (
    "setting 'engine' `servers` need another `engine.name`: 'openai' asks any OpenAI-compatible"
    " endpoint (`assay eval --engine openai --url URL`), 'vllm' puts assay's weights into vLLM"
    " servers; 'torch' asks none"
)
EVAL = "for example: assay eval --model runs/mine --tasks humaneval --samples 4"
EXCHANGES = "what a program reads and prints is 'exchanges', each with a 'stdin' and a 'stdout'"

NO_FILE = (
    "is no file of tasks; write rows to a .jsonl, .json, .csv or .parquet file, or name a folder"
    " that holds such files"
)
NEEDED = (
    "a task needs 'prompt' and tests ('tests', 'test', 'inputs', 'cases', 'exchanges' or"
    " 'expected_answer'), a row for SFT 'prompt' and 'completion', or 'messages'"
)
ROWS: list[tuple[str, dict[str, str], str, int]] = [
    ("train gone.toml", {},
     "settings file gone.toml not found; write the path of a TOML file, or a recipe: "
     f"{RECIPES}", 2),
    ("train dmo", {},
     "settings file dmo not found; write the path of a TOML file, or a recipe: "
     f"{RECIPES}", 2),
    ("train", {},
     "missing argument 'CONFIG'; for example: assay train mine.toml --optimizer.lr 1e-5"
     " --seeds 0..2", 2),
    ("trian run.toml", {},
     "no such command 'trian'; did you mean 'train'?", 2),
    ("evl", {},
     "no such command 'evl'; did you mean 'eval'?", 2),
    ("eval --modle x --tasks drills", {},
     "no such option: --modle; did you mean --model?", 2),
    ("eval own.toml", {"own.toml": "x = 1\n"},
     "own.toml, line 1: unknown setting 'x'; known: allow-weak, axis, device, dtype, engine, "
     "environment, evaluate, every-checkpoint, every_checkpoint, greedy, judge, limit, max-lost, "
     "max-tokens, model, plugins, policy, prompt, samples, seed, tasks, temperature, top-p, "
     "url", 2),
    ("eval --model x --tasks drils", {},
     "--tasks drils: unknown task set 'drils'; did you mean 'drills'?", 2),
    ("eval --model x --tasks drills:tset", {},
     "unknown split 'tset' of drills; did you mean 'test'?", 2),
    ("eval --model x --tasks drills --environment repiar", {},
     "--environment repiar: unknown environment 'repiar'; did you mean 'repair'?", 2),
    ("eval --model x --tasks drills --samples 0", {},
     "--samples 0: setting 'evaluate.samples' = 0 must be greater than 0", 2),
    ("eval --model x --tasks drills --temperature hot", {},
     "--temperature hot: setting 'evaluate.temperature' = 'hot' must be a number", 2),
    ("eval --model ./nothing --tasks drills:test", {},
     "model directory './nothing' does not exist", 2),
    ("check tasks.json", {},
     "tasks.json does not exist; give the path of a file of tasks", 2),
    ("check humanevl", {},
     "unknown task set 'humanevl'; did you mean 'humaneval'?", 2),
    ("check empty.jsonl", {"empty.jsonl": ""},
     "empty.jsonl holds no tasks; check the file", 2),
    ("grade --tasks tasks.jsonl --samples gone.jsonl", {},
     "gone.jsonl does not exist; give the path of a file of tasks", 2),
    ("grade --tasks tasks.jsonl --samples other.jsonl",
     {"other.jsonl": '{"task_id": "ad", "completion": ""}\n'},
     "other.jsonl, line 1: unknown task_id 'ad'; did you mean 'add'?", 2),
    ("grade --tasks tasks.jsonl --samples bad.jsonl", {"bad.jsonl": "not json\n"},
     "bad.jsonl, line 1: no valid JSON (Expecting value: line 1 column 1 (char 0)); fix it", 2),
    ("grade --tasks tasks.jsonl --samples none.jsonl", {"none.jsonl": ""},
     'none.jsonl holds no samples; write rows such as {"task_id": "HumanEval/0", "completion": '
     '"..."}', 2),
    ("list reward", {},
     "unknown kind 'reward'; did you mean 'rewards'?", 2),
    ("list --plugins gone.py", {},
     "plug-in 'gone.py' not found; write the path of a Python file", 2),
    ("list --plugins bad.py", {"bad.py": "x = 1\ndef f(:\n"},
     "plug-in bad.py, line 2: SyntaxError: invalid syntax (bad.py, line 2)", 2),
    ("check tasks.jsonl --plugins bad.py", {"bad.py": "\nimport nowhere\n"},
     "plug-in bad.py, line 2: ModuleNotFoundError: No module named 'nowhere'", 2),
    ("serve --port 99999", {},
     "invalid value for '--port': must be less than or equal to 65535; see `assay"
     " serve --help`", 2),
    ("serve --host 0.0.0.0", {},
     "'0.0.0.0' can be reached from other machines; give a token with --token-file or ASSAY_TOKEN, "
     "or serve on 127.0.0.1", 2),
    ("serve --host=", {},
     "'' can be reached from other machines; give a token with --token-file or ASSAY_TOKEN, or "
     "serve on 127.0.0.1", 2),
    (f"serve --token-file token --host {'é' * 70}", {"token": "word"},
     f"cannot listen on '{'é' * 70}', port 8080: encoding of hostname failed; choose another --host"
     " or --port", 2),
    ("serve --token-file token", {"token": "é\n"},
     "the token file token holds no token: a token is one line of ASCII letters, digits and signs;"
     " write one, such as the output of `openssl rand -hex 32`", 2),
    ("serve --token-file token", {"token": "first\nsecond\n"},
     "the token file token holds no token: a token is one line of ASCII letters, digits and signs;"
     " write one, such as the output of `openssl rand -hex 32`", 2),
    ("doctor --jsn", {},
     "no such option: --jsn; did you mean --json?", 2),
    ("train run.toml --steps", {},
     "--steps lacks its value", 2),
    ("train run.toml steps 3", {},
     "unexpected argument 'steps'; settings are given as --table.key value", 2),
    ("train run.toml --rollout.grop 4", {},
     "--rollout.grop 4: unknown setting 'rollout.grop'; did you mean 'rollout.group_size'?", 2),
    ("train run.toml --stages.sft.steps 4", {},
     "--stages.sft.steps 4: run.toml has no stage 'sft'; known: grpo", 2),
    ("train run.toml --learning_rate 1e-5", {},
     "--learning_rate 1e-5: unknown setting 'learning_rate': assay calls it optimizer.lr", 2),
    ("train run.toml --rollout.num_generations 8", {},
     "--rollout.num_generations 8: unknown setting 'rollout.num_generations': assay calls it "
     "rollout.group_size", 2),
    ("train run.toml --max_completion_length 512", {},
     "--max_completion_length 512: unknown setting 'max_completion_length': assay calls it "
     "rollout.max_tokens", 2),
    ("train run.toml --optimizer.learning_rate 1e-5", {},
     "--optimizer.learning_rate 1e-5: unknown setting 'optimizer.learning_rate': assay calls it "
     "optimizer.lr", 2),
    ("train run.toml --num_train_epochs 3", {},
     "--num_train_epochs 3: unknown setting 'num_train_epochs': assay calls it epochs", 2),
    ("train run.toml --algorithm.beta 0.1", {},
     "--algorithm.beta 0.1: unknown setting 'algorithm.beta': assay calls it algorithm.kl", 2),
    ("train run.toml --algorithm.kl_coef 0.1", {},
     "--algorithm.kl_coef 0.1: unknown setting 'algorithm.kl_coef': assay calls it"
     " algorithm.kl", 2),
    ("train run.toml --per_device_train_batch_size 8", {},
     "--per_device_train_batch_size 8: unknown setting 'per_device_train_batch_size': assay calls "
     "it rollout.tasks_per_step", 2),
    ("train run.toml --max_tokens 64", {},
     "--max_tokens 64: unknown setting 'max_tokens'; did you mean 'rollout.max_tokens' or "
     "'evaluate.max_tokens'?", 2),
    ("train run.toml --algorithm.name gpro", {},
     "--algorithm.name gpro: unknown algorithm 'gpro'; did you mean 'grpo'?", 2),
    ("train run.toml --rollout.group_size 0", {},
     "--rollout.group_size 0: setting 'rollout.group_size' = 0 must be greater than 0", 2),
    ("train run.toml --seed one", {},
     "--seed one: setting 'seed' = 'one' must be a whole number", 2),
    ("train run.toml --rollout.score_turns perhaps", {},
     "--rollout.score_turns perhaps: setting 'rollout.score_turns' = 'perhaps' must be true or "
     "false", 2),
    ("train run.toml --trackers consol", {},
     "--trackers consol: setting 'trackers.0' = 'consol' must be 'console', 'jsonl', 'rollouts', "
     "'tensorboard', 'wandb' or 'trackio'", 2),
    ("train run.toml --policy tiny", {},
     "--policy tiny: setting 'policy' = 'tiny' is no table; write its keys, such as "
     "'policy.model'", 2),
    ("train run.toml --name ../mine", {},
     "--name ../mine: setting 'name' = '../mine' must be letters, digits, '_', '-' and '.', and "
     "must not start with '.' or '-'", 2),
    ("train run.toml --epochs 2 --steps 3", {},
     "--epochs 2 and --steps 3: write either `steps` or `epochs`", 2),
    ("train run.toml --rewards.lenght.alpha 1", {},
     "--rewards.lenght.alpha 1: unknown reward 'lenght'; did you mean 'length'?", 2),
    ("train run.toml --rewards.tests.mod all", {},
     "--rewards.tests.mod all: unknown setting 'rewards.tests.mod'; did you mean "
     "'rewards.tests.mode'?", 2),
    ("train run.toml --rewards {}", {},
     "--rewards {}: `rewards` is empty; name at least one term, such as tests = {}", 2),
    ("eval --model x --tasks drills --temperature inf", {},
     "--temperature inf: setting 'evaluate.temperature' = inf must be a finite number", 2),
    ("check tasks.jsonl --cpu-seconds inf", {},
     "invalid value for '--cpu-seconds': must be less than or equal to 86400; see `assay check"
     " --help`", 2),
    ("check tasks.jsonl --memory-mb 99999999999999", {},
     "invalid value for '--memory-mb': must be less than or equal to 1048576; see `assay check"
     " --help`", 2),
    ("list --plugins quits.py", {"quits.py": "import sys\n\nsys.exit(0)\n"},
     "plug-in quits.py, line 3: SystemExit: 0", 2),
    ("train run.toml --environment.name repiar", {},
     "--environment.name repiar: unknown environment 'repiar'; did you mean 'repair'?", 2),
    ("train run.toml --tasks.train mine.jsonl", {},
     "mine.jsonl does not exist; give the path of a file of tasks", 2),
    ("train run.toml --policy.model ./nothing", {},
     "model directory './nothing' does not exist", 2),
    ("train run.toml --folder run.toml", {},
     "Not a directory: run.toml/run; choose another path", 2),
    ("train own.toml",
     {"own.toml": 'steps = 1\nalgorithm.name = "grpo"\n\n[optimizer]\nlrr = 1e-5\n'},
     "own.toml, line 5: unknown setting 'optimizer.lrr'; did you mean 'optimizer.lr'?", 2),
    ("train own.toml",
     {"own.toml": 'steps = 1\nalgorithm.name = "gpro"\ntasks.train = "drills:train"\n'},
     "own.toml, line 2: unknown algorithm 'gpro'; did you mean 'grpo'?", 2),
    ("train own.toml", {"own.toml": "steps = \n"},
     "settings file own.toml cannot be read as TOML: Invalid value (at line 1, column 9); correct "
     "the file", 2),
    ("train own.toml", {"own.toml": 'steps = 1\nalgorithm.name = "grpo"\n'},
     "own.toml, stage 'grpo': `tasks.train` is missing; write, for example, tasks.train ="
     ' "drills:train"', 2),
    ("train own.toml", {"own.toml": 'base = "gone.toml"\n'},
     "own.toml: base 'gone.toml' not found; write the path of a TOML file, or a recipe: "
     f"{RECIPES}", 2),
    ("train sub/own.toml", {"sub/own.toml": 'plugins = ["mine.py"]\nbase = "../run.toml"\n'},
     "plug-in 'sub/mine.py' not found; write the path of a Python file", 2),
    ("train sub/own.toml",
     {"sub/own.toml": 'plugins = ["mine.py"]\nbase = "../run.toml"\n',
      "sub/mine.py": "import math\n\nprint(1 / 0)\n"},
     "plug-in sub/mine.py, line 3: ZeroDivisionError: division by zero", 2),
    ("train own.toml",
     {"own.toml": 'base = "run.toml"\nplugins = "mine.py"\n',
      "mine.py": "from assay.rewards import reward\n\n@reward\ndef length(rollout): pass\n"},
     "plug-in mine.py, line 3: reward 'length' is registered twice; rename one of them", 2),
    ("check tasks.txt", {"tasks.txt": "Write add(a, b)."},
     f"tasks.txt {NO_FILE}", 2),
    ("check tasks.csv", {"tasks.csv": "id,prompt"},
     "tasks.csv holds no tasks; check the file", 2),
    ("check run.toml", {},
     f"run.toml {NO_FILE}", 2),
    ("grade --tasks tasks.yaml --samples samples.jsonl", {"tasks.yaml": "- id: add"},
     f"tasks.yaml {NO_FILE}", 2),
    ("eval --model x --tasks tasks.py", {"tasks.py": "def add(): pass"},
     f"tasks.py {NO_FILE}", 2),
    ("overlap tasks.jsonl notes.md", {"notes.md": "# Notes"},
     f"notes.md {NO_FILE}", 2),
    ("train run.toml --tasks.train tasks.txt", {"tasks.txt": "Write add(a, b)."},
     f"tasks.txt {NO_FILE}", 2),
    ("train run.toml --evaluate.tasks tasks.csv", {"tasks.csv": "id,prompt"},
     "tasks.csv holds no tasks; check the split or the file", 2),
    ("check mbpp:tasks.txt", {},
     "unknown split 'tasks.txt' of mbpp; known: all, prompt, test, train, validation", 2),
    ("check tasks.parquet", {"tasks.parquet": TASKS},
     "tasks.parquet cannot be read as Parquet: ArrowInvalid: Parquet magic bytes not found in "
     "footer. Either the file is corrupted or this is not a parquet file.", 2),
    ("check gone.parquet", {},
     "gone.parquet does not exist; give the path of a file of tasks", 2),
    ("check tasks.jsonl.gz", {"tasks.jsonl.gz": TASKS},
     "tasks.jsonl.gz cannot be read: Not a gzipped file (b'{\"'); give the path of another"
     " file", 2),
    ("check array.json", {"array.json": "[]"},
     "array.json holds no tasks; check the file", 2),
    ("check array.json", {"array.json": "[\n{},\n3\n"},
     "array.json, line 1: no valid JSON (Expecting ',' delimiter: line 4 column 1 (char 8)); fix "
     "it", 2),
    ("grade --tasks array.json --samples samples.jsonl", {"array.json": '["add"]'},
     "array.json, row 1: a row is a JSON object, not a str (add)", 2),
    ("check rows.jsonl", {"rows.jsonl": TASKS + '["add"]\n'},
     "rows.jsonl, line 2: a row is a JSON object, not a list (['add'])", 2),
    ("check object.json", {"object.json": '{"tasks": [{"id": "add", "prompt": "Add."}]}'},
     f"object.json, line 1: no prompt and no tests among the columns tasks; {NEEDED}", 2),
    ("grade --tasks rows.jsonl --samples samples.jsonl",
     {"rows.jsonl": '{"id": "add", "prompt": "Add.", "test_cases": ["assert add(1, 2) == 3"]}\n'},
     f"rows.jsonl, line 1: no tests among the columns id, prompt, test_cases; {NEEDED}; did you"
     ' mean columns = { tests = "test_cases" }? On a command line: rows.jsonl,tests=test_cases', 2),
    ("train run.toml --tasks.train rows.jsonl",
     {"rows.jsonl": '{"prompt": "Sum.", "unit_tests": [{"input": "1 2", "output": "3"}]}\n'},
     f"rows.jsonl, line 1: no tests among the columns prompt, unit_tests; {NEEDED}; did you mean"
     ' columns = { tests = "unit_tests" }? On a command line: rows.jsonl,tests=unit_tests', 2),
    ("grade --tasks rows.jsonl --samples samples.jsonl",
     {"rows.jsonl": '{"id": 1, "prompt": "Add.", "tests": "assert add(1, 2) == 3"}\n'},
     "rows.jsonl, line 1: 'tests' is a str (assert add(1, 2) == 3); make it a list of strings, or"
     " call one text 'test'; "
     f"{EXCHANGES}", 2),
    ("grade --tasks rows.jsonl --samples samples.jsonl",
     {"rows.jsonl": TASKS + '{"id": "b", "tests": ["assert b() == 1"]}\n'},
     f"rows.jsonl, line 2: no prompt among the columns id, tests; {NEEDED}", 2),
    ("train run.toml --tasks.train rows.jsonl",
     {"rows.jsonl": '{"prompt": "Add.", "completion": "def add(a, b): return a + b"}\n'},
     "rows.jsonl, row 1: task 'line 1' has no tests, so only SFT can use it; add tests, or remove "
     "the row", 2),
    ("grade --tasks rows.jsonl --samples samples.jsonl", {"rows.jsonl": TASKS + TASKS},
     "rows.jsonl, row 2: the id 'add' occurs twice; ids must be unique", 2),
    ("check .", {},
     ". has the splits samples, tasks; choose one: .:samples", 2),
    ("train run.toml --tasks.train ./mine", {},
     "mine does not exist; give a folder, or a file: .jsonl, .jsonl.gz, .json, .json.gz, .csv,"
     " .parquet", 2),
    ("plan gone.toml", {},
     "settings file gone.toml not found; write the path of a TOML file, or a recipe: "
     f"{RECIPES}", 2),
    ("train run.toml --engine.servers http://localhost:1", {},
     f"--engine.servers http://localhost:1: {SERVERS}", 2),
    ("eval --model x --tasks drills --url http://localhost:1/v1", {},
     f"--url http://localhost:1/v1: {SERVERS}", 2),
    ("eval --model x --tasks drills --url http://localhost:1/v1 --engine torch", {},
     f"--url http://localhost:1/v1: {SERVERS}", 2),
    ("check tasks.jsonl --to-calls calls.txt", {},
     "calls.txt must end in .jsonl, to be read as tasks again", 2),
    ("show gone", {},
     "gone has no run; give the folder of a run (runs/demo), or one that holds runs; links that "
     "lead out of it are not followed", 2),
    ("view gone", {},
     "gone has no run; give the folder of a run (runs/demo), or one that holds runs; links that "
     "lead out of it are not followed", 2),
    ("view runs --export runs", {"runs/demo/grpo/config.toml": RUN},
     "runs cannot be written; choose another path", 2),
    ("view runs --export .", {"runs/demo/grpo/config.toml": RUN},
     ". cannot be written; choose another path", 2),
    ("view runs --export ..", {"runs/demo/grpo/config.toml": RUN},
     ".. cannot be written; choose another path", 2),
    ("export gone exported", {},
     "gone holds no checkpoint; name RUN, RUN/STAGE or one of its checkpoints", 2),
    ("compare gone other", {},
     "gone holds no evaluation; name a run, a stage that was evaluated (RUN/STAGE), or the --out of"
     " `assay eval`", 2),
    ("overlap gone.jsonl tasks.jsonl", {},
     "gone.jsonl does not exist; give the path of a file of tasks", 2),
    ("list algorithm", {},
     "unknown kind 'algorithm'; did you mean 'algorithms'?", 2),
    ("serve --port abc", {},
     "invalid value for '--port': must be a valid integer; see `assay serve --help`", 2),
    ("check tasks.jsonl --keep constnt_passes", {},
     "unknown finding 'constnt_passes' to keep; did you mean 'constant_passes'?", 2),
    ("check tasks.jsonl --output run.toml/x.jsonl", {},
     "run.toml/x.jsonl cannot be written; choose another path", 2),
    ("grade --tasks tasks.jsonl", {},
     "missing option '--samples'; for example: assay grade --tasks humaneval --samples"
     " samples.jsonl", 2),
    ("grade --tasks tasks.jsonl --samples samples.jsonl --output .", {},
     ". cannot be written; choose another path", 2),
    ("grade --tasks tasks.jsonl --samples samples.jsonl --output /", {},
     "/ cannot be written; choose another path", 2),
    ("grade --tasks tasks.jsonl --samples samples.jsonl --output run.toml/x", {},
     "run.toml/x cannot be written; choose another path", 2),
    ("grade --tasks tasks.jsonl --samples samples.jsonl --output tasks.jsonl", {},
     "tasks.jsonl is read by this command; choose another path", 2),
    ("grade --tasks tasks.jsonl --samples samples.jsonl --output samples.jsonl", {},
     "samples.jsonl is read by this command; choose another path", 2),
    ("make-tasks empty --output made", {"empty/nothing.py": ""},
     "no tests in the distribution of empty: pytest collects none; give its git repository, or "
     "--pytest-arguments that lead to tests, such as '--doctest-modules'", 2),
    ("grade --tasks tasks.jsonl --samples samples.csv", {"samples.csv": "task_id,completion"},
     'samples.csv holds no samples; write rows such as {"task_id": "HumanEval/0", "completion": '
     '"..."}', 2),
    ("train run.toml --policy.device cudaa", {},
     "setting 'policy.device' = 'cudaa' is not a device; try 'auto', 'cpu' or 'cuda'", 2),
    ("train run.toml --prompt.template {promt}", {},
     "--prompt.template {promt}: setting 'prompt.template' unknown placeholder {promt}; did you "
     "mean 'prompt'? (write other braces twice)", 2),
    ("train run.toml --plugins tasks.jsonl", {},
     "plug-in 'tasks.jsonl' is not a Python file", 2),
    ("list --plugins empty.py", {"empty.py": "x = 1\n"},
     "plug-in 'empty.py' registers nothing; it should hold a function under @reward,"
      " @algorithm(...), @callback, @choice, @engine, @environment or @task_set, a"
      " language(...), or a Kind", 2),
    ("list --plugins mine.py", {"mine.py": "import helpers\n", "helpers.py": "\n\n1 / 0\n"},
     "plug-in helpers.py, line 3: ZeroDivisionError: division by zero", 2),
]  # fmt: skip

MORE_ROWS: list[tuple[str, dict[str, str], str, int]] = [
    ("train run.toml --rolout.group_size 4", {},
     "--rolout.group_size 4: unknown setting 'rolout'; did you mean 'rollout'?", 2),
    ("train run.toml --rollout.lr 1e-5", {},
     "--rollout.lr 1e-5: unknown setting 'rollout.lr'; did you mean 'optimizer.lr'?", 2),
    ("train own.toml",
     {"own.toml": 'steps = 1\nalgorithm.name = "grpo"\n[optimizer]\ngroup_size = 4\n'},
     "own.toml, line 4: unknown setting 'optimizer.group_size'; did you mean"
     " 'rollout.group_size'?", 2),
    ("train own.toml", {"own.toml": "steps = 1\nsteps = 2\n"},
     "settings file own.toml cannot be read as TOML: Cannot overwrite a value (at line 2, column"
     " 10); correct the file", 2),
    ("train run.toml --tasks.train ~/gone.jsonl", {},
     f"{Path.home()}/gone.jsonl does not exist; give the path of a file of tasks", 2),
    ("check my tasks.jsonl", {"my tasks.jsonl": TASKS},
     "got unexpected extra argument(s) (tasks.jsonl); see `assay check --help`", 2),
    ("train run.toml --tasks.train empty.jsonl", {"empty.jsonl": ""},
     "empty.jsonl holds no tasks; check the split or the file", 2),
    ("train run.toml --tasks.train twice.jsonl", {"twice.jsonl": TASKS * 2},
     "twice.jsonl, row 2: the id 'add' occurs twice; ids must be unique; `assay check twice.jsonl "
     "--output sound.jsonl` writes the tasks that are right", 2),
    ("train run.toml --optimizer.lr -1", {},
     "--optimizer.lr -1: setting 'optimizer.lr' = -1 must be greater than 0", 2),
    ("train run.toml --steps -3", {},
     "--steps -3: setting 'steps' = -3 must be greater than 0", 2),
    ("train run.toml --rollout.temperature 0", {},
     "--rollout.temperature 0: setting 'rollout.temperature' = 0 must be greater than 0", 2),
    ("train run.toml --rollout.top_p 0.9", {},
     "--rollout.top_p 0.9: unknown setting 'rollout.top_p': assay has no sampling from only some"
     " tokens in training: the learner computes probabilities over all of them, so that the first"
     " ratio would be the share that is kept and not 1; omit it (`evaluate.top_p` exists)", 2),
    ("train run.toml --stop_if colapse", {},
     "--stop_if colapse: setting 'stop_if' names no warning: 'colapse'; did you mean 'collapse'?",
     2),
    ("train run.toml --rollout.group_size 1", {},
     "stage 'grpo': with rollout.tasks_per_step = 32 and rollout.group_size = 1 every advantage of"
     " grpo is 0, whatever the rewards; raise rollout.group_size", 2),
    ("train run.toml --rollout.group_size 2.5", {},
     "--rollout.group_size 2.5: setting 'rollout.group_size' = 2.5 must be a whole number", 2),
    ("train run.toml --seeds 3..1", {},
     "--seeds 3..1: write the smaller one first, 0..4", 2),
    ("train run.toml --seeds one", {}, "--seeds one: write 0..4, or 0,3,5", 2),
    ("train run.toml --policy.model folder", {"folder/x.txt": ""},
     "model directory 'folder' holds no config.json; is it a Hugging Face model directory?", 2),
    ("eval --model folder --tasks tasks.jsonl", {"folder/x.txt": ""},
     "model directory 'folder' holds no config.json; is it a Hugging Face model directory?", 2),
    ("eval run.toml --tasks tasks.jsonl", {},
     "setting 'policy.model' = 'tiny' is made by a training run; name the run's folder or a"
     " checkpoint, such as --model runs/demo", 2),
    ("eval --tasks tasks.jsonl", {}, f"--model is missing; {EVAL}", 2),
    ("eval --policy.model x --samples 2", {}, f"--tasks is missing; {EVAL}", 2),
    ("eval", {}, f"--model, --tasks are missing; {EVAL}", 2),
    ("eval run.toml --model x", {},
     "run.toml: setting 'evaluate.tasks' is missing; write it as --tasks humaneval", 2),
    ("screen x tasks.jsonl", {},
     "missing option '--output'; for example: assay screen smollm2 sound.jsonl --output"
     " learnable.jsonl", 2),
    ("eval --model x --tasks tasks.jsonl --limit -1", {},
     "--limit -1: setting 'evaluate.limit' = -1 must be greater than 0", 2),
    ("compare runs/demo", {"runs/demo/grpo/config.toml": RUN},
     "runs/demo holds no evaluation; name a run, a stage that was evaluated (RUN/STAGE), or the"
     " --out of `assay eval`", 2),
    ("export runs/demo exported", {"runs/demo/grpo/config.toml": RUN, "exported/x": "mine"},
     "exported holds files already; choose a folder that is new or empty", 2),
    ("show empty", {"empty/.keep": ""},
     "empty has no run; give the folder of a run (runs/demo), or one that holds runs; links that"
     " lead out of it are not followed", 2),
    ("grade --tasks tasks.jsonl --samples two.jsonl",
     {"two.jsonl": SAMPLES + '{"task_id": "sub", "completion": ""}\n'},
     "two.jsonl, line 2: unknown task_id 'sub'; known: add", 2),
    ("check folder.jsonl", {"folder.jsonl/x": ""},
     "folder.jsonl is a folder without files of rows (.jsonl, .jsonl.gz, .json, .json.gz, .csv,"
     " .parquet)", 2),
    ("grade --tasks tasks.jsonl --samples folder", {"folder/x": ""},
     "folder is a folder; give the path of a file in it", 2),
    ("serve --token-file gone.txt", {},
     "the token file gone.txt cannot be read (No such file or directory); name a file that holds"
     " the token", 2),
    ("serve --token-file folder", {"folder/x": ""},
     "the token file folder cannot be read (Is a directory); name a file that holds the token", 2),
    ("check tasks.jsonl --slots -2", {},
     "invalid value for '--slots': must be greater than or equal to 1; see `assay check --help`",
     2),
    ("plan run.toml --quick yes", {},
     "unexpected argument 'yes'; settings are given as --table.key value", 2),
    ("plan run.toml --quick --algorithm.name ppoo", {},
     "--algorithm.name ppoo: unknown algorithm 'ppoo'; did you mean 'ppo'?", 2),
    ("train run.toml --engine.name vlm", {},
     "--engine.name vlm: unknown engine 'vlm'; did you mean 'vllm'?", 2),
    ("train run.toml --policy.lora.rank 0", {},
     "--policy.lora.rank 0: setting 'policy.lora.rank' = 0 must be greater than 0", 2),
    ("train run.toml other.toml", {},
     "unexpected argument 'other.toml'; settings are given as --table.key value", 2),
    ("train folder.toml", {"folder.toml/x": ""},
     "settings file folder.toml is a folder; write the path of a TOML file", 2),
    ("train empty.toml", {"empty.toml": ""},
     "empty.toml, stage 'train': `algorithm.name`, `tasks.train`, `steps` (or `epochs`) are"
     ' missing; write, for example, algorithm.name = "grpo", tasks.train = "drills:train", steps ='
     " 100", 2),
    ("show-prompt own.toml", {"own.toml": 'steps = 3\nseed = 1\n'},
     "own.toml, stage 'train': `algorithm.name`, `tasks.train` are missing; write, for example,"
     ' algorithm.name = "grpo", tasks.train = "drills:train"', 2),
    ("plan run.toml --quik", {}, "no such option: --quik; did you mean --quick?", 2),
    ("plan --quik run.toml", {}, "no such option: --quik; did you mean --quick?", 2),
    ("train run.toml --dry_run --steps 3", {},
     "no such option: --dry_run; did you mean --dry-run?", 2),
    ("train run.toml --rollout.groop_size", {},
     "no such option: --rollout.groop_size; did you mean --rollout.group_size?", 2),
    ("train run.toml --stages.grpo.stpes --seed 3", {},
     "no such option: --stages.grpo.stpes; did you mean --steps?", 2),
    ("train run.toml --learning_rate", {},
     "no such option: --learning_rate: assay calls it optimizer.lr", 2),
    ("train run.toml --steps --seed 3", {}, "--steps lacks its value", 2),
    ("train --steps 3 run.toml", {},
     "--steps stands before CONFIG; write the settings behind it, for example: assay train"
     " mine.toml --optimizer.lr 1e-5 --seeds 0..2", 2),
    ("eval --greedyy --model x --tasks tasks.jsonl", {},
     "no such option: --greedyy; did you mean --greedy?", 2),
    ("screen x tasks.jsonl --output kept.jsonl --jsn", {},
     "no such option: --jsn; did you mean --json?", 2),
    ("grade --tasks rows.jsonl --samples samples.jsonl",
     {"rows.jsonl": TASKS.replace("}", ', "language": "pyhton"}')},
     "rows.jsonl, line 1: 'language': the language 'pyhton' cannot be judged; did you mean"
     " 'python'?", 2),
]  # fmt: skip
"""Wrong tables, wrong numbers and wrong paths of a first hour."""
EVERY_ROW = [*ROWS, *MORE_ROWS]
LONG = ("make-tasks empty --output made",)
"""A command that runs pytest; tests of make-tasks refuse the same."""

GRADE, SAMPLES_OF = (
    "grade --tasks rows.jsonl --samples samples.jsonl",
    "grade --tasks tasks.jsonl --samples rows.jsonl",
)
ADDS = '"id": "add", "prompt": "Add.", "entry_point": "add"'
BROKEN = [
    (GRADE, '{"prompt": "Add.", "tests": ["assert add(1, 2) == 3"]}',
     "'entry_point' is missing; add the name of the function that the tests call, or a 'reference' "
     f"that defines it; {EXCHANGES}"),
    (GRADE, '{"prompt": "Add.", "tests": [{"input": "1 2", "output": "3"}]}',
     "'tests' is a list ([{'input': '1 2', 'output': '3'}]); make it a list of strings, or"
     " call one text 'test'; "
     f"{EXCHANGES}"),
    (GRADE, '{"prompt": "Add.", "exchanges": [{"input": "1 2", "output": "3"}]}',
     "'exchanges' 1: 'stdin' is missing; make it a string (the row's fields: input, output)"),
    (GRADE, '{"prompt": "Add.", "exchanges": [{"stdin": "1 2", "stdout": 3}]}',
     "'exchanges' holds 3, where a string is read or printed; make it a string"),
    (GRADE, f'{{{ADDS}, "inputs": ["1 2"], "expected": [3]}}',
     "'inputs' is no list of argument lists; write [[1, 2]] for f(1, 2)"),
    (GRADE, f'{{{ADDS}, "inputs": [[1, 2]], "expected": [3, 4]}}',
     "'expected' is no list of 1 values, one for each of 'inputs'"),
    (GRADE, f'{{{ADDS}, "inputs": [[1, 2]]}}',
     "'inputs' have neither 'expected' nor a 'reference' to ask; add one of them"),
    (GRADE, f'{{{ADDS}, "inputs": [[1, 2]], "expected": [3], "tolerance": -1}}',
     "'tolerance' is -1; make it a number, 0 or above"),
    (GRADE, f'{{{ADDS}, "tests": []}}', "has no tests; add an assert, or remove the row"),
    (GRADE, f'{{{ADDS}, "tests": ["assert add(1, 2 == 3"]}}',
     "'tests' is no valid Python ('(' was never closed (<unknown>, line 1)); fix it"),
    (GRADE, f'{{{ADDS}, "tests": ["assert add(1, 2) == 3"], "test": "assert add(1, 2) == 3"}}',
     "give either 'tests', a list of asserts, or 'test', a `def check(candidate)`; the answer to a "
     "question is 'expected_answer'"),
    (GRADE, '{"question": "Two and two?", "final_answer": "4", "topic": "sums"}',
     f"no prompt and no tests among the columns question, final_answer, topic; {NEEDED}; did you"
     ' mean columns = { prompt = "question", expected_answer = "final_answer" }? On a command line:'
     " rows.jsonl,prompt=question,expected_answer=final_answer"),
    (GRADE, '{"instruction": "Two and two?", "input": "", "output": "4"}',
     f"no prompt and no tests among the columns instruction, input, output; {NEEDED}; did you mean"
     ' columns = { prompt = "instruction", completion = "output" }? On a command line:'
     " rows.jsonl,prompt=instruction,completion=output"),
    (GRADE, '{"prompt": "Two and two?", "description": "Sum.", "response": "4"}',
     f"no tests among the columns prompt, description, response; {NEEDED}; did you mean columns ="
     ' { completion = "response" }? On a command line: rows.jsonl,completion=response'),
    (GRADE, f'{{{ADDS}, "tests": ["assert add(1, 2) == 3"], "language": "cobol"}}',
     "'language': the language 'cobol' cannot be judged; known: answer, c, cpp, diff, go, java, "
     "javascript, python, q, ruby, rust, shell_script, typescript, verilog"),
    (GRADE, f'{{{ADDS}, "tests": ["assert add(1, 2) == 3"], "expected_answer": "3"}}',
     "has 'expected_answer' beside tests; make it two rows"),
    (GRADE, f'{{{ADDS}, "tests": ["assert add(1) == 3"], "exchanges": [{{"stdin": "1"}}]}}',
     "has 'exchanges' beside tests of a function; make it two rows"),
    (GRADE, f'{{{ADDS}, "tests": ["assert add(1, 2) == 3"], "tags": {{"topic": 3}}}}',
     "'tags' must have texts as values; write {\"topic\": \"graphs\"}"),
    (GRADE, f'{{{ADDS}, "tests": ["def test_add(mocker):\\n    assert add(1, 2) == 3"]}}',
     "the tests cannot be run: test_add needs the fixture 'mocker', which is not there"),
    (GRADE, '{"id": ["add"], "prompt": "Add.", "exchanges": [{"stdin": "", "stdout": "1"}]}',
     'the id is "[\'add\']"; make it a string or a whole number'),
    (GRADE, '{"prompt": "Add.", "exchanges": [{"stdin": "", "stdout": "1"}], "checker": "fuzzy"}',
     "'checker' is neither one of exact, lines, tokens, floats, unordered nor Python that defines "
     "`check`"),
    (GRADE, '{"prompt": "Add.", "chosen": "a", "rejected": "b"}',
     "a pair of DPO ('chosen', 'rejected') has no tests; give the file as algorithm.pairs"),
    (GRADE, '{"text": "Add.", "code": "def add(): 1", "test_list": ["assert ad(1, 2) == 3"]}',
     "'test_list' calls no function that 'code' defines; fix one of them"),
    (GRADE, '{"messages": [{"role": "user", "content": "Add."}], "tests": ["assert add() == 3"]}',
     "'prompt' is missing; make it a string (the row's fields: messages, tests)"),
    (GRADE, '{"prompt": "\\ud800", "entry_point": "add", "tests": ["assert add(1, 2) == 3"]}',
     "'prompt' holds half a character (surrogates not allowed); fix it"),
    (GRADE, "{'prompt': 'Add.'}",
     "no valid JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1)); "
     "fix it"),
    (GRADE, "[" * 100_000,
     "no valid JSON (maximum recursion depth exceeded while decoding a JSON array from a unicode "
     "string); fix it"),
    (GRADE, b'{"prompt": "Caf\xe9"}',
     "cannot be read as UTF-8 (invalid continuation byte); save it as UTF-8"),
    (SAMPLES_OF, '{"task_id": "add", "completion": 3}',
     "'completion' is a int (3); make it a string"),
    (SAMPLES_OF, '{"task_id": "add", "reply": ["x"]}',
     "'reply' is a list (['x']); make it a string"),
    (SAMPLES_OF, '{"id": "add", "response": "x"}',
     "'add' has neither \"completion\" (which continues the stub) nor \"solution\" (a whole "
     "program) nor \"reply\" (a model's reply); its fields are id, response"),
    (SAMPLES_OF, '{"completion": "x"}',
     "'task_id' is missing; the row's fields are completion"),
    (SAMPLES_OF, '{"task_id": "add", "completion": "\\ud800"}',
     "'completion' holds half a character (surrogates not allowed); fix it"),
]  # fmt: skip
"""A command, the one row of `rows.jsonl`, and what is said of it."""


def without_progress(said: str) -> list[str]:
    """The lines of stderr but for those that a slow machine is shown meanwhile."""
    shown = re.compile(r"\w.*(, \d+ s| \d+ of \d+.*)")
    return [line for line in said.splitlines() if not shown.fullmatch(line)]


def contents(folder: Path) -> dict[Path, bytes]:
    """All files and folders with their bytes, but for what Python compiles."""
    paths = (path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return {path: path.read_bytes() if path.is_file() else b"" for path in paths}


@pytest.mark.parametrize(
    ("words", "files", "line", "code"),
    [pytest.param(*row, marks=[pytest.mark.long] * (row[0] in LONG)) for row in EVERY_ROW],
    ids=[row[0] for row in EVERY_ROW],
)
def test_a_mistake_is_answered_in_exactly_this_line_and_nothing_is_written(
    words: str, files: dict[str, str], line: str, code: int,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for name, text in {**FILES, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    before = contents(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["assay", *words.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err.replace(f"{tmp_path}/", "")
    assert without_progress(said) == [f"assay: {line}"]
    assert ended.value.code == code
    assert contents(tmp_path) == before


@pytest.mark.parametrize(("words", "row", "line"), BROKEN)
def test_a_broken_row_is_answered_with_its_file_and_line(
    words: str, row: str | bytes, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tasks.jsonl").write_text(TASKS)
    (tmp_path / "rows.jsonl").write_bytes(row if isinstance(row, bytes) else row.encode())
    monkeypatch.chdir(tmp_path)
    _, _, tasks, _, samples = words.split()
    with pytest.raises(UserError) as raised:
        read_samples(Path(samples), load(tasks))
    said = " ".join(str(raised.value).split())
    assert said.removeprefix("rows.jsonl, line 1").lstrip(":, ") == line


@pytest.mark.parametrize(
    ("field", "name"),
    [("solution", "reference"), ("question", "prompt"), ("instruction", "prompt"),
     ("outputs", "expected"), ("fn_name", "entry_point"), ("starter_code", "stub"),
     ("messages", "prompt"), ("test_cases", "tests")],
)  # fmt: skip
def test_a_field_of_other_sets_is_answered_with_assays_name_of_it(field: str, name: str) -> None:
    row = Row({"tests": ["assert add(1, 2) == 3"], field: "x"}, "rows.jsonl, line 1")
    assert unknown_fields(row) == {field: f"{field!r} (assay calls it {name!r})"}


def refused_at(path: str, below: str = "") -> str:
    """What is said of a path in /proc: root may write there, where nothing can be made."""
    if os.getuid():
        return f"{path}{below} cannot be written; choose another path"
    return f"No such file or directory: {path}; choose another path"


SHELL = [
    ("assay list > /dev/full",
     "No space left on device; make room and run the same command again", 3),
    ("assay list --plugins /proc/nowhere.py",
     "plug-in '/proc/nowhere.py' not found; write the path of a Python file", 2),
    ("assay train tasks.jsonl/run.toml",
     "settings file tasks.jsonl/run.toml cannot be read (Not a directory); choose another path", 2),
    ("ln -s loop.toml loop.toml; assay train loop.toml",
     "settings file loop.toml cannot be read (Too many levels of symbolic links); choose another"
     " path", 2),
    ("assay check tasks.jsonl --output /proc/nowhere/sound.jsonl",
     refused_at("/proc/nowhere", "/sound.jsonl"), 2),
    pytest.param(
        "assay check tasks.jsonl --report /proc/report.json", refused_at("/proc/report.json"), 2,
        marks=pytest.mark.long,
    ),
    ("mkdir gone; cd gone; rmdir ../gone; assay check tasks.jsonl",
     "tasks.jsonl does not exist; give the path of a file of tasks", 2),
]  # fmt: skip
"""What needs a shell: full disks, folders that nobody can write to or that vanished."""


def in_a_shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return subprocess.run(
        ["bash", "-c", f'assay() {{ "{sys.executable}" -m assay "$@"; }}; {command}'],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(("command", "line", "code"), SHELL, ids=str)
def test_what_the_machine_refuses_is_answered_in_exactly_this_line(
    command: str, line: str, code: int, tmp_path: Path
) -> None:
    done = in_a_shell(command, tmp_path)
    assert without_progress(done.stderr) == [f"assay: {line.format(here=tmp_path)}"]
    assert done.returncode == code


@pytest.mark.parametrize("command", ["list", "doctor --json", "--help", "grade --help"])
def test_a_closed_pipe_is_silent(command: str, tmp_path: Path) -> None:
    done = in_a_shell(f"assay {command} | true", tmp_path)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("assay check tasks.jsonl >&-", marks=pytest.mark.long),
        "assay list >&-",
        pytest.param("assay --help >&-", marks=pytest.mark.long),
        "sed s/Add/Café/ tasks.jsonl > cafe.jsonl; PYTHONIOENCODING=ascii assay check cafe.jsonl",
    ],
)
def test_a_closed_output_and_an_ascii_terminal_end_no_command(command: str, tmp_path: Path) -> None:
    done = in_a_shell(command, tmp_path)
    assert (done.returncode, without_progress(done.stderr)) == (0, [])


@pytest.mark.parametrize(
    "command", ["list", "--version", "trian", "train run.toml --algorithm.name gpro",
    "train run.toml --rewards.tests.mod all", "eval --model x --tasks drils"],
)  # fmt: skip
def test_what_is_answered_at_once_does_not_wait_for_torch(command: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RUN)
    code = (
        f"import sys; sys.argv = ['assay', *{command!r}.split()]\nfrom assay.cli import main\n"
        "try:\n    main()\nfinally:\n    print('torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == "False"


def test_a_reward_that_raises_is_answered_with_its_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from assay.rewards import reward\n\n@reward\ndef raising(rollout):\n    return 1 / 0\n"
    )
    load_plugins(["mine.py"], tmp_path)
    rollout = Rollout(Task("add", "Add.", (Check("assert add(1, 2) == 3"),), "add"), (), None)
    with pytest.raises(UserError) as raised:
        asyncio.run(rewards.build({"raising": {}})([rollout]))
    line, code = explain(raised.value)
    assert line.startswith(f"plug-in {tmp_path}/mine.py, line 5: reward 'raising' raised ZeroDiv")
    assert code == 2


REWARD = "from assay.rewards import reward\n\n@reward\n"


@pytest.mark.parametrize(
    ("text", "place", "cause"),
    [
        ("def mine(rollout):\n    return 1 / 0\n", 5, "raised ZeroDivisionError"),
        ("def mine(rollout):\n    return rollout.turns[-1].text\n", 5, "raised AttributeError"),
        ("def mine(rollout):\n    return 0 if rollout.passed else 1 / 0\n", 5, "raised ZeroDiv"),
        ("def mine(rollout):\n    return 1 / 0 if rollout.passed else 0\n", 5, "raised ZeroDiv"),
        ("def mine(rollout):\n    import nowhere\n", 5, "raised ModuleNotFoundError"),
        ("def mine(rollout):\n    pass\n", 3, "returned None"),
        ("def mine(rollout):\n    return 'high'\n", 3, "returned 'high'"),
        ("def mine(rollout):\n    return float('nan')\n", 3, "returned nan"),
        ("def mine(rollout):\n    return 1.0, 2.0\n", 3, "returned (1.0, 2.0)"),
        ("def mine(rollout):\n    yield 1.0\n", 3, "returned <generator"),
        ("def mine():\n    return 1.0\n", 3, "raised TypeError"),
        ("async def mine(rollout):\n    return float(rollout.passed)\n", 5, "gets a list of roll"),
        ("async def mine(rollout):\n    return 1.0\n", 3, "gets a list of rollouts"),
        ("async def mine(rollouts):\n    return [1.0]\n", 3, "1 numbers for 2 rollouts"),
        ("def mine(rollout):\n    return len(rollout.turns[-1].program)\n", 5,
         "fix the reward; this was for a reply without code, whose turn.program is None"),
    ],
)  # fmt: skip
def test_a_wrong_reward_is_refused_before_a_model_is_loaded_and_nothing_is_written(
    text: str, place: int, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewards.rewards, "_items", dict(rewards.rewards._items))
    monkeypatch.setattr("assay.train.stages.make_tiny", None)  # no model is made
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.jsonl").write_text(TASKS)
    (tmp_path / "mine.py").write_text(REWARD + text)
    (tmp_path / "run.toml").write_text(
        RUN.replace("drills:train", "tasks.jsonl") + 'plugins = "mine.py"\nrewards.mine = {}\n'
    )
    with pytest.raises(UserError) as raised:
        train("run.toml")
    line, code = explain(raised.value)
    assert code == 2
    assert f"{tmp_path}/mine.py, line {place}: " in line
    assert cause in line
    assert "\n" not in line
    assert not (tmp_path / "runs").exists()


WAITS = """
import asyncio

LOCK = asyncio.Lock()
asked = []

@reward
async def waits(rollouts):
    asked.append("before")
    await asyncio.gather(*[hold() for _ in rollouts])
    asked.append("after")
    return [0.5 for _ in rollouts]

async def hold():
    async with LOCK:
        await asyncio.sleep(0)

@reward
async def opens(judge):
    asked.append("opened")
    yield waits
"""


def test_a_trial_of_rewards_asks_no_server_and_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.train.reward_trial import try_rewards

    monkeypatch.setattr(rewards.rewards, "_items", dict(rewards.rewards._items))
    (tmp_path / "mine.py").write_text("from assay.rewards import reward\n" + WAITS)
    load_plugins(["mine.py"], tmp_path)
    task = Task("add", "Add.", (Check("assert add(1, 2) == 3"),), "add")
    try_rewards(rewards.build({"waits": {}, "opens": {}}), task)
    asked = rewards.rewards["waits"].__globals__["asked"]
    assert asked == ["before", "before"]
    reward, rollout = rewards.build({"waits": {}}), Rollout(task, (), None)
    scored = asyncio.run(reward([rollout, rollout]))
    assert [one.score.total for one in scored if one.score] == [0.5, 0.5]


SMALL = """\
name = "small"
tasks = { train = "drills:train", limit = 40 }
policy.tiny = { layers = 1, width = 16 }
rollout = { tasks_per_step = 1, group_size = 2, max_tokens = 8 }
evaluate = { tasks = "drills:test", samples = 1, max_tokens = 8, limit = 3 }
[stages.sft]
steps = 2
algorithm.name = "sft"
evaluate.before = true
[stages.grpo]
steps = 1
algorithm.name = "grpo"
"""
"""Two stages in two seconds."""


@pytest.mark.long
@pytest.mark.parametrize(("columns", "encoding"), [(80, "ascii"), (100, "utf-8")])
def test_a_terminal_keeps_every_line_of_a_run_and_no_bar(
    columns: int, encoding: str, tmp_path: Path
) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    command = [sys.executable, "-m", "assay", "train", "small.toml"]
    lines, code = run_in_terminal(command, columns, tmp_path, {"PYTHONIOENCODING": encoding})
    shown = "\n".join(lines)
    assert code == 0, shown
    assert not re.search("[━╸╺]|^[-|/\\\\⠋⠙⠹] |Traceback|--+", shown, re.MULTILINE), shown
    words = " ".join(shown.split())
    for stage, steps, rate in (("sft", "2 steps", "0.003"), ("grpo", "1 step", "0.0003")):
        settings = f"{stage}: {steps}, 40 tasks, 0.0"
        assert f"learning rate {rate}, micro-batches of" in words.partition(settings)[2], shown
    assert sum(line.startswith("small/") for line in lines) == 5, "three evaluations, two ends"
    (model,) = (line.split()[1] for line in lines if line.startswith("model  "))
    assert f"model = {model!r}" in lines, "a path is whole, in a line of its own"
    assert max(map(len, lines)) < columns


@pytest.mark.long
def test_a_run_whose_standard_streams_are_closed_ends_as_others_do(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    done = in_a_shell("assay train small.toml <&- >&- 2>&-", tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "runs/small/report.md").read_text().startswith("# Report")


def test_an_evaluation_says_its_result_in_three_lines_and_where_the_rest_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from assay.policy.tiny import make_tiny

    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.jsonl").write_text(TASKS)
    make_tiny(tmp_path / "model", load("tasks.jsonl"), TinySettings(layers=1, width=16), seed=0)
    words = "eval --model model --tasks tasks.jsonl --samples 2 --max-tokens 4"
    monkeypatch.setattr(sys, "argv", ["assay", *words.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert ended.value.code is None, said.err
    header, row, report = filter(None, said.out.splitlines())
    assert header.split()[:3] == ["stage", "tasks", "pass@1"]
    assert row.split()[:5] == ["model", "tasks.jsonl,", "1", "x", "2"]
    file = tmp_path / report.split()[1]
    assert "\n- prompts_sha256: " in file.read_text()


def test_help_has_the_commands_in_the_order_of_use_each_with_an_example_that_is_right() -> None:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    assert list(group.commands)[:2] == ["doctor", "list"]
    order = [name for name in group.commands if name in ("check", "plan", "train", "eval")]
    assert order == ["check", "plan", "train", "eval"]
    for name, command in group.commands.items():
        example, of, *words = str(command.epilog).removeprefix("Example: ").split()
        assert (example, of) == ("assay", name)
        command.make_context(name, words)
        paragraphs = str(command.help).split("\n\n")
        assert not [one for one in paragraphs if "\n" in one], "the terminal breaks the lines"


COMMANDS = sorted(get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", ["", *COMMANDS])
@pytest.mark.parametrize("columns", [80, 100])
def test_help_has_a_short_name_and_fits_the_terminal(
    command: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", columns)
    done = CliRunner().invoke(app, [*command.split(), "-h"], prog_name="assay")
    assert done.exit_code == 0
    assert f"Usage: assay {command}".rstrip() in done.output
    assert max(map(len, done.output.splitlines())) <= columns


def test_a_check_warns_of_unknown_fields_as_training_and_grading_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("check.jsonl", "load.jsonl"):
        (tmp_path / file).write_text(TASKS.replace("}", ', "refrence": "def add(): pass"}'))
    read_tasks("check.jsonl", None)
    load("load.jsonl")
    warning = "ignored unknown fields: 'refrence' (did you mean 'reference'?)"
    assert caplog.messages == [f"check.jsonl: {warning}", f"load.jsonl: {warning}"]


def test_a_check_keeps_the_tags_of_its_tasks(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(TASKS.replace("}", ', "tags": {"topic": "sums"}}'))
    (task,), _ = read_tasks(str(tmp_path / "rows.jsonl"), None)
    assert task.tags == {"topic": "sums"}


def test_rows_of_mbpp_need_no_task_id(tmp_path: Path) -> None:
    row = '{"text": "One.", "code": "def f(): return 1", "test_list": ["assert f() == 1"]}\n'
    (tmp_path / "rows.jsonl").write_text(row * 2)
    assert [task.id for task in load(str(tmp_path / "rows.jsonl"))] == [
        "MBPP/line_1",
        "MBPP/line_2",
    ]


def test_verdicts_go_where_output_says(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text(TASKS)
    (tmp_path / "samples.jsonl").write_text(SAMPLES.replace("task_id", "id"))
    tasks, output = load(str(tmp_path / "tasks.jsonl")), tmp_path / "verdicts.jsonl"
    graded = grade(tmp_path / "samples.jsonl", tasks, output=output)
    assert (graded.pass_at_1, graded.file) == (1.0, str(output))
    assert '"passed": true' in output.read_text()


@pytest.mark.parametrize("number", ["float('nan')", "float('inf')", "'high'", "None", "1e13"])
def test_a_reward_that_is_no_number_is_answered_with_its_file_and_line(
    number: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(
        f"from assay.rewards import reward\n\n\n@reward\ndef odd(rollout):\n    return {number}\n"
    )
    load_plugins(["mine.py"], tmp_path)
    rollout = Rollout(Task("add", "Add.", (Check("assert add(1, 2) == 3"),), "add"), (), None)
    try:
        with pytest.raises(UserError) as raised:
            asyncio.run(rewards.build({"odd": {}})([rollout]))
    finally:
        rewards.rewards._items.pop("odd")  # the next file registers that name too
    line, code = explain(raised.value)
    assert line.startswith(f"plug-in {tmp_path}/mine.py, line 4: reward 'odd' returned ")
    assert line.endswith("it must return a finite number, with its weight of at most 1e+12")
    assert code == 2


def test_a_folder_with_a_file_of_the_name_of_a_start_model_is_no_run_to_start_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "runs/small/scripts").mkdir(parents=True)
    (tmp_path / "runs/small/scripts/start").write_text("mine\n")
    with pytest.raises(SettingsError, match=r"--fresh would delete .*small, which is not a run"):
        train("small.toml", fresh=True)
    assert (tmp_path / "runs/small/scripts/start").read_text() == "mine\n"


def test_a_run_that_failed_before_its_first_step_can_be_started_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.jsonl").write_text(TASKS)
    (tmp_path / "pairs.jsonl").write_text('{"prompt": "Add.", "chosen": "x"}\n')
    (tmp_path / "dpo.toml").write_text(
        'epochs = 1\ntasks.train = "tasks.jsonl"\n'
        'algorithm = { name = "dpo", pairs = "pairs.jsonl" }\n'
    )
    for fresh in (False, True):
        with pytest.raises(DataError, match=r"pairs\.jsonl, line 1: 'rejected' is missing"):
            train("dpo.toml", fresh=fresh)


@pytest.mark.parametrize("change", [{"prompt.system": "long " * 99}, {}])
def test_a_stage_that_is_refused_before_its_first_step_leaves_nothing(
    change: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.jsonl").write_text(TASKS)
    (tmp_path / "run.toml").write_text(
        RUN.replace("drills:train", "tasks.jsonl")
        + "policy.tiny = { layers = 1, width = 16, context = 65 }\n"
    )
    with pytest.raises(UserError):
        train("run.toml", change)
    assert not (tmp_path / "runs").exists()


ADD = {"entry_point": "add", "tests": ["assert add(1, 2) == 3"]}


@pytest.mark.parametrize(
    "job", [ADD, (ADD, "def add(a, b): return a + b"), Job(ADD, "x = 1"), "x = 1",  # type: ignore[arg-type]
    Job(task_from_dict(ADD), ["x = 1"])], ids=["dict", "tuple", "no task", "text", "no program"],  # type: ignore[arg-type]
)  # fmt: skip
def test_what_is_no_job_is_answered_with_how_to_make_one(job: Any) -> None:
    with pytest.raises(DataError, match=r"is no job; write Job\(task_from_dict\(row\), program\)"):
        judge_all([job])


def test_a_notebook_whose_event_loop_runs_trains_and_evaluates_with_one_call_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.evaluate import evaluate_model

    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "tasks.jsonl").write_text(TASKS)

    async def cell() -> None:
        outcome = train(
            "small.toml", {"unset": ["evaluate", "stages.sft"], "rollout.group_size": 3}
        )
        assert outcome.finished
        assert outcome.model == Path("runs/small/grpo/checkpoints/step_000001")
        settings = (outcome.folder / "grpo/config.toml").read_text()
        assert "group_size = 3" in settings
        done = evaluate_model("runs/small", "tasks.jsonl", {"evaluate.samples": 2})
        assert (done.evaluations[0].tasks, done.evaluations[0].samples) == (1, 2)

    asyncio.run(cell())


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"rollout.grop": 4}, "--rollout.grop 4: unknown setting 'rollout.grop'; did you mean"),
        ({"seed": "one"}, "--seed \"one\": setting 'seed' = 'one' must be a whole number"),
        ({"tasks.train": [1]}, "--tasks.train [1]: setting 'tasks.train.0' = 1 must be text"),
        ({"policy": {"model": "x"}}, '--policy {"model": "x"}: setting \'policy\' = '),
    ],
)
def test_a_mistake_in_a_call_of_python_is_answered_as_on_the_command_line(
    changes: dict[str, Any], line: str, tmp_path: Path
) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    with pytest.raises(UserError) as raised:
        train(tmp_path / "small.toml", changes)
    assert str(raised.value).startswith(line)
