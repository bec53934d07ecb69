"""HTTP client of one vLLM server: token ids in, token ids out."""

import asyncio
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import httpx2

from assay.endpoint_answers import excerpt
from assay.engines.base import Sampling
from assay.errors import SettingsError

CONNECT, CALL = 30.0, 900.0
"""Timeouts in seconds: for connecting, and for a call. Generation has none of its own."""
HEALTH_INTERVAL = 3.0
"""Seconds between health checks while a call waits: a server whose engine is dead may keep its
connections open for ever."""
KEEPALIVE = 2.0
"""Seconds that an idle connection stays open; the server closes it after 5."""


class GoneError(Exception):
    """The server is gone, or has other weights than the synced ones. Never leaves the engine."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The tokens that a server generated before it finished or was interrupted."""

    tokens: list[int]
    logprobs: list[float]
    weights: list[str]
    """The name of the weights that sampled each token."""
    ended: str
    """`stop`, `length`, or `abort` when it was interrupted; `error` where the server has failed it
    and may be asked again."""


class Client:
    """Calls to one server, at `url` or behind the Unix socket `socket`.

    Each call raises GoneError if the server does not answer or has failed, and SettingsError if it
    refuses the request.
    """

    def __init__(self, url: str, socket: str | None = None, max_concurrent: int = 100) -> None:
        self.url = url
        self._health: asyncio.Task[bool] | None = None
        token = os.environ.get("VLLM_API_KEY")
        limits = httpx2.Limits(max_connections=max_concurrent + 20, keepalive_expiry=KEEPALIVE)
        self._http = httpx2.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"} if token else None,
            transport=httpx2.AsyncHTTPTransport(uds=socket, limits=limits),
            timeout=httpx2.Timeout(CALL, connect=CONNECT),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def is_healthy(self) -> bool:
        """Whether the server answers and can generate."""
        try:
            return (await self._http.get("/health", timeout=CONNECT)).is_success
        except httpx2.TransportError:
            return False

    async def _shared_health(self) -> bool:
        """The same; concurrent callers share one health check."""
        if self._health is None or self._health.done():
            self._health = asyncio.create_task(self.is_healthy())
        return await asyncio.shield(self._health)

    async def generate(
        self,
        model: str | None,
        prompt: Sequence[int],
        sampling: Sampling,
        stop_tokens: Sequence[int],
        stop: Sequence[str],
    ) -> Chunk:
        """Continue `prompt` up to a stop token, a stop string or the limit."""
        stops = {"stop_token_ids": list(stop_tokens), "stop": list(stop), "detokenize": bool(stop)}
        params = {**asdict(sampling), "logprobs": 0, **stops}
        answer = await self._generate(model, prompt, params, timeout=None)
        with self._reading(answer):
            choice = answer["choices"][0]
            tokens, content = (
                list(choice["token_ids"]),
                (choice["logprobs"] or {}).get("content") or [],
            )
            spans = choice["weight_versions"] or []
            weights = [span["version"] for span in spans for _ in range(span["start"], span["end"])]
            logprobs, ended = (
                [float(entry["logprob"]) for entry in content],
                choice["finish_reason"],
            )
        if not len(tokens) == len(logprobs) == len(weights):
            raise GoneError(
                f"{len(tokens)} tokens have {len(logprobs)} log-probabilities and {len(weights)}"
                " versions"
            )
        return Chunk(tokens, logprobs, weights, ended)

    async def score(self, model: str | None, prompt: Sequence[int], token: int) -> float:
        """The log-probability of `token` after `prompt`, with the server's prefix cache."""
        # vLLM lists the sampled token first and leaves out the last id: `other`, not `token`.
        other = (token + 1) % max(prompt)
        params = {
            "max_tokens": 1,
            "logprobs": 2,
            "logprob_token_ids": [token, other],
            "detokenize": False,
        }
        answer = await self._generate(model, prompt, params)
        with self._reading(answer):
            top = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            return float({entry["token_id"]: entry["logprob"] for entry in top}[token])

    @contextmanager
    def _reading(self, answer: Any) -> Iterator[None]:
        """Raises GoneError, with what came, where the block finds an answer to be another one."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError):
            came = excerpt(json.dumps(answer))
            raise GoneError(f"{self.url} answers without a completion: {came}") from None

    async def _generate(
        self,
        model: str | None,
        prompt: Sequence[int],
        params: dict[str, Any],
        timeout: float | None = CALL,
    ) -> Any:
        body = {"token_ids": list(prompt), "sampling_params": {"ignore_eos": True, **params}}
        body |= {"model": model} if model else {}
        return await self.call("/inference/v1/generate", body, timeout)

    async def _send(self, path: str, body: Any, timeout: Any) -> Any:
        """The response. If the server has closed an idle connection, the request is sent once more
        on a new one.
        """
        try:
            return await self._http.post(path, json=body, timeout=timeout)
        except httpx2.RemoteProtocolError:
            return await self._http.post(path, json=body, timeout=timeout)

    async def call(self, path: str, body: Any = None, timeout: float | None = CALL) -> Any:
        """The JSON of the response; None if it does not say that it is JSON."""
        sending = asyncio.create_task(
            self._send(path, body, httpx2.Timeout(timeout, connect=CONNECT))
        )
        try:
            while not (await asyncio.wait([sending], timeout=HEALTH_INTERVAL))[0]:
                if not await self._shared_health():
                    raise GoneError(f"{path} is not answered any more")
            response = await sending
        except httpx2.TransportError as error:
            raise GoneError(f"{path}: {type(error).__name__} {error}".strip()) from error
        finally:
            sending.cancel()
        if response.status_code == 404 or response.is_server_error:
            raise GoneError(f"{path} answers {response.status_code}: {response.text[:300]}")
        if not response.is_success:
            raise SettingsError(
                f"the vLLM server refuses {path} with {response.status_code}: {response.text[:500]}"
            )
        if "json" not in response.headers.get("content-type", ""):
            return None
        try:
            return response.json()
        except ValueError:
            raise GoneError(f"{path} answers what is no JSON: {excerpt(response.text)}") from None
