"""Serves one resources server of NeMo Gym alone, without the agent, the model server and the Ray
cluster that `gym env start` starts with it.

    .venv-agents/nemo-gym/bin/python examples/agents/nemo_gym_server.py \
        resources_servers.example_session_state_mgmt.app --port 8000

Its words are the module that has the server's class, and fields of its configuration, as
`num_processes=4`. It writes its URL to standard output once it listens.
"""

import argparse
import inspect
import json
import socket
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.append(str(Path.cwd()))  # where the user's module is


def value_of(text: str) -> Any:
    """A field's value: JSON, or else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def server_of(module: str, fields: dict[str, Any]) -> Any:
    """The server of a module's class, which the module defines and does not import."""
    from nemo_gym.base_resources_server import SimpleResourcesServer
    from nemo_gym.config_types import BaseServerConfig
    from nemo_gym.server_utils import ServerClient
    from omegaconf import DictConfig

    kinds = [
        kind for _, kind in inspect.getmembers(import_module(module), inspect.isclass)
        if issubclass(kind, SimpleResourcesServer) and kind.__module__ == module
    ]  # fmt: skip
    if len(kinds) != 1:
        sys.exit(f"{module} defines {len(kinds)} resources servers, not one")
    (kind,) = kinds
    place = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": kind.__name__}
    config = kind.model_fields["config"].annotation(**place | fields)
    # NeMo Gym's own head server, which tells servers of each other, does not run
    client = ServerClient(
        head_server_config=BaseServerConfig(host="127.0.0.1", port=1),
        global_config_dict=DictConfig({}),
    )
    return kind(config=config, server_client=client)


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description="Serve one resources server of NeMo Gym.")
    parser.add_argument("module", help="as resources_servers.example_session_state_mgmt.app")
    parser.add_argument("fields", nargs="*", help="of the configuration, as num_processes=4")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="by default one that is free")
    options = parser.parse_args()
    fields = {}
    for field in options.fields:
        name, _, text = field.partition("=")
        fields[name] = value_of(text)
    import uvicorn

    server = server_of(options.module, fields)
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    listening = socket.create_server((options.host, options.port))
    print(f"http://{options.host}:{listening.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listening])


if __name__ == "__main__":
    main()
