"""One vLLM server over HTTP: token ids in, token ids out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx2

from assay.engines.base import Sampling
from assay.errors import SettingsError

CONNECT, CALL = 30.0, 900.0
"""Seconds to be connected, and for a call that is no completion: those take as long as they
take."""
PULSE = 3.0
"""Seconds between looks at a server that has not answered: one whose core is dead may keep its
connections for ever."""
KEPT = 2.0
"""Seconds that an unused connection is kept; the server closes it after 5."""


class LostError(Exception):
    """The server is gone, or has other weights than it was given. Never leaves the engine."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """What a server wrote before it was done or interrupted."""

    tokens: list[int]
    logprobs: list[float]
    weights: list[str]
    """The name of the weights that drew each token."""
    ended: str
    """`stop`, `length`, or `abort` when it was interrupted."""


class Client:
    """Calls of one server, at `url`, or behind the socket `socket`.

    Each raises LostError when the server does not answer or has failed, SettingsError for what it
    refuses.
    """

    def __init__(self, url: str, socket: str | None = None, max_concurrent: int = 100) -> None:
        self.url, self.socket = url, socket
        self._look: asyncio.Task[bool] | None = None
        token = os.environ.get("VLLM_API_KEY")
        limits = httpx2.Limits(max_connections=max_concurrent + 20, keepalive_expiry=KEPT)
        self._http = httpx2.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"} if token else None,
            transport=httpx2.AsyncHTTPTransport(uds=socket, limits=limits),
            timeout=httpx2.Timeout(CALL, connect=CONNECT),
        )

    async def close(self) -> None:
        """Hang up."""
        await self._http.aclose()

    async def is_healthy(self) -> bool:
        """Whether it is there and fit to write."""
        try:
            return (await self._http.get("/health", timeout=CONNECT)).is_success
        except httpx2.TransportError:
            return False

    async def _is_there(self) -> bool:
        """The same, asked once for all that wait."""
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self.is_healthy())
        return await asyncio.shield(self._look)

    async def generate(
        self,
        model: str | None,
        prompt: Sequence[int],
        sampling: Sampling,
        stops: Sequence[int],
        words: Sequence[str],
    ) -> Chunk:
        """Continue `prompt`, up to one of the tokens `stops` or the strings `words`."""
        asked = {
            "max_tokens": sampling.max_tokens, "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k, "min_p": sampling.min_p, "logprobs": 0,
            "stop_token_ids": list(stops),
            "stop": list(words), "detokenize": bool(words),
        }  # fmt: skip
        choice = (await self._generate(model, prompt, asked, wait=None))["choices"][0]
        tokens, found = choice["token_ids"], (choice["logprobs"] or {}).get("content") or []
        spans = choice["weight_versions"] or []
        weights = [span["version"] for span in spans for _ in range(span["start"], span["end"])]
        logprobs = [float(one["logprob"]) for one in found]
        if not len(tokens) == len(logprobs) == len(weights):
            raise LostError(
                f"{len(tokens)} tokens have {len(logprobs)} log-probabilities and {len(weights)}"
                " versions"
            )
        return Chunk(tokens, logprobs, weights, choice["finish_reason"])

    async def score(self, model: str | None, prompt: Sequence[int], token: int) -> float:
        """The log-probability of `token` behind `prompt`, with the keys and values that are
        cached.
        """
        other = (token + 1) % max(
            prompt
        )  # of what is asked for the last is left out: the token drawn comes first
        asked = {
            "max_tokens": 1,
            "logprobs": 2,
            "logprob_token_ids": [token, other],
            "detokenize": False,
        }
        choice = (await self._generate(model, prompt, asked))["choices"][0]
        found = {
            one["token_id"]: one["logprob"]
            for one in choice["logprobs"]["content"][0]["top_logprobs"]
        }
        return float(found[token])

    async def _generate(
        self,
        model: str | None,
        prompt: Sequence[int],
        sampling: dict[str, Any],
        wait: float | None = CALL,
    ) -> dict[str, Any]:
        asked = {"token_ids": list(prompt), "sampling_params": {"ignore_eos": True, **sampling}}
        found = await self.call(
            "/inference/v1/generate", asked | ({"model": model} if model else {}), wait
        )
        return dict(found)

    async def _asked(self, verb: str, path: str, body: Any, timeout: Any) -> Any:
        """The answer; asked on another connection where the server had hung up on one that was kept
        for too long.
        """
        try:
            return await self._http.request(verb, path, json=body, timeout=timeout)
        except httpx2.RemoteProtocolError:
            return await self._http.request(verb, path, json=body, timeout=timeout)

    async def call(
        self, path: str, body: Any = None, wait: float | None = CALL, verb: str = "POST"
    ) -> Any:
        """What the answer says, if it is JSON."""
        asking = asyncio.create_task(
            self._asked(verb, path, body, httpx2.Timeout(wait, connect=CONNECT))
        )
        try:
            while not (await asyncio.wait([asking], timeout=PULSE))[0]:
                if not await self._is_there():
                    raise LostError(f"{path} is not answered any more")
            answer = await asking
        except httpx2.TransportError as error:
            raise LostError(f"{path}: {type(error).__name__} {error}".strip()) from error
        finally:
            asking.cancel()
        if answer.status_code == 404 or answer.is_server_error:
            raise LostError(f"{path} answers {answer.status_code}: {answer.text[:300]}")
        if not answer.is_success:
            raise SettingsError(
                f"the vLLM server refuses {path} with {answer.status_code}: {answer.text[:500]}"
            )
        return answer.json() if "json" in answer.headers.get("content-type", "") else None
