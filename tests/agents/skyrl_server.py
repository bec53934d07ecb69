"""SkyRL's Tinker server on JAX, run as `python skyrl_server.py MODEL PORT FOLDER`. It starts its
engine through uv, which only installs what is installed here already.
"""

import sys

import uvicorn
from skyrl.tinker import api
from skyrl.tinker.config import EngineConfig, config_to_argv


def engine_command(parent: list[str], config: EngineConfig) -> list[str]:
    """Start the engine with this Python."""
    return [sys.executable, "-m", "skyrl.tinker.engine", *config_to_argv(config)]


if __name__ == "__main__":
    model, port, folder = sys.argv[1:]
    api._build_uv_run_cmd_engine = engine_command
    api.app.state.engine_config = EngineConfig(
        base_model=model,
        backend="jax",
        backend_config={"max_lora_adapters": 16, "sample_max_num_sequences": 8},
        checkpoints_base=folder,
        database_url=f"sqlite:///{folder}/tinker.db",
    )
    uvicorn.run(api.app, host="127.0.0.1", port=int(port), log_level="warning")
