"""Client of an OpenAI-compatible endpoint, which any hosted model and most servers have."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx2

from assay.errors import RolloutLostError, SettingsError

RETRIES, PAUSE, LONGEST_PAUSE = 3, 1.0, 120.0
"""Further calls after a failure; seconds before the first, which double each time or are what the
endpoint asks for (Retry-After); and the most seconds that it may ask for."""
PASSING = (408, 409, 425, 429)
"""Statuses from 300 to 499 that a further call may change."""
KEY = "OPENAI_API_KEY"
"""The environment variable with the key of an endpoint."""
T = TypeVar("T")


class Endpoint:
    """An endpoint at `url`, up to /v1, for `user`: the setting that an error names."""

    def __init__(self, http: httpx2.AsyncClient, url: str, concurrent: int, user: str) -> None:
        self._http, self._url, self._user = http, url.rstrip("/"), user
        self._places = asyncio.Semaphore(concurrent)

    async def ask(self, path: str, body: dict[str, Any], read: Callable[[Any], T]) -> T:
        """What `read` makes of the JSON of an answer. It is asked again where `read` raises
        ValueError, KeyError, IndexError or TypeError.

        Raises SettingsError if the endpoint refuses or its URL is none, RolloutLostError after too
        many failures.
        """
        failure = ""
        async with self._places:
            for attempt in range(1 + RETRIES):
                retry_after = ""
                try:
                    response = await self._http.post(f"{self._url}/{path}", json=body)
                    if 300 <= response.status_code < 500 and response.status_code not in PASSING:
                        raise SettingsError(
                            f"the endpoint of {self._user}, {self._url}, refuses with"
                            f" {response.status_code}: {self._without_key(response.text)[:300]}"
                        )
                    retry_after = response.headers.get("retry-after", "")
                    response.raise_for_status()
                    return read(response.json())
                except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
                    raise SettingsError(
                        f"the endpoint of {self._user}, {self._url}, is no URL: {error}"
                    ) from None
                except (httpx2.HTTPError, ValueError, KeyError, IndexError, TypeError) as error:
                    missing, kind = isinstance(error, KeyError), type(error).__name__
                    what = "its answer has no" if missing else f"{kind}:"
                    failure = self._without_key(f"{what} {error}")
                if attempt < RETRIES:
                    pause = float(retry_after) if retry_after.replace(".", "", 1).isdigit() else 0.0
                    await asyncio.sleep(min(LONGEST_PAUSE, max(PAUSE * 2**attempt, pause)))
        raise RolloutLostError(f"the endpoint of {self._user} failed: {failure}")

    def _without_key(self, text: str) -> str:
        key = self._http.headers.get("Authorization", "").removeprefix("Bearer ")
        return text.replace(key, "***") if key else text


def text_of(message: Any) -> str:
    """The text of an answer's message, which may be in parts or absent; thoughts among the parts
    are left out. Raises TypeError, KeyError for anything else.
    """
    parts = message.get("content") or ""
    if isinstance(parts, str):
        return parts
    return "".join(part["text"] for part in parts if part["type"] in ("text", "output_text"))


@asynccontextmanager
async def open_endpoint(
    url: str, concurrent: int, seconds: float, user: str
) -> AsyncIterator[Endpoint]:
    """An endpoint, asked at most `concurrent` questions at once, each answered within `seconds`.

    The environment variable OPENAI_API_KEY has its key, if it needs one. Raises SettingsError for
    a key that no header can hold.
    """
    key = os.environ.get(KEY, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise SettingsError(f"the environment variable {KEY} holds no key")
    headers = {"Authorization": f"Bearer {key}"} if key else None
    limits = httpx2.Limits(max_connections=concurrent)
    async with httpx2.AsyncClient(headers=headers, timeout=seconds, limits=limits) as http:
        yield Endpoint(http, url, concurrent, user)
