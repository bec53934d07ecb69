"""OpenEnv's CaptureServer as a side of `bench.endpoint`: run with the Python that has `openenv`.

python bench/endpoint_openenv.py ENGINE_PORT
"""

import json
import resource
import socket
import sys
import time
from pathlib import Path

from openenv.core.harness.capture import CaptureServer


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def main() -> None:
    port = free_port()
    server = CaptureServer(llm_url=f"http://127.0.0.1:{sys.argv[1]}", model="policy", port=port)
    server.start()
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "open":
            server.registry._sessions.clear()
            keys = [server.registry.create().session_id for _ in range(order["sessions"])]
            answer: dict[str, object] = {"port": port, "path": "/v1/chat/completions", "keys": keys}
        else:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            answer = {"cpu": time.process_time(), "mib": pages * resource.getpagesize() / 2**20,
                      "nodes": sum(each.graph.stats()["n_turns"] - each.graph.stats()["n_roots"] + 1
                                   for each in server.registry._sessions.values()),
                      "engine": []}  # fmt: skip
        print(json.dumps(answer), flush=True)


main()
