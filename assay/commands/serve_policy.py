"""assay serve-policy: a model behind an endpoint for agents."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from assay.commands import options


def serve_policy(
    model: Annotated[
        str, typer.Argument(help="A model directory, a run's folder, a Hugging Face name.")
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8081,
    keys: Annotated[
        int,
        typer.Option(min=1, max=1000, help="How many keys to print. Each key has its own session."),
    ] = 1,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest reply in tokens.")] = 1024,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy decoding.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of sampling.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Serve a model to agents until stopped, with the API that they get in training: OpenAI's chat
    completions and responses and Anthropic's messages, with tools. It prints the URL and a key. It
    ignores the sampling settings of requests.
    """
    options.quiet_transformers()
    from assay.config.sections import PolicySettings
    from assay.engines.base import Sampling
    from assay.integrations.serve_policy import serve_policy as serving

    def announce(url: str, names: Sequence[str]) -> None:
        typer.echo(f"OPENAI_BASE_URL={url}")
        for name in names:
            typer.echo(f"OPENAI_API_KEY={name}")

    settings = PolicySettings(model=model, device=device)
    sampling = Sampling(max_tokens, temperature)
    asyncio.run(serving(settings, sampling, host, port, keys, seed, announce))
