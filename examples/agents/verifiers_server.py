"""Serves an environment of verifiers 0.4.0 to all rollouts of a run, which so import it once.

    .venv-agents/verifiers/bin/python examples/agents/verifiers_server.py \
        tcp://127.0.0.1:5000 words --env.agent.runtime.type subprocess --env.agent.max-turns 6

    [environment]
    name = "program"
    command = [".venv-agents/verifiers/bin/python", "examples/agents/verifiers_rollout.py",
               "play", "tcp://127.0.0.1:5000"]

The first word is where it listens, the others are those of `vf-eval`. It writes its address to
standard output once it listens; the port 0 is a free one.
"""

import asyncio
import os
import re
import signal
import sys
from copy import copy
from typing import Any

from verifiers_rollout import parsed, prepare, report_fd

KEY = re.compile("/rollout/[^/]+")
"""The part of the endpoint's URL that each rollout has for itself."""


def share_connections() -> None:
    """Let all rollouts use the connections of one client. verifiers opens a client for each URL and
    keeps it to its end: in a run it would be thousands.
    """
    from verifiers.v1.clients import EvalClient
    from verifiers.v1.interception.server import InterceptionServer

    client_of = InterceptionServer._client

    def shared_client(server: Any, config: Any) -> Any:
        url = KEY.sub("", config.base_url)
        client = copy(client_of(server, config.model_copy(update={"base_url": url})))
        if isinstance(client, EvalClient):
            client.base_url = config.base_url
        else:
            client.client = client.client.with_options(base_url=config.base_url)
        return client

    InterceptionServer._client = shared_client


def serve(address: str, config: Any) -> None:
    """Play what rollouts ask for, with their endpoint and the client and sampling of the words."""
    from verifiers.v1.clients import ModelContext
    from verifiers.v1.serve import EnvServer

    class RunServer(EnvServer):
        def _context(self, client: Any, model: str, sampling: Any) -> Any:
            endpoint = {"base_url": client.base_url, "api_key_var": client.api_key_var}
            return ModelContext(model, config.client.model_copy(update=endpoint), config.sampling)

    share_connections()
    server = RunServer(config.env, address)
    os.write(report_fd, f"{server.address}\n".encode())
    asyncio.run(server.run())


def main() -> None:
    """Serve until the process is ended."""
    if len(sys.argv) < 3 or "://" not in sys.argv[1]:
        sys.exit("say where to listen and what to serve: tcp://127.0.0.1:5000 TASKSET")
    prepare()
    # asyncio ends the rollouts on SIGINT, which a shell's job in the background ignores
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    serve(sys.argv[1], parsed(sys.argv[2:]))


if __name__ == "__main__":
    main()
