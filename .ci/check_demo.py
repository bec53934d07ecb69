"""Fails unless the demo improves from stage to stage: the promises below, on pass@1 and length."""

from __future__ import annotations

import json
import sys
from pathlib import Path

evaluations = {
    row["name"]: row for row in json.loads(Path("runs/demo/report.json").read_text())["evaluations"]
}
base, sft, rl = (evaluations[name] for name in ("base", "sft", "grpo"))
rate = {name: row["pass_at"]["1"] for name, row in evaluations.items()}
promises = {
    "base passes less than 5 %": rate["base"] < 0.05,
    "SFT passes 30 to 60 %": 0.3 <= rate["sft"] <= 0.6,
    "RL passes at least 25 points more than SFT": rate["grpo"] >= rate["sft"] + 0.25,
    "their intervals do not touch": sft["interval"]["high"] < rl["interval"]["low"],
    "RL's completions are at least 20 % shorter than SFT's": rl["mean_length"]
    <= 0.8 * sft["mean_length"],
}
for promise, holds in promises.items():
    sys.stdout.write(f"{'kept  ' if holds else 'BROKEN'}  {promise}\n")
sys.stdout.write(f"{rate}, tokens {sft['mean_length']:.1f} to {rl['mean_length']:.1f}\n")
sys.exit(0 if all(promises.values()) else 1)
