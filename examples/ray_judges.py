"""Judges on every machine of a Ray cluster: runs a command with `--judge.servers` added.

    ray start --head                         # on the first machine
    ray start --address FIRST:6379           # on each of the others
    ASSAY_TOKEN=... python examples/ray_judges.py assay train mine.toml

An actor on each machine starts `assay serve` with the token, and ends it after the command. A run
whose [judge] table has other limits than the default ones needs them in LIMITS too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import ray
from ray.util import get_node_ip_address
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

LIMITS = ("--cpu-seconds", "4", "--wall-seconds", "20", "--memory-mb", "512")
"""Those of a run's own judge."""


@ray.remote(num_cpus=0)
class Service:
    """One `assay serve` on the machine of this actor."""

    def __init__(self, token: str) -> None:
        command = [sys.executable, "-m", "assay", "serve", "--host", "0.0.0.0", "--port", "0"]
        self.process = subprocess.Popen(
            [*command, *LIMITS],
            env=os.environ | {"ASSAY_TOKEN": token}, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def url(self) -> str:
        """Its address, once it listens."""
        assert self.process.stdout
        for line in self.process.stdout:
            if "http://" in line:
                port = line.split()[-1].rpartition(":")[2].strip("/")
                return f"http://{get_node_ip_address()}:{port}"
        raise RuntimeError("assay serve did not start")

    def stop(self) -> None:
        """End it, and wait."""
        self.process.terminate()
        self.process.wait()


def main(words: list[str]) -> int:
    """The exit code of the command."""
    ray.init()
    services = [
        Service.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote(os.environ["ASSAY_TOKEN"])
        for node in ray.nodes()
        if node["Alive"]
    ]
    try:
        urls = ray.get([service.url.remote() for service in services])
        print(f"judging on {', '.join(urls)}", flush=True)
        return subprocess.call([*words, "--judge.servers", json.dumps(urls)])
    finally:
        ray.get([service.stop.remote() for service in services])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
