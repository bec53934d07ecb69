"""Asks a model at an OpenAI-compatible endpoint for texts."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from assay.endpoint import open_endpoint

Ask = Callable[[str, str], Awaitable[str]]
"""The model's reply to instructions and a user's text. Raises SettingsError where its endpoint
refuses, RolloutLostError where it fails again and again.
"""
ENDPOINT_SECONDS, MOST_TOKENS = 120.0, 2000


@asynccontextmanager
async def open_asking(url: str, model: str, concurrent: int) -> AsyncIterator[Ask | None]:
    """Asks a model at `url`, at most so many questions at once; None without a URL."""
    if not url:
        yield None
        return
    async with open_endpoint(url, concurrent, ENDPOINT_SECONDS, "--url") as endpoint:

        async def ask(instructions: str, text: str) -> str:
            roles = {"system": instructions, "user": text}
            messages = [{"role": role, "content": content} for role, content in roles.items()]
            body: dict[str, Any] = {"model": model, "messages": messages, "max_tokens": MOST_TOKENS}
            return await endpoint.ask("chat/completions", lambda: body, lambda answer: answer.text)

        yield ask
