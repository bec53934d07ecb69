"""EvalPlus's tasks judged by assay and by the evalplus package: the same verdicts? Verdicts per
second, interleaved.

    python -m pip install --target /path/to/beside evalplus     # once; it is not a dependency
    ASSAY_DATA=... python -m bench.evalplus --beside /path/to/beside

First the references, in rounds that time ours, then theirs; then one mutant of every reference,
judged once by both. Expected values are computed beforehand, and both see the same inputs (without
those that the loader leaves out).
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.public_data import data_folder

THEIRS = """
import json, os, sys, time
beside, work, workers = sys.argv[1:]
sys.path.insert(0, beside)
os.environ["HUMANEVAL_OVERRIDE_PATH"] = work + "/humanevalplus.jsonl"
os.environ["MBPP_OVERRIDE_PATH"] = work + "/mbppplus.jsonl"
from concurrent.futures import ProcessPoolExecutor
from evalplus.data import get_human_eval_plus, get_mbpp_plus
from evalplus.evaluate import check_correctness, get_groundtruth
from evalplus.eval._special_oracle import MBPP_OUTPUT_NOT_NONE_TASKS as NOT_NONE
import evalplus.evaluate
evalplus.evaluate.CACHE_DIR = work
sys.set_int_max_str_digits(0)
job = json.load(open(work + "/job.json"))
sets = {"humaneval": get_human_eval_plus(err_incomplete=False),
        "mbpp": get_mbpp_plus(err_incomplete=False)}
jobs = []
for name, problems in sets.items():
    problems = {task: problem for task, problem in problems.items() if task in job["programs"]}
    expected = get_groundtruth(problems, name, NOT_NONE if name == "mbpp" else [])
    jobs += [(name, 0, problems[task], job["programs"][task], expected[task], False, True)
             for task in problems]
def judge(arguments):
    found = check_correctness(*arguments)
    return found["task_id"], [found["base"][0], found["plus"][0]]
start = time.perf_counter()
with ProcessPoolExecutor(int(workers)) as pool:
    found = dict(pool.map(judge, jobs))
print(json.dumps([time.perf_counter() - start, found]))
"""
SWAPS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.FloorDiv,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def mutant(source: str, chance: random.Random) -> str:
    """The program with one operator swapped, one number off by one, or one result thrown away."""
    tree = ast.parse(source)
    edits: list[tuple[ast.AST, str, Any]] = []
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if type(value) in SWAPS:
                edits.append((node, name, SWAPS[type(value)]()))
        if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            edits.append((node, "ops", [SWAPS[type(node.ops[0])](), *node.ops[1:]]))
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, int | float)
            and not isinstance(node.value, bool)
        ):
            edits.append((node, "value", node.value + chance.choice([1, -1, 1e-7])))
        if isinstance(node, ast.Return):
            edits.append(
                (node, "value", chance.choice([ast.Constant(None), ast.Constant(float("nan"))]))
            )
    setattr(*chance.choice(edits))
    return ast.unparse(tree)


async def ours(programs: dict[str, str], workers: int) -> tuple[float, dict[str, str]]:
    """Seconds, and the verdict on each task's program."""
    from assay.judge import Job, Judge
    from assay.sandbox.limits import Limits
    from assay.tasks import load

    tasks = [
        task for name in ("humanevalplus", "mbppplus") for task in load(name) if task.id in programs
    ]
    verdicts: dict[str, str] = {}
    async with Judge(
        Limits(cpu_seconds=60, wall_seconds=180, memory_mb=4096, reply_mb=64), slots=workers
    ) as judge:
        for task in tasks:
            await judge.run(Job(task, "def nothing(): 0"))
        started = time.perf_counter()
        async for index, execution in judge.stream(
            [Job(task, programs[task.id]) for task in tasks]
        ):
            verdicts[tasks[index].id] = f"{execution.verdict}: {execution.detail}"
        return time.perf_counter() - started, verdicts


def timed(*arguments: str) -> tuple[float, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    seconds, verdicts = json.loads(done.stdout.splitlines()[-1])
    return seconds, verdicts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--beside", help="a folder that holds the evalplus package")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--every", type=int, default=1, help="take only every so-many-th task")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        programs = json.loads(Path(options.one).read_text())["programs"]
        print(json.dumps(asyncio.run(ours(programs, options.workers))))
        return
    data = data_folder("humanevalplus", "mbppplus")
    from assay.tasks import load
    from assay.tasks.evalplus import HUMANEVAL, MBPP

    tasks = [*load("humanevalplus"), *load("mbppplus")][:: options.every]
    references = {task.id: str(task.reference) for task in tasks}
    with tempfile.TemporaryDirectory() as work:
        for name, origin in (("humanevalplus", HUMANEVAL), ("mbppplus", MBPP)):
            rows = gzip.decompress((data / origin.file).read_bytes())
            (Path(work) / f"{name}.jsonl").write_bytes(rows)
        job = Path(work) / "job.json"

        def both(
            programs: dict[str, str],
        ) -> tuple[tuple[float, dict[str, Any]], tuple[float, dict[str, Any]]]:
            job.write_text(json.dumps({"programs": programs}))
            mine = timed(
                "-m", "bench.evalplus", "--one", str(job), "--workers", str(options.workers)
            )
            if not options.beside:
                return mine, (mine[0], {})
            return mine, timed("-c", THEIRS, options.beside, work, str(options.workers))

        rounds = [both(references) for _ in range(options.rounds)]
        for side, name in enumerate(("assay", "evalplus") if options.beside else ("assay",)):
            seconds = [result[side][0] for result in rounds]
            passed = sum(
                verdict in (["pass", "pass"], "pass: ") for verdict in rounds[-1][side][1].values()
            )
            print(
                f"{name:9} {len(references) / statistics.median(seconds):6.1f} references/s,"
                f" {passed} passed"
            )
        if options.beside:
            ratios = [theirs[0] / ours[0] for ours, theirs in rounds]
            print(
                f"assay is {statistics.median(ratios):.2f} times as fast ({min(ratios):.2f} to"
                f" {max(ratios):.2f})"
            )
        chance = random.Random(options.seed)
        (_, mine), (_, other) = both(
            {task: mutant(source, chance) for task, source in references.items()}
        )
        differing = [
            task for task in other if (mine[task] == "pass: ") != (other[task] == ["pass", "pass"])
        ]
        print(
            f"{len(mine)} mutants, {sum(verdict == 'pass: ' for verdict in mine.values())} pass,"
            f" {len(differing)} differ"
        )
        for task in differing:
            print(f"  {task}: assay {mine[task]}; evalplus {other[task]}")


if __name__ == "__main__":
    main()
